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
SuspendableBySize = Callable[[float, float], Iterable[TimeAccount]]
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
    maximum: list[int]
    """Free amounts if all of ``groups`` were suspended."""
    groups: list[tuple[TimeAccount, list[int]]] = field(default_factory=list)


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
        self._columns, self._requested, self._static = (
            after_termination.columns,
            after_termination.requested,
            after_termination.static,
        )
        self._rows: dict[int, _Row] = {}
        self._released: dict[TaskClass, list[int]] = {}
        """Class → amounts that each of its tasks releases where no device is unhealthy."""
        self._table = leftover.table
        self._unhealthy_rows = leftover.table.unhealthy_rows
        self._cells = cells = leftover.cells()
        self._allowed_rows: Collection[int] | None = None
        if rows is None:
            fitting, maximum = after_termination.total, after_termination.maximum
        else:
            self._allowed_rows = {row for row in rows if self._static[row]}
            fitting = sum([after_termination.fits[row] for row in self._allowed_rows])
            maximum = max([cells[row][device] for row in self._allowed_rows], default=0) if device >= 0 else 0
        units = dict(zip(self._columns, self._requested, strict=True)).get(device, 0)
        self.missing = members - fitting
        self.min_stopped = (units - max(maximum, 0) % max(units, 1)) / 1000.0
        """Lower bound of the number of devices that have to stop."""

    def cheapest(self, runners: Iterable[TimeAccount]) -> list[TimeAccount] | None:
        """Return the groups to suspend; ``None`` if all of them were too few.

        ``runners``: groups that may be suspended, worst rank first.
        """
        if self.missing <= 0:
            return []
        if self.missing == 1:
            best = self._best_node(runners, (self.min_stopped, _ANY, _ANY))
            return None if best is None else best[1]
        for time_account in runners:
            self._add(time_account)
        return self._for_several()

    def cheapest_if_clear(
        self, suspendable: SuspendableBySize, next_size: NextSize
    ) -> list[TimeAccount] | None:
        """Return :meth:`cheapest` of a single task, if some of the running groups decide it.

        Else ``None``. The search begins with groups that hold no more devices than have
        to stop. If all of them together free too little on every node, nothing is
        cheaper than the worst rank of the next size that frees enough alone.
        """
        if self.missing != 1:
            return None
        above, maximum = -_ANY, 1.0 if self.min_stopped <= 1.0 else _ANY
        bound = (self.min_stopped, _ANY, _ANY)
        while (best := self._best_node(suspendable(above, maximum), bound)) is None:
            size = next_size(maximum)
            if size is None:
                return None
            above, maximum, bound = maximum, size, (size, 1, _ANY)
        return best[1] if best[0] <= bound else None

    # ------------------------------------------------------------------ details

    def _row(self, row_number: int) -> _Row:
        """Return the node as far as it is known."""
        row = self._rows.get(row_number)
        if row is None:
            amounts = self._cells[row_number]
            free = [amounts[column] for column in self._columns]
            row = self._rows[row_number] = _Row(
                row_number, free, self._after_termination.fits[row_number], free
            )
        return row

    def _add(self, time_account: TimeAccount) -> Sequence[_Row]:
        """Add what a group releases to its nodes. Return these nodes."""
        entries = time_account.group.tasks.values()
        allowed, static, rows, released = self._allowed_rows, self._static, self._rows, self._released
        unhealthy_rows = self._unhealthy_rows
        if len(entries) == 1:
            (entry,) = entries
            row_number = entry.row
            if (
                row_number < 0
                or entry.state is TERMINATING
                or not (static[row_number] if allowed is None else row_number in allowed)
            ):
                return ()
            row = rows.get(row_number) or self._row(row_number)
            released_amounts = (
                None if row_number in unhealthy_rows else released.get(entry.cls)
            ) or self._released_by(entry)
            row.groups.append((time_account, released_amounts))
            row.maximum = list(map(add, row.maximum, released_amounts))
            return (row,)
        by_row: dict[int, list[int]] = {}
        for entry in entries:
            row_number = entry.row
            if (
                row_number < 0
                or entry.state is TERMINATING
                or not (static[row_number] if allowed is None else row_number in allowed)
            ):
                continue
            released_amounts = (
                None if row_number in unhealthy_rows else released.get(entry.cls)
            ) or self._released_by(entry)
            previous = by_row.get(row_number)
            by_row[row_number] = (
                released_amounts if previous is None else list(map(add, previous, released_amounts))
            )
        result: list[_Row] = []
        for row_number, released_amounts in by_row.items():
            row = rows.get(row_number) or self._row(row_number)
            row.groups.append((time_account, released_amounts))
            row.maximum = list(map(add, row.maximum, released_amounts))
            result.append(row)
        return result

    def _released_by(self, entry: TaskEntry) -> list[int]:
        """Return the amounts that a task releases."""
        vector = self._table.released_by(entry)
        result = [int(vector[column]) for column in self._columns]
        if entry.row not in self._unhealthy_rows:
            self._released[entry.cls] = result
        return result

    def _best_node(
        self, runners: Iterable[TimeAccount], bound: _Cost
    ) -> tuple[_Cost, list[TimeAccount]] | None:
        """Return the cheapest node for a single task with its cost.

        Once the cost is at most ``bound``, no more groups are considered.
        """
        best: tuple[_Cost, list[TimeAccount]] | None = None
        tried: dict[int, float] = {}
        for time_account in runners:
            devices, rows = time_account.segment.devices, self._add(time_account)
            if best is not None and best[0] <= (devices, 1, -time_account.base):
                continue  # it does not get cheaper with this one
            for row in rows:
                if tried.get(row.row, _ANY) <= devices:
                    continue  # nor on this node
                victims = self._victims_on(row, ())
                if victims is None:
                    continue
                cost = _cost(victims)
                tried[row.row] = cost[0]
                if best is None or cost < best[0]:
                    best = cost, victims
            if best is not None and best[0] <= bound:
                return best
        return best

    def _for_several(self) -> list[TimeAccount] | None:
        chosen: dict[TimeAccount, None] = {}
        missing, taken = self.missing, dict.fromkeys(self._rows, 0)
        while missing > 0:
            best: tuple[_Cost, int, list[TimeAccount]] | None = None
            for row_number in sorted(self._rows):
                row = self._rows[row_number]
                victims = self._victims_on(row, chosen, taken[row_number] + 1)
                if victims is None:
                    continue
                result = (_cost(victims), row_number, victims)
                if best is None or result[:2] < best[:2]:
                    best = result
                    if not victims:
                        break
            if best is None:
                return None
            chosen.update(dict.fromkeys(best[2]))
            taken[best[1]] += 1
            missing -= 1
        return list(chosen)

    def _victims_on(
        self, row: _Row, suspended: Collection[TimeAccount], more: int = 1
    ) -> list[TimeAccount] | None:
        """Return the groups to suspend for ``more`` additional tasks, after those in ``suspended``.

        They are the worst ranks, or the smallest groups if that stops fewer devices.
        """
        goal = [(row.fits + more) * units for units in self._requested]
        if not _covers(row.maximum, goal):
            return None
        worst = self._first_enough(row, row.groups, suspended, goal)
        if worst is None or len(row.groups) == 1 or _cost(worst)[0] <= self.min_stopped:
            return worst
        by_size = sorted(row.groups, key=lambda pair: pair[0].segment.devices)
        smallest = self._first_enough(row, by_size, suspended, goal)
        return worst if smallest is None or _cost(worst) <= _cost(smallest) else smallest

    def _first_enough(
        self,
        row: _Row,
        order: Sequence[tuple[TimeAccount, list[int]]],
        suspended: Collection[TimeAccount],
        goal: Sequence[int],
    ) -> list[TimeAccount] | None:
        """Return the first groups of an order that free enough, without those that are not needed."""
        free = list(row.free)
        victims: list[tuple[TimeAccount, list[int]]] = []
        for time_account, released_amounts in order if suspended else ():
            if time_account in suspended:
                free = list(map(add, free, released_amounts))
        for time_account, released_amounts in order:
            if _covers(free, goal):
                break
            if time_account not in suspended:
                free = list(map(add, free, released_amounts))
                victims.append((time_account, released_amounts))
        if not _covers(free, goal):
            return None
        for position in range(len(victims) - 2, -1, -1):
            without = list(map(sub, free, victims[position][1]))
            if _covers(without, goal):
                free = without
                del victims[position]
        return [account for account, _ in victims]


def _cost(victims: Sequence[TimeAccount]) -> _Cost:
    if len(victims) == 1:
        return victims[0].segment.devices, 1, -victims[0].base
    return (
        sum(time_account.segment.devices for time_account in victims),
        len(victims),
        -max((time_account.base for time_account in victims), default=0.0),
    )


def _covers(free: Sequence[int], goal: Sequence[int]) -> bool:
    return all(map(ge, free, goal))
