"""Device shares of running tasks, derived from what the cluster reports."""

from __future__ import annotations

from collections.abc import Sequence

from windlass.engine.device_allocation.node_devices import DeviceRows
from windlass.engine.device_allocation.plugin_choice import PluginDeviceChoice
from windlass.engine.devices.need_on_device import share_and_profile
from windlass.engine.devices.share_table import UNKNOWN_START, TaskShare, TaskShares
from windlass.engine.devices.whole_device_table import WHOLE
from windlass.engine.nodes.table import NodeTable
from windlass.spi.devices import DeviceNeed
from windlass.spi.objects import HeldSlice, Needs
from windlass.spi.quantities import scale


class ReportedDevices:
    """Converts reported device indices and slices of running tasks into shares."""

    def __init__(self, table: NodeTable, rows: DeviceRows, choice: PluginDeviceChoice) -> None:
        self._table = table
        self._shares = table.shares
        self._rows = rows
        self._choice = choice

    def reported(
        self, row: int, needs: Needs, indices: Sequence[int], slices: Sequence[HeldSlice]
    ) -> TaskShares:
        """Return the shares of a running task from its reported devices and slices.

        Devices are in the order of the needs. A need without a report is taken to have
        what it would get now, or else anonymous whole devices.
        """
        unassigned, unassigned_slices = list(indices), list(slices)
        shares: list[TaskShare] = []
        for need in needs.devices:
            if self._rows.is_listed(row, need):
                shares.append(TaskShare(need.listed, -1, need.count * scale(need.listed)))
                continue
            named, unassigned = unassigned[: need.count], unassigned[need.count :]
            shares += [self._named(row, need, index, unassigned_slices) for index in named]
            if len(named) < need.count:
                shares += self._guess(row, needs, need, need.count - len(named), named_any=bool(named))
        return tuple(shares)

    def _named(self, row: int, need: DeviceNeed, index: int, unassigned_slices: list[HeldSlice]) -> TaskShare:
        device_set = self._shares.row(row).device_set
        named = ((r, slot) for (r, device_index), slot in device_set.slots.items() if device_index == index)
        resource = need.resource or next((r for r, slot in named if device_set.devices[slot].known), "")
        slot = device_set.slots.get((resource, index))
        held_slice = next((item for item in unassigned_slices if item.index == index), None)
        if held_slice is not None:
            unassigned_slices.remove(held_slice)
            return TaskShare(
                resource, index, 0, 0, held_slice.profile, held_slice.start, need.carries, need.avoids
            )
        if slot is None or not device_set.devices[slot].known:
            start = UNKNOWN_START
            return TaskShare(
                resource, index, need.milli, need.memory_mib, need.profile, start, need.carries, need.avoids
            )
        facts = device_set.devices[slot]
        share, code = share_and_profile(need, facts)
        if facts.geometry is not None and code >= 0 and (share is None or not facts.counted):
            profile = facts.geometry.profiles[code]
            device = self._rows.open(row, self._rows.budgets(row, (need,)), None, later=False).devices[slot]
            start = max(device.slice_start(code), profile.starts[0])
            return TaskShare(resource, index, 0, 0, profile.name, start, need.carries, need.avoids)
        milli, mib = share or (need.milli, need.memory_mib)
        return TaskShare(resource, index, milli, mib, "", -1, need.carries, need.avoids, need.draws)

    def _guess(self, row: int, needs: Needs, need: DeviceNeed, count: int, *, named_any: bool) -> TaskShares:
        if not named_any:
            plan = self._rows.plan(row, (need,))
            assigned = self._rows.assignment(row, (need,), self._choice.choice(needs), later=False).assign(
                (need,), plan
            )
            if assigned is not None:
                return assigned
        resource = need.resource or next(iter(self._table.devices.rows[row]), "")
        return (TaskShare(resource, -1, count * WHOLE),) if resource else ()
