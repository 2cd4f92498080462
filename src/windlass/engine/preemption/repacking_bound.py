"""Necessary condition for a step to fit after relocations, for each resource alone.

For any size, a node with ``a`` units has ``a // size`` slots of that size. A task of
``b`` units takes at least ``b // size`` slots, wherever it is placed. Consider nodes
without all movable tasks: there have to be enough slots for these tasks and for the
step. Moving fewer tasks gives no more slots. (Fekete, Schepers, "New classes of fast
lower bounds for bin packing problems", Mathematical Programming 91, 2001: dual feasible
functions.)
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from windlass.engine.feasibility.task_class import TaskClass
from windlass.engine.groups.entries import TaskEntry

_SIZES = 8
"""Maximum number of sizes that are checked, the largest first."""


class _Resource:
    """One resource: capacity of nodes without the movable tasks, and the amounts of these tasks."""

    def __init__(self, free: Iterable[int], held: Iterable[tuple[int, int]]) -> None:
        """``held``: row and units of each task."""
        self.movable: dict[int, int] = {}
        capacity = list(free)
        for row, units in held:
            capacity[row] += units
            if units:
                self.movable[units] = self.movable.get(units, 0) + 1
        self._capacity = [units for units in capacity if units > 0]
        self._slots: dict[int, int] = {}

    def slots(self, size: int) -> int:
        """Return how many slots of a size remain after the movable tasks are placed again."""
        result = self._slots.get(size)
        if result is None:
            result = sum([units // size for units in self._capacity])
            result -= sum([units // size * n for units, n in self.movable.items()])
            self._slots[size] = result
        return result


class RepackingBound:
    """Bound for one set of movable tasks.

    ``cells``: free capacity by row and column after all releases and nominations.
    """

    def __init__(self, cells: Sequence[Sequence[int]], movable: Iterable[TaskEntry]) -> None:
        self._cells = cells
        self._movable = list(movable)
        self._resources: dict[int, _Resource] = {}

    def could_hold(self, column: int, requests: Sequence[int], wanted: int) -> bool:
        """Return whether ``wanted`` of the tasks with these requests could fit."""
        resource = self._resources.get(column)
        if resource is None:
            held = _rows_and_units(self._movable, column)
            resource = self._resources[column] = _Resource([row[column] for row in self._cells], held)
        sizes = sorted({units for units in (*requests, *resource.movable) if units > 0}, reverse=True)
        for size in sizes[:_SIZES]:
            if resource.slots(size) < sum(sorted([units // size for units in requests])[:wanted]):
                return False
        return True


def _rows_and_units(entries: Iterable[TaskEntry], column: int) -> list[tuple[int, int]]:
    """Return row and units of each task."""
    units_by_class: dict[TaskClass, int] = {}
    result = []
    for entry in entries:
        cls = entry.cls
        units = units_by_class.get(cls)
        if units is None:
            units = units_by_class[cls] = int(cls.vector[column])
        result.append((entry.row, units))
    return result
