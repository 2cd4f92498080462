"""How a group's pods stand, as its phase is judged."""

from __future__ import annotations

from collections.abc import Container, Iterable
from dataclasses import dataclass

from windlass.api import views

PENDING, INQUEUE, RUNNING, UNKNOWN, COMPLETED = "Pending", "Inqueue", "Running", "Unknown", "Completed"
_HAS_RUN = (RUNNING, UNKNOWN, COMPLETED)


def oldest_of(pods: Iterable[views.Pod]) -> views.Pod | None:
    """The one that speaks for a group where none but its pods say something."""
    return min(pods, key=lambda pod: (pod.created, pod.name), default=None)


@dataclass(frozen=True, slots=True)
class Members:
    """Numbers of pods. ``bound`` are on a node but neither running, finished nor terminating."""

    pending: int = 0
    bound: int = 0
    running: int = 0
    succeeded: int = 0
    failed: int = 0
    releasing: int = 0

    @property
    def scheduled(self) -> int:
        """On a node, or finished: what Volcano counts against ``minMember``."""
        return self.bound + self.running + self.succeeded + self.failed + self.releasing

    @property
    def holding(self) -> int:
        """On a node and not finished."""
        return self.bound + self.running + self.releasing

    @property
    def finished(self) -> int:
        return self.succeeded + self.failed

    @property
    def total(self) -> int:
        return self.pending + self.scheduled


def count(pods: Iterable[views.Pod]) -> Members:
    """A terminating pod that was never bound counts nowhere: it is as good as gone."""
    pending = bound = running = succeeded = failed = releasing = 0
    for pod in pods:
        if pod.phase == "Succeeded":
            succeeded += 1
        elif pod.phase == "Failed":
            failed += 1
        elif not pod.node_name:
            pending += not pod.deleted
        elif pod.deleted:
            releasing += 1
        elif pod.phase == "Running":
            running += 1
        else:
            bound += 1
    return Members(pending, bound, running, succeeded, failed, releasing)


def phase(current: str, min_member: int, members: Members, admitted: bool, unschedulable: bool) -> str:
    """The PodGroup's phase by Volcano's rule (``getPodGroupPhase`` in its ``pkg/scheduler/framework/session.go``, and
    the action ``enqueue``).

    Running members and a gang that cannot run as a whole: Unknown. Enough members scheduled: Completed when all of
    those have finished, though others still wait, else Running. Else Inqueue once admitted, and Pending before: who
    has run and holds too little now is Pending first, and asks to be let in anew.

    Otherwise than there, an empty group is never Running or Completed, whatever its minimum; a Completed group whose
    pods have been cleaned away stays Completed.
    """
    if members.running and unschedulable:
        return UNKNOWN
    if members.scheduled and members.scheduled >= min_member:
        return COMPLETED if members.finished == members.scheduled else RUNNING
    if current == COMPLETED and not members.total:
        return current
    return INQUEUE if admitted and current not in _HAS_RUN else PENDING


def is_ready(min_member: int, pods: Iterable[views.Pod], assumed: Container[str]) -> bool:
    """Return whether a gang is not unschedulable, by Volcano's rule (``IsReady`` in its
    ``pkg/scheduler/api/job_info.go``): so many of its pods are bound (or ``assumed`` to be), run or have succeeded,
    whatever their tasks."""
    held = 0
    for pod in pods:
        if pod.phase == "Failed" or (pod.deleted and pod.phase != "Succeeded"):
            continue
        held += bool(pod.node_name or pod.phase == "Succeeded" or pod.key in assumed)
    return held >= min_member
