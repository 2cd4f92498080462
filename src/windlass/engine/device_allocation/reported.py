"""What running tasks have of cards, by what the world reports of them."""

from __future__ import annotations

from collections.abc import Sequence

from windlass.engine.device_allocation.node_devices import DeviceRows
from windlass.engine.device_allocation.plugin_choice import PluginDeviceChoice
from windlass.engine.devices.need_on_device import kind_of
from windlass.engine.devices.share_table import UNSEEN, TaskShare, TaskShares
from windlass.engine.devices.whole_device_table import WHOLE
from windlass.engine.nodes.table import NodeTable
from windlass.spi.devices import DeviceNeed
from windlass.spi.objects import HeldSlice, Needs
from windlass.spi.quantities import scale


class ReportedDevices:
    def __init__(self, table: NodeTable, rows: DeviceRows, word: PluginDeviceChoice) -> None:
        self._table = table
        self._cards = table.cards
        self._rows = rows
        self._word = word

    def reported(
        self, row: int, needs: Needs, indices: Sequence[int], slices: Sequence[HeldSlice]
    ) -> TaskShares:
        """What a running task has, by the cards and slices that it is said to have, in the order of its
        needs. Of what nothing is said it is taken to have what it would get now, at the worst whole cards
        that nobody can name."""
        left, carved = list(indices), list(slices)
        shares: list[TaskShare] = []
        for need in needs.devices:
            if self._rows.lists(row, need):
                shares.append(TaskShare(need.listed, -1, need.count * scale(need.listed)))
                continue
            named, left = left[: need.count], left[need.count :]
            shares += [self._named(row, need, index, carved) for index in named]
            if len(named) < need.count:
                shares += self._guess(row, needs, need, need.count - len(named), named_any=bool(named))
        return tuple(shares)

    def _named(self, row: int, need: DeviceNeed, index: int, carved: list[HeldSlice]) -> TaskShare:
        device_set = self._cards.row(row).device_set
        named = ((r, slot) for (r, at), slot in device_set.slots.items() if at == index)
        resource = need.resource or next((r for r, slot in named if device_set.cards[slot].known), "")
        slot = device_set.slots.get((resource, index))
        held = next((one for one in carved if one.index == index), None)
        if held is not None:
            carved.remove(held)
            return TaskShare(resource, index, 0, 0, held.profile, held.start, need.carries, need.avoids)
        if slot is None or not device_set.cards[slot].known:
            start = UNSEEN
            return TaskShare(
                resource, index, need.milli, need.memory_mib, need.profile, start, need.carries, need.avoids
            )
        card = device_set.cards[slot]
        share, code = kind_of(need, card)
        if card.geometry is not None and code >= 0 and (share is None or not card.counted):
            profile = card.geometry.profiles[code]
            device = self._rows.open(row, self._rows.budgets(row, (need,)), None, later=False).devices[slot]
            start = max(device.slice_start(code), profile.starts[0])
            return TaskShare(resource, index, 0, 0, profile.name, start, need.carries, need.avoids)
        milli, mib = share or (need.milli, need.memory_mib)
        return TaskShare(resource, index, milli, mib, "", -1, need.carries, need.avoids, need.draws)

    def _guess(self, row: int, needs: Needs, need: DeviceNeed, count: int, *, named_any: bool) -> TaskShares:
        if not named_any:
            plan = self._rows.plan(row, (need,))
            found = self._rows.assignment(row, (need,), self._word.choice(needs), later=False).device(
                (need,), plan
            )
            if found is not None:
                return found
        resource = need.resource or next(iter(self._table.devices.rows[row]), "")
        return (TaskShare(resource, -1, count * WHOLE),) if resource else ()
