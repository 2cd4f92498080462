"""Observation of a workflow's pods: views of them, and reports to the core."""

from __future__ import annotations

from typing import Any

import msgspec

from windlass.client.informers import key_of
from windlass.controllers.workflow import labels
from windlass.controllers.workflow.capture import without_marks
from windlass.kits.timestamps import parse_rfc3339
from windlass.workflow import words
from windlass.workflow.advance import LeafReport
from windlass.workflow.node import NodeStatus

Json = dict[str, Any]
ENDED = ("Succeeded", "Failed")
"""Phases of a pod that has ended."""
_TOLD = {False: {("PodScheduled", "False")}, True: {("PodScheduled", "False"), ("Ready", "True")}}
"""Conditions that reports tell of: of a plain pod, and of a daemon."""


class _Terminated(msgspec.Struct, rename="camel"):
    exit_code: int = 0
    reason: str = ""
    message: str = ""
    started_at: str | None = None
    finished_at: str | None = None


class _Waiting(msgspec.Struct):
    reason: str = ""
    message: str = ""


class _State(msgspec.Struct):
    terminated: _Terminated | None = None
    waiting: _Waiting | None = None


class _Container(msgspec.Struct):
    name: str
    state: _State = msgspec.field(default_factory=_State)


class _Condition(msgspec.Struct):
    type: str
    status: str
    message: str = ""


class _Status(msgspec.Struct, rename="camel"):
    phase: str = "Pending"
    reason: str = ""
    message: str = ""
    start_time: str | None = None
    container_statuses: list[_Container] = []
    init_container_statuses: list[_Container] = []
    conditions: list[_Condition] = []
    pod_ip: str = msgspec.field(name="podIP", default="")


class _Owner(msgspec.Struct, rename="camel"):
    kind: str
    name: str
    uid: str
    controller: bool = False


class _Metadata(msgspec.Struct, rename="camel"):
    name: str
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    deletion_timestamp: str | None = None
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    owner_references: list[_Owner] = []


class _Spec(msgspec.Struct, rename="camel"):
    node_name: str = ""


class _Pod(msgspec.Struct):
    metadata: _Metadata
    spec: _Spec = msgspec.field(default_factory=_Spec)
    status: _Status = msgspec.field(default_factory=_Status)


class WorkflowPod(msgspec.Struct, frozen=True):
    """Pod of a workflow's node. ``deleted``: 1.0 while it is being deleted."""

    key: str
    uid: str
    resource_version: str
    deleted: float
    owner: tuple[str, str, str]
    """Kind, name and uid of the workflow."""
    node_id: str
    host: str
    status: _Status
    outputs: str
    """Declaration of its outputs as JSON; empty if none are captured."""
    daemon: bool = False
    labels: dict[str, str] = {}
    """Labels without that of the workflow."""

    @property
    def ended_at(self) -> float:
        """Time at which its last container ended; 0.0: unknown."""
        ends = [one.state.terminated for one in self.status.container_statuses]
        return max((_time(one.finished_at) or 0.0 for one in ends if one is not None), default=0.0)

    @property
    def ended(self) -> bool:
        return self.status.phase in ENDED

    @property
    def main(self) -> _Terminated | None:
        found = [one.state.terminated for one in self.status.container_statuses if one.name == labels.MAIN]
        return found[0] if found else None


_decoder = msgspec.json.Decoder(_Pod)


def decode_workflow_pod(raw: msgspec.Raw | bytes) -> WorkflowPod | None:
    """Return the view of a pod, ``None`` if it belongs to no workflow."""
    if b"workflows.argoproj.io/node-id" not in bytes(raw):
        return None
    pod = _decoder.decode(raw)
    metadata = pod.metadata
    owner = next((found for found in metadata.owner_references if found.controller), None)
    if owner is None or labels.NODE_ID not in metadata.annotations:
        return None
    daemon = labels.DAEMON in metadata.annotations
    # Thousands of these are kept: only what reports tell of, and nothing of it after the end.
    pod.status.conditions = [
        found
        for found in pod.status.conditions
        if pod.status.phase not in ENDED and (found.type, found.status) in _TOLD[daemon]
    ]
    return WorkflowPod(
        key_of(metadata.namespace, metadata.name),
        metadata.uid,
        metadata.resource_version,
        1.0 if metadata.deletion_timestamp else 0.0,
        (owner.kind, owner.name, owner.uid),
        metadata.annotations[labels.NODE_ID],
        pod.spec.node_name,
        pod.status,
        metadata.annotations.get(labels.OUTPUTS, ""),
        daemon,
        {name: value for name, value in metadata.labels.items() if name != labels.WORKFLOW},
    )


