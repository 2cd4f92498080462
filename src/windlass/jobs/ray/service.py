"""RayService: its definition, its clusters and its Services.

A RayService has an active cluster that serves, and during an upgrade a pending one. Requests go to the pending
cluster as soon as all applications run there. The old cluster is deleted some time later.
"""

from __future__ import annotations

import copy
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from windlass.api.fields import ray
from windlass.api.fields.ray import HEAD
from windlass.api.owner_references import owner_reference
from windlass.api.resources import RAY_SERVICES
from windlass.jobs.ray.cluster import read_cluster
from windlass.jobs.ray.naming import suffix_of
from windlass.jobs.ray.pods import build_head_service
from windlass.kits import durations

Json = Mapping[str, Any]
DELETION_DELAY_SECONDS = 60
_OF_SCALING = ("replicas", "minReplicas", "maxReplicas")
_OF_SCHEDULERS = ("tolerations", "schedulingGates")


@dataclass(frozen=True, slots=True)
class RayService:
    """A RayService.

    ``deletion_delay``: seconds until a cluster that no longer serves is deleted.
    ``timeout``: seconds until the service must serve; ``None``: no limit.
    """

    namespace: str
    name: str
    uid: str
    generation: int
    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    spec: Json
    config: str
    strategy: str
    deletion_delay: int
    exclude_head: bool
    suspend: bool
    timeout: float | None

    @property
    def cluster_spec(self) -> Json:
        return self.spec["rayClusterConfig"]

    @property
    def serving_port(self) -> int:
        """Port of the head at which Ray Serve's proxy listens."""
        return head_ports(self.cluster_spec).get("serve", ray.SERVE_PORT)

    def cluster_name(self) -> str:
        """Return the name of a new cluster, which follows from the spec and its generation."""
        return f"{self.name}-{suffix_of(f'{self.uid}/{self.generation}/{spec_hash(self.cluster_spec)}')}"


def read_ray_service(obj: Json) -> RayService:
    """Return the definition. Raises ``ValueError``, ``TypeError`` or ``KeyError`` for what cannot be run."""
    metadata, spec = obj["metadata"], obj["spec"]
    delay = spec.get("rayClusterDeletionDelaySeconds")
    strategy = (spec.get("upgradeStrategy") or {}).get("type") or ray.NEW_CLUSTER
    if strategy not in (ray.NEW_CLUSTER, ray.NO_UPGRADE):
        raise ValueError(f"spec.upgradeStrategy.type is {strategy}, but NewCluster or None is possible here")
    annotations = metadata.get("annotations") or {}
    service = RayService(
        namespace=metadata.get("namespace") or "default",
        name=metadata["name"],
        uid=metadata.get("uid") or "",
        generation=int(metadata.get("generation") or 1),
        labels=metadata.get("labels") or {},
        annotations=annotations,
        spec=spec,
        config=str(spec.get("serveConfigV2") or ""),
        strategy=strategy,
        deletion_delay=DELETION_DELAY_SECONDS if delay is None else int(delay),
        exclude_head=bool(spec.get("excludeHeadPodFromServeSvc")),
        suspend=bool(spec.get("suspend")),
        timeout=initializing_timeout(annotations.get(ray.INITIALIZING_TIMEOUT) or ""),
    )
    serve_applications(service.config)
    read_cluster({"metadata": metadata, "spec": service.cluster_spec})
    if not serve_ports(service):
        raise ValueError(
            "the container of the head declares ports, but none with the name serve or a name like serve-grpc: "
            "without it there is no Service for requests"
        )
    return service


def initializing_timeout(text: str) -> float | None:
    """Return the seconds of the annotation; ``None`` without one. Raises ``ValueError``."""
    if not text:
        return None
    seconds = float(text) if text.isdecimal() else durations.parse(text)
    if seconds <= 0:
        raise ValueError(f"{text!r} must be a positive duration, such as 5m or 300")
    return seconds


def serve_applications(config: str) -> dict[str, Any]:
    """Return ``serveConfigV2`` as Ray Serve's REST API takes it. Raises ``ValueError``."""
    import yaml

    try:
        found = yaml.safe_load(config) if config.strip() else {}
    except yaml.YAMLError as error:
        raise ValueError(f"spec.serveConfigV2 is not YAML: {error}") from error
    if not isinstance(found, dict):
        raise ValueError("spec.serveConfigV2 must be a mapping with the key applications")
    return found


def spec_hash(cluster_spec: Json, groups: int | None = None) -> str:
    """Return a hash of what makes a new cluster necessary. ``groups``: number of groups that count, the first ones.

    Numbers of workers, tolerations and scheduling gates are left out: autoscalers and queues change them.
    """
    spec = copy.deepcopy(dict(cluster_spec))
    for name in ("suspend", "upgradeStrategy"):
        spec.pop(name, None)
    workers = list(spec.get("workerGroupSpecs") or ())[:groups]
    for group in workers:
        for name in _OF_SCALING:
            group.pop(name, None)
        strategy = {**(group.get("scaleStrategy") or {})}
        strategy.pop("workersToDelete", None)
        group["scaleStrategy"] = strategy
    for group in (spec.get("headGroupSpec") or {}, *workers):
        pod = (group.get("template") or {}).get("spec") or {}
        for name in _OF_SCHEDULERS:
            pod.pop(name, None)
    spec["workerGroupSpecs"] = workers
    return hashlib.sha256(json.dumps(spec, sort_keys=True).encode()).hexdigest()[:40]


def is_same(service: RayService, cluster: Json) -> bool:
    """Return whether a cluster has the spec of the service, numbers of workers aside."""
    return _hash_of(cluster) == spec_hash(service.cluster_spec)


