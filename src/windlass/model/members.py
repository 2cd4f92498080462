"""How a group's pods stand, as its phase is judged."""

from __future__ import annotations

from collections.abc import Container, Iterable
from dataclasses import dataclass

from windlass.api import views
from windlass.model.groups import role_of


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
    """The PodGroup's phase by Volcano's rule.

    Running members and a gang that cannot run as a whole: Unknown. Enough members scheduled: Completed
    when all of them have finished, else Running. Else Inqueue once admitted, and Pending before.

    An empty group is never Running or Completed, whatever its minimum; a Completed group whose pods have
    been cleaned away stays Completed.
    """
    if members.running and unschedulable:
        return "Unknown"
    if members.scheduled and members.scheduled >= min_member:
        if members.finished == members.scheduled and not members.pending:
            return "Completed"
        return "Running"
    if current == "Completed" and not members.total:
        return current
    return "Inqueue" if admitted else "Pending"


def holds_minimum(group: views.PodGroup, pods: Iterable[views.Pod], assumed: Container[str]) -> bool:
    """Whether a gang has its minimum: bound (or ``assumed`` to be), running and succeeded pods.

    By Volcano's rule role minima count only if ``minMember`` is at least their sum.
    """
    held = 0
    roles: dict[str, int] = {}
    for pod in pods:
        if pod.phase == "Failed" or (pod.deleted and pod.phase != "Succeeded"):
            continue
        if pod.node_name or pod.phase == "Succeeded" or pod.key in assumed:
            held += 1
            role = role_of(pod)
            roles[role] = roles.get(role, 0) + 1
    if held < group.min_member:
        return False
    wanted = group.min_task_member
    if group.min_member < sum(wanted.values()):
        return True
    return all(roles.get(role, 0) >= least for role, least in wanted.items())
