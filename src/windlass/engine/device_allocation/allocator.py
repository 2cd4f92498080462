"""Device allocator: counts how many tasks the devices of a row hold, and picks devices.

It connects the share table and the plugins that choose devices with all callers.
Results are cached by the state of the row's planes and devices, so rows in equal states
are evaluated once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from windlass.engine.decision import DeviceShare
from windlass.engine.device_allocation.freed_devices import FreedDevices
from windlass.engine.device_allocation.node_devices import MAX_CACHED, MAX_CACHES, DeviceRows, cache_of
from windlass.engine.device_allocation.plugin_choice import PluginDeviceChoice
from windlass.engine.device_allocation.plugin_scores import PluginDeviceScores
from windlass.engine.device_allocation.reported import ReportedDevices
from windlass.engine.devices.assignment import UNLIMITED, Budgets, DeviceSummary, NodeDeviceAssignment
from windlass.engine.devices.need_cache import NeedCache, pick
from windlass.engine.devices.plain_view import PlainDevices
from windlass.engine.devices.share_table import (
    FIELDS,
    HELD_SIDE,
    NOMINATED_SIDE,
    PLACES,
    SHARES,
    TAKEN,
    TaskShare,
    TaskShares,
    shares_fit,
)
from windlass.engine.devices.whole_device_table import WHOLE, bits
from windlass.engine.nodes.table import NodeTable, RowTask
from windlass.engine.nodes.view import TableView
from windlass.engine.plugin_set import PluginSet
from windlass.spi.devices import DeviceNeed
from windlass.spi.objects import Needs

Counter = Callable[[int, Sequence[int]], int]
"""Function that returns how many tasks a row holds, from the free amount of each column."""


class DeviceAllocator:
    """Allocator of device shares for task classes.

    ``rows``: assignments on single rows.
    ``choice``: plugin scores of devices.
    ``reported``: shares of running tasks as the cluster reports them.
    """

    def __init__(self, table: NodeTable, plugins: PluginSet) -> None:
        self._table = table
        self._shares = table.shares
        self._plugins = plugins
        self._picks: dict[tuple[bytes, tuple[DeviceNeed, ...], bool], TaskShares | None] = {}
        self._counts: dict[tuple[bytes, tuple[DeviceNeed, ...], bool], int] = {}
        plain = PlainDevices(table.shares)
        self.devices_of = plain.of
        """Devices of a row in plain values."""
        self._summaries: dict[tuple[tuple[DeviceNeed, ...], bool], dict[object, list[DeviceSummary]]] = {}
        self._scores = PluginDeviceScores(table, plugins, plain)
        self.rows = DeviceRows(table)
        self.choice = PluginDeviceChoice(table, plugins, self._scores)
        self.reported = ReportedDevices(table, self.rows, self.choice).reported
        self._decided: dict[tuple[int, int], tuple[TaskShare, DeviceShare]] = {}
        """(Device set, identity of a share) → its form in a decision."""

    # ------------------------------------------------------------------ counts

    def counts(self, rows: Sequence[int], needs: Needs, *, later: bool = False) -> NDArray[np.int64]:
        """Return how many tasks of these needs the devices of each row hold."""
        devices = needs.devices
        planes, cached = self._table.planes, self._counts
        if len(cached) > MAX_CACHED:
            cached.clear()
        counts = np.empty(len(rows), dtype=np.int64)
        choose = self.choice.choice(needs)
        by_device = not later and len(devices) == 1 and NeedCache.is_cacheable(devices[0])
        for index, row in enumerate(rows):
            if by_device:
                n = self.count_one(row, devices[0])
                if n is not None:
                    counts[index] = n
                    continue
            key = (planes[row].tobytes() + self.rows.state_key(row, devices), devices, later)
            if later and planes[row, 2, 0] > 0:  # the key does not contain which devices plain pods release
                assignment = self.rows.assignment(row, devices, choose, later=True)
                counts[index] = assignment.count(devices, self.rows.plan(row, devices), UNLIMITED)
                continue
            n = cached.get(key)
            if n is None:
                assignment = self.rows.assignment(row, devices, choose, later=later)
                n = cached[key] = assignment.count(devices, self.rows.plan(row, devices), UNLIMITED)
            counts[index] = n
        return counts

    def limit_counts(self, count: NDArray[np.int64], view: TableView, needs: Needs) -> None:
        """Lower ``count``, one entry per row of the view, to what the devices of the rows hold."""
        wanted = np.flatnonzero(count > 0)
        if not len(wanted):
            return
        rows = view.rows[wanted]
        if view.empty:
            by_devices = self.empty_counts(rows.tolist(), needs)
        else:
            by_devices = self.counts(rows.tolist(), needs, later=view.future)
        count[wanted] = np.minimum(count[wanted], by_devices)

    def empty_counts(self, rows: Sequence[int], needs: Needs) -> NDArray[np.int64]:
        """Return :meth:`counts` for rows without any task."""
        counts = np.empty(len(rows), dtype=np.int64)
        choose = self.choice.choice(needs)
        cached: dict[object, int] = {}
        for index, (row, key) in enumerate(
            zip(rows, self.rows.summary_keys(rows, needs.devices, empty=True), strict=True)
        ):
            n = cached.get(key)
            if n is None:
                assignment = self.rows.assignment_if_empty(row, needs.devices, choose)
                n = cached[key] = assignment.count(
                    needs.devices, self.rows.plan(row, needs.devices), UNLIMITED
                )
            counts[index] = n
        return counts

    def count_if(self, row: int, needs: Needs, vacated: FreedDevices, left: NDArray[np.int64]) -> int:
        """Return how many tasks the row would hold if some tasks were gone.

        ``left``: free amount of each column then, without the device shares of these
        tasks.
        """
        devices = needs.devices
        self._shares.sync(row)
        devices_here = self._shares.row(row)
        codes = self._table.resources.codes
        budgets: Budgets = {
            name: [(int(left[codes[name]]) if name in codes else 0) + vacated.freed(row, name), 0, 0, 0]
            for name in self.rows.budgets(row, devices)
        }
        listed = {need.listed for need in devices if self.rows.is_listed(row, need)}
        cells = vacated.cells(row) or self._shares.cells[row].tolist()
        vacated_slots = self.rows.vacated(row, devices_here, vacated.evicted(row))
        assignment = NodeDeviceAssignment(
            devices_here,
            cells,
            budgets,
            later=True,
            vacated=vacated_slots,
            choose=self.choice.choice(needs),
            listed=listed,
            released=vacated.consumed(row),
        )
        return assignment.count(devices, self.rows.plan(row, devices), UNLIMITED)

    def missing_fractions(self, rows: Sequence[int], needs: Needs) -> NDArray[np.float64]:
        """Return the missing fraction of devices after all releases, per row, summed over needs.

        It is infinite if not even the empty node would hold a task.
        """
        missing = np.zeros(len(rows))
        empty, later = self.empty_counts(rows, needs), self.counts(rows, needs, later=True)
        for index, row in enumerate(rows):
            if not empty[index]:
                missing[index] = np.inf
            elif not later[index]:
                missing[index] = sum(
                    summary.missing_fraction for summary in self.summary(row, needs, later=True)
                )
        return missing

    def counter(self, needs: Needs) -> Counter:
        """Return a function for :meth:`counts` of single rows that is called many times."""
        devices = needs.devices
        caches = self.rows.caches(devices[0]) if len(devices) == 1 and not devices[0].listed else None
        if caches is None:
            return lambda row, _: int(self.counts((row,), needs)[0])
        need, share_table, stale = devices[0], self._shares, self._table.devices.stale
        share_rows, codes = share_table.rows, self._table.resources.codes

        def count(row: int, free: Sequence[int]) -> int:
            devices_here = share_rows[row]
            if devices_here is None or row in stale:
                share_table.sync(row)
                devices_here = share_table.row(row)
            cache = caches.get(devices_here.device_set.code) or cache_of(caches, need, devices_here)
            total, opened = cache.tally(devices_here, share_table.cells, row)
            for resource, units in opened:
                column = codes.get(resource)
                if column is None or free[column] < units:
                    return int(self.counts((row,), needs)[0])
            return total if total >= 0 else int(self.counts((row,), needs)[0])

        return count

    def count_one(self, row: int, need: DeviceNeed) -> int | None:
        """Return :meth:`counts` of a row for one need from the cache.

        ``None`` if the full evaluation is required.
        """
        cache = self.rows.cache(row, need)
        if cache is None:
            return None
        total, opened = cache.tally(self._shares.row(row), self._shares.cells, row)
        if opened:
            available = self.rows.available(row, need)
            if any(available.get(resource, 0) < units for resource, units in opened):
                return None
        return total if total >= 0 else None

    def summaries(
        self, rows: Sequence[int], needs: Needs, *, empty: bool = False
    ) -> list[list[DeviceSummary]]:
        """Return :meth:`summary` of many rows.

        Results are cached, because a class mostly asks for the same rows again.
        """
        cached = self._summaries.setdefault((needs.devices, empty), {})
        if len(cached) > MAX_CACHED or len(self._summaries) > MAX_CACHES:
            self._summaries = {(needs.devices, empty): (cached := {})}
        result = []
        for row, key in zip(rows, self.rows.summary_keys(rows, needs.devices, empty=empty), strict=True):
            summaries = cached.get(key)
            if summaries is None:
                cache = (
                    self.rows.cache(row, needs.devices[0]) if not empty and len(needs.devices) == 1 else None
                )
                if cache is not None:
                    summaries = [cache.summary(self._shares.row(row), self._shares.cells[row])]
                else:
                    summaries = self.summary(row, needs, empty=empty)
                cached[key] = summaries
            result.append(summaries)
        return result

    def summary(
        self, row: int, needs: Needs, *, later: bool = False, empty: bool = False
    ) -> list[DeviceSummary]:
        """Return the summary of the row's devices for each of the needs by itself."""
        devices = needs.devices
        self._shares.sync(row)
        if empty:
            assignment = self.rows.assignment_if_empty(row, needs.devices, None)
        else:
            assignment = self.rows.open(row, self.rows.budgets(row, devices), None, later=later)
        return [
            assignment.summary(need, plan)
            for need, plan in zip(devices, self.rows.plan(row, devices), strict=True)
        ]

    def could_stay(self, entry: RowTask) -> bool:
        """Return whether a terminating task could keep its devices while all nominations hold."""
        row = entry.row
        if self._shares.rows[row] is None:
            return True
        if entry.shares and not self.are_available(row, entry.shares, later=True):
            return False
        self._shares.sync(row)
        device_set = self._shares.row(row).device_set
        for resource, mask in entry.masks:
            for index in bits(mask):
                slot = device_set.slots.get((resource, index))
                if (
                    slot is not None
                    and self._shares.cells[
                        row, slot, NOMINATED_SIDE * FIELDS + SHARES : NOMINATED_SIDE * FIELDS + PLACES
                    ].any()
                ):
                    return False
        return True

    def is_consistent(self, row: int) -> bool:
        """Return whether the remaining and the nominated shares of the row's devices fit together."""
        if self._shares.rows[row] is None:
            return True
        self._shares.sync(row)
        devices_here = self._shares.row(row)
        vacated = self.rows.vacated(row, devices_here)
        for slot, facts in enumerate(devices_here.device_set.devices):
            cells = self._shares.cells[row, slot].tolist()
            if not shares_fit(facts, cells, whole=bool(cells[TAKEN]) and slot not in vacated):
                return False
        consuming = devices_here.consumption or any(
            facts.device.draws for facts in devices_here.device_set.devices
        )
        return not consuming or self.rows.open(row, {}, None, later=True).counters_hold()

    def pick(self, row: int, needs: Needs, *, later: bool = False, scored: bool = True) -> TaskShares | None:
        """Return the shares that one task gets on the row; ``None`` if it does not fit.

        ``scored``: plugins that score the whole node take part.
        """
        devices = needs.devices
        ranked = scored and bool(self._plugins.device_ranks) and any(need.pack is None for need in devices)
        if ranked and not later and len(devices) == 1:
            picked = self._pick_by_scores(row, needs, devices[0])
            if picked is not None:
                return picked
        if later or ranked:
            choose = self.choice.choice(needs, row if ranked else -1, later=later)
            return self.rows.assignment(row, devices, choose, later=later).assign(
                devices, self.rows.plan(row, devices)
            )
        if len(devices) == 1 and not self.choice.choosers(needs):
            cache = self.rows.cache(row, devices[0])
            if cache is not None and not devices[0].whole:
                shares = self._shares
                picked = pick(cache, shares.row(row), shares.cells[row], self.rows.available(row, devices[0]))
                if picked is not None:
                    return picked
        key = (self._table.planes[row].tobytes() + self.rows.state_key(row, devices), devices, later)
        if key not in self._picks:
            if len(self._picks) > MAX_CACHED:
                self._picks.clear()
            assignment = self.rows.assignment(row, devices, self.choice.choice(needs), later=False)
            self._picks[key] = assignment.assign(devices, self.rows.plan(row, devices))
        return self._picks[key]

    def _pick_by_scores(self, row: int, needs: Needs, need: DeviceNeed) -> TaskShares | None:
        """Return :meth:`pick` of one device by the plugin scores of the node's devices.

        ``None`` if the full evaluation is required.
        """
        rankers = None if self.choice.choosers(needs) else self._scores.rankers(needs, need)
        cache = self.rows.cache(row, need) if rankers else None
        if cache is None or rankers is None:
            return None
        points, share_table = self._scores.points(row, rankers), self._shares
        return pick(
            cache, share_table.row(row), share_table.cells[row], self.rows.available(row, need), points
        )

    def take(
        self, row: int, task: str, needs: Needs, shares: TaskShares | None, *, later: bool = False
    ) -> TaskShares:
        """Choose the shares of a task, unless given, and enter them as held or as nominated."""
        chosen = shares if shares is not None else self.pick(row, needs, later=later)
        if chosen is None and self._plugins.device_ranks:
            chosen = self.pick(row, needs, later=later, scored=False)
        if chosen is None:
            raise RuntimeError(f"the devices of {self._table.names[row]} hold less than was counted")
        self._shares.put(row, task, chosen, NOMINATED_SIDE if later else HELD_SIDE, 1)
        return chosen

    def take_all(self, row: int, names: Sequence[str], needs: Needs) -> list[TaskShares]:
        """Choose the shares of several tasks, one after the other, and enter them as held.

        If fewer fit with the scores of whole-node plugins than were counted, these
        scores are ignored.
        """
        chosen_shares: list[TaskShares] = []
        for scored in (True, False) if self._plugins.device_ranks else (True,):
            for name in names:
                chosen = self.pick(row, needs, scored=scored)
                if chosen is None:
                    break
                self._shares.put(row, name, chosen, HELD_SIDE, 1)
                chosen_shares.append(chosen)
            if len(chosen_shares) == len(names):
                return chosen_shares
            for name, shares in zip(names, chosen_shares, strict=False):
                self._shares.put(row, name, shares, HELD_SIDE, -1)
            chosen_shares = []
        raise RuntimeError(f"the devices of {self._table.names[row]} hold less than was counted")

    def are_available(self, row: int, shares: TaskShares, *, later: bool = False) -> bool:
        """Return whether exactly these shares are available on the row."""
        self._shares.sync(row)
        budgets = self.rows.budgets(row, (), {share.resource for share in shares})
        return self.rows.open(row, budgets, None, later=later).assign_exactly(shares)

    def device_shares(self, row: int, shares: TaskShares) -> tuple[DeviceShare, ...]:
        """Return the shares as a decision states them, in the order of the devices."""
        device_set = self._shares.row(row).device_set
        result = []
        for task_share in shares:
            decided = self._decided.get((device_set.code, id(task_share)))
            if decided is not None:
                result.append(decided[1])
                continue
            slot = device_set.slots.get((task_share.resource, task_share.index))
            if slot is None:
                continue
            facts = device_set.devices[slot]
            milli, mib = task_share.milli, task_share.mib
            if (
                task_share.profile
                and facts.geometry is not None
                and task_share.profile in facts.geometry.codes
            ):
                profile = facts.geometry.profiles[facts.geometry.codes[task_share.profile]]
                milli, mib = profile.compute * WHOLE // facts.geometry.compute, profile.memory_mib
            memory = facts.device.memory_mib
            share = DeviceShare(
                task_share.index,
                task_share.resource,
                milli,
                mib,
                task_share.profile,
                task_share.start,
                memory,
                task_share.draws,
            )
            if len(self._decided) > MAX_CACHED:
                self._decided.clear()
            self._decided[device_set.code, id(task_share)] = task_share, share
            result.append(share)
        return tuple(result)
