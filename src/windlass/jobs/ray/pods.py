"""Pods, head Service and PodGroup of a RayCluster."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from windlass.api import annotations as names
from windlass.api.fields import ray
from windlass.api.fields.ray import HEAD
from windlass.api.owner_references import owner_reference
from windlass.api.resources import POD_GROUPS, RAY_CLUSTERS
from windlass.jobs.gang import GangPart, least_resources
from windlass.jobs.ray.autoscaler import add_autoscaler
from windlass.jobs.ray.cluster import NodeGroup, RayCluster
from windlass.jobs.ray.start_command import start_command

_SHELL = ["/bin/bash", "-c", "--"]
_KEPT = (ray.NODE_TYPE, ray.GROUP, ray.CLUSTER)
"""Labels that a template cannot override."""
_PROBE = {
    "initialDelaySeconds": 10,
    "timeoutSeconds": 2,
    "periodSeconds": 5,
    "successThreshold": 1,
}
_ONE_ADDRESS = (2, 53)
"""Version of Ray from which on one address tells the health of a node."""
_WAIT_FOR_HEAD = """\
until ray health-check --address {address} > /dev/null 2>&1; do
  echo "$SECONDS seconds elapsed: waiting for the head of the Ray cluster"
  sleep 2
done
echo "GCS is ready."
"""


def build_pod(cluster: RayCluster, group: NodeGroup, number: int, scheduler: str) -> dict[str, Any]:
    """Return the pod of a slot. ``scheduler``: used if the template names none."""
    template = group.template.get("metadata") or {}
    given = {key: text for key, text in (template.get("labels") or {}).items() if key not in _KEPT}
    labels = {
        ray.IS_RAY_NODE: "yes",
        ray.CLUSTER: cluster.name,
        ray.NODE_TYPE: group.type,
        ray.GROUP: group.name,
        ray.IDENTIFIER: f"{cluster.name}-{group.type}"[:63],
        "app.kubernetes.io/name": "kuberay",
        "app.kubernetes.io/created-by": "kuberay-operator",
        **given,
        **{key: text for key, text in group.labels.items() if key not in _KEPT},
    }
    if cluster.origin_name:
        labels[ray.ORIGINATED_FROM] = cluster.origin_name
    if cluster.origin == "RayService":  # of the head by its controller, once its proxy answers
        labels[ray.SERVE_LABEL] = "false" if group.type == HEAD else "true"
    annotations = {
        **(template.get("annotations") or {}),
        names.GROUP_NAME: cluster.name,
        names.TASK_SPEC: group.key,
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": cluster.pod_name(group, number),
            "namespace": cluster.namespace,
            "labels": labels,
            "annotations": annotations,
            "ownerReferences": [owner_reference(RAY_CLUSTERS, cluster.name, cluster.uid)],
        },
        "spec": _pod_spec(cluster, group, scheduler),
    }


def _pod_spec(cluster: RayCluster, group: NodeGroup, scheduler: str) -> dict[str, Any]:
    body = dict(group.pod_spec)
    containers = [dict(container) for container in body.get("containers") or ()]
    if not containers:
        raise ValueError(f"group {group.name} has a template without containers")
    main = containers[0]
    command = start_command(cluster, group, main.get("resources") or {})
    _set_command(cluster, main, command)
    if cluster.autoscaling and cluster.autoscaler.get("version") == "v2":
        body["restartPolicy"] = "Never"  # version 2 knows a node by its pod
    if cluster.autoscaling and group.type == HEAD:
        containers.append(add_autoscaler(cluster, body, main))
    main["env"] = _environment(cluster, group, main, command)
    main["ports"] = _with_port(main.get("ports") or [], "metrics", ray.METRICS_PORT)
    _add_shared_memory(body, main)
    _add_probes(cluster, group, main)
    body["containers"] = containers
    init = [dict(container) for container in body.get("initContainers") or ()]
    if group.type != HEAD:
        init.append(_wait_for_head(cluster, main))
    for container in init:
        container["env"] = [*(container.get("env") or ()), *_head_names(cluster)]
    if init:
        body["initContainers"] = init
    body["schedulerName"] = body.get("schedulerName") or scheduler
    if cluster.priority_class and not body.get("priorityClassName"):
        body["priorityClassName"] = cluster.priority_class
    return body


def _set_command(cluster: RayCluster, main: dict[str, Any], command: str) -> None:
    """Run the user's command first, then ``ray start``, unless the user's own command starts Ray."""
    own = " ".join(str(word) for word in (*(main.get("command") or ()), *(main.get("args") or ())))
    overwritten = cluster.annotations.get(ray.OVERWRITE_COMMAND, "").lower() == "true"
    if overwritten or "ray start" in own:
        return
    generated = f"ulimit -n ${{RAY_START_ULIMIT_OPEN_FILES:-65536}}; {command}"
    main["command"] = list(_SHELL)
    main["args"] = [f" {own}  && {generated}" if own else generated]


def _head_names(cluster: RayCluster) -> list[dict[str, Any]]:
    return [
        {"name": "FQ_RAY_IP", "value": cluster.head_address},
        {"name": "RAY_IP", "value": ray.head_service_name(cluster.name)},
    ]


def _environment(
    cluster: RayCluster, group: NodeGroup, main: Mapping[str, Any], command: str
) -> list[dict[str, Any]]:
    given = list(main.get("env") or ())
    own = {entry.get("name") for entry in given}
    host = "127.0.0.1" if group.type == HEAD else cluster.head_address
    fixed: list[dict[str, Any]] = [] if group.type == HEAD else _head_names(cluster)
    fixed += [
        _label_variable("RAY_CLUSTER_NAME", f"metadata.labels['{ray.CLUSTER}']"),
        _label_variable("RAY_CLOUD_INSTANCE_ID", "metadata.name"),
        _label_variable("RAY_NODE_TYPE_NAME", f"metadata.labels['{ray.GROUP}']"),
        {"name": "KUBERAY_GEN_RAY_START_CMD", "value": command},
    ]
    defaults = {
        "RAY_PORT": cluster.head_port,
        "RAY_ADDRESS": f"{host}:{cluster.head_port}",
        "RAY_USAGE_STATS_KUBERAY_IN_USE": "1",
        "RAY_DASHBOARD_ENABLE_K8S_DISK_USAGE": "1",
    }
    if cluster.origin == "RayService":
        defaults |= {
            "RAY_TIMEOUT_MS_TASK_WAIT_FOR_DEATH_INFO": "0",
            "RAY_GCS_SERVER_REQUEST_TIMEOUT_SECONDS": "5",
            "RAY_SERVE_KV_TIMEOUT_S": "5",
        }
    missing = [{"name": name, "value": value} for name, value in defaults.items() if name not in own]
    names_of_fixed = {entry["name"] for entry in fixed}
    return [*(entry for entry in given if entry.get("name") not in names_of_fixed), *fixed, *missing]


def _label_variable(name: str, path: str) -> dict[str, Any]:
    return {"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}}


def _with_port(ports: list[Any], name: str, number: int) -> list[Any]:
    return (
        ports
        if any(port.get("name") == name for port in ports)
        else [*ports, {"name": name, "containerPort": number}]
    )


def _add_shared_memory(body: dict[str, Any], main: dict[str, Any]) -> None:
    """Mount memory at ``/dev/shm`` for the object store, as large as the container's memory."""
    mounts = list(main.get("volumeMounts") or ())
    if any(mount.get("mountPath") == "/dev/shm" for mount in mounts):
        return
    volumes = list(body.get("volumes") or ())
    if not any(volume.get("name") == "shared-mem" for volume in volumes):
        resources = main.get("resources") or {}
        size = (resources.get("limits") or {}).get("memory") or (resources.get("requests") or {}).get(
            "memory"
        )
        source = {"medium": "Memory", **({"sizeLimit": size} if size else {})}
        body["volumes"] = [*volumes, {"name": "shared-mem", "emptyDir": source}]
    main["volumeMounts"] = [*mounts, {"name": "shared-mem", "mountPath": "/dev/shm"}]


