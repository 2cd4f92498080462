"""Events and instructions of a pod's state machine. Plain data."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from windlass.node.lifecycle.probe_results import ProbeKind


class PodEventKind(StrEnum):
    """Events. The first group concerns the pod, the second one container."""

    PREPARED = "Prepared"
    NOT_PREPARED = "NotPrepared"
    REJECTED = "Rejected"
    DELETE = "Delete"
    DEADLINE = "Deadline"
    EVICT = "Evict"
    RETRY = "Retry"
    RESUMED = "Resumed"
    RESTART_ALL = "RestartAll"
    """Stop and start all containers again."""
    RESTART_DUE = "RestartDue"
    """The back-off before that start is over."""
    BARRIER_LIFTED = "BarrierLifted"
    """All pods of the JobSet have reached the same restart attempt: the main containers may start."""
    TORN_DOWN = "TornDown"
    REMOVED = "Removed"

    START = "Start"
    RUNS = "Runs"
    """Its command and its postStart hook run. It counts as started when the hook has ended."""
    STARTED = "Started"
    PROBED = "Probed"
    KILL = "Kill"
    """The container must be killed, and restarted if its policy permits. ``message``: of the event."""
    REFUSED = "Refused"
    EXITED = "Exited"
    STOP = "Stop"
    DUE = "Due"


@dataclass(frozen=True, slots=True)
class Exit:
    """End of a container. ``code`` is 128 + signal if a signal killed it."""

    code: int
    reason: str
    signal: int = 0
    message: str = ""
    finished_at: float = 0.0
    started_at: float = 0.0


@dataclass(frozen=True, slots=True)
class PodEvent:
    """Event of a pod or container. ``at``: Unix time. ``container``: empty for events of the pod."""

    kind: PodEventKind
    at: float
    container: str = ""
    exit: Exit | None = None
    reason: str = ""
    message: str = ""
    grace_seconds: float | None = None
    address: str = ""
    probe: ProbeKind | None = None
    passed: bool = False


@dataclass(frozen=True, slots=True)
class Prepare:
    """Prepare everything that the pod's containers share."""


@dataclass(frozen=True, slots=True)
class StartContainer:
    container: str
    attempt: int


@dataclass(frozen=True, slots=True)
class StopContainer:
    container: str
    grace_seconds: float


@dataclass(frozen=True, slots=True)
class SetTimer:
    """Send the event ``kind`` after ``after_seconds``."""

    after_seconds: float
    kind: PodEventKind
    container: str = ""


@dataclass(frozen=True, slots=True)
class RecordEvent:
    """Record a Kubernetes event about the pod."""

    type: str
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class JoinBarrier:
    """Report that the pod is ready to start its main containers, and wait for the other pods."""


@dataclass(frozen=True, slots=True)
class TearDown:
    """Release everything that :class:`Prepare` acquired: no process is left."""


@dataclass(frozen=True, slots=True)
class DeleteObject:
    """Delete the object with grace 0."""


Instruction = (
    Prepare | StartContainer | StopContainer | SetTimer | RecordEvent | JoinBarrier | TearDown | DeleteObject
)