def only_adds_groups(service: RayService, cluster: Json) -> bool:
    """Return whether the service only has further groups of workers at the end."""
    count = (cluster["metadata"].get("annotations") or {}).get(ray.GROUP_COUNT) or ""
    known = len(service.cluster_spec.get("workerGroupSpecs") or ())
    if not count.isdecimal() or known < int(count):
        return False
    return _hash_of(cluster) == spec_hash(service.cluster_spec, int(count))


def _hash_of(cluster: Json) -> str:
    return (cluster["metadata"].get("annotations") or {}).get(ray.SPEC_HASH) or ""


def needs_new_cluster(service: RayService, active: Json | None, pending: Json | None) -> bool:
    """Return whether a cluster must be prepared."""
    cluster = pending or active
    if cluster is None:
        return True
    if is_same(service, cluster) or only_adds_groups(service, cluster):
        return False
    return service.strategy == ray.NEW_CLUSTER


def served_cluster(
    service: RayService, status: Json, active: Json | None, pending: Json | None
) -> Json | None:
    """Return the cluster that applications are submitted to: the pending one if there is one."""
    if (status.get("pendingServiceStatus") or {}).get("rayClusterName"):
        return pending
    return None if active is None or needs_new_cluster(service, active, None) else active


def build_cluster(service: RayService, name: str) -> dict[str, Any]:
    """Return a cluster of the service. It has labels and annotations of the service, so its queue, too."""
    notes = {
        key: text for key, text in service.annotations.items() if not key.startswith("kubectl.kubernetes.io/")
    }
    groups = service.cluster_spec.get("workerGroupSpecs") or ()
    return {
        "apiVersion": "ray.io/v1",
        "kind": "RayCluster",
        "metadata": {
            "name": name,
            "namespace": service.namespace,
            "labels": {**service.labels, **_origin(service)},
            "annotations": {
                **notes,
                ray.SPEC_HASH: spec_hash(service.cluster_spec),
                ray.GROUP_COUNT: str(len(groups)),
            },
            "ownerReferences": [owner_reference(RAY_SERVICES, service.name, service.uid)],
        },
        "spec": copy.deepcopy(dict(service.cluster_spec)),
    }


def _origin(service: RayService) -> dict[str, str]:
    return {ray.ORIGINATED_FROM: service.name, ray.ORIGINATED_KIND: RAY_SERVICES.kind}


def head_ports(cluster_spec: Json) -> dict[str, int]:
    """Return the ports of the head by name: those that its container declares, or else KubeRay's."""
    pod = ((cluster_spec.get("headGroupSpec") or {}).get("template") or {}).get("spec") or {}
    declared = (pod.get("containers") or [{}])[0].get("ports") or ()
    found = {
        port.get("name") or f"{port['containerPort']}-port": int(port["containerPort"]) for port in declared
    }
    return found or dict(ray.HEAD_PORTS)


def serve_ports(service: RayService) -> list[dict[str, Any]]:
    """Return the ports of the Service for requests; those of ``serveService`` come first."""
    given = ((service.spec.get("serveService") or {}).get("spec") or {}).get("ports") or []
    by_name = {port.get("name"): port for port in given}
    detected = [
        by_name.get(name) or {"name": name, "port": number, "targetPort": number, "protocol": "TCP"}
        for name, number in sorted(head_ports(service.cluster_spec).items())
        if ray.is_serving_port(name)
    ]
    return [dict(port) for port in detected or given]


def build_services(service: RayService, cluster: Json) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the Service of the head and the Service for requests, which select the pods of a cluster."""
    return _head_service(service, cluster), _serve_service(service, cluster["metadata"]["name"])


def _head_service(service: RayService, cluster: Json) -> dict[str, Any]:
    kind = (service.cluster_spec.get("headGroupSpec") or {}).get("serviceType") or ""
    body = build_head_service(read_cluster(cluster), kind)
    labels = {
        **_origin(service),
        ray.NODE_TYPE: HEAD,
        ray.IDENTIFIER: f"{service.name}-{HEAD}"[:63],
    }
    return {**body, "metadata": _metadata(service, ray.head_service_name(service.name), labels)}


def _serve_service(service: RayService, cluster: str) -> dict[str, Any]:
    given = copy.deepcopy(dict(service.spec.get("serveService") or {}))
    metadata, spec = given.get("metadata") or {}, given.get("spec") or {}
    labels = {
        **(metadata.get("labels") or {}),
        **_origin(service),
        ray.SERVE_LABEL: f"{service.name}-serve",
    }
    name = metadata.get("name") or ray.serve_service_name(service.name)
    body = _metadata(service, name, labels)
    if metadata.get("annotations"):
        body["annotations"] = metadata["annotations"]
    kind = spec.get("type") or (service.cluster_spec.get("headGroupSpec") or {}).get("serviceType")
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": body,
        "spec": {
            **spec,
            "selector": {ray.CLUSTER: cluster, ray.SERVE_LABEL: "true"},
            "ports": serve_ports(service),
            **({"type": kind} if kind else {}),
        },
    }


def serve_service_of(obj: Json) -> str:
    """Return the name of the Service for requests of a RayService."""
    given = ((obj["spec"].get("serveService") or {}).get("metadata") or {}).get("name")
    return given or ray.serve_service_name(obj["metadata"]["name"])


def _metadata(service: RayService, name: str, labels: Mapping[str, str]) -> dict[str, Any]:
    return {
        "name": name,
        "namespace": service.namespace,
        "labels": dict(labels),
        "ownerReferences": [owner_reference(RAY_SERVICES, service.name, service.uid)],
    }
