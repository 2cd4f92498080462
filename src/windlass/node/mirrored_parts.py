"""Parts of other platforms that processes of this control plane replace, as mirror pods.

Users look for ``volcano-scheduler`` or the GPU operator's pods first. Each part names the
process that does its work, so that its pod shows the health of that process. A part
without such a process has no pod. Pure.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from windlass import __version__
from windlass.api import annotations as names
from windlass.api.quantities import is_device
from windlass.api.resources import NODES, PODS

CONTROL, SERVER, NODE = "control", "server", "node"
HASH = "kubernetes.io/config.hash"
SOURCE = "kubernetes.io/config.source"
_VOLCANO, _KUBEFLOW, _GPU_OPERATOR = "volcano-system", "kubeflow", "gpu-operator"


@dataclass(frozen=True, slots=True)
class NodeState:
    """Labels and capacity of the node, on which some parts depend."""

    labels: Mapping[str, str]
    capacity: Mapping[str, str]

    @property
    def has_devices(self) -> bool:
        return any(is_device(name) and number != "0" for name, number in self.capacity.items())


def _always(_node: NodeState) -> bool:
    return True


def _has_devices(node: NodeState) -> bool:
    return node.has_devices


def _creates_mig_instances(node: NodeState) -> bool:
    return names.MIG_MODE in node.labels


@dataclass(frozen=True, slots=True)
class MirroredPart:
    """Part of another platform, and the process that does its work here.

    ``present``: whether the process does that work on a node.
    """

    namespace: str
    name: str
    process: str
    present: Callable[[NodeState], bool] = _always

    def pod_name(self, node: str) -> str:
        return f"{self.name}-{node}"


PARTS = (
    MirroredPart(_VOLCANO, "volcano-scheduler", CONTROL),
    MirroredPart(_VOLCANO, "volcano-controllers", CONTROL),
    MirroredPart(_VOLCANO, "volcano-admission", SERVER),
    MirroredPart(_KUBEFLOW, "training-operator", CONTROL),
    MirroredPart(_GPU_OPERATOR, "nvidia-container-toolkit-daemonset", NODE, _has_devices),
    MirroredPart(_GPU_OPERATOR, "nvidia-device-plugin-daemonset", NODE, _has_devices),
    MirroredPart(_GPU_OPERATOR, "gpu-feature-discovery", NODE, _has_devices),
    MirroredPart(_GPU_OPERATOR, "nvidia-mig-manager", NODE, _creates_mig_instances),
)
"""Nothing here replaces parts of Kurator yet, so its namespace has no pods."""


@dataclass(frozen=True, slots=True)
class ProcessState:
    """State of a process of the control plane.

    ``pid``: 0 while it does not run. ``started``: RFC 3339. ``last_exit``: exit status,
    start and end of the process before, if there was one. ``problem``: why it is not
    ready; empty if it is.
    """

    pid: int
    started: str
    restarts: int
    last_exit: Mapping[str, Any]
    problem: str = ""


def mirror_pod(part: MirroredPart, node: str, node_uid: str) -> dict[str, Any]:
    """Return the pod of a part, without status."""
    spec = {
        "nodeName": node,
        "hostNetwork": True,
        "restartPolicy": "Always",
        "enableServiceLinks": False,
        "tolerations": [{"operator": "Exists"}],
        "containers": [
            {
                "name": part.name,
                "image": f"windlass:{__version__}",
                "imagePullPolicy": "Never",
                "command": ["python", "-m", "windlass.app", part.process],
            }
        ],
    }
    digest = hashlib.sha256(json.dumps(spec, sort_keys=True).encode()).hexdigest()[:32]
    owner = {
        "apiVersion": NODES.api_version,
        "kind": NODES.kind,
        "name": node,
        "uid": node_uid,
        "controller": True,
    }
    return {
        "apiVersion": PODS.api_version,
        "kind": PODS.kind,
        "metadata": {
            "name": part.pod_name(node),
            "namespace": part.namespace,
            "labels": {"app": part.name},
            "annotations": {
                names.MIRROR: digest,
                HASH: digest,
                SOURCE: "file",
                names.PROCESS: part.process,
            },
            "ownerReferences": [owner],
        },
        "spec": spec,
    }


def is_current(pod: Mapping[str, Any], wanted: Mapping[str, Any]) -> bool:
    """Return whether a mirror pod on the server shows the wanted one."""
    have, want = pod["metadata"], wanted["metadata"]
    uids = [owner.get("uid") for owner in have.get("ownerReferences") or ()]
    return (
        not have.get("deletionTimestamp")
        and (have.get("annotations") or {}).get(names.MIRROR) == want["annotations"][names.MIRROR]
        and uids == [owner["uid"] for owner in want["ownerReferences"]]
    )


def status(
    part: MirroredPart, state: ProcessState, address: str, before: Mapping[str, Any], now: str
) -> dict[str, Any]:
    """Return the status of a part's pod. ``before``: the status on the server."""
    ready = bool(state.pid) and not state.problem
    why = state.problem or "the process is being started again"
    since = {c.get("type"): c for c in before.get("conditions") or ()}
    conditions = [
        _condition(kind, "" if holds else why, since.get(kind) or {}, now)
        for kind, holds in (
            ("PodScheduled", True),
            ("PodReadyToStartContainers", True),
            ("Initialized", True),
            ("ContainersReady", ready),
            ("Ready", ready),
        )
    ]
    return {
        "phase": "Running",
        "conditions": conditions,
        "hostIP": address,
        "hostIPs": [{"ip": address}],
        "podIP": address,
        "podIPs": [{"ip": address}],
        "startTime": before.get("startTime") or state.started or now,
        "containerStatuses": [_container(part, state, ready)],
    }


def _condition(kind: str, why: str, before: Mapping[str, Any], now: str) -> dict[str, Any]:
    holds = "False" if why else "True"
    record = {"type": kind, "status": holds}
    if why:
        record |= {"reason": "ContainersNotReady", "message": why}
    since = before.get("lastTransitionTime") if before.get("status") == holds else None
    return {**record, "lastTransitionTime": since or now}


def _container(part: MirroredPart, state: ProcessState, ready: bool) -> dict[str, Any]:
    record: dict[str, Any] = {
        "name": part.name,
        "image": f"windlass:{__version__}",
        "imageID": "",
        "ready": ready,
        "started": bool(state.pid),
        "restartCount": state.restarts,
        "lastState": {"terminated": _terminated(state.last_exit)} if state.last_exit else {},
    }
    if state.pid:
        record["state"] = {"running": {"startedAt": state.started}}
        record["containerID"] = f"windlass://process/{state.pid}"
    else:
        record["state"] = {"waiting": {"reason": "CrashLoopBackOff"}}
    return record


def _terminated(last_exit: Mapping[str, Any]) -> dict[str, Any]:
    code = int(last_exit["code"])
    record: dict[str, Any] = {
        "exitCode": code if code >= 0 else 128 - code,
        "reason": "Completed" if code == 0 else "Error",
        "startedAt": last_exit["started"],
        "finishedAt": last_exit["ended"],
    }
    return record if code >= 0 else {**record, "signal": -code}
