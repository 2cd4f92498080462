"""Reservation: the capacity a group will hold, its nodes and its start."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from windlass.engine.backfill.forecast import ReservedCounts
from windlass.engine.devices.share_table import TaskShares
from windlass.engine.feasibility.task_class import TaskClass
from windlass.engine.groups.entries import GroupEntry
from windlass.engine.groups.next_step import is_nominated
from windlass.engine.groups.pending_class import Signature
from windlass.engine.groups.run_times import run_time

UNKNOWN = float(1 << 60)
"""Start of a reservation with an unknown start."""
Resources = NDArray[np.int64]


@dataclass(slots=True)
class Reservation:
    """Capacity reserved for one group.

    ``rows``: row → what the group will hold there, from ``start`` (Unix seconds) on.
    """

    group: GroupEntry
    start: float
    rows: dict[int, Resources]
    nodes: dict[int, str]
    """Row → name of its node; it reveals whether the row belongs to another node now."""
    signature: Signature
    """Request of the group when the reservation was made."""
    device_shares: dict[int, TaskShares] = field(default_factory=dict)
    """Row → device shares that the group will hold there."""
    column_units: dict[int, list[tuple[int, int]]] = field(default_factory=dict)
    """``rows`` as pairs of column and units, without zeros."""
    due_cycles: int = 0
    """Number of cycles since the start was reached."""
    tasks: dict[TaskClass, dict[int, int]] = field(default_factory=dict)
    """Class → row → number of its tasks there; empty if the start is unknown."""
    is_early: bool = False
    """True for a group with an earliest start: it is planned again in every cycle."""

    def reserves_same(self, other: Reservation | None) -> bool:
        """Return whether the other reserves the same from the same start, so that it frees nothing."""
        return self is other or (
            other is not None
            and (self.start, self.nodes, self.device_shares)
            == (other.start, other.nodes, other.device_shares)
            and all(np.array_equal(resources, other.rows[row]) for row, resources in self.rows.items())
        )

    def is_current(self) -> bool:
        """Return whether the request of the group is unchanged."""
        if self.is_early:
            return True
        pending_class = self.group.pending_class
        return pending_class is not None and (
            pending_class.signature is self.signature or pending_class.signature == self.signature
        )

    def nodes_accept(self) -> bool:
        """Return whether the nodes accept the planned tasks, resources ignored.

        A cordoned node does not, for example. If the tasks per row are unknown, each
        node has to accept some task.
        """
        for cls, rows in self.tasks.items():
            cls.refresh()
            if not all(cls.static.item(row) for row in rows):
                return False
        step = self.group.step
        if self.tasks or step is None:
            return True
        requested = {batch.cls for batch in step.batches}
        for cls in requested:
            cls.refresh()
        return all(any(cls.static.item(row) for cls in requested) for row in self.rows)

    def affects(self, until: float) -> bool:
        """Return whether the reservation affects tasks that run until then.

        An unknown start affects all.
        """
        return self.start < until or self.start >= UNKNOWN

    def end(self, now: float) -> float | None:
        """Return the expected end of the group; ``None`` if it is unknown."""
        seconds = run_time(self.group) if self.group.timed and self.start < UNKNOWN else None
        return None if seconds is None else max(self.start, now) + seconds

    def reserved_counts(self) -> ReservedCounts | None:
        """Return the reserved counts if they need no new trial; else ``None``.

        There are none if tasks request device shares. With learned run times, other
        groups end at other times than planned, so everything is planned again.
        """
        if not self.is_predictable or any(cls.needs.devices for cls in self.tasks):
            return None
        return ReservedCounts(self.start, self.tasks)

    @property
    def is_predictable(self) -> bool:
        """Return whether the group starts as planned, provided that its capacity is free."""
        group = self.group
        return bool(
            self.tasks and group.step is not None and not group.nominations and not group.spec.learned
        )


def waits_for_nominated(group: GroupEntry) -> bool:
    """Return whether evictions have nominated everything that the group waits for."""
    return group.nominations > 0 and group.step is not None and is_nominated(group, group.step)


def is_predictable(reservation: Reservation) -> bool:
    """Return whether the group of a reservation starts as planned, if its capacity is free."""
    return reservation.is_predictable


def started_as_planned(reservation: Reservation) -> bool:
    """Return whether the group of the reservation has started exactly as planned."""
    placed: dict[TaskClass, dict[int, int]] = {}
    for entry in reservation.group.tasks.values():
        rows = placed.setdefault(entry.cls, {})
        rows[entry.row] = rows.get(entry.row, 0) + 1
    return placed == reservation.tasks
