"""Parts of cards for task classes: how many tasks a row's cards take, and which cards a task gets.

Between the card table, the policies that choose among cards, and everybody who asks. Answers are remembered
by the state of the row's planes and cards, so rows in equal states are looked at once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from windlass.engine.decision import DeviceShare
from windlass.engine.device_allocation.bulk_count import is_plain, plain_counts
from windlass.engine.device_allocation.node_devices import MOST_MEMOS, MOST_REMEMBERED, DeviceRows, memo_of
from windlass.engine.device_allocation.plugin_choice import PluginDeviceChoice
from windlass.engine.device_allocation.plugin_scores import PluginDeviceScores
from windlass.engine.device_allocation.reported import ReportedDevices
from windlass.engine.devices.assignment import PLENTY, Budgets, DeviceSummary, NodeDeviceAssignment
from windlass.engine.devices.need_cache import NeedCache, pick
from windlass.engine.devices.plain_view import PlainDevices
from windlass.engine.devices.share_table import (
    FIELDS,
    HELD,
    KEPT,
    PLACES,
    SHARES,
    TAKEN,
    TaskShare,
    TaskShares,
    together,
)
from windlass.engine.devices.whole_device_table import WHOLE, bits
from windlass.engine.nodes.table import NodeTable
from windlass.engine.nodes.view import TableView
from windlass.engine.plugin_set import PluginSet
from windlass.spi.devices import DeviceNeed
from windlass.spi.objects import Needs

if TYPE_CHECKING:
    from windlass.engine.groups.entries import TaskEntry
    from windlass.engine.pending.freed_devices import FreedDevices


Counter = Callable[[int, Sequence[int]], int]
"""How many tasks a row takes, by what is free there of each column."""


class DeviceAllocator:
    """``rows``: single rows, ready for seating. ``word``: what policies say of cards. ``reported``: what running
    tasks have by the world's word."""

    def __init__(self, table: NodeTable, plugins: PluginSet) -> None:
        self._table = table
        self._cards = table.cards
        self._plugins = plugins
        self._picks: dict[tuple[bytes, tuple[DeviceNeed, ...], bool], TaskShares | None] = {}
        self._counts: dict[tuple[bytes, tuple[DeviceNeed, ...], bool], int] = {}
        plain = PlainDevices(table.cards)
        self.cards_of = plain.of
        """The cards of a row in plain values."""
        self._looks: dict[tuple[tuple[DeviceNeed, ...], bool], dict[object, list[DeviceSummary]]] = {}
        self._heard = PluginDeviceScores(table, plugins, plain)
        self.rows = DeviceRows(table)
        self.word = PluginDeviceChoice(table, plugins, self._heard)
        self.reported = ReportedDevices(table, self.rows, self.word).reported
        self._said: dict[tuple[int, int], tuple[TaskShare, DeviceShare]] = {}
        """Kit and identity of a cut → how a decision states it."""

    # ------------------------------------------------------------------ questions

    def counts(self, rows: Sequence[int], needs: Needs, *, later: bool = False) -> NDArray[np.int64]:
        """How many tasks of these needs the cards of each row take."""
        if not later and len(rows) > 1 and _is_plain(needs):
            return self._plain_counts(np.array(rows, dtype=np.int64), needs)
        return self._counted(rows, needs, later=later)

    def _plain_counts(self, rows: NDArray[np.int64], needs: Needs) -> NDArray[np.int64]:
        found, known = plain_counts(self._table, rows, needs.devices[0])
        rest = rows[~known].tolist()
        if rest:
            found[~known] = self._counted(rest, needs, later=False)
        return found

    def _counted(self, rows: Sequence[int], needs: Needs, *, later: bool) -> NDArray[np.int64]:
        """:meth:`counts`, row by row."""
        devices = needs.devices
        planes, remembered = self._table.planes, self._counts
        if len(remembered) > MOST_REMEMBERED:
            remembered.clear()
        found = np.empty(len(rows), dtype=np.int64)
        choose = self.word.choice(needs)
        by_card = not later and len(devices) == 1 and NeedCache.serves(devices[0])
        for at, row in enumerate(rows):
            if by_card:
                n = self.count_one(row, devices[0])
                if n is not None:
                    found[at] = n
                    continue
            key = (planes[row].tobytes() + self.rows.key(row, devices), devices, later)
            if later and planes[row, 2, 0] > 0:  # which cards plain pods are leaving is not in the key
                assignment = self.rows.assignment(row, devices, choose, later=True)
                found[at] = assignment.count(devices, self.rows.plan(row, devices), PLENTY)
                continue
            n = remembered.get(key)
            if n is None:
                assignment = self.rows.assignment(row, devices, choose, later=later)
                n = remembered[key] = assignment.count(devices, self.rows.plan(row, devices), PLENTY)
            found[at] = n
        return found

    def limit(self, count: NDArray[np.int64], view: TableView, needs: Needs) -> None:
        """Lower ``count``, one entry per row of the view, to what the cards of the rows take."""
        asked = np.flatnonzero(count > 0)
        if not len(asked):
            return
        rows = view.rows[asked]
        if view.empty:
            by_cards = self.empty_counts(rows.tolist(), needs)
        elif not view.future and len(rows) > 1 and _is_plain(needs):
            by_cards = self._plain_counts(rows, needs)
        else:
            by_cards = self._counted(rows.tolist(), needs, later=view.future)
        count[asked] = np.minimum(count[asked], by_cards)

    def empty_counts(self, rows: Sequence[int], needs: Needs) -> NDArray[np.int64]:
        """The same if nothing ran on the rows."""
        found = np.empty(len(rows), dtype=np.int64)
        choose = self.word.choice(needs)
        remembered: dict[object, int] = {}
        for at, (row, key) in enumerate(
            zip(rows, self.rows.alike(rows, needs.devices, empty=True), strict=True)
        ):
            n = remembered.get(key)
            if n is None:
                assignment = self.rows.emptied(row, needs.devices, choose)
                n = remembered[key] = assignment.count(
                    needs.devices, self.rows.plan(row, needs.devices), PLENTY
                )
            found[at] = n
        return found

    def count_if(self, row: int, needs: Needs, vacated: FreedDevices, left: NDArray[np.int64]) -> int:
        """How many tasks the row would take if some were gone. ``left``: what would be left of each column,
        for all but the parts of cards that they have."""
        devices = needs.devices
        self._cards.sync(row)
        found = self._cards.row(row)
        codes = self._table.resources.codes
        budgets: Budgets = {
            name: [(int(left[codes[name]]) if name in codes else 0) + vacated.freed(row, name), 0, 0, 0]
            for name in self.rows.budgets(row, devices)
        }
        listed = {need.listed for need in devices if self.rows.lists(row, need)}
        cells = vacated.cells(row) or self._cards.cells[row].tolist()
        gone = self.rows.vacated(row, found, vacated.gone(row))
        assignment = NodeDeviceAssignment(
            found,
            cells,
            budgets,
            later=True,
            vacated=gone,
            choose=self.word.choice(needs),
            listed=listed,
            given_back=vacated.drawn(row),
        )
        return assignment.count(devices, self.rows.plan(row, devices), PLENTY)

    def lacks(self, rows: Sequence[int], needs: Needs) -> NDArray[np.float64]:
        """Per row, what part of the cards that a task needs is missing once what terminates is gone, summed
        over its needs; infinite where even the empty node would not do."""
        found = np.zeros(len(rows))
        empty, later = self.empty_counts(rows, needs), self.counts(rows, needs, later=True)
        for at, row in enumerate(rows):
            if not empty[at]:
                found[at] = np.inf
            elif not later[at]:
                found[at] = sum(summary.lacking for summary in self.look(row, needs, later=True))
        return found

    def counter(self, needs: Needs) -> Counter:
        """:meth:`counts` of single rows, to be asked over and over."""
        devices = needs.devices
        memos = self.rows.memos(devices[0]) if len(devices) == 1 and not devices[0].listed else None
        if memos is None:
            return lambda row, _: int(self.counts((row,), needs)[0])
        need, cards, stale = devices[0], self._cards, self._table.devices.stale
        card_rows, codes = cards.rows, self._table.resources.codes

        def count(row: int, free: Sequence[int]) -> int:
            found = card_rows[row]
            if found is None or row in stale:
                cards.sync(row)
                found = cards.row(row)
            memo = memos.get(found.device_set.code) or memo_of(memos, need, found)
            total, opened = memo.tally(found, cards.cells, row)
            for resource, units in opened:
                column = codes.get(resource)
                if column is None or free[column] < units:
                    return int(self.counts((row,), needs)[0])
            return total if total >= 0 else int(self.counts((row,), needs)[0])

        return count

    def count_one(self, row: int, need: DeviceNeed) -> int | None:
        """:meth:`counts` of a row for one need, by what is remembered of single cards; ``None`` if a closer
        look is needed."""
        memo = self.rows.memo(row, need)
        if memo is None:
            return None
        total, opened = memo.tally(self._cards.row(row), self._cards.cells, row)
        if opened:
            left = self.rows.available(row, need)
            if any(left.get(resource, 0) < units for resource, units in opened):
                return None
        return total if total >= 0 else None

    def look_all(
        self, rows: Sequence[int], needs: Needs, *, empty: bool = False
    ) -> list[list[DeviceSummary]]:
        """:meth:`look` at many rows. Remembered: what a class is told is mostly told of the same rows again."""
        known = self._looks.setdefault((needs.devices, empty), {})
        if len(known) > MOST_REMEMBERED or len(self._looks) > MOST_MEMOS:
            self._looks = {(needs.devices, empty): (known := {})}
        found = []
        for row, key in zip(rows, self.rows.alike(rows, needs.devices, empty=empty), strict=True):
            glances = known.get(key)
            if glances is None:
                memo = (
                    self.rows.memo(row, needs.devices[0]) if not empty and len(needs.devices) == 1 else None
                )
                if memo is not None:
                    glances = [memo.summary(self._cards.row(row), self._cards.cells[row])]
                else:
                    glances = self.look(row, needs, empty=empty)
                known[key] = glances
            found.append(glances)
        return found

    def look(
        self, row: int, needs: Needs, *, later: bool = False, empty: bool = False
    ) -> list[DeviceSummary]:
        """What the row's cards say to each of the needs, taken alone."""
        devices = needs.devices
        self._cards.sync(row)
        if empty:
            assignment = self.rows.emptied(row, needs.devices, None)
        else:
            assignment = self.rows.open(row, self.rows.budgets(row, devices), None, later=later)
        return [
            assignment.summary(need, plan)
            for need, plan in zip(devices, self.rows.plan(row, devices), strict=True)
        ]

    def could_stay(self, entry: TaskEntry) -> bool:
        """Whether a task that is asked to go could stay on its cards, and all promises be kept."""
        row = entry.row
        if self._cards.rows[row] is None:
            return True
        if entry.cuts and not self.takes(row, entry.cuts, later=True):
            return False
        self._cards.sync(row)
        device_set = self._cards.row(row).device_set
        for resource, mask in entry.masks:
            for index in bits(mask):
                slot = device_set.slots.get((resource, index))
                if (
                    slot is not None
                    and self._cards.cells[row, slot, KEPT * FIELDS + SHARES : KEPT * FIELDS + PLACES].any()
                ):
                    return False
        return True

    def sound(self, row: int) -> bool:
        """Whether all that stays on the row's cards and all that is promised there goes together."""
        if self._cards.rows[row] is None:
            return True
        self._cards.sync(row)
        found = self._cards.row(row)
        vacated = self.rows.vacated(row, found)
        for slot, card in enumerate(found.device_set.cards):
            cells = self._cards.cells[row, slot].tolist()
            if not together(card, cells, whole=bool(cells[TAKEN]) and slot not in vacated):
                return False
        drawing = found.draws or any(card.device.draws for card in found.device_set.cards)
        return not drawing or self.rows.open(row, {}, None, later=True).draws_hold()

    def pick(self, row: int, needs: Needs, *, later: bool = False, heard: bool = True) -> TaskShares | None:
        """The parts that one task gets on the row; ``None`` if the cards do not hold it. ``heard``: policies
        that look at the whole node have a word."""
        devices = needs.devices
        ranked = heard and bool(self._plugins.card_ranks) and any(need.pack is None for need in devices)
        if ranked and not later and len(devices) == 1:
            found = self._pick_said(row, needs, devices[0])
            if found is not None:
                return found
        if later or ranked:
            choose = self.word.choice(needs, row if ranked else -1, later=later)
            return self.rows.assignment(row, devices, choose, later=later).device(
                devices, self.rows.plan(row, devices)
            )
        if len(devices) == 1 and not self.word.choosers(needs):
            memo = self.rows.memo(row, devices[0])
            if memo is not None and not devices[0].whole:
                cards = self._cards
                found = pick(memo, cards.row(row), cards.cells[row], self.rows.available(row, devices[0]))
                if found is not None:
                    return found
        key = (self._table.planes[row].tobytes() + self.rows.key(row, devices), devices, later)
        if key not in self._picks:
            if len(self._picks) > MOST_REMEMBERED:
                self._picks.clear()
            assignment = self.rows.assignment(row, devices, self.word.choice(needs), later=False)
            self._picks[key] = assignment.device(devices, self.rows.plan(row, devices))
        return self._picks[key]

    def _pick_said(self, row: int, needs: Needs, need: DeviceNeed) -> TaskShares | None:
        """:meth:`pick` of one card by the points that policies give to the cards of the node; ``None`` if a
        closer look is needed."""
        rankers = None if self.word.choosers(needs) else self._heard.rankers(needs, need)
        memo = self.rows.memo(row, need) if rankers else None
        if memo is None or rankers is None:
            return None
        points, cards = self._heard.points(row, rankers), self._cards
        return pick(memo, cards.row(row), cards.cells[row], self.rows.available(row, need), points)

    def take(
        self, row: int, who: str, needs: Needs, cuts: TaskShares | None, *, later: bool = False
    ) -> TaskShares:
        """Choose the parts for a task, if they are not said, and enter them as held, or as promised."""
        chosen = cuts if cuts is not None else self.pick(row, needs, later=later)
        if chosen is None and self._plugins.card_ranks:
            chosen = self.pick(row, needs, later=later, heard=False)
        if chosen is None:
            raise RuntimeError(f"the cards of {self._table.names[row]} do not hold what was counted on")
        self._cards.put(row, who, chosen, KEPT if later else HELD, 1)
        return chosen

    def take_all(self, row: int, names: Sequence[str], needs: Needs) -> list[TaskShares]:
        """Choose the parts for several tasks, one after the other, and enter them as held.

        Where policies that look at the whole node choose, and fewer fit then than were counted, their word
        is not heard.
        """
        found: list[TaskShares] = []
        for heard in (True, False) if self._plugins.card_ranks else (True,):
            for name in names:
                chosen = self.pick(row, needs, heard=heard)
                if chosen is None:
                    break
                self._cards.put(row, name, chosen, HELD, 1)
                found.append(chosen)
            if len(found) == len(names):
                return found
            for name, cuts in zip(names, found, strict=False):
                self._cards.put(row, name, cuts, HELD, -1)
            found = []
        raise RuntimeError(f"the cards of {self._table.names[row]} do not hold what was counted on")

    def takes(self, row: int, cuts: TaskShares, *, later: bool = False) -> bool:
        """Whether exactly these parts can be had on the row."""
        self._cards.sync(row)
        budgets = self.rows.budgets(row, (), {share.resource for share in cuts})
        return self.rows.open(row, budgets, None, later=later).takes(cuts)

    def shares(self, row: int, cuts: TaskShares) -> tuple[DeviceShare, ...]:
        """The parts as a decision states them, in the order of the cards."""
        device_set = self._cards.row(row).device_set
        found = []
        for cut in cuts:
            said = self._said.get((device_set.code, id(cut)))
            if said is not None:
                found.append(said[1])
                continue
            slot = device_set.slots.get((cut.resource, cut.index))
            if slot is None:
                continue
            card = device_set.cards[slot]
            milli, mib = cut.milli, cut.mib
            if cut.profile and card.geometry is not None and cut.profile in card.geometry.codes:
                profile = card.geometry.profiles[card.geometry.codes[cut.profile]]
                milli, mib = profile.compute * WHOLE // card.geometry.compute, profile.memory_mib
            memory = card.device.memory_mib
            share = DeviceShare(
                cut.index, cut.resource, milli, mib, cut.profile, cut.start, memory, cut.draws
            )
            if len(self._said) > MOST_REMEMBERED:
                self._said.clear()
            self._said[device_set.code, id(cut)] = cut, share
            found.append(share)
        return tuple(found)


def _is_plain(needs: Needs) -> bool:
    """Whether the cards of many rows may be counted at once (:mod:`windlass.engine.device_allocation.bulk_count`)."""
    return len(needs.devices) == 1 and is_plain(needs.devices[0])
