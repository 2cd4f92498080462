"""What a pod's state machine is told and what it says: events in, instructions out. Plain data."""

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
    TORN_DOWN = "TornDown"
    REMOVED = "Removed"

    START = "Start"
    RUNS = "Runs"
    """Its command runs; its postStart hook, too, and only when that has ended it counts as started."""
    STARTED = "Started"
    PROBED = "Probed"
    KILL = "Kill"
    """It is to be killed and, if the policy permits, started anew. ``message`` is the event's."""
    REFUSED = "Refused"
    EXITED = "Exited"
    STOP = "Stop"
    DUE = "Due"


@dataclass(frozen=True, slots=True)
class Exit:
    """How a container ended. ``code`` is 128 + signal when a signal killed it."""

    code: int
    reason: str
    signal: int = 0
    message: str = ""
    finished_at: float = 0.0
    started_at: float = 0.0


@dataclass(frozen=True, slots=True)
class PodEvent:
    """``at`` is Unix time. ``container`` is empty for what concerns the pod."""

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
    """Make ready what the pod's containers share."""


@dataclass(frozen=True, slots=True)
class StartContainer:
    container: str
    attempt: int


@dataclass(frozen=True, slots=True)
class StopContainer:
    container: str
    grace_seconds: float


@dataclass(frozen=True, slots=True)
class Remind:
    """Send the event back after so many seconds."""

    after_seconds: float
    kind: PodEventKind
    container: str = ""


@dataclass(frozen=True, slots=True)
class Note:
    """A Kubernetes event about the pod."""

    type: str
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class TearDown:
    """No process is left: give back what :class:`Prepare` took."""


@dataclass(frozen=True, slots=True)
class DeleteObject:
    """Remove the object for good (grace 0)."""


Instruction = Prepare | StartContainer | StopContainer | Remind | Note | TearDown | DeleteObject
