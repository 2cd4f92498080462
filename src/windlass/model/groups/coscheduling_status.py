"""Desired status of a PodGroup of the coscheduling plugin. Pure.

Its phases are those of the plugin's own controller, so that nothing changes for its
readers:

| phase | |
|---|---|
| ``Pending`` | fewer pods than its minimum |
| ``Scheduling`` | enough pods, of which fewer than its minimum run or have succeeded |
| ``Running`` | at least its minimum run or have succeeded |
| ``Finished`` | at least its minimum have succeeded |
| ``Failed`` | some have failed, and with those that run or have succeeded they are the
minimum |

A terminating pod counts as running until it has ended (``Reconcile`` in its
``pkg/controllers/podgroup_controller.go``).

Two things differ. A group that runs again after a failure is ``Running`` again. A group
without waiting or running pods stays ``Finished`` or ``Failed`` whatever happens to its
pods. ``scheduleStartTime`` stays empty, as that controller leaves it empty, too.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from windlass.api import views
from windlass.model.groups.member_counts import Members, oldest_of

PENDING, SCHEDULING, RUNNING, FINISHED, FAILED = "Pending", "Scheduling", "Running", "Finished", "Failed"
ON_THE_WAY = (PENDING, SCHEDULING)
PHASES_OVER = (FINISHED, FAILED)
_OWN_MANAGERS = "windlass"


@dataclass(frozen=True, slots=True)
class CoschedulingStatus:
    """Status of a PodGroup.

    ``occupied_by``: ``namespace/name`` of the pods' owners, as the plugin's controller
        writes it.
    """

    phase: str
    occupied_by: str
    running: int
    succeeded: int
    failed: int

    def patch(self) -> dict[str, Any]:
        """Return a merge patch for the status subresource."""
        counts = {"running": self.running, "succeeded": self.succeeded, "failed": self.failed}
        return {"status": {"phase": self.phase, "occupiedBy": self.occupied_by or None, **counts}}


def current(view: views.CoschedulingGroup) -> CoschedulingStatus:
    """Return the status as written."""
    return CoschedulingStatus(view.phase, view.occupied_by, view.running, view.succeeded, view.failed)


def is_managed_by_others(view: views.CoschedulingGroup) -> bool:
    """Return whether another controller writes the status, such as the plugin's own."""
    return any(not manager.startswith(_OWN_MANAGERS) for manager in view.status_writers)


def desired(view: views.CoschedulingGroup, members: Members, pods: Iterable[views.Pod]) -> CoschedulingStatus:
    """Return the desired status; equal to :func:`current` if nothing has to be written.

    ``pods``: the group's pods.
    """
    waits_or_runs = members.pending + members.holding
    if not waits_or_runs and (view.phase in PHASES_OVER or not (members.finished or view.phase)):
        return current(view)
    running = members.running + members.releasing
    phase = _phase(max(1, view.min_member), members, running)
    occupied_by = view.occupied_by
    if not occupied_by and phase != PENDING:
        occupied_by = _makers(pods)
    return CoschedulingStatus(phase, occupied_by, running, members.succeeded, members.failed)


def _phase(least: int, members: Members, running: int) -> str:
    active = running + members.succeeded
    if members.succeeded >= least:
        return FINISHED
    if active >= least:
        return RUNNING
    if members.failed and active + members.failed >= least:
        return FAILED
    return SCHEDULING if members.total >= least else PENDING


def _makers(pods: Iterable[views.Pod]) -> str:
    """Return the owners of the oldest pod."""
    oldest = oldest_of(pods)
    if oldest is None:
        return ""
    return ",".join(sorted(f"{oldest.namespace}/{owner.name}" for owner in oldest.owners))
