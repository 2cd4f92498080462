"""The cards of single rows, ready for seating: their state as a key, a plan for each need, what planes allow.

Between the card table and whoever counts, picks or explains. Plans and memos are kept by kit and need.
"""

from __future__ import annotations

from collections.abc import Collection, Container, Sequence

import numpy as np

from windlass.engine.devices.assignment import Budgets, Choose, NodeDeviceAssignment
from windlass.engine.devices.need_cache import NeedCache
from windlass.engine.devices.need_on_device import NeedOnDevice, needs_on_device
from windlass.engine.devices.share_table import RowDevices
from windlass.engine.devices.whole_device_table import bits
from windlass.engine.nodes.table import NodeTable
from windlass.spi.devices import DeviceNeed

Memos = dict[int, NeedCache]
"""By the code of a kit."""
"""Code of a kit → what is remembered of its cards for one need."""
MOST_MEMOS = 1_000
MOST_REMEMBERED = 50_000


class DeviceRows:
    def __init__(self, table: NodeTable) -> None:
        self._table = table
        self._cards = table.cards
        self.leaving: Container[str] = ()
        """Keys of the tasks that terminate, in earnest or in thought."""
        self._plans: dict[tuple[int, DeviceNeed], tuple[NeedOnDevice, ...]] = {}
        self._memos: dict[DeviceNeed, Memos | None] = {}
        """By need, one for each kit; ``None`` where they do not serve."""
        self._named: dict[int, tuple[DeviceNeed, Memos | None]] = {}
        """The same by the identity of a need: to tell equal ones costs more than to look one up."""

    # ------------------------------------------------------------------ states

    def key(self, row: int, needs: Sequence[DeviceNeed]) -> bytes:
        """The state of the row's cards as far as it matters for such needs."""
        key = self._cards.key(row)
        found = self._cards.row(row)
        if any(need.by_name for need in needs):
            key += repr(found.uuids).encode()
        if found.draws and any(need.joint is not None for need in needs):
            key += repr(sorted(found.draws.items())).encode()
        if found.tokens and any(need.carries or need.avoids for need in needs):
            tokens = {token for need in needs for token in (*need.carries, *need.avoids)}
            here = [
                (slot, name, sums)
                for slot, counts in sorted(found.tokens.items())
                for name, sums in sorted(counts.items())
                if name[1] in tokens
            ]
            key += repr(here).encode()
        return key

    def alike(
        self, rows: Sequence[int], devices: Sequence[DeviceNeed], *, empty: bool = False
    ) -> list[tuple[object, ...]]:
        """What decides what the cards tell of each row; if nothing ran on it (``empty``), also how many
        tasks it takes. Rows with equal keys say the same."""
        cards = self._cards
        at = np.array(rows, dtype=np.int64)
        cards.sync_all(at)
        names = {need.listed for need in devices if need.listed}
        if empty:
            names.update(cards.resources)
        codes = self._table.resources.codes
        columns = [codes[name] for name in sorted(names) if name in codes]
        amounts = [b""] * len(rows)
        if columns:
            planes = self._table.planes[at][:, : 1 if empty else None, columns]
            amounts = [part.tobytes() for part in np.ascontiguousarray(planes)]
        uuids = any(need.by_name for need in devices)
        if not empty and (uuids or any(need.carries or need.avoids for need in devices)):
            return [(self.key(row, devices), part) for row, part in zip(rows, amounts, strict=True)]
        found: list[tuple[object, ...]] = []
        for row, part in zip(rows, amounts, strict=True):
            here = cards.row(row)
            if empty:
                found.append((here.device_set.code, here.uuids if uuids else (), part))
            else:
                found.append((here.device_set.code, part, *here.states))
        return found

    # ------------------------------------------------------------------ seating

    def assignment(
        self, row: int, devices: Sequence[DeviceNeed], choose: Choose | None, *, later: bool
    ) -> NodeDeviceAssignment:
        self._cards.sync(row)
        return self.open(row, self.budgets(row, devices), choose, later=later)

    def open(self, row: int, budgets: Budgets, choose: Choose | None, *, later: bool) -> NodeDeviceAssignment:
        found = self._cards.row(row)
        vacated = self.vacated(row, found) if later else frozenset[int]()
        cells = self._cards.cells[row].tolist()
        return NodeDeviceAssignment(found, cells, budgets, later=later, vacated=vacated, choose=choose)

    def emptied(self, row: int, devices: Sequence[DeviceNeed], choose: Choose | None) -> NodeDeviceAssignment:
        """The row as if nothing ran on it."""
        self._cards.sync(row)
        cards = self._cards.row(row)
        budgets = {name: [amounts[0], 0, 0, 0] for name, amounts in self.budgets(row, devices).items()}
        bare = RowDevices(cards.device_set, cards.uuids, {})
        nothing = np.zeros_like(self._cards.cells[row]).tolist()
        return NodeDeviceAssignment(bare, nothing, budgets, later=False, choose=choose)

    def vacated(self, row: int, found: RowDevices, gone: Collection[str] = ()) -> frozenset[int]:
        """The slots of cards that plain whole pods have, all of which terminate."""
        leaving: dict[tuple[str, int], int] = {}
        staying: set[tuple[str, int]] = set()
        for entry in self._table.tasks[row].values():
            for resource, mask in entry.masks:
                for index in bits(mask):
                    if entry.key in self.leaving or entry.key in gone:
                        leaving[resource, index] = 1
                    else:
                        staying.add((resource, index))
        slots = found.device_set.slots
        return frozenset(slots[at] for at in leaving if at not in staying and at in slots)

    def budgets(self, row: int, devices: Sequence[DeviceNeed], more: set[str] | None = None) -> Budgets:
        """The planes of the resources that seating may charge."""
        names = {card.device.resource for card in self._cards.row(row).device_set.cards}
        names.update(need.listed for need in devices if need.listed)
        names |= more or set()
        codes, planes = self._table.resources.codes, self._table.planes[row]
        return {
            name: planes[:, codes[name]].tolist() if name in codes else [0, 0, 0, 0] for name in sorted(names)
        }

    def lists(self, row: int, need: DeviceNeed) -> bool:
        node = self._table.nodes[row]
        return bool(need.listed and node is not None and node.allocatable.get(need.listed, 0) > 0)

    # ------------------------------------------------------------------ what is remembered of needs

    def plan(self, row: int, devices: Sequence[DeviceNeed]) -> list[tuple[NeedOnDevice, ...]]:
        found = self._cards.row(row)
        plans = []
        for need in devices:
            if need.by_name:
                plans.append(needs_on_device(need, found.device_set, found.uuids))
                continue
            plan = self._plans.get((found.device_set.code, need))
            if plan is None:
                if len(self._plans) > MOST_REMEMBERED:
                    self._plans.clear()
                plan = self._plans[found.device_set.code, need] = needs_on_device(
                    need, found.device_set, found.uuids
                )
            plans.append(plan)
        return plans

    def memo(self, row: int, need: DeviceNeed) -> NeedCache | None:
        """What is remembered of cards of the row's kit for the need; ``None`` where that does not serve. The row's
        cards are in line with the bit sets then."""
        memos = self.memos(need)
        if memos is None or (need.listed and self.lists(row, need)):
            return None
        self._cards.sync(row)
        return memo_of(memos, need, self._cards.row(row))

    def memos(self, need: DeviceNeed) -> Memos | None:
        """What is remembered of cards for the need, by kit; ``None`` where that does not serve."""
        named = self._named.get(id(need))
        return named[1] if named is not None else self._memos_of(need)

    def _memos_of(self, need: DeviceNeed) -> Memos | None:
        if len(self._named) > MOST_MEMOS or len(self._memos) > MOST_MEMOS:
            self._named.clear()
            self._memos.clear()
        if need not in self._memos:
            self._memos[need] = {} if NeedCache.serves(need) else None
        memos = self._memos[need]
        self._named[id(need)] = need, memos
        return memos

    def available(self, row: int, need: DeviceNeed) -> dict[str, int]:
        """What the planes have available of the resources whose cards could serve the need."""
        names = (need.resource,) if need.resource else tuple(self._cards.resources)
        codes, planes = self._table.resources.codes, self._table.planes
        found = {}
        for name in names:
            if name in codes:
                allocatable, used, releasing, kept = planes[row, :, codes[name]].tolist()
                found[name] = allocatable - used - max(kept - releasing, 0)
        return found


def memo_of(memos: Memos, need: DeviceNeed, found: RowDevices) -> NeedCache:
    """That of the kit of a row, made now if it is new."""
    memo = memos.get(found.device_set.code)
    if memo is None:
        plan = needs_on_device(need, found.device_set, found.uuids)
        memo = memos[found.device_set.code] = NeedCache(need, plan, found)
    return memo