def awaits_report(node: NodeStatus) -> bool:
    """Return whether the end of a node's pod or object is still to be told."""
    waits = (node.synchronization_status or {}).get("waiting")
    return node.type == words.POD and not node.ended and not waits


def needs_pod(node: NodeStatus) -> bool:
    """Return whether a node has a pod until it ends. Without it the node becomes an error."""
    return awaits_report(node) and node.managed_object is None


def differs(old: WorkflowPod, new: WorkflowPod) -> bool:
    """Return whether a change of a pod may change its node."""
    return (old.uid, old.deleted, old.host, old.status) != (new.uid, new.deleted, new.host, new.status)


def report_of(pod: WorkflowPod, outputs: Json | None = None, problem: str = "") -> LeafReport:
    """Return what became of a pod. ``outputs`` and ``problem``: what its log tells."""
    status, main = pod.status, pod.main
    started = _time(main.started_at if main else None) or _time(status.start_time)
    if status.phase == "Running":
        ready = pod.daemon and any(one.type == "Ready" and one.status == "True" for one in status.conditions)
        return LeafReport(
            pod.node_id, words.RUNNING, started=started, host=pod.host, daemoned=ready, ip=status.pod_ip
        )
    if not pod.ended:
        return LeafReport(pod.node_id, words.PENDING, pending(status))  # its node is told with the next phase
    found = dict(outputs or {})
    if main is not None:
        found["exitCode"] = str(main.exit_code)
    finished = _time(main.finished_at if main else None)
    if status.phase == "Succeeded":
        phase, message = (words.ERROR, problem) if problem else (words.SUCCEEDED, "")
    else:
        phase, message = failure(status)
    return LeafReport(pod.node_id, phase, message, found, started, finished, pod.host)


def pending(status: _Status) -> str:
    """Return why a pod has not begun."""
    for container in status.container_statuses:
        waiting = container.state.waiting
        if waiting is not None and waiting.reason not in ("", "ContainerCreating", "PodInitializing"):
            return f"{waiting.reason}: {waiting.message}" if waiting.message else waiting.reason
    for condition in status.conditions:
        if condition.type == "PodScheduled" and condition.status == "False":
            return f"Unschedulable: {condition.message}"
    return ""


def failure(status: _Status) -> tuple[str, str]:
    """Return the phase and the message of a failed pod, as Argo words them."""
    if status.message:
        return words.FAILED, status.message
    mains = [one for one in status.container_statuses if one.name == labels.MAIN]
    for container in mains:
        ended = container.state.terminated
        if ended is not None and ended.exit_code != 0:
            return words.FAILED, _message(container.name, ended)
    for container in status.init_container_statuses:  # sidecars, too, which end with the main container
        ended = container.state.terminated
        if ended is not None and ended.exit_code != 0:
            return words.FAILED, _message(container.name, ended)
    others = [one for one in status.container_statuses if one.name != labels.MAIN]
    for container in (*mains, *others):
        if container.state.waiting is not None:
            waiting = container.state.waiting
            text = f"Pod failed before {container.name} container starts due to {waiting.reason}: {waiting.message}"
            return words.ERROR, text
        ended = container.state.terminated
        if ended is not None and ended.exit_code != 0:
            return words.FAILED, _message(container.name, ended)
    return words.FAILED, status.reason or "the pod failed without a failed container"


def _message(name: str, ended: _Terminated) -> str:
    text = f"{name}: {ended.reason or 'Error'} (exit code {ended.exit_code})"
    told = without_marks(ended.message).strip()
    return f"{text}: {told}" if told else text


def _time(text: str | None) -> float | None:
    return parse_rfc3339(text) if text else None