def _add_probes(cluster: RayCluster, group: NodeGroup, main: dict[str, Any]) -> None:
    """Probe what KubeRay probes: the raylet of each node, and the GCS of the head.

    Nodes of Ray 2.53 or later tell both at one address. A worker of a RayService gets requests while its proxy answers.
    """
    port = group.start_parameters.get("dashboard-agent-listen-port") or str(ray.AGENT_PORT)
    checks = [f"http://localhost:{port}/api/local_raylet_healthz"]
    if group.type == HEAD:
        dashboard = group.start_parameters.get("dashboard-port") or str(ray.DASHBOARD_PORT)
        checks.append(f"http://localhost:{dashboard}/api/gcs_healthz")
    script = " && ".join(f"wget --tries 1 -T 2 -q -O- {url} | grep success" for url in checks)
    look: dict[str, Any] = {"exec": {"command": ["bash", "-c", script]}}
    if cluster.ray_version >= _ONE_ADDRESS and port.isdecimal():
        look = {"httpGet": {"path": "/api/healthz", "port": int(port)}}
    probe = {**_PROBE, "timeoutSeconds": 5 if group.type == HEAD else 2}
    main.setdefault("livenessProbe", {**probe, **look, "initialDelaySeconds": 30, "failureThreshold": 120})
    if cluster.origin == "RayService" and group.type != HEAD:
        proxy = next((one["containerPort"] for one in main["ports"] if one.get("name") == "serve"), None)
        url = f"http://localhost:{proxy or ray.SERVE_PORT}/-/healthz"
        command = f"{script} && wget --tries 1 -T 10 -q -O- {url} | grep success"
        serving = {**probe, "exec": {"command": ["bash", "-c", command]}, "failureThreshold": 1}
        main.setdefault("readinessProbe", serving)
    main.setdefault("readinessProbe", {**probe, **look, "failureThreshold": 10})


