"""Whether a step could have room once others are moved, as far as each resource tells by itself.

For any size, a node with ``a`` units to give has ``a // size`` slots of that size, and a task of ``b`` units takes
``b // size`` of them at least, wherever it goes; so there have to be enough slots, on nodes with everybody gone who
may be moved, for them and for what is wanted. If fewer are moved, there are no more. (Fekete, Schepers, "New classes
of fast lower bounds for bin packing problems", Mathematical Programming 91, 2001: dual feasible functions.)
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from windlass.engine.feasibility.task_class import TaskClass
from windlass.engine.groups.entries import TaskEntry

_SIZES = 8
"""So many sizes are looked at, the largest first."""


class _Resource:
    """One resource: what nodes have with all of the movable gone, and how many of these hold how much of it."""

    def __init__(self, free: Iterable[int], held: Iterable[tuple[int, int]]) -> None:
        """``held``: row and units of each."""
        self.moved: dict[int, int] = {}
        there = list(free)
        for row, units in held:
            there[row] += units
            if units:
                self.moved[units] = self.moved.get(units, 0) + 1
        self._there = [units for units in there if units > 0]
        self._slots: dict[int, int] = {}

    def slots(self, size: int) -> int:
        """How many of a size are left once the movable have theirs again."""
        found = self._slots.get(size)
        if found is None:
            found = sum([units // size for units in self._there])
            found -= sum([units // size * n for units, n in self.moved.items()])
            self._slots[size] = found
        return found


class RepackingBound:
    """``cells``: what is free by row and column once all that terminates is gone and every promise kept."""

    def __init__(self, cells: Sequence[Sequence[int]], movable: Iterable[TaskEntry]) -> None:
        self._cells = cells
        self._movable = list(movable)
        self._resources: dict[int, _Resource] = {}

    def holds(self, column: int, asked: Sequence[int], wanted: int) -> bool:
        """Whether ``wanted`` tasks of those that ask for so much each could have room."""
        resource = self._resources.get(column)
        if resource is None:
            held = _amounts(self._movable, column)
            resource = self._resources[column] = _Resource([row[column] for row in self._cells], held)
        sizes = sorted({units for units in (*asked, *resource.moved) if units > 0}, reverse=True)
        for size in sizes[:_SIZES]:
            if resource.slots(size) < sum(sorted([units // size for units in asked])[:wanted]):
                return False
        return True


def _amounts(entries: Iterable[TaskEntry], column: int) -> list[tuple[int, int]]:
    """Row and units of each."""
    known: dict[TaskClass, int] = {}
    found = []
    for entry in entries:
        cls = entry.cls
        units = known.get(cls)
        if units is None:
            units = known[cls] = int(cls.vector[column])
        found.append((entry.row, units))
    return found
