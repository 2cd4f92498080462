"""Files of pods of Ray: a directory of their own at /tmp/ray, and credentials for Ray's autoscaler.

Pods of one machine see the same /tmp, and raylets that start at the same time would create the same sockets there.

Kubernetes mounts the token of a service account into every pod. Here only the autoscaler of a RayCluster gets one, and
the server decides what it allows (:mod:`windlass.server.pod_rights`).
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from windlass.api.errors import StatusError
from windlass.api.fields import ray
from windlass.api.resources import RAY_CLUSTERS
from windlass.client.client import Client
from windlass.client.incluster import FOLDER
from windlass.kits.files import write_atomic
from windlass.node.paths import NodePaths
from windlass.node.pods.progress_reports import pod_token
from windlass.node.runtime.mounts import Mount

_DIRECTORY, _OWN = "api-access", ".ray"
_TEMPORARY = "/tmp/ray"
log = logging.getLogger("windlass.node")


def needs_access(pod: Mapping[str, Any]) -> bool:
    """Return whether the pod is the head of a RayCluster with Ray's autoscaler."""
    metadata, spec = pod["metadata"], pod["spec"]
    owners = metadata.get("ownerReferences") or ()
    owned = any(owner.get("controller") and owner.get("kind") == RAY_CLUSTERS.kind for owner in owners)
    is_head = (metadata.get("labels") or {}).get(ray.NODE_TYPE) == ray.HEAD
    named = {container["name"] for container in spec.get("containers") or ()}
    return (
        owned
        and is_head
        and ray.AUTOSCALER in named
        and spec.get("automountServiceAccountToken") is not False
    )


def has_own_directory(pod: Mapping[str, Any]) -> bool:
    """Return whether the pod is a node of Ray without a volume at /tmp or /tmp/ray."""
    spec = pod["spec"]
    containers = (*(spec.get("initContainers") or ()), *(spec.get("containers") or ()))
    mounted = {
        mount["mountPath"] for container in containers for mount in container.get("volumeMounts") or ()
    }
    is_node = (pod["metadata"].get("labels") or {}).get(ray.IS_RAY_NODE) == "yes"
    return is_node and not mounted & {"/tmp", _TEMPORARY}


async def ray_mounts(pod: Mapping[str, Any], client: Client, paths: NodePaths) -> list[Mount]:
    """Return the mounts of a pod of Ray, and create what they show. Raises ``Unreachable``."""
    mounts: list[Mount] = []
    if has_own_directory(pod):
        own = paths.pod(pod["metadata"]["uid"]) / "volumes" / _OWN
        own.mkdir(parents=True, exist_ok=True)
        own.chmod(0o777)
        mounts.append(Mount(str(own), _TEMPORARY))
    if needs_access(pod):
        mounts += await _access_mounts(pod, client, paths)
    return mounts


async def _access_mounts(pod: Mapping[str, Any], client: Client, paths: NodePaths) -> list[Mount]:
    """Return the mount of token, certificate and namespace, and write these files."""
    directory = paths.pod(pod["metadata"]["uid"]) / _DIRECTORY
    try:
        if not (directory / "token").exists():
            token = await pod_token(pod, client, [])
            directory.mkdir(mode=0o755, parents=True, exist_ok=True)
            write_atomic(directory / "ca.crt", paths.server_certificate.read_text(), 0o644)
            write_atomic(directory / "namespace", pod["metadata"]["namespace"], 0o644)
            write_atomic(directory / "token", token, 0o644)
    except (StatusError, OSError) as error:
        log.warning("pod %s has no access to the API server: %s", pod["metadata"]["name"], error)
        return []
    return [Mount(str(directory), str(FOLDER), True)]
