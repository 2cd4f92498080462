"""``status`` of a pod as the kubelet writes it, computed from the pod's state machine. Pure."""

from __future__ import annotations

from typing import Any

from windlass.kits.timestamps import rfc3339
from windlass.node.lifecycle.events import Exit
from windlass.node.lifecycle.probe_results import ProbeKind
from windlass.node.lifecycle.state_machine import Container, PodMachine
from windlass.node.lifecycle.transitions import ContainerStep, PodStep

PENDING, RUNNING, SUCCEEDED, FAILED = "Pending", "Running", "Succeeded", "Failed"


def phase(machine: PodMachine) -> str:
    """Return the phase, which is terminal only when no process is left.

    Otherwise it follows ``getPhase`` of the kubelet.
    """
    if machine.is_over:
        return FAILED if machine.failed else SUCCEEDED
    if machine.step is PodStep.SETUP or not machine.initialized_at:
        return PENDING
    mains = [c for c in machine.containers.values() if c.role == "main"]
    if any(not c.started_once and c.exit is None and c.last_exit is None for c in mains):
        return PENDING
    return RUNNING


def status(machine: PodMachine, host_address: str) -> dict[str, Any]:
    """Return the whole status except the condition PodScheduled, which belongs to the scheduler."""
    init = [c for c in machine.containers.values() if c.role in ("init", "sidecar")]
    mains = [c for c in machine.containers.values() if c.role == "main"]
    record: dict[str, Any] = {
        "phase": phase(machine),
        "conditions": _conditions(machine, init, mains),
        "hostIP": host_address,
        "hostIPs": [{"ip": host_address}],
        "startTime": rfc3339(machine.started_at),
        "containerStatuses": [_container(machine, c) for c in mains],
    }
    if machine.address:
        record["podIP"] = machine.address
        record["podIPs"] = [{"ip": machine.address}]
    if init:
        record["initContainerStatuses"] = [_container(machine, c) for c in init]
    if ephemeral := [c for c in machine.containers.values() if c.role == "ephemeral"]:
        record["ephemeralContainerStatuses"] = [_container(machine, c) for c in ephemeral]
    if machine.failure_reason:
        record["reason"] = machine.failure_reason
        record["message"] = machine.failure_message
    return record


def is_ready(container: Container) -> bool:
    """Return whether the container is ready.

    Probes decide while it runs. Without probes it is ready at once. An init container is ready
    after it has succeeded. An ephemeral container is never ready, as in the kubelet.
    """
    if container.role == "init":
        return container.succeeded
    if container.role == "ephemeral":
        return False
    return is_started(container) and container.health.ready


def is_started(container: Container) -> bool:
    """Return whether the container has started.

    Its postStart hook must have ended and its startup probe must have passed, if it has them.
    """
    return _runs(container) and container.health.started


def containers_ready(machine: PodMachine) -> bool:
    """Return the condition ContainersReady."""
    lasting = [c for c in machine.containers.values() if c.role in ("main", "sidecar")]
    return machine.step is PodStep.RUNNING and all(is_ready(c) for c in lasting)


def is_pod_ready(machine: PodMachine) -> bool:
    """Return the condition Ready: all containers are ready and all readiness gates hold."""
    return containers_ready(machine) and not _gates_missing(machine)


def is_held_back(machine: PodMachine) -> bool:
    """Return whether probes or readiness gates keep the pod unready."""
    waits = machine.gates or any(
        c.health.probes.keys() - {ProbeKind.LIVENESS} for c in machine.containers.values()
    )
    return bool(waits) and not is_pod_ready(machine)


def _runs(container: Container) -> bool:
    return container.step in (ContainerStep.RUNNING, ContainerStep.STOPPING) and container.started_once


def _gates_missing(machine: PodMachine) -> str:
    """Return the readiness gates that do not hold, in the kubelet's words. Empty if all hold."""
    missing = []
    for gate, state in machine.gates.items():
        if not state:
            missing.append(f'corresponding condition of pod readiness gate "{gate}" does not exist.')
        elif state != "True":
            missing.append(f'the status of pod readiness gate "{gate}" is not "True", but {state}')
    return ", ".join(missing)


