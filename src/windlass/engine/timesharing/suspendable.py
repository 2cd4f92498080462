"""Devices that time-sharing groups hold on each node, by rank.

This is an upper bound of what suspensions free. Each pair of group and node has one
slot in a few arrays. The amount that groups of a worse rank hold is then one sum for
all nodes. Plain lists hold the same for questions about one node. The result bounds
:class:`~windlass.engine.preemption.suspension_search.SuspensionSearch` from above:
groups that are protected, at the moment or by rules, are included.

Invariants: the slots of a group name the nodes on which it holds something. Unused
slots rank before all others.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from windlass.engine.feasibility.task_class import TaskClass
from windlass.engine.groups.entries import TERMINATING, GroupEntry

_UNUSED = float("-inf")
_INITIAL_SLOTS = 64


class SuspendableGroups:
    """Slots of all running time-sharing groups of one queue."""

    def __init__(self) -> None:
        self._rows = np.zeros(_INITIAL_SLOTS, dtype=np.int64)
        self._ranks = np.full(_INITIAL_SLOTS, _UNUSED)
        self._falls = np.zeros(_INITIAL_SLOTS)
        self._rank_lines: list[tuple[float, float]] = [(_UNUSED, 0.0)] * _INITIAL_SLOTS
        """Slot → rank at time 0, and its decrease per second."""
        self._slots_by_row: dict[int, list[int]] = {}
        """Row → slots of groups that hold something there."""
        self._falling_slots = 0
        """Number of slots with a decreasing rank."""
        self._held: list[list[TaskClass]] = [[] for _ in range(_INITIAL_SLOTS)]
        self._free = list(range(_INITIAL_SLOTS))
        self._slots: dict[str, list[int]] = {}
        self._amounts: dict[str, NDArray[np.int64]] = {}
        """Device resource → amount held by each slot, for resources requested so far."""
        self._units: dict[str, list[int]] = {}
        """The same as lists."""

    def add(self, group: GroupEntry, base: float, falls: float) -> None:
        """Add a running group.

        Its rank is that of
        :class:`~windlass.engine.timesharing.attained_service.TimeAccount`.
        """
        slots = self._slots[group.key] = []
        for row, held in _held(group).items():
            slot = self._new_slot()
            slots.append(slot)
            self._rows[slot] = row
            self._held[slot] = held
            self._slots_by_row.setdefault(row, []).append(slot)
            for name, units in self._units.items():
                units[slot] = self._amounts[name][slot] = _units(held, name)
        self._rank(slots, base, falls)

    def discard(self, group: GroupEntry) -> None:
        slots = self._slots.pop(group.key)
        self._rank(slots, _UNUSED, 0.0)
        for slot in slots:
            row = int(self._rows[slot])
            slots_here = self._slots_by_row[row]
            slots_here.remove(slot)
            if not slots_here:
                del self._slots_by_row[row]
        self._free += slots

    def rerank(self, group: GroupEntry, base: float, falls: float) -> None:
        self._rank(self._slots[group.key], base, falls)

    def has_changed(self, group: GroupEntry) -> bool:
        """Return whether the group holds other capacity than recorded."""
        slots = self._slots[group.key]
        known = {int(self._rows[slot]): self._held[slot] for slot in slots}
        return known != _held(group)

    def held_after(self, name: str, now: float, above: float, height: int) -> NDArray[np.int64] | None:
        """Return per row what groups ranked after ``above`` hold of a device resource.

        ``None`` if there is no such group.
        """
        values = self._ranks - self._falls * now if self._falling_slots else self._ranks
        ranked_after = np.flatnonzero(values > above)
        if not len(ranked_after):
            return None
        self._add_resource(name)
        held = np.zeros(height, dtype=np.int64)
        np.add.at(held, self._rows[ranked_after], self._amounts[name][ranked_after])
        return held

    def frees(self, row: int, name: str, now: float, above: float, units: int) -> bool:
        """Return whether :meth:`held_after` reaches ``units`` on one row."""
        self._add_resource(name)
        held, rank_lines = self._units[name], self._rank_lines
        for slot in self._slots_by_row.get(row, ()):
            base, falls = rank_lines[slot]
            if (base - falls * now if falls else base) > above:
                units -= held[slot]
                if units <= 0:
                    return True
        return units <= 0

    # ------------------------------------------------------------------ details

    def _add_resource(self, name: str) -> None:
        """Count a device resource from now on."""
        if name not in self._units:
            self._units[name] = [_units(held, name) for held in self._held]
            self._amounts[name] = np.array(self._units[name], dtype=np.int64)

    def _rank(self, slots: list[int], base: float, falls: float) -> None:
        rank_line = (base, falls)
        for slot in slots:
            before = self._rank_lines[slot][1]
            if falls != before:
                self._falling_slots += (falls != 0.0) - (before != 0.0)
                self._falls[slot] = falls
            self._ranks[slot] = base
            self._rank_lines[slot] = rank_line

    def _new_slot(self) -> int:
        if not self._free:
            size = len(self._rows)
            self._rows = np.concatenate([self._rows, np.zeros(size, dtype=np.int64)])
            self._ranks = np.concatenate([self._ranks, np.full(size, _UNUSED)])
            self._falls = np.concatenate([self._falls, np.zeros(size)])
            self._amounts = {
                name: np.concatenate([amounts, np.zeros(size, dtype=np.int64)])
                for name, amounts in self._amounts.items()
            }
            for units in self._units.values():
                units += [0] * size
            self._rank_lines += [(_UNUSED, 0.0)] * size
            self._held += [[] for _ in range(size)]
            self._free = list(range(size, 2 * size))
        return self._free.pop()


def _held(group: GroupEntry) -> dict[int, list[TaskClass]]:
    """Return row → classes of the tasks that the group has there, without terminating ones."""
    held: dict[int, list[TaskClass]] = {}
    for entry in group.tasks.values():
        if entry.row >= 0 and entry.state is not TERMINATING:
            held.setdefault(entry.row, []).append(entry.cls)
    return held


def _units(held: list[TaskClass], name: str) -> int:
    return sum(cls.request.get(name, 0) for cls in held)
