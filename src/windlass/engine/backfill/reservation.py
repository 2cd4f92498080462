"""A reservation: what a group will hold, where and from when."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from windlass.engine.backfill.forecast import ReservedCounts
from windlass.engine.devices.share_table import TaskShares
from windlass.engine.feasibility.task_class import TaskClass
from windlass.engine.groups.entries import GroupEntry, run_time
from windlass.engine.pending.scheduling_queue import Signature

UNKNOWN = float(1 << 60)
"""The start of a reservation of which nobody knows when it will be."""
Amounts = NDArray[np.int64]


@dataclass(slots=True)
class Reservation:
    """``rows``: row → what the group will hold there, from ``start`` (Unix seconds) on."""

    group: GroupEntry
    start: float
    rows: dict[int, Amounts]
    nodes: dict[int, str]
    """Row → the name of the node there, by which a row that now is another node's is recognised."""
    signature: Signature
    """What the group asked for."""
    parts: dict[int, TaskShares] = field(default_factory=dict)
    """Row → what the group will hold of cards there."""
    asked: dict[int, list[tuple[int, int]]] = field(default_factory=dict)
    """``rows`` as pairs of column and units, of what it will hold any of."""
    turns: int = 0
    """Cycles since its time has come."""
    tasks: dict[TaskClass, dict[int, int]] = field(default_factory=dict)
    """Class → row → how many of its tasks will be there; none for a start of which nothing is known."""

    def same(self, other: Reservation | None) -> bool:
        """Whether the other keeps the same, from the same moment on, so that nobody else may come for it."""
        return self is other or (
            other is not None
            and (self.start, self.nodes, self.parts) == (other.start, other.nodes, other.parts)
            and all(np.array_equal(amounts, other.rows[row]) for row, amounts in self.rows.items())
        )

    def asks(self) -> bool:
        """Whether the group asks for the same as when it was made."""
        pending_class = self.group.bucket
        return pending_class is not None and (
            pending_class.signature is self.signature or pending_class.signature == self.signature
        )

    def open(self) -> bool:
        """Whether its nodes take the tasks that are to be there, but for amounts: they are not cordoned, say. Where it
        is not known which those are, each has to take some."""
        for cls, rows in self.tasks.items():
            cls.refresh()
            if not all(cls.static.item(row) for row in rows):
                return False
        step = self.group.step
        if self.tasks or step is None:
            return True
        asked = {batch.cls for batch in step.batches}
        for cls in asked:
            cls.refresh()
        return all(any(cls.static.item(row) for cls in asked) for row in self.rows)

    def binds(self, until: float) -> bool:
        """Whether somebody who is there until then might be in its way: if nobody knows when it starts, anybody."""
        return self.start < until or self.start >= UNKNOWN

    def ends(self, now: float) -> float | None:
        """When the group will have ended; ``None`` if that is not known."""
        seconds = run_time(self.group) if self.group.timed and self.start < UNKNOWN else None
        return None if seconds is None else max(self.start, now) + seconds

    def told(self) -> ReservedCounts | None:
        """What it keeps, if that can be told without trying: where nobody asks for parts of cards. Where run times
        are learned, others end otherwise than was reckoned with: all is planned anew."""
        if not self.tellable or any(cls.needs.devices for cls in self.tasks):
            return None
        return ReservedCounts(self.start, self.tasks)

    @property
    def tellable(self) -> bool:
        """Whether the group starts when and where it was said, if it finds its room."""
        group = self.group
        return bool(self.tasks and group.step is not None and not group.promises and not group.spec.learned)
