"""Rights of the pods of single-node mode beyond reports of progress: those of Ray's autoscaler.

In a cluster a Role grants them to the service account of the head. Here they follow from the pod that the token is
bound to: the head of a RayCluster with ``enableInTreeAutoscaling``.
"""

from __future__ import annotations

from typing import Any

from windlass.api.fields import ray
from windlass.api.resources import PODS, RAY_CLUSTERS, Resource
from windlass.server.auth.pod_tokens import DEFAULT_AUDIENCE
from windlass.server.core import Call, ServerCore, decoded


def is_autoscaling(core: ServerCore, call: Call, verb: str) -> bool:
    """Return whether a pod may do this as the autoscaler of a RayCluster.

    It may read the pods of its namespace, and read and patch its RayCluster.
    """
    target, user = call.target, call.user
    if target.subresource or not user.pod or DEFAULT_AUDIENCE not in user.audiences:
        return False
    namespace, name, uid = (*user.pod.split("/"), "", "", "")[:3]
    if target.namespace != namespace or target.resource not in (PODS, RAY_CLUSTERS):
        return False
    if verb not in (("get", "list", "watch") if target.resource == PODS else ("get", "patch")):
        return False
    pod = _stored(core, PODS, namespace, name)
    if pod is None or pod["metadata"].get("uid") != uid:
        return False
    cluster = _autoscaled_cluster(core, namespace, pod)
    return bool(cluster) and (target.resource == PODS or target.name == cluster)


def _autoscaled_cluster(core: ServerCore, namespace: str, pod: dict[str, Any]) -> str:
    """Return the RayCluster with Ray's autoscaler of which the pod is the head; else an empty string."""
    labels = pod["metadata"].get("labels") or {}
    owners = pod["metadata"].get("ownerReferences") or ()
    owner = next((found for found in owners if found.get("controller")), None)
    if owner is None or owner.get("kind") != RAY_CLUSTERS.kind or labels.get(ray.NODE_TYPE) != ray.HEAD:
        return ""
    cluster = _stored(core, RAY_CLUSTERS, namespace, owner["name"])
    if cluster is None or cluster["metadata"].get("uid") != owner.get("uid"):
        return ""
    return owner["name"] if cluster["spec"].get("enableInTreeAutoscaling") else ""


def _stored(core: ServerCore, resource: Resource, namespace: str, name: str) -> dict[str, Any] | None:
    entry = core.store.get(resource.qualified, namespace, name)
    return decoded(resource, entry) if entry is not None else None
