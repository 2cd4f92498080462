"""Capacity of a node that must stay free for reservations.

For a group that would run from now until some time, it is a peak need: that of the
reservations that start before then, beyond what is released in time. It is evaluated at
each start. The expected end of a reservation frees its capacity again.
"""

from __future__ import annotations

from collections.abc import Collection, Container, Iterable, Iterator, Sequence
from contextlib import contextmanager
from operator import attrgetter

import numpy as np

from windlass.engine.backfill.peak_demand import Event, Units, peak
from windlass.engine.backfill.reservation import Amounts, Reservation
from windlass.engine.backfill.reserved_devices import ReservedDevices
from windlass.engine.devices.share_table import NOMINATED_SIDE, TaskShares
from windlass.engine.devices.whole_device_table import WHOLE
from windlass.engine.groups.entries import GroupEntry, TaskEntry
from windlass.engine.nodes.table import NOMINATED, NodeTable
from windlass.engine.state.expected_ends import end_of, place_of

_Parts = list[tuple[int, str, TaskShares]]
"""Row, owner, and its device shares."""
_End = tuple[float, TaskEntry]
_start = attrgetter("start")


class ReservedCapacity:
    """Checks and books the capacity that reservations need."""

    def __init__(self, table: NodeTable) -> None:
        self._table = table

    def leaves(
        self, group: GroupEntry, rows: Collection[int], kept: Sequence[Reservation], now: float, until: float
    ) -> bool:
        """Return whether the group, placed on these rows until ``until``, respects the reservations.

        False as well if that depends on devices.
        """
        table = self._table
        for row in rows:
            here = [r for r in kept if row in r.asked and r.binds(until)]
            if not here:
                continue
            if self._carded(row, here):
                return False
            allocatable, used, releasing, promised = table.planes[row].tolist()
            if all(
                used[at] - releasing[at] + promised[at] + units <= allocatable[at]
                for at, units in _together(row, here).items()
            ):
                continue  # enough without any release
            ending = [one for one in self._ends(row, now) if one[1].group is not group]
            for at, units in self._most(row, here, ending, now, until).items():
                if used[at] - releasing[at] + promised[at] + units > allocatable[at]:
                    return False
        return True

    @contextmanager
    def booked(
        self,
        kept: Iterable[Reservation],
        now: float,
        until: float,
        *,
        covered: bool = True,
        rows: Container[int] | None = None,
    ) -> Iterator[None]:
        """Book reserved capacity as nominated, against work that runs until ``until``.

        ``covered``: subtract what is released by then.
        ``rows``: only these rows; ``None`` for all.
        """
        by_row: dict[int, list[Reservation]] = {}
        for r in sorted(kept, key=_start):
            for row in r.asked if r.binds(until) else ():
                if rows is None or row in rows:
                    by_row.setdefault(row, []).append(r)
        amounts: list[tuple[int, Units]] = []
        parts: _Parts = []
        for row, here in by_row.items():
            ending = self._ends(row, now) if covered else []
            if self._carded(row, here):
                amounts.append((row, self._with_cards(row, here, ending, now, parts)))
            else:
                amounts.append((row, self._most(row, here, ending, now, until)))
        self._change(amounts, parts, 1)
        try:
            yield
        finally:
            self._change(amounts, parts, -1)

    def _change(self, amounts: Sequence[tuple[int, Units]], parts: _Parts, sign: int) -> None:
        table = self._table
        for row, units in amounts:
            for column, more in units.items():
                table.planes[row, NOMINATED, column] += sign * more
            table.touch(row)
        for row, name, cuts in parts:
            table.shares.put(row, name, cuts, NOMINATED_SIDE, sign)

    def _ends(self, row: int, now: float) -> list[_End]:
        """Return the tasks on a node, or nominated to it, with known ends.

        Terminating tasks are not included, since they cover nominations already.
        """
        table = self._table
        here = [*table.tasks[row].values(), *table.expected.get(row, {}).values()]
        known = [(end_of(entry, now), entry) for entry in here if place_of(entry) == row]
        return [(end, entry) for end, entry in known if end is not None]

    def _most(
        self, row: int, here: Iterable[Reservation], ending: Iterable[_End], now: float, until: float
    ) -> Units:
        """Return the peak need of these reservations on a row before ``until``, beyond the releases."""
        events: list[Event] = []
        last = now
        for r in here:
            start, end = max(r.start, now), r.ends(now)
            last = max(last, start)
            events.append((start, 1, r.asked[row]))
            if end is not None and end < until:
                events.append((end, -1, r.asked[row]))
        for end, entry in ending:
            if end <= last:
                events.append((end, -1, enumerate(self._table.leaves(entry).tolist())))
        return peak(events)

    # ------------------------------------------------------------------ with device shares

    def _carded(self, row: int, here: Iterable[Reservation]) -> bool:
        """Return whether any task holds, or will hold, device shares there."""
        return any(row in r.parts for r in here) or any(e.cuts for e in self._table.tasks[row].values())

    def _with_cards(
        self, row: int, here: Iterable[Reservation], known: Sequence[_End], now: float, parts: _Parts
    ) -> Units:
        """Return what to book on a row for these reservations, earliest first.

        Device shares are added to ``shares``. A release covers reserved capacity only
        once.
        """
        keeper = ReservedDevices(self._table)
        taken: Units = {}
        kept: Units = {}
        for r in here:
            ending = [e for end, e in known if e.row >= 0 and now < r.start and end <= r.start]
            vacated = self._keep_cards(keeper, r, row, ending, parts)
            leaving = self._given_back(ending).tolist()
            for column, units in r.asked[row]:
                left, before = leaving[column] + vacated.get(column, 0), taken.get(column, 0)
                lacking = max(units - max(left - before, 0), 0)
                taken[column] = before + units - lacking
                kept[column] = kept.get(column, 0) + lacking
        return kept

    def _keep_cards(
        self,
        keeper: ReservedDevices,
        reservation: Reservation,
        row: int,
        ending: Sequence[TaskEntry],
        parts: _Parts,
    ) -> Units:
        """Add the devices to reserve on a node. Return what is released of them, by column."""
        amounts = reservation.rows[row]
        cuts = keeper.parts(row, reservation.parts.get(row, ()), ending)
        cuts += keeper.closed(row, amounts, ending, self._given_back(ending))
        if cuts:
            parts.append((row, f"reservation {reservation.group.key}", cuts))
        codes = self._table.resources.codes
        vacated = keeper.vacated(row, ending).items()
        return {codes[resource]: WHOLE * len(indices) for resource, indices in vacated}

    def _given_back(self, entries: Iterable[TaskEntry]) -> Amounts:
        """Return what tasks release on a node together, without device shares."""
        width = self._table.width
        sums = np.zeros(width, dtype=np.int64)
        for entry in entries:
            sums += self._table.leaves(entry)[:width]
        return sums


def _together(row: int, here: Iterable[Reservation]) -> Units:
    """Return the need of these reservations on a row if all ran at the same time."""
    need: Units = {}
    for r in here:
        for column, units in r.asked[row]:
            need[column] = need.get(column, 0) + units
    return need
