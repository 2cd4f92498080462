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
from windlass.engine.backfill.reservation import Reservation, Resources
from windlass.engine.backfill.reserved_devices import ReservedDevices
from windlass.engine.devices.share_table import NOMINATED_SIDE, TaskShares
from windlass.engine.devices.whole_device_table import WHOLE
from windlass.engine.groups.entries import GroupEntry, TaskEntry, nominated_on, tasks_on
from windlass.engine.nodes.table import NOMINATED, NodeTable
from windlass.engine.state.expected_ends import end_of, releasing_row

_DeviceShares = list[tuple[int, str, TaskShares]]
"""Row, owner, and its device shares."""
_End = tuple[float, TaskEntry]
_start = attrgetter("start")


class ReservedCapacity:
    """Checks and books the capacity that reservations need."""

    def __init__(self, table: NodeTable) -> None:
        self._table = table

    def is_respected(
        self,
        group: GroupEntry,
        rows: Collection[int],
        reservations: Sequence[Reservation],
        now: float,
        until: float,
    ) -> bool:
        """Return whether the group, placed on these rows until ``until``, respects the reservations.

        False as well if that depends on devices.
        """
        table = self._table
        for row in rows:
            local = [r for r in reservations if row in r.column_units and r.affects(until)]
            if not local:
                continue
            if self._has_shares(row, local):
                return False
            allocatable, used, releasing, nominated = table.planes[row].tolist()
            if all(
                used[at] - releasing[at] + nominated[at] + units <= allocatable[at]
                for at, units in _total_need(row, local).items()
            ):
                continue  # enough without any release
            ending = [end for end in self._expected_ends(row, now) if end[1].group is not group]
            for column, units in self._peak_need(row, local, ending, now, until).items():
                if used[column] - releasing[column] + nominated[column] + units > allocatable[column]:
                    return False
        return True

    @contextmanager
    def booked(
        self,
        reservations: Iterable[Reservation],
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
        for r in sorted(reservations, key=_start):
            for row in r.column_units if r.affects(until) else ():
                if rows is None or row in rows:
                    by_row.setdefault(row, []).append(r)
        resources: list[tuple[int, Units]] = []
        shares: _DeviceShares = []
        for row, local in by_row.items():
            ending = self._expected_ends(row, now) if covered else []
            if self._has_shares(row, local):
                resources.append((row, self._need_with_devices(row, local, ending, now, shares)))
            else:
                resources.append((row, self._peak_need(row, local, ending, now, until)))
        self._apply(resources, shares, 1)
        try:
            yield
        finally:
            self._apply(resources, shares, -1)

    def _apply(self, resources: Sequence[tuple[int, Units]], shares: _DeviceShares, sign: int) -> None:
        table = self._table
        for row, units in resources:
            for column, extra in units.items():
                table.planes[row, NOMINATED, column] += sign * extra
            table.touch(row)
        for row, name, device_shares in shares:
            table.shares.put(row, name, device_shares, NOMINATED_SIDE, sign)

    def _expected_ends(self, row: int, now: float) -> list[_End]:
        """Return the tasks on a node, or nominated to it, with known ends.

        Terminating tasks are not included, since they cover nominations already.
        """
        table = self._table
        entries = [*tasks_on(table, row).values(), *nominated_on(table, row).values()]
        known = [(end_of(entry, now), entry) for entry in entries if releasing_row(entry) == row]
        return [(end, entry) for end, entry in known if end is not None]

    def _peak_need(
        self, row: int, local: Iterable[Reservation], ending: Iterable[_End], now: float, until: float
    ) -> Units:
        """Return the peak need of these reservations on a row before ``until``, beyond the releases."""
        events: list[Event] = []
        last = now
        for r in local:
            start, end = max(r.start, now), r.end(now)
            last = max(last, start)
            events.append((start, 1, r.column_units[row]))
            if end is not None and end < until:
                events.append((end, -1, r.column_units[row]))
        for end, entry in ending:
            if end <= last:
                events.append((end, -1, enumerate(self._table.released_by(entry).tolist())))
        return peak(events)

    # ------------------------------------------------------------------ with device shares

    def _has_shares(self, row: int, local: Iterable[Reservation]) -> bool:
        """Return whether any task holds, or will hold, device shares there."""
        return any(row in r.device_shares for r in local) or any(
            e.shares for e in self._table.tasks[row].values()
        )

    def _need_with_devices(
        self, row: int, local: Iterable[Reservation], known: Sequence[_End], now: float, shares: _DeviceShares
    ) -> Units:
        """Return what to book on a row for these reservations, earliest first.

        Device shares are added to ``shares``. A release covers reserved capacity only
        once.
        """
        reserved_devices = ReservedDevices(self._table)
        booked: Units = {}
        needed: Units = {}
        for r in local:
            ending = [e for end, e in known if e.row >= 0 and now < r.start and end <= r.start]
            vacated = self._reserve_devices(reserved_devices, r, row, ending, shares)
            releasing = self._released(ending).tolist()
            for column, units in r.column_units[row]:
                available, before = releasing[column] + vacated.get(column, 0), booked.get(column, 0)
                missing = max(units - max(available - before, 0), 0)
                booked[column] = before + units - missing
                needed[column] = needed.get(column, 0) + missing
        return needed

    def _reserve_devices(
        self,
        reserved_devices: ReservedDevices,
        reservation: Reservation,
        row: int,
        ending: Sequence[TaskEntry],
        shares: _DeviceShares,
    ) -> Units:
        """Add the devices to reserve on a node. Return what is released of them, by column."""
        resources = reservation.rows[row]
        device_shares = reserved_devices.shares_to_book(row, reservation.device_shares.get(row, ()), ending)
        device_shares += reserved_devices.closed_shares(row, resources, ending, self._released(ending))
        if device_shares:
            shares.append((row, f"reservation {reservation.group.key}", device_shares))
        codes = self._table.resources.codes
        vacated = reserved_devices.vacated(row, ending).items()
        return {codes[resource]: WHOLE * len(indices) for resource, indices in vacated}

    def _released(self, entries: Iterable[TaskEntry]) -> Resources:
        """Return what tasks release on a node together, without device shares."""
        width = self._table.width
        sums = np.zeros(width, dtype=np.int64)
        for entry in entries:
            sums += self._table.released_by(entry)[:width]
        return sums


def _total_need(row: int, local: Iterable[Reservation]) -> Units:
    """Return the need of these reservations on a row if all ran at the same time."""
    need: Units = {}
    for r in local:
        for column, units in r.column_units[row]:
            need[column] = need.get(column, 0) + units
    return need
