"""Rows of pods: kubectl's STATUS, as ``printPod`` of Kubernetes v1.36 computes it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from windlass.server.presentation.tables_common import (
    AGE,
    NAME,
    NONE,
    TableColumn,
    TableOf,
    age_of,
    condition,
    name_of,
    since,
)

Obj = Mapping[str, Any]
COLUMNS = (
    NAME,
    TableColumn("Ready", description="Containers that are ready, of all."),
    TableColumn("Status", description="What the pod does, or why it does not run."),
    TableColumn("Restarts", description="How often its containers were restarted, and when last."),
    AGE,
    TableColumn("IP", wide=True, description="The pod's address."),
    TableColumn("Node", wide=True, description="The node that the pod is bound to."),
    TableColumn("Nominated Node", wide=True, description="The node on which room is being made for the pod."),
    TableColumn("Readiness Gates", wide=True, description="Extra conditions that hold, of all."),
)
_UNREACHABLE = "NodeLost"
_ENDED = ("Succeeded", "Failed")


@dataclass(slots=True)
class _Tally:
    """Counters over a pod's container statuses."""

    reason: str
    ready: int = 0
    restarts: int = 0
    restarted: str = ""

    def restart(self, status: Obj) -> None:
        self.restarts += status.get("restartCount", 0)
        terminated = (status.get("lastState") or {}).get("terminated") or {}
        self.restarted = max(self.restarted, terminated.get("finishedAt") or "")


def _cells(pod: Obj, now: float) -> list[Any]:
    spec, status = pod.get("spec") or {}, pod.get("status") or {}
    sidecars = {c.get("name") for c in spec.get("initContainers") or () if c.get("restartPolicy") == "Always"}
    tally = _Tally(_first_reason(pod))
    sidecar_tally = _Tally("")
    initializing = _init(status, spec, sidecars, tally, sidecar_tally)
    initialized = (condition(pod, "Initialized") or {}).get("status") == "True"
    if not initializing or initialized:
        tally.restarts, tally.restarted = sidecar_tally.restarts, sidecar_tally.restarted
        _main(pod, status, tally)
    restarts = str(tally.restarts)
    if tally.restarts and tally.restarted:
        restarts += f" ({since(tally.restarted, now)} ago)"
    total = len(spec.get("containers") or ()) + len(sidecars)
    return [
        name_of(pod),
        f"{tally.ready}/{total}",
        _last_reason(pod, tally.reason),
        restarts,
        age_of(pod, now),
        next((ip.get("ip", "") for ip in status.get("podIPs") or ()), "") or status.get("podIP") or NONE,
        spec.get("nodeName") or NONE,
        status.get("nominatedNodeName") or NONE,
        _gates(pod, spec),
    ]


def _first_reason(pod: Obj) -> str:
    status = pod.get("status") or {}
    if (condition(pod, "PodScheduled") or {}).get("reason") == "SchedulingGated":
        return "SchedulingGated"
    return status.get("reason") or status.get("phase") or ""


def _init(status: Obj, spec: Obj, sidecars: set[Any], tally: _Tally, sidecar_tally: _Tally) -> bool:
    """Count init containers up to the first that has not finished.

    Returns whether there is one.
    """
    for index, container in enumerate(status.get("initContainerStatuses") or ()):
        tally.restart(container)
        is_sidecar = container.get("name") in sidecars
        if is_sidecar:
            sidecar_tally.restart(container)
        state = container.get("state") or {}
        terminated, waiting = state.get("terminated"), state.get("waiting")
        if terminated is not None and terminated.get("exitCode", 0) == 0:
            continue
        if is_sidecar and container.get("started"):
            tally.ready += bool(container.get("ready"))
            continue
        if terminated is not None:
            tally.reason = f"Init:{_ending(terminated)}"
        elif waiting is not None and waiting.get("reason") not in (None, "", "PodInitializing"):
            tally.reason = f"Init:{waiting['reason']}"
        else:
            tally.reason = f"Init:{index}/{len(spec.get('initContainers') or ())}"
        return True
    return False


def _ending(terminated: Obj) -> str:
    if terminated.get("reason"):
        return terminated["reason"]
    if terminated.get("signal"):
        return f"Signal:{terminated['signal']}"
    return f"ExitCode:{terminated.get('exitCode', 0)}"


def _main(pod: Obj, status: Obj, tally: _Tally) -> None:
    running = False
    for container in reversed(status.get("containerStatuses") or ()):
        tally.restart(container)
        state = container.get("state") or {}
        waiting, terminated = state.get("waiting") or {}, state.get("terminated")
        if waiting.get("reason"):
            tally.reason = waiting["reason"]
        elif terminated is not None:
            tally.reason = _ending(terminated)
        elif container.get("ready") and state.get("running") is not None:
            running = True
            tally.ready += 1
    if tally.reason == "Completed" and running:
        is_ready = (condition(pod, "Ready") or {}).get("status") == "True"
        tally.reason = "Running" if is_ready else "NotReady"


def _last_reason(pod: Obj, reason: str) -> str:
    status = pod.get("status") or {}
    if not (pod.get("metadata") or {}).get("deletionTimestamp"):
        return reason
    if status.get("reason") == _UNREACHABLE:
        return "Unknown"
    return reason if status.get("phase") in _ENDED else "Terminating"


def _gates(pod: Obj, spec: Obj) -> str:
    gates = spec.get("readinessGates") or ()
    if not gates:
        return NONE
    true = sum(
        (condition(pod, gate.get("conditionType", "")) or {}).get("status") == "True" for gate in gates
    )
    return f"{true}/{len(gates)}"


def _conditions(pod: Obj) -> list[dict[str, str]] | None:
    match (pod.get("status") or {}).get("phase"):
        case "Succeeded":
            return [_completed("Succeeded", "The pod has completed successfully.")]
        case "Failed":
            return [_completed("Failed", "The pod failed.")]
    return None


def _completed(reason: str, message: str) -> dict[str, str]:
    return {"type": "Completed", "status": "True", "reason": reason, "message": message}


PODS = TableOf(COLUMNS, _cells, _conditions)
