"""Which devices of a node tasks have, which parts of its cards, and what of its NUMA zones.

Amounts stand elsewhere (:mod:`windlass.engine.state.placement_ledger`). What is decided here is chosen here; what the
world says of a task counts, as far as it says it.
"""

from __future__ import annotations

from collections.abc import Sequence

from windlass.engine.device_allocation.allocator import DeviceAllocator
from windlass.engine.devices.share_table import HELD_SIDE, RELEASING_SIDE, UNKNOWN_START, TaskShares
from windlass.engine.devices.whole_device_table import Masks
from windlass.engine.feasibility.task_class import TaskClass
from windlass.engine.groups.entries import TERMINATING, TaskEntry
from windlass.engine.nodes.table import NodeTable
from windlass.engine.state.numa_usage import NumaUsage
from windlass.spi.numa import NumaHolding


class DeviceHoldings:
    def __init__(self, table: NodeTable, allocator: DeviceAllocator, numa_usage: NumaUsage) -> None:
        self._table = table
        self._allocator = allocator
        self._numa_usage = numa_usage

    # ------------------------------------------------------------------ what is decided

    def hand_out(
        self, cls: TaskClass, row: int, entries: Sequence[TaskEntry], cuts: TaskShares | None
    ) -> None:
        """Choose for tasks of one class that have just been placed on ``row``, and enter it. ``cuts``: what a
        single one gets of cards, where that is settled."""
        if row in self._numa_usage.rows:
            for entry in entries:
                self._align(cls, row, entry, cuts)
            return
        if cls.device_requests:
            self._give(cls, row, entries)
        if cls.needs.devices:
            self._seat(cls, row, entries, cuts)

    def _align(self, cls: TaskClass, row: int, entry: TaskEntry, cuts: TaskShares | None) -> None:
        """The same for one task on a node that has zones."""
        planned = self._numa_usage.plan(cls, row)
        if cls.device_requests:
            self._give(cls, row, (entry,), planned)
        if cls.needs.devices:
            if cuts is None and planned is not None:
                aligned = self._numa_usage.narrowed(row, cls.needs, planned)
                cuts = None if aligned is None else self._allocator.pick(row, aligned)
            self._seat(cls, row, (entry,), cuts)
        self._numa_usage.came(entry, planned)

    def _give(
        self, cls: TaskClass, row: int, entries: Sequence[TaskEntry], planned: NumaHolding | None = None
    ) -> None:
        """Whole devices that are picked from the bit sets. ``planned``: what a single task gets of zones."""
        devices = self._table.devices
        home = devices.rows[row]
        word = self._allocator.choice
        chosen = word.chooses(cls.needs)
        for resource, count in cls.device_requests:
            slots = home[resource]
            for entry in entries:
                mask = self._numa_usage.choose(row, resource, count, slots.free, planned) if planned else 0
                if chosen and not mask:
                    mask = word.pick_whole(row, resource, count, cls.needs)
                mask = mask or slots.pick(count)
                if not mask:
                    raise RuntimeError(f"{self._table.names[row]} has fewer free {resource} than booked")
                slots.free &= ~mask
                slots.taken |= mask
                held, shares = devices.holding(resource, mask)
                entry.masks += held
                entry.devices += shares
        devices.stale.add(row)

    def _seat(self, cls: TaskClass, row: int, entries: Sequence[TaskEntry], cuts: TaskShares | None) -> None:
        """Parts of cards."""
        names = [entry.key for entry in entries]
        given = [cuts] if cuts is not None else self._allocator.take_all(row, names, cls.needs)
        for entry, parts in zip(entries, given, strict=True):
            if cuts is not None:
                self._table.shares.put(row, entry.key, parts, HELD_SIDE, 1)
            entry.cuts = parts
            entry.devices += self._allocator.device_shares(row, parts)

    def take_back(self, entry: TaskEntry, row: int) -> None:
        """The inverse of :meth:`hand_out` for one of the tasks."""
        if entry.masks:
            self._table.devices.give(row, entry.masks)
            entry.masks = ()
        if entry.cuts:
            self._table.shares.put(row, entry.key, entry.cuts, HELD_SIDE, -1)
            entry.cuts = ()
        entry.devices = ()
        self._numa_usage.left(entry, row)

    # ------------------------------------------------------------------ what the world says

    def came(
        self, entry: TaskEntry, indices: tuple[int, ...], cuts: TaskShares | None, zones: NumaHolding | None
    ) -> None:
        """A task is on its node. ``cuts``: what it has of cards, where that is known here; else ``indices``, and
        what is reported of slices, say it. ``zones`` likewise."""
        cls, row = entry.cls, entry.row
        if indices and cls.device_requests:
            wanted = sum(count for _, count in cls.device_requests)
            self._hold(entry, self._table.devices.locate(row, cls.device_requests, indices[:wanted]))
        if cls.needs.devices:
            if cuts is None:
                plain = sum(count for _, count in cls.device_requests)
                cuts = self._allocator.reported(row, cls.needs, indices[plain:], entry.task.slices)
            self._hold_cuts(entry, cuts)
        self._numa_usage.came(entry, zones or entry.task.zones)

    def left(self, entry: TaskEntry) -> None:
        """A task leaves its node; its state is still the one it was in."""
        row = entry.row
        self._drop_cuts(entry)
        self._numa_usage.left(entry, row)
        if entry.masks:
            self._table.devices.give(row, entry.masks)
            entry.masks = ()
            self._settle_health(row)
        entry.devices = ()

    def ends(self, entry: TaskEntry, sign: int) -> None:
        """A task begins to terminate (1), or goes on after all (-1)."""
        if entry.cls.needs.devices:
            self._table.shares.put(entry.row, entry.key, entry.cuts, RELEASING_SIDE, sign)

    def rename(self, entry: TaskEntry, indices: tuple[int, ...]) -> None:
        """The world says which devices a task holds; that counts."""
        if entry.cls.needs.devices and indices:
            self._rename_cuts(entry, indices)
        if not entry.cls.device_requests or not indices:
            return
        devices = self._table.devices
        wanted = sum(count for _, count in entry.cls.device_requests)
        masks = devices.locate(entry.row, entry.cls.device_requests, indices[:wanted])
        if set(masks) != set(entry.masks):
            leaves = entry.state is TERMINATING
            if leaves:
                self._table.mark_releasing(entry, -1)
            devices.give(entry.row, entry.masks)
            self._hold(entry, masks)
            if leaves:
                self._table.mark_releasing(entry, 1)
            self._numa_usage.again(entry, None)
            self._table.touch(entry.row)

    def rename_zones(self, entry: TaskEntry) -> None:
        """The world says which zones' amounts a task holds; that counts."""
        if entry.task.zones is not None and entry.row >= 0:
            self._numa_usage.again(entry, entry.task.zones)

    def review(self, row: int) -> None:
        """The node of the row has told of its cards: what tasks have of those that were unknown is known now."""
        for entry in list(self._table.tasks[row].values()):
            if any(share.start == UNKNOWN_START for share in entry.cuts):
                plain = sum(count for _, count in entry.cls.device_requests)
                named, slices = entry.task.devices[plain:], entry.task.slices
                self._drop_cuts(entry)
                self._hold_cuts(entry, self._allocator.reported(row, entry.cls.needs, named, slices))
                self._table.touch(row)

    # ------------------------------------------------------------------ parts

    def _hold(self, entry: TaskEntry, masks: Masks) -> None:
        devices = self._table.devices
        devices.take(entry.row, masks)
        entry.masks = masks
        whole = tuple(share for resource, mask in masks for share in devices.shares(resource, mask))
        entry.devices = whole + self._allocator.device_shares(entry.row, entry.cuts) if entry.cuts else whole
        self._settle_health(entry.row)

    def _hold_cuts(self, entry: TaskEntry, cuts: TaskShares) -> None:
        """Enter what a task has of cards, in the state it is in."""
        cards, row = self._table.shares, entry.row
        cards.put(row, entry.key, cuts, HELD_SIDE, 1)
        if entry.state is TERMINATING:
            cards.put(row, entry.key, cuts, RELEASING_SIDE, 1)
        entry.cuts = cuts
        whole = (s for resource, mask in entry.masks for s in self._table.devices.shares(resource, mask))
        entry.devices = (*whole, *self._allocator.device_shares(row, cuts))

    def _drop_cuts(self, entry: TaskEntry) -> None:
        if entry.cls.needs.devices:
            cards, cuts = self._table.shares, entry.cuts
            entry.cuts = ()
            if entry.state is TERMINATING:
                cards.put(entry.row, entry.key, cuts, RELEASING_SIDE, -1)
            cards.put(entry.row, entry.key, cuts, HELD_SIDE, -1)

    def _rename_cuts(self, entry: TaskEntry, indices: tuple[int, ...]) -> None:
        """What the world says of cards and slices counts, as far as it says it."""
        plain = sum(count for _, count in entry.cls.device_requests)
        named, slices = indices[plain:], entry.task.slices
        if set(named) == {share.index for share in entry.cuts if share.index >= 0} and (
            not slices
            or sorted(slices) == sorted((c.index, c.profile, c.start) for c in entry.cuts if c.profile)
        ):
            return
        before = entry.cuts
        self._drop_cuts(entry)
        cuts = self._allocator.reported(entry.row, entry.cls.needs, named, slices)
        self._hold_cuts(entry, cuts)
        if cuts != before:
            self._numa_usage.again(entry, None)
            self._table.touch(entry.row)

    def _settle_health(self, row: int) -> None:
        if any(slots.known != slots.healthy for slots in self._table.devices.rows[row].values()):
            self._table.write_allocatable(row)
