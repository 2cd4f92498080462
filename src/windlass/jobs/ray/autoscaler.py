"""Ray's autoscaler in the pod of the head: its container, its service account and its rights.

The autoscaler reads the pods of the cluster, and writes ``replicas`` and ``workersToDelete`` of the RayCluster.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

from windlass.api.fields import ray
from windlass.api.owner_references import owner_reference
from windlass.api.rbac_resources import ROLE_BINDINGS, ROLES
from windlass.api.resources import RAY_CLUSTERS, SERVICE_ACCOUNTS, Resource
from windlass.jobs.ray.cluster import RayCluster

Json = Mapping[str, Any]
_COMMAND = (
    "ray kuberay-autoscaler --cluster-name $(RAY_CLUSTER_NAME) --cluster-namespace $(RAY_CLUSTER_NAMESPACE)"
)
_LOGS, _LOG_PATH = "ray-logs", "/tmp/ray"
_APPENDED = ("env", "envFrom", "volumeMounts")
_REPLACED = ("resources", "image", "imagePullPolicy", "securityContext", "command", "args")
_RULES: tuple[dict[str, list[str]], ...] = (
    {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list", "watch", "patch"]},
    {"apiGroups": [""], "resources": ["pods/resize"], "verbs": ["patch"]},
    {"apiGroups": ["ray.io"], "resources": ["rayclusters"], "verbs": ["get", "patch"]},
)


def add_autoscaler(cluster: RayCluster, body: dict[str, Any], main: dict[str, Any]) -> dict[str, Any]:
    """Return the container of the autoscaler, and prepare the pod of the head for it.

    ``body``: spec of the pod. ``main``: container of Ray. Both are changed in place.
    """
    options = cluster.autoscaler
    body["serviceAccountName"] = body.get("serviceAccountName") or cluster.name
    version = options.get("version")
    if version in ("v1", "v2"):
        value = "true" if version == "v2" else "false"
        main["env"] = [*(main.get("env") or ()), {"name": "RAY_enable_autoscaler_v2", "value": value}]
    container = _container(main)
    for name in _REPLACED:
        if options.get(name):
            container[name] = copy.deepcopy(options[name])
    for name in _APPENDED:
        if options.get(name):
            container[name] = [*(container.get(name) or ()), *copy.deepcopy(options[name])]
    _share_logs(body, (main, container))
    return container


def _container(main: Json) -> dict[str, Any]:
    amount = {"cpu": "500m", "memory": "512Mi"}
    variables = {
        "RAY_CLUSTER_NAME": f"metadata.labels['{ray.CLUSTER}']",
        "RAY_CLUSTER_NAMESPACE": "metadata.namespace",
        "RAY_HEAD_POD_NAME": "metadata.name",
    }
    env = [{"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}} for name, path in variables.items()]
    env += [
        {"name": "KUBERAY_CRD_VER", "value": "v1"},
        {"name": "KUBERAY_GEN_AUTOSCALER_START_CMD", "value": _COMMAND},
    ]
    return {
        "name": ray.AUTOSCALER,
        "image": main.get("image"),
        "imagePullPolicy": "IfNotPresent",
        "env": [*(entry for entry in main.get("env") or () if entry.get("name") == "PATH"), *env],
        "command": ["/bin/bash", "-c", "--"],
        "args": [_COMMAND],
        "resources": {"limits": dict(amount), "requests": dict(amount)},
    }


def _share_logs(body: dict[str, Any], containers: tuple[dict[str, Any], ...]) -> None:
    """Mount a volume for the logs of the autoscaler, which the dashboard of the head shows."""
    volumes = list(body.get("volumes") or ())
    if not any(volume.get("name") == _LOGS for volume in volumes):
        body["volumes"] = [*volumes, {"name": _LOGS, "emptyDir": {}}]
    for container in containers:
        mounts = list(container.get("volumeMounts") or ())
        if not any(mount.get("mountPath") == _LOG_PATH for mount in mounts):
            container["volumeMounts"] = [*mounts, {"name": _LOGS, "mountPath": _LOG_PATH}]


def build_rights(cluster: RayCluster, *, roles: bool) -> list[tuple[Resource, dict[str, Any]]]:
    """Return the objects that let the autoscaler change its RayCluster.

    ``roles``: the server has role-based access. A service account that the user names is not created.
    """
    given = str(cluster.head.pod_spec.get("serviceAccountName") or "")
    account = given or cluster.name
    found: list[tuple[Resource, dict[str, Any]]] = []
    if not given:
        found.append((SERVICE_ACCOUNTS, _object(cluster, SERVICE_ACCOUNTS)))
    if roles:
        subject = {"kind": SERVICE_ACCOUNTS.kind, "name": account, "namespace": cluster.namespace}
        role = {"apiGroup": ROLES.group, "kind": ROLES.kind, "name": cluster.name}
        found.append((ROLES, {**_object(cluster, ROLES), "rules": copy.deepcopy(list(_RULES))}))
        binding = {**_object(cluster, ROLE_BINDINGS), "subjects": [subject], "roleRef": role}
        found.append((ROLE_BINDINGS, binding))
    return found


def _object(cluster: RayCluster, resource: Resource) -> dict[str, Any]:
    return {
        "apiVersion": resource.api_version,
        "kind": resource.kind,
        "metadata": {
            "name": cluster.name,
            "namespace": cluster.namespace,
            "labels": {
                ray.CLUSTER: cluster.name,
                "app.kubernetes.io/name": "kuberay",
                "app.kubernetes.io/created-by": "kuberay-operator",
            },
            "ownerReferences": [owner_reference(RAY_CLUSTERS, cluster.name, cluster.uid)],
        },
    }
