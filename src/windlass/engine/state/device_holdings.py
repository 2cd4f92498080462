"""Devices, device shares and NUMA zones that tasks hold.

Resources are counted in :mod:`windlass.engine.state.placement_ledger`. For own
decisions the devices are chosen here. Reported devices of a task replace the chosen
ones.
"""

from __future__ import annotations

from collections.abc import Sequence

from windlass.engine.device_allocation.allocator import DeviceAllocator
from windlass.engine.devices.share_table import HELD_SIDE, RELEASING_SIDE, UNKNOWN_START, TaskShares
from windlass.engine.devices.whole_device_table import Masks
from windlass.engine.feasibility.task_class import TaskClass
from windlass.engine.groups.entries import TERMINATING, TaskEntry, tasks_on
from windlass.engine.nodes.table import NodeTable
from windlass.engine.state.numa_usage import NumaUsage
from windlass.spi.numa import NumaHolding


class DeviceHoldings:
    """Assigns devices to tasks and enters reported assignments."""

    def __init__(self, table: NodeTable, allocator: DeviceAllocator, numa_usage: NumaUsage) -> None:
        self._table = table
        self._allocator = allocator
        self._numa_usage = numa_usage

    # ------------------------------------------------------------------ what is decided

    def assign(
        self, cls: TaskClass, row: int, entries: Sequence[TaskEntry], shares: TaskShares | None
    ) -> None:
        """Assign devices to tasks of one class that were just placed on ``row``.

        ``shares``: device shares of a single task, if chosen already.
        """
        if row in self._numa_usage.rows:
            for entry in entries:
                self._assign_aligned(cls, row, entry, shares)
            return
        if cls.device_requests:
            self._assign_whole(cls, row, entries)
        if cls.needs.devices:
            self._assign_shares(cls, row, entries, shares)

    def _assign_aligned(self, cls: TaskClass, row: int, entry: TaskEntry, shares: TaskShares | None) -> None:
        """:meth:`assign` for one task on a node with NUMA zones."""
        planned = self._numa_usage.plan(cls, row)
        if cls.device_requests:
            self._assign_whole(cls, row, (entry,), planned)
        if cls.needs.devices:
            if shares is None and planned is not None:
                aligned = self._numa_usage.narrowed(row, cls.needs, planned)
                shares = None if aligned is None else self._allocator.pick(row, aligned)
            self._assign_shares(cls, row, (entry,), shares)
        self._numa_usage.occupy(entry, planned)

    def _assign_whole(
        self, cls: TaskClass, row: int, entries: Sequence[TaskEntry], planned: NumaHolding | None = None
    ) -> None:
        """Assign whole devices from the bit sets. ``planned``: NUMA holding of a single task."""
        devices = self._table.devices
        slots_by_resource = devices.rows[row]
        choice = self._allocator.choice
        has_choice = bool(choice.plugins.device_ranks or choice.by_api[cls.needs.dialect])
        for resource, count in cls.device_requests:
            slots = slots_by_resource[resource]
            for entry in entries:
                mask = (
                    self._numa_usage.choose_devices(row, resource, count, slots.free, planned)
                    if planned
                    else 0
                )
                if has_choice and not mask:
                    mask = choice.pick_whole(row, resource, count, cls.needs)
                mask = mask or slots.pick(count)
                if not mask:
                    raise RuntimeError(f"{self._table.names[row]} has fewer free {resource} than booked")
                slots.free &= ~mask
                slots.taken |= mask
                held, shares = devices.holding(resource, mask)
                entry.masks += held
                entry.devices += shares
        devices.stale.add(row)

    def _assign_shares(
        self, cls: TaskClass, row: int, entries: Sequence[TaskEntry], shares: TaskShares | None
    ) -> None:
        """Assign device shares."""
        names = [entry.key for entry in entries]
        allocated = [shares] if shares is not None else self._allocator.take_all(row, names, cls.needs)
        for entry, task_shares in zip(entries, allocated, strict=True):
            if shares is not None:
                self._table.shares.put(row, entry.key, task_shares, HELD_SIDE, 1)
            entry.shares = task_shares
            entry.devices += self._allocator.device_shares(row, task_shares)

    def unassign(self, entry: TaskEntry, row: int) -> None:
        """Undo :meth:`assign` for one of the tasks."""
        if entry.masks:
            self._table.devices.give(row, entry.masks)
            entry.masks = ()
        if entry.shares:
            self._table.shares.put(row, entry.key, entry.shares, HELD_SIDE, -1)
            entry.shares = ()
        entry.devices = ()
        self._numa_usage.vacate(entry, row)

    # ------------------------------------------------------------------ what the world says

    def occupy(
        self, entry: TaskEntry, indices: tuple[int, ...], shares: TaskShares | None, zones: NumaHolding | None
    ) -> None:
        """Enter the devices of a task that is on its node.

        ``shares``: its device shares, if known here. Otherwise ``indices`` and the
            reported slices determine them. ``zones``: likewise.
        """
        cls, row = entry.cls, entry.row
        if indices and cls.device_requests:
            wanted = sum(count for _, count in cls.device_requests)
            self._hold_whole(entry, self._table.devices.locate(row, cls.device_requests, indices[:wanted]))
        if cls.needs.devices:
            if shares is None:
                plain = sum(count for _, count in cls.device_requests)
                shares = self._allocator.reported(row, cls.needs, indices[plain:], entry.task.slices)
            self._hold_shares(entry, shares)
        self._numa_usage.occupy(entry, zones or entry.task.zones)

    def vacate(self, entry: TaskEntry) -> None:
        """Remove the devices of a task that leaves its node. Its state is still the previous one."""
        row = entry.row
        self._drop_shares(entry)
        self._numa_usage.vacate(entry, row)
        if entry.masks:
            self._table.devices.give(row, entry.masks)
            entry.masks = ()
            self._update_health(row)
        entry.devices = ()

    def mark_releasing(self, entry: TaskEntry, sign: int) -> None:
        """Mark the shares of a task as releasing (1), or no longer so (-1)."""
        if entry.cls.needs.devices:
            self._table.shares.put(entry.row, entry.key, entry.shares, RELEASING_SIDE, sign)

    def update_devices(self, entry: TaskEntry, indices: tuple[int, ...]) -> None:
        """Replace the devices of a task by the reported ones."""
        if entry.cls.needs.devices and indices:
            self._update_shares(entry, indices)
        if not entry.cls.device_requests or not indices:
            return
        devices = self._table.devices
        wanted = sum(count for _, count in entry.cls.device_requests)
        masks = devices.locate(entry.row, entry.cls.device_requests, indices[:wanted])
        if set(masks) != set(entry.masks):
            releases = entry.state is TERMINATING
            if releases:
                self._table.mark_releasing(entry, -1)
            devices.give(entry.row, entry.masks)
            self._hold_whole(entry, masks)
            if releases:
                self._table.mark_releasing(entry, 1)
            self._numa_usage.update(entry, None)
            self._table.touch(entry.row)

    def update_zones(self, entry: TaskEntry) -> None:
        """Replace the NUMA holding of a task by the reported one."""
        if entry.task.zones is not None and entry.row >= 0:
            self._numa_usage.update(entry, entry.task.zones)

    def resolve_unknown(self, row: int) -> None:
        """Resolve shares of devices that were unknown until the node reported its devices."""
        for entry in list(tasks_on(self._table, row).values()):
            if any(share.start == UNKNOWN_START for share in entry.shares):
                plain = sum(count for _, count in entry.cls.device_requests)
                named, slices = entry.task.devices[plain:], entry.task.slices
                self._drop_shares(entry)
                self._hold_shares(entry, self._allocator.reported(row, entry.cls.needs, named, slices))
                self._table.touch(row)

    # ------------------------------------------------------------------ parts

    def _hold_whole(self, entry: TaskEntry, masks: Masks) -> None:
        devices = self._table.devices
        devices.take(entry.row, masks)
        entry.masks = masks
        whole = tuple(share for resource, mask in masks for share in devices.shares(resource, mask))
        entry.devices = (
            whole + self._allocator.device_shares(entry.row, entry.shares) if entry.shares else whole
        )
        self._update_health(entry.row)

    def _hold_shares(self, entry: TaskEntry, shares: TaskShares) -> None:
        """Enter the device shares of a task in its present state."""
        share_table, row = self._table.shares, entry.row
        share_table.put(row, entry.key, shares, HELD_SIDE, 1)
        if entry.state is TERMINATING:
            share_table.put(row, entry.key, shares, RELEASING_SIDE, 1)
        entry.shares = shares
        whole = (s for resource, mask in entry.masks for s in self._table.devices.shares(resource, mask))
        entry.devices = (*whole, *self._allocator.device_shares(row, shares))

    def _drop_shares(self, entry: TaskEntry) -> None:
        if entry.cls.needs.devices:
            share_table, shares = self._table.shares, entry.shares
            entry.shares = ()
            if entry.state is TERMINATING:
                share_table.put(entry.row, entry.key, shares, RELEASING_SIDE, -1)
            share_table.put(entry.row, entry.key, shares, HELD_SIDE, -1)

    def _update_shares(self, entry: TaskEntry, indices: tuple[int, ...]) -> None:
        """Replace the device shares of a task by the reported ones, where they differ."""
        plain = sum(count for _, count in entry.cls.device_requests)
        named, slices = indices[plain:], entry.task.slices
        if set(named) == {share.index for share in entry.shares if share.index >= 0} and (
            not slices
            or sorted(slices) == sorted((c.index, c.profile, c.start) for c in entry.shares if c.profile)
        ):
            return
        before = entry.shares
        self._drop_shares(entry)
        shares = self._allocator.reported(entry.row, entry.cls.needs, named, slices)
        self._hold_shares(entry, shares)
        if shares != before:
            self._numa_usage.update(entry, None)
            self._table.touch(entry.row)

    def _update_health(self, row: int) -> None:
        if any(slots.known != slots.healthy for slots in self._table.devices.rows[row].values()):
            self._table.write_allocatable(row)