def _wait_for_head(cluster: RayCluster, main: Mapping[str, Any]) -> dict[str, Any]:
    amount = {"cpu": "200m", "memory": "256Mi"}
    waiting: dict[str, Any] = {
        "name": "wait-gcs-ready",
        "image": main.get("image"),
        "command": list(_SHELL),
        "args": [_WAIT_FOR_HEAD.format(address=f"{cluster.head_address}:{cluster.head_port}")],
        "env": [entry for entry in main["env"] if entry["name"] not in ("FQ_RAY_IP", "RAY_IP")],
        "resources": {"limits": dict(amount), "requests": dict(amount)},
    }
    for key in ("imagePullPolicy", "securityContext", "volumeMounts"):
        if main.get(key):
            waiting[key] = main[key]
    return waiting


def build_head_service(cluster: RayCluster, kind: str = "ClusterIP") -> dict[str, Any]:
    """Return the Service of the head, with the ports that its container declares."""
    declared = {
        port["name"]: int(port["containerPort"])
        for port in (cluster.head.pod_spec.get("containers") or [{}])[0].get("ports") or ()
        if port.get("name") and port.get("containerPort")
    }
    ports = {**(declared or ray.HEAD_PORTS)}
    own = cluster.head_service.get("spec") or {}
    for name, number in (
        ("metrics", ray.METRICS_PORT),
        ("dashboard", ray.DASHBOARD_PORT),
        ("gcs-server", int(cluster.head_port)),
    ):
        if number not in ports.values():  # else it is there under another name
            ports.setdefault(name, number)
    taken = {port.get("port") for port in own.get("ports") or ()}
    given = cluster.head_service.get("metadata") or {}
    labels = {
        **(given.get("labels") or {}),
        ray.CLUSTER: cluster.name,
        ray.NODE_TYPE: HEAD,
        ray.IDENTIFIER: f"{cluster.name}-{HEAD}"[:63],
        "app.kubernetes.io/name": "kuberay",
        "app.kubernetes.io/created-by": "kuberay-operator",
    }
    kind = own.get("type") or kind
    generated = [
        {"name": name, "port": number, "targetPort": number, "protocol": "TCP"}
        for name, number in sorted(ports.items())
        if number not in taken
    ]
    spec: dict[str, Any] = {
        **own,
        "selector": {key: labels[key] for key in (ray.CLUSTER, ray.NODE_TYPE)},
        "ports": [*(own.get("ports") or ()), *generated],
        "publishNotReadyAddresses": True,
        **({"type": kind} if kind not in ("", "ClusterIP") else {"clusterIP": "None"}),
    }
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {
            "name": ray.head_service_name(cluster.name),
            "namespace": cluster.namespace,
            "labels": labels,
            **({"annotations": dict(given["annotations"])} if given.get("annotations") else {}),
            "ownerReferences": [owner_reference(RAY_CLUSTERS, cluster.name, cluster.uid)],
        },
        "spec": spec,
    }


def build_group(cluster: RayCluster, priorities: Mapping[str, int]) -> dict[str, Any]:
    """Return the PodGroup of the cluster, which has its name."""
    annotations = {key: text for key, text in cluster.annotations.items() if key not in names.OF_JOBS_ALONE}
    return {
        "apiVersion": POD_GROUPS.api_version,
        "kind": POD_GROUPS.kind,
        "metadata": {
            "name": cluster.name,
            "namespace": cluster.namespace,
            "labels": dict(cluster.labels),
            "annotations": annotations,
            "ownerReferences": [owner_reference(RAY_CLUSTERS, cluster.name, cluster.uid)],
        },
        "spec": group_spec(cluster, priorities),
    }


def group_spec(cluster: RayCluster, priorities: Mapping[str, int]) -> dict[str, Any]:
    """Return the gang: the head and the minimum of each group of workers."""
    parts = [
        GangPart(
            group.replicas,
            group.minimum,
            priorities.get(str(group.pod_spec.get("priorityClassName") or cluster.priority_class), 0),
            group.pod_spec,
        )
        for group in cluster.groups
    ]
    spec: dict[str, Any] = {
        "minMember": cluster.min_available,
        "queue": cluster.queue,
        "minResources": least_resources(parts, cluster.min_available),
        "minTaskMember": {group.key: group.minimum for group in cluster.groups},
    }
    if cluster.priority_class:
        spec["priorityClassName"] = cluster.priority_class
    return spec
