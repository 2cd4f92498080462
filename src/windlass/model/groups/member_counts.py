"""Counts of a group's pods by state, from which its phase follows."""

from __future__ import annotations

from collections.abc import Container, Iterable
from dataclasses import dataclass

from windlass.api import views

PENDING, INQUEUE, RUNNING, UNKNOWN, COMPLETED = "Pending", "Inqueue", "Running", "Unknown", "Completed"
_HAS_RUN = (RUNNING, UNKNOWN, COMPLETED)


def oldest_of(pods: Iterable[views.Pod]) -> views.Pod | None:
    """Return the oldest pod. It determines fields of a group that has no object."""
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
        """Number of pods on a node or finished. Volcano compares it with ``minMember``."""
        return self.bound + self.running + self.succeeded + self.failed + self.releasing

    @property
    def holding(self) -> int:
        """Number of pods on a node and not finished."""
        return self.bound + self.running + self.releasing

    @property
    def finished(self) -> int:
        return self.succeeded + self.failed

    @property
    def total(self) -> int:
        return self.pending + self.scheduled


def count(pods: Iterable[views.Pod]) -> Members:
    """Return the counts. A terminating pod that was never bound is not counted."""
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
    """Return the PodGroup's phase by Volcano's rule.

    The rule is ``getPodGroupPhase`` in its ``pkg/scheduler/framework/session.go``, and
    the action ``enqueue``:

    * Running members of a gang that cannot run as a whole: Unknown.
    * Enough members scheduled: Completed if all of those have finished, even if others
      still wait, else Running.
    * Otherwise Inqueue once admitted, and Pending before. A group that has run and
      lacks its minimum now is Pending first, and has to be admitted again.

    Unlike there, an empty group is never Running or Completed, whatever its minimum. A
    Completed group stays Completed when its pods have been deleted.
    """
    if members.running and unschedulable:
        return UNKNOWN
    if members.scheduled and members.scheduled >= min_member:
        return COMPLETED if members.finished == members.scheduled else RUNNING
    if current == COMPLETED and not members.total:
        return current
    return INQUEUE if admitted and current not in _HAS_RUN else PENDING


def is_ready(min_member: int, pods: Iterable[views.Pod], assumed: Container[str]) -> bool:
    """Return whether a gang is not unschedulable, by Volcano's rule.

    At least ``min_member`` of its pods are bound (or ``assumed`` to be), run or have
    succeeded, whatever their tasks (``IsReady`` in its
    ``pkg/scheduler/api/job_info.go``).
    """
    held = 0
    for pod in pods:
        if pod.phase == "Failed" or (pod.deleted and pod.phase != "Succeeded"):
            continue
        held += bool(pod.node_name or pod.phase == "Succeeded" or pod.key in assumed)
    return held >= min_member