def _conditions(machine: PodMachine, init: list[Container], mains: list[Container]) -> list[dict[str, Any]]:
    over = machine.is_over
    succeeded = over and not machine.failed
    incomplete = [
        c.name
        for c in init
        if not (c.succeeded or (c.role == "sidecar" and c.started_once and c.health.started))
    ]
    unready = [c.name for c in (*mains, *(c for c in init if c.role == "sidecar")) if not is_ready(c)]
    sandbox = bool(machine.address) and not over
    initialized = bool(machine.initialized_at) or (not incomplete and machine.step is not PodStep.SETUP)
    done = ("PodCompleted", "") if succeeded else ("PodFailed", "") if over else None
    not_ready = done or ("ContainersNotReady", f"containers with unready status: [{' '.join(unready)}]")
    complete = containers_ready(machine)
    gates = _gates_missing(machine)
    waits = ("ReadinessGatesNotReady", gates) if gates else None
    return [
        _condition("PodReadyToStartContainers", sandbox),
        _condition(
            "Initialized",
            initialized,
            ("PodCompleted", "")
            if succeeded
            else None
            if initialized
            else (
                "ContainersNotInitialized",
                f"containers with incomplete status: [{' '.join(incomplete)}]",
            ),
        ),
        _condition("Ready", complete and not gates, waits if complete else not_ready),
        _condition("ContainersReady", complete, None if complete else not_ready),
    ]


def _condition(kind: str, holds: bool, why: tuple[str, str] | None = None) -> dict[str, Any]:
    record: dict[str, Any] = {"type": kind, "status": "True" if holds else "False"}
    if why is not None:
        record["reason"] = why[0]
        if why[1]:
            record["message"] = why[1]
    return record


def stamp_conditions(
    now: float, conditions: list[dict[str, Any]], before: list[dict[str, Any]]
) -> list[dict[str, Any]]:
    """Return the conditions with ``lastTransitionTime``.

    It is that of the earlier condition with the same status, else ``now``.
    """
    known = {c["type"]: c for c in before}
    stamped = []
    for condition in conditions:
        earlier = known.get(condition["type"])
        same = earlier is not None and earlier.get("status") == condition["status"]
        since = earlier.get("lastTransitionTime") if same and earlier else None
        # A strategic merge retains fields that an element lacks: old reasons must be removed.
        stamped.append(
            {"reason": None, "message": None, **condition, "lastTransitionTime": since or rfc3339(now)}
        )
    return stamped


def container_id(uid: str, name: str, attempt: int) -> str:
    return f"windlass://{uid}/{name}/{attempt}"


def _container(machine: PodMachine, container: Container) -> dict[str, Any]:
    current = container_id(machine.uid, container.name, container.attempt)
    record: dict[str, Any] = {
        "name": container.name,
        "image": container.image,
        "imageID": "",
        "ready": is_ready(container),
        "started": is_started(container),
        "restartCount": container.attempt,
        "state": _state(machine, container, current),
        "lastState": {},
    }
    has_run = container.started_once or container.exit is not None or container.last_exit is not None
    if has_run:
        record["containerID"] = current
    if container.step is ContainerStep.BACKOFF and container.exit is not None:
        record["lastState"] = {"terminated": _terminated(container.exit, current)}
    elif container.last_exit is not None:
        earlier = container_id(machine.uid, container.name, container.attempt - 1)
        record["lastState"] = {"terminated": _terminated(container.last_exit, earlier)}
    return record


def _state(machine: PodMachine, container: Container, current: str) -> dict[str, Any]:
    if container.step is ContainerStep.DONE:
        if container.exit is not None:
            return {"terminated": _terminated(container.exit, current)}
        return {"waiting": {"reason": "PodInitializing" if machine.step is PodStep.SETUP else "NotStarted"}}
    if container.step in (ContainerStep.RUNNING, ContainerStep.STOPPING) and container.started_at:
        return {"running": {"startedAt": rfc3339(container.started_at)}}
    if (
        container.step is ContainerStep.BACKOFF
        and container.exit is not None
        and not container.waiting_reason
    ):
        return {"terminated": _terminated(container.exit, current)}
    waiting = {"reason": container.waiting_reason, "message": container.waiting_message}
    if not waiting["reason"]:
        has_init = any(c.role in ("init", "sidecar") for c in machine.containers.values())
        waits = container.role == "main" and has_init and not machine.initialized_at
        waiting["reason"] = "PodInitializing" if waits else "ContainerCreating"
        waiting["message"] = machine.preparing_message
    return {"waiting": {name: text for name, text in waiting.items() if text}}


def _terminated(exit_: Exit, identifier: str) -> dict[str, Any]:
    record: dict[str, Any] = {
        "exitCode": exit_.code,
        "reason": exit_.reason,
        "startedAt": rfc3339(exit_.started_at or exit_.finished_at),
        "finishedAt": rfc3339(exit_.finished_at),
        "containerID": identifier,
    }
    if exit_.signal:
        record["signal"] = exit_.signal
    if exit_.message:
        record["message"] = exit_.message
    return record
