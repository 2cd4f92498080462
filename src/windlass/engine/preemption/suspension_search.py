"""Search for the groups to suspend for a time-sharing gang, with fewest devices stopped.

It serves tasks of one class with a capacity that depends on resources alone. Groups are
considered worst rank first. Each node collects them until one more task of the gang
fits. The best node stops the fewest devices, then the fewest groups, then the worst
ranks. For a gang of several tasks, nodes are chosen one task after the other. A group
that is suspended for one node frees its capacity on all its nodes, and this counts.

The amounts are upper bounds: the caller has to prove a result by placing the gang.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from operator import add, ge, sub

from windlass.engine.feasibility.task_class import TaskClass
from windlass.engine.groups.entries import TERMINATING, TaskEntry
from windlass.engine.pending.capacity_if_evicted import FutureFree
from windlass.engine.timesharing.attained_service import TimeAccount

_Cost = tuple[float, float, float]
"""Stopped devices, number of groups, and the negative of the worst rank among them."""
_ANY = float("inf")
Able = Callable[[float, float], Iterable[TimeAccount]]
"""Function (more than, at most) → suspendable groups with so many devices, worst rank first."""
NextSize = Callable[[float], float | None]
"""Function (size) → the next larger number of devices of a running group.

``None`` if there is none, or if there are too many to be examined.
"""


@dataclass(slots=True)
class _Row:
    """One node: free amounts of the requested columns, and groups to suspend, worst rank first."""

    row: int
    free: list[int]
    fits: int
    """Number of tasks that fit now."""
    most: list[int]
    """Free amounts if all of ``groups`` were suspended."""
    there: list[tuple[TimeAccount, list[int]]] = field(default_factory=list)


class SuspensionSearch:
    """Search for one gang of ``members`` tasks of ``cls``.

    ``leftover``: free capacity after all releases and nominations.
    """

    def __init__(
        self,
        cls: TaskClass,
        members: int,
        leftover: FutureFree,
        device: int,
        rows: Collection[int] | None = None,
    ) -> None:
        """``device``: column of the resource with counted stops, -1 for none.

        ``rows``: search these rows only. The static facts of nodes are part of ``cls``.
        """
        self._after_termination = after_termination = leftover.after_termination(cls, device)
        self._columns, self._asked, self._static = (
            after_termination.columns,
            after_termination.asked,
            after_termination.static,
        )
        self._rows: dict[int, _Row] = {}
        self._parts: dict[TaskClass, list[int]] = {}
        """Class → amounts that each of its tasks releases where no device is unhealthy."""
        self._table = leftover.table
        self._ailing = leftover.table.ailing
        self._cells = cells = leftover.cells()
        self._open: Collection[int] | None = None
        if rows is None:
            fitting, most = after_termination.total, after_termination.most
        else:
            self._open = {row for row in rows if self._static[row]}
            fitting = sum([after_termination.fits[row] for row in self._open])
            most = max([cells[row][device] for row in self._open], default=0) if device >= 0 else 0
        units = dict(zip(self._columns, self._asked, strict=True)).get(device, 0)
        self.missing = members - fitting
        self.least = (units - max(most, 0) % max(units, 1)) / 1000.0
        """Lower bound of the number of devices that have to stop."""

    def cheapest(self, runners: Iterable[TimeAccount]) -> list[TimeAccount] | None:
        """Return the groups to suspend; ``None`` if all of them were too few.

        ``runners``: groups that may be suspended, worst rank first.
        """
        if self.missing <= 0:
            return []
        if self.missing == 1:
            best = self._one(runners, (self.least, _ANY, _ANY))
            return None if best is None else best[1]
        for time_account in runners:
            self._enter(time_account)
        return self._several()

    def readily(self, able: Able, next_size: NextSize) -> list[TimeAccount] | None:
        """Return :meth:`cheapest` of a single task, if some of the running groups decide it.

        Else ``None``. The search begins with groups that hold no more devices than have
        to stop. If all of them together free too little on every node, nothing is
        cheaper than the worst rank of the next size that frees enough alone.
        """
        if self.missing != 1:
            return None
        above, most = -_ANY, 1.0 if self.least <= 1.0 else _ANY
        enough = (self.least, _ANY, _ANY)
        while (best := self._one(able(above, most), enough)) is None:
            size = next_size(most)
            if size is None:
                return None
            above, most, enough = most, size, (size, 1, _ANY)
        return best[1] if best[0] <= enough else None

    # ------------------------------------------------------------------ details

    def _row(self, at: int) -> _Row:
        """Return the node as far as it is known."""
        row = self._rows.get(at)
        if row is None:
            amounts = self._cells[at]
            free = [amounts[column] for column in self._columns]
            row = self._rows[at] = _Row(at, free, self._after_termination.fits[at], free)
        return row

    def _enter(self, time_account: TimeAccount) -> Sequence[_Row]:
        """Add what a group releases to its nodes. Return these nodes."""
        entries = time_account.group.tasks.values()
        opened, static, rows, parts = self._open, self._static, self._rows, self._parts
        ailing = self._ailing
        if len(entries) == 1:
            (entry,) = entries
            at = entry.row
            if at < 0 or entry.state is TERMINATING or not (static[at] if opened is None else at in opened):
                return ()
            row = rows.get(at) or self._row(at)
            amounts = (None if at in ailing else parts.get(entry.cls)) or self._amounts(entry)
            row.there.append((time_account, amounts))
            row.most = list(map(add, row.most, amounts))
            return (row,)
        by_row: dict[int, list[int]] = {}
        for entry in entries:
            at = entry.row
            if at < 0 or entry.state is TERMINATING or not (static[at] if opened is None else at in opened):
                continue
            amounts = (None if at in ailing else parts.get(entry.cls)) or self._amounts(entry)
            known = by_row.get(at)
            by_row[at] = amounts if known is None else list(map(add, known, amounts))
        found: list[_Row] = []
        for at, amounts in by_row.items():
            row = rows.get(at) or self._row(at)
            row.there.append((time_account, amounts))
            row.most = list(map(add, row.most, amounts))
            found.append(row)
        return found

    def _amounts(self, entry: TaskEntry) -> list[int]:
        """Return the amounts that a task releases."""
        leaves = self._table.leaves(entry)
        found = [int(leaves[column]) for column in self._columns]
        if entry.row not in self._ailing:
            self._parts[entry.cls] = found
        return found

    def _one(self, runners: Iterable[TimeAccount], enough: _Cost) -> tuple[_Cost, list[TimeAccount]] | None:
        """Return the cheapest node for a single task with its cost.

        Once the cost is at most ``enough``, no more groups are considered.
        """
        best: tuple[_Cost, list[TimeAccount]] | None = None
        reached: dict[int, float] = {}
        for time_account in runners:
            devices, there = time_account.segment.devices, self._enter(time_account)
            if best is not None and best[0] <= (devices, 1, -time_account.base):
                continue  # it does not get cheaper with this one
            for row in there:
                if reached.get(row.row, _ANY) <= devices:
                    continue  # nor on this node
                going = self._needed(row, ())
                if going is None:
                    continue
                cost = _cost(going)
                reached[row.row] = cost[0]
                if best is None or cost < best[0]:
                    best = cost, going
            if best is not None and best[0] <= enough:
                return best
        return best

    def _several(self) -> list[TimeAccount] | None:
        chosen: dict[TimeAccount, None] = {}
        missing, taken = self.missing, dict.fromkeys(self._rows, 0)
        while missing > 0:
            best: tuple[_Cost, int, list[TimeAccount]] | None = None
            for at in sorted(self._rows):
                row = self._rows[at]
                going = self._needed(row, chosen, taken[at] + 1)
                if going is None:
                    continue
                found = (_cost(going), at, going)
                if best is None or found[:2] < best[:2]:
                    best = found
                    if not going:
                        break
            if best is None:
                return None
            chosen.update(dict.fromkeys(best[2]))
            taken[best[1]] += 1
            missing -= 1
        return list(chosen)

    def _needed(self, row: _Row, gone: Collection[TimeAccount], more: int = 1) -> list[TimeAccount] | None:
        """Return the groups to suspend for ``more`` additional tasks, after those in ``suspended``.

        They are the worst ranks, or the smallest groups if that stops fewer devices.
        """
        goal = [(row.fits + more) * units for units in self._asked]
        if not _covers(row.most, goal):
            return None
        worst = self._first(row, row.there, gone, goal)
        if worst is None or len(row.there) == 1 or _cost(worst)[0] <= self.least:
            return worst
        by_size = sorted(row.there, key=lambda one: one[0].segment.devices)
        smallest = self._first(row, by_size, gone, goal)
        return worst if smallest is None or _cost(worst) <= _cost(smallest) else smallest

    def _first(
        self,
        row: _Row,
        order: Sequence[tuple[TimeAccount, list[int]]],
        gone: Collection[TimeAccount],
        goal: Sequence[int],
    ) -> list[TimeAccount] | None:
        """Return the first groups of an order that free enough, without those that are not needed."""
        left = list(row.free)
        going: list[tuple[TimeAccount, list[int]]] = []
        for time_account, amounts in order if gone else ():
            if time_account in gone:
                left = list(map(add, left, amounts))
        for time_account, amounts in order:
            if _covers(left, goal):
                break
            if time_account not in gone:
                left = list(map(add, left, amounts))
                going.append((time_account, amounts))
        if not _covers(left, goal):
            return None
        for at in range(len(going) - 2, -1, -1):
            without = list(map(sub, left, going[at][1]))
            if _covers(without, goal):
                left = without
                del going[at]
        return [account for account, _ in going]


def _cost(going: Sequence[TimeAccount]) -> _Cost:
    if len(going) == 1:
        return going[0].segment.devices, 1, -going[0].base
    return (
        sum(time_account.segment.devices for time_account in going),
        len(going),
        -max((time_account.base for time_account in going), default=0.0),
    )


def _covers(left: Sequence[int], goal: Sequence[int]) -> bool:
    return all(map(ge, left, goal))
