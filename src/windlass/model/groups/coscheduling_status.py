"""The status of a PodGroup of the coscheduling plug-in as it should stand. Pure.

Its phases are those that the plug-in's own controller gives it, so that nothing changes for who reads them:

| phase | |
|---|---|
| ``Pending`` | fewer pods than its minimum |
| ``Scheduling`` | enough pods, of which fewer than its minimum run or have succeeded |
| ``Running`` | so many run or have succeeded |
| ``Finished`` | so many have succeeded |
| ``Failed`` | some have failed, and with those that run or have succeeded they are the minimum |

Who is told to end runs until it has ended (``Reconcile`` in its ``pkg/controllers/podgroup_controller.go``).

Two things differ: who runs again after a failure is ``Running`` again, and what nobody waits or runs in any more stays
``Finished`` or ``Failed`` whatever becomes of its pods. ``scheduleStartTime`` is nobody's: that controller leaves it
empty, too.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from windlass.api import views
from windlass.model.groups.member_counts import Members, oldest_of

PENDING, SCHEDULING, RUNNING, FINISHED, FAILED = "Pending", "Scheduling", "Running", "Finished", "Failed"
ON_THE_WAY = (PENDING, SCHEDULING)
_OVER = (FINISHED, FAILED)
_OWN_MANAGERS = "windlass"


@dataclass(frozen=True, slots=True)
class CoschedulingStatus:
    """``occupied_by``: ``namespace/name`` of what made the pods, as the plug-in's controller writes it."""

    phase: str
    occupied_by: str
    running: int
    succeeded: int
    failed: int

    def patch(self) -> dict[str, Any]:
        """A merge patch for the status subresource."""
        counts = {"running": self.running, "succeeded": self.succeeded, "failed": self.failed}
        return {"status": {"phase": self.phase, "occupiedBy": self.occupied_by or None, **counts}}


def current(view: views.CoschedulingGroup) -> CoschedulingStatus:
    """The status as written."""
    return CoschedulingStatus(view.phase, view.occupied_by, view.running, view.succeeded, view.failed)


def is_managed_by_others(view: views.CoschedulingGroup) -> bool:
    """Return whether somebody else writes the status, as the plug-in's controller does where it runs."""
    return any(not manager.startswith(_OWN_MANAGERS) for manager in view.status_writers)


def desired(view: views.CoschedulingGroup, members: Members, pods: Iterable[views.Pod]) -> CoschedulingStatus:
    """The status as it should be; equal to :func:`current` where nothing has to be written. ``pods``: its own."""
    waits_or_runs = members.pending + members.holding
    if not waits_or_runs and (view.phase in _OVER or not (members.finished or view.phase)):
        return current(view)
    running = members.running + members.releasing
    phase = _phase(max(1, view.min_member), members, running)
    occupied_by = view.occupied_by
    if not occupied_by and phase != PENDING:
        occupied_by = _makers(pods)
    return CoschedulingStatus(phase, occupied_by, running, members.succeeded, members.failed)


def _phase(least: int, members: Members, running: int) -> str:
    going = running + members.succeeded
    if members.succeeded >= least:
        return FINISHED
    if going >= least:
        return RUNNING
    if members.failed and going + members.failed >= least:
        return FAILED
    return SCHEDULING if members.total >= least else PENDING


def _makers(pods: Iterable[views.Pod]) -> str:
    """The owners of the oldest pod."""
    oldest = oldest_of(pods)
    if oldest is None:
        return ""
    return ",".join(sorted(f"{oldest.namespace}/{owner.name}" for owner in oldest.owners))
