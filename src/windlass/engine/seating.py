"""Parts of cards for task classes: how many tasks a row's cards take, and which cards a task gets.

Between the card table, the policies that choose among cards, and everybody who asks. Answers are remembered
by the state of the row's planes and cards, so rows in equal states are looked at once.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from windlass.engine.cardcounts import is_plain, plain_counts
from windlass.engine.cardfit import PLENTY, Budgets, Choose, Glance, Seating, Wish, kind_of, wishes
from windlass.engine.cardmemo import NeedMemo, count, pick
from windlass.engine.cards import (
    FIELDS,
    HELD,
    KEPT,
    PLACES,
    SHARES,
    TAKEN,
    UNSEEN,
    Cut,
    Cuts,
    RowCards,
    together,
)
from windlass.engine.cardsaid import CardsSaid, Rankers
from windlass.engine.decision import DeviceShare
from windlass.engine.devices import WHOLE, bits
from windlass.engine.nodecards import PlainCards
from windlass.engine.policies import Policies
from windlass.engine.table import NodeTable
from windlass.engine.view import TableView
from windlass.spi.devices import CardChoice, CardState, DeviceNeed
from windlass.spi.objects import HeldSlice, Needs, TaskState
from windlass.spi.quantities import scale

if TYPE_CHECKING:
    from windlass.engine.cardroom import Vacated
    from windlass.engine.groups import TaskEntry

_MOST_MEMOS = 1_000
_MOST_REMEMBERED = 50_000


class Seats:
    def __init__(self, table: NodeTable, policies: Policies) -> None:
        self._table = table
        self._cards = table.cards
        self._policies = policies
        self._plans: dict[tuple[int, DeviceNeed], tuple[Wish, ...]] = {}
        self._picks: dict[tuple[bytes, tuple[DeviceNeed, ...], bool], Cuts | None] = {}
        self._counts: dict[tuple[bytes, tuple[DeviceNeed, ...], bool], int] = {}
        self._memos: dict[tuple[int, DeviceNeed], NeedMemo] = {}
        plain = PlainCards(table.cards)
        self.cards_of = plain.of
        """The cards of a row in plain values."""
        self._looks: dict[tuple[tuple[DeviceNeed, ...], bool], dict[object, list[Glance]]] = {}
        self._heard = CardsSaid(table, policies, plain)
        self._said: dict[tuple[int, int], tuple[Cut, DeviceShare]] = {}
        """Kit and identity of a cut → how a decision states it."""

    # ------------------------------------------------------------------ questions

    def key(self, row: int, needs: Sequence[DeviceNeed]) -> bytes:
        """The state of the row's cards as far as it matters for such needs."""
        key = self._cards.key(row)
        found = self._cards.row(row)
        if any(need.uuids or need.uuids_not for need in needs):
            key += repr(found.uuids).encode()
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

    def counts(self, rows: Sequence[int], needs: Needs, *, later: bool = False) -> NDArray[np.int64]:
        """How many tasks of these needs the cards of each row take."""
        devices = needs.devices
        if not later and len(rows) > 1 and len(devices) == 1 and is_plain(devices[0]):
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
        if len(remembered) > _MOST_REMEMBERED:
            remembered.clear()
        found = np.empty(len(rows), dtype=np.int64)
        choose = self._choice(needs)
        by_card = not later and len(devices) == 1 and NeedMemo.serves(devices[0])
        for at, row in enumerate(rows):
            if by_card:
                n = self.count_one(row, devices[0])
                if n is not None:
                    found[at] = n
                    continue
            key = (planes[row].tobytes() + self.key(row, devices), devices, later)
            if later and planes[row, 2, 0] > 0:  # which cards plain pods are leaving is not in the key
                seating = self._seating(row, devices, choose, later=True)
                found[at] = seating.count(devices, self._plan(row, devices), PLENTY)
                continue
            n = remembered.get(key)
            if n is None:
                seating = self._seating(row, devices, choose, later=later)
                n = remembered[key] = seating.count(devices, self._plan(row, devices), PLENTY)
            found[at] = n
        return found

    def limit(self, count: NDArray[np.int64], view: TableView, needs: Needs) -> None:
        """Lower ``count``, one entry per row of the view, to what the cards of the rows take."""
        asked = np.flatnonzero(count > 0)
        if len(asked):
            rows = view.rows[asked].tolist()
            by_cards = (
                self.empty_counts(rows, needs) if view.empty else self.counts(rows, needs, later=view.future)
            )
            count[asked] = np.minimum(count[asked], by_cards)

    def empty_counts(self, rows: Sequence[int], needs: Needs) -> NDArray[np.int64]:
        """The same if nothing ran on the rows."""
        found = np.empty(len(rows), dtype=np.int64)
        choose = self._choice(needs)
        remembered: dict[object, int] = {}
        for at, (row, key) in enumerate(zip(rows, self.alike(rows, needs, empty=True), strict=True)):
            n = remembered.get(key)
            if n is None:
                seating = self._emptied(row, needs, choose)
                n = remembered[key] = seating.count(needs.devices, self._plan(row, needs.devices), PLENTY)
            found[at] = n
        return found

    def alike(self, rows: Sequence[int], needs: Needs, *, empty: bool = False) -> list[tuple[object, ...]]:
        """What decides what :meth:`look` tells of each row; if nothing ran on it (``empty``), also how many
        tasks it takes. Rows with equal keys say the same."""
        devices, cards = needs.devices, self._cards
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
        uuids = any(need.uuids or need.uuids_not for need in devices)
        if not empty and (uuids or any(need.carries or need.avoids for need in devices)):
            return [(self.key(row, devices), part) for row, part in zip(rows, amounts, strict=True)]
        found: list[tuple[object, ...]] = []
        for row, part in zip(rows, amounts, strict=True):
            here = cards.row(row)
            if empty:
                found.append((here.kit.code, here.uuids if uuids else (), part))
            else:
                found.append((here.kit.code, part, *here.states))
        return found

    def _emptied(self, row: int, needs: Needs, choose: Choose | None) -> Seating:
        """The row as if nothing ran on it."""
        self._cards.sync(row)
        cards = self._cards.row(row)
        budgets = {name: [amounts[0], 0, 0, 0] for name, amounts in self._budgets(row, needs.devices).items()}
        bare = RowCards(cards.kit, cards.uuids, {})
        nothing = np.zeros_like(self._cards.cells[row]).tolist()
        return Seating(bare, nothing, budgets, later=False, choose=choose)

    def count_if(self, row: int, needs: Needs, vacated: Vacated, left: NDArray[np.int64]) -> int:
        """How many tasks the row would take if some were gone. ``left``: what would be left of each column,
        for all but the parts of cards that they have."""
        devices = needs.devices
        self._cards.sync(row)
        found = self._cards.row(row)
        codes = self._table.resources.codes
        budgets: Budgets = {
            name: [(int(left[codes[name]]) if name in codes else 0) + vacated.freed(row, name), 0, 0, 0]
            for name in self._budgets(row, devices)
        }
        listed = {need.listed for need in devices if self._lists(row, need)}
        cells = vacated.cells(row) or self._cards.cells[row].tolist()
        gone = self._vacated(row, found, vacated.gone(row))
        seating = Seating(
            found, cells, budgets, later=True, vacated=gone, choose=self._choice(needs), listed=listed
        )
        return seating.count(devices, self._plan(row, devices), PLENTY)

    def lacks(self, rows: Sequence[int], needs: Needs) -> NDArray[np.float64]:
        """Per row, what part of the cards that a task needs is missing once what terminates is gone, summed
        over its needs; infinite where even the empty node would not do."""
        found = np.zeros(len(rows))
        empty, later = self.empty_counts(rows, needs), self.counts(rows, needs, later=True)
        for at, row in enumerate(rows):
            if not empty[at]:
                found[at] = np.inf
            elif not later[at]:
                found[at] = sum(glance.lacking for glance in self.look(row, needs, later=True))
        return found

    def count_at(self, row: int, needs: Needs) -> int:
        """:meth:`counts` of one row."""
        devices = needs.devices
        n = self.count_one(row, devices[0]) if len(devices) == 1 else None
        return n if n is not None else int(self.counts((row,), needs)[0])

    def count_one(self, row: int, need: DeviceNeed) -> int | None:
        """:meth:`counts` of a row for one need, by what is remembered of single cards; ``None`` if a closer
        look is needed."""
        memo = self._memo(row, need)
        if memo is None:
            return None
        cards = self._cards
        return count(memo, cards.row(row), cards.cells[row], self._available(row, need))

    def _memo(self, row: int, need: DeviceNeed) -> NeedMemo | None:
        if not NeedMemo.serves(need) or self._lists(row, need):
            return None
        self._cards.sync(row)
        found = self._cards.row(row)
        memo = self._memos.get((found.kit.code, need))
        if memo is None:
            if len(self._memos) > _MOST_MEMOS:
                self._memos.clear()
            plan = wishes(need, found.kit, found.uuids)
            memo = self._memos[found.kit.code, need] = NeedMemo(need, plan, found)
        return memo

    def _available(self, row: int, need: DeviceNeed) -> dict[str, int]:
        """What the planes have available of the resources whose cards could serve the need."""
        names = (need.resource,) if need.resource else tuple(self._cards.resources)
        codes, planes = self._table.resources.codes, self._table.planes
        found = {}
        for name in names:
            if name in codes:
                allocatable, used, releasing, kept = planes[row, :, codes[name]].tolist()
                found[name] = allocatable - used - max(kept - releasing, 0)
        return found

    def look_all(self, rows: Sequence[int], needs: Needs, *, empty: bool = False) -> list[list[Glance]]:
        """:meth:`look` at many rows. Remembered: what a class is told is mostly told of the same rows again."""
        known = self._looks.setdefault((needs.devices, empty), {})
        if len(known) > _MOST_REMEMBERED or len(self._looks) > _MOST_MEMOS:
            self._looks = {(needs.devices, empty): (known := {})}
        found = []
        for row, key in zip(rows, self.alike(rows, needs, empty=empty), strict=True):
            glances = known.get(key)
            if glances is None:
                memo = self._memo(row, needs.devices[0]) if not empty and len(needs.devices) == 1 else None
                if memo is not None:
                    glances = [memo.glance(self._cards.row(row), self._cards.cells[row])]
                else:
                    glances = self.look(row, needs, empty=empty)
                known[key] = glances
            found.append(glances)
        return found

    def look(self, row: int, needs: Needs, *, later: bool = False, empty: bool = False) -> list[Glance]:
        """What the row's cards say to each of the needs, taken alone."""
        devices = needs.devices
        self._cards.sync(row)
        if empty:
            seating = self._emptied(row, needs, None)
        else:
            seating = self._open(row, self._budgets(row, devices), None, later=later)
        return [
            seating.glance(need, plan) for need, plan in zip(devices, self._plan(row, devices), strict=True)
        ]

    def could_stay(self, entry: TaskEntry) -> bool:
        """Whether a task that is asked to go could stay on its cards, and all promises be kept."""
        row = entry.row
        if self._cards.rows[row] is None:
            return True
        if entry.cuts and not self.takes(row, entry.cuts, later=True):
            return False
        self._cards.sync(row)
        kit = self._cards.row(row).kit
        for resource, mask in entry.masks:
            for index in bits(mask):
                slot = kit.slots.get((resource, index))
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
        vacated = self._vacated(row, found)
        for slot, card in enumerate(found.kit.cards):
            cells = self._cards.cells[row, slot].tolist()
            if not together(card, cells, whole=bool(cells[TAKEN]) and slot not in vacated):
                return False
        return True

    def pick(self, row: int, needs: Needs, *, later: bool = False, heard: bool = True) -> Cuts | None:
        """The parts that one task gets on the row; ``None`` if the cards do not hold it. ``heard``: policies
        that look at the whole node have a word."""
        devices = needs.devices
        ranked = heard and bool(self._policies.card_ranks) and any(need.pack is None for need in devices)
        if ranked and not later and len(devices) == 1:
            found = self._pick_said(row, needs, devices[0])
            if found is not None:
                return found
        if later or ranked:
            choose = self._choice(needs, row if ranked else -1, later=later)
            return self._seating(row, devices, choose, later=later).seat(devices, self._plan(row, devices))
        if len(devices) == 1 and not self._choosers(needs):
            memo = self._memo(row, devices[0])
            if memo is not None and not devices[0].whole:
                cards = self._cards
                found = pick(memo, cards.row(row), cards.cells[row], self._available(row, devices[0]))
                if found is not None:
                    return found
        key = (self._table.planes[row].tobytes() + self.key(row, devices), devices, later)
        if key not in self._picks:
            if len(self._picks) > _MOST_REMEMBERED:
                self._picks.clear()
            seating = self._seating(row, devices, self._choice(needs), later=False)
            self._picks[key] = seating.seat(devices, self._plan(row, devices))
        return self._picks[key]

    def _pick_said(self, row: int, needs: Needs, need: DeviceNeed) -> Cuts | None:
        """:meth:`pick` of one card by the points that policies give to the cards of the node; ``None`` if a
        closer look is needed."""
        rankers = None if self._choosers(needs) else self._heard.rankers(needs, need)
        memo = self._memo(row, need) if rankers else None
        if memo is None or rankers is None:
            return None
        points, cards = self._heard.points(row, rankers), self._cards
        return pick(memo, cards.row(row), cards.cells[row], self._available(row, need), points)

    def take(self, row: int, who: str, needs: Needs, cuts: Cuts | None, *, later: bool = False) -> Cuts:
        """Choose the parts for a task, if they are not said, and enter them as held, or as promised."""
        chosen = cuts if cuts is not None else self.pick(row, needs, later=later)
        if chosen is None and self._policies.card_ranks:
            chosen = self.pick(row, needs, later=later, heard=False)
        if chosen is None:
            raise RuntimeError(f"the cards of {self._table.names[row]} do not hold what was counted on")
        self._cards.put(row, who, chosen, KEPT if later else HELD, 1)
        return chosen

    def take_all(self, row: int, names: Sequence[str], needs: Needs) -> list[Cuts]:
        """Choose the parts for several tasks, one after the other, and enter them as held.

        Where policies that look at the whole node choose, and fewer fit then than were counted, their word
        is not heard.
        """
        found: list[Cuts] = []
        for heard in (True, False) if self._policies.card_ranks else (True,):
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

    def takes(self, row: int, cuts: Cuts, *, later: bool = False) -> bool:
        """Whether exactly these parts can be had on the row."""
        self._cards.sync(row)
        budgets = self._budgets(row, (), {cut.resource for cut in cuts})
        return self._open(row, budgets, None, later=later).takes(cuts)

    def shares(self, row: int, cuts: Cuts) -> tuple[DeviceShare, ...]:
        """The parts as a decision states them, in the order of the cards."""
        kit = self._cards.row(row).kit
        found = []
        for cut in cuts:
            said = self._said.get((kit.code, id(cut)))
            if said is not None:
                found.append(said[1])
                continue
            slot = kit.slots.get((cut.resource, cut.index))
            if slot is None:
                continue
            card = kit.cards[slot]
            milli, mib = cut.milli, cut.mib
            if cut.profile and card.geometry is not None and cut.profile in card.geometry.codes:
                profile = card.geometry.profiles[card.geometry.codes[cut.profile]]
                milli, mib = profile.compute * WHOLE // card.geometry.compute, profile.memory_mib
            memory = card.device.memory_mib
            share = DeviceShare(cut.index, cut.resource, milli, mib, cut.profile, cut.start, memory)
            if len(self._said) > _MOST_REMEMBERED:
                self._said.clear()
            self._said[kit.code, id(cut)] = cut, share
            found.append(share)
        return tuple(found)

    # ------------------------------------------------------------------ what the world reports

    def reported(self, row: int, needs: Needs, indices: Sequence[int], slices: Sequence[HeldSlice]) -> Cuts:
        """What a running task has, by the cards and slices that it is said to have, in the order of its
        needs. Of what nothing is said it is taken to have what it would get now, at the worst whole cards
        that nobody can name."""
        left, carved = list(indices), list(slices)
        cuts: list[Cut] = []
        for need in needs.devices:
            if self._lists(row, need):
                cuts.append(Cut(need.listed, -1, need.count * scale(need.listed)))
                continue
            named, left = left[: need.count], left[need.count :]
            cuts += [self._named(row, need, index, carved) for index in named]
            if len(named) < need.count:
                cuts += self._guess(row, needs, need, need.count - len(named), named_any=bool(named))
        return tuple(cuts)

    def _named(self, row: int, need: DeviceNeed, index: int, carved: list[HeldSlice]) -> Cut:
        kit = self._cards.row(row).kit
        named = ((r, slot) for (r, at), slot in kit.slots.items() if at == index)
        resource = need.resource or next((r for r, slot in named if kit.cards[slot].known), "")
        slot = kit.slots.get((resource, index))
        held = next((one for one in carved if one.index == index), None)
        if held is not None:
            carved.remove(held)
            return Cut(resource, index, 0, 0, held.profile, held.start, need.carries, need.avoids)
        if slot is None or not kit.cards[slot].known:
            start = UNSEEN
            return Cut(
                resource, index, need.milli, need.memory_mib, need.profile, start, need.carries, need.avoids
            )
        card = kit.cards[slot]
        share, code = kind_of(need, card)
        if card.geometry is not None and code >= 0 and (share is None or not card.counted):
            profile = card.geometry.profiles[code]
            seat = self._open(row, self._budgets(row, (need,)), None, later=False).seats[slot]
            start = max(seat.slice_start(code), profile.starts[0])
            return Cut(resource, index, 0, 0, profile.name, start, need.carries, need.avoids)
        milli, mib = share or (need.milli, need.memory_mib)
        return Cut(resource, index, milli, mib, "", -1, need.carries, need.avoids)

    def _guess(self, row: int, needs: Needs, need: DeviceNeed, count: int, *, named_any: bool) -> Cuts:
        if not named_any:
            plan = self._plan(row, (need,))
            found = self._seating(row, (need,), self._choice(needs), later=False).seat((need,), plan)
            if found is not None:
                return found
        resource = need.resource or next(iter(self._table.devices.rows[row]), "")
        return (Cut(resource, -1, count * WHOLE),) if resource else ()

    def _lists(self, row: int, need: DeviceNeed) -> bool:
        node = self._table.nodes[row]
        return bool(need.listed and node is not None and node.allocatable.get(need.listed, 0) > 0)

    # ------------------------------------------------------------------ parts

    def _plan(self, row: int, devices: Sequence[DeviceNeed]) -> list[tuple[Wish, ...]]:
        found = self._cards.row(row)
        plans = []
        for need in devices:
            if need.uuids or need.uuids_not:
                plans.append(wishes(need, found.kit, found.uuids))
                continue
            plan = self._plans.get((found.kit.code, need))
            if plan is None:
                if len(self._plans) > _MOST_REMEMBERED:
                    self._plans.clear()
                plan = self._plans[found.kit.code, need] = wishes(need, found.kit, found.uuids)
            plans.append(plan)
        return plans

    def _seating(
        self, row: int, devices: Sequence[DeviceNeed], choose: Choose | None, *, later: bool
    ) -> Seating:
        self._cards.sync(row)
        return self._open(row, self._budgets(row, devices), choose, later=later)

    def _open(self, row: int, budgets: Budgets, choose: Choose | None, *, later: bool) -> Seating:
        found = self._cards.row(row)
        vacated = self._vacated(row, found) if later else frozenset[int]()
        cells = self._cards.cells[row].tolist()
        return Seating(found, cells, budgets, later=later, vacated=vacated, choose=choose)

    def _vacated(self, row: int, found: RowCards, gone: Collection[str] = ()) -> frozenset[int]:
        """The slots of cards that plain whole pods have, all of which terminate."""
        leaving: dict[tuple[str, int], int] = {}
        staying: set[tuple[str, int]] = set()
        for entry in self._table.tasks[row].values():
            for resource, mask in entry.masks:
                for index in bits(mask):
                    if entry.state is TaskState.RELEASING or entry.key in gone:
                        leaving[resource, index] = 1
                    else:
                        staying.add((resource, index))
        slots = found.kit.slots
        return frozenset(slots[at] for at in leaving if at not in staying and at in slots)

    def _budgets(self, row: int, devices: Sequence[DeviceNeed], more: set[str] | None = None) -> Budgets:
        """The planes of the resources that seating may charge."""
        names = {card.device.resource for card in self._cards.row(row).kit.cards}
        names.update(need.listed for need in devices if need.listed)
        names |= more or set()
        codes, planes = self._table.resources.codes, self._table.planes[row]
        return {
            name: planes[:, codes[name]].tolist() if name in codes else [0, 0, 0, 0] for name in sorted(names)
        }

    def chooses(self, needs: Needs) -> bool:
        """Whether a policy may have a word on the cards of such tasks."""
        return bool(self._policies.card_ranks) or bool(self._choosers(needs))

    def pick_whole(self, row: int, resource: str, count: int, needs: Needs) -> int:
        """The free cards that policies would rather give to a plain pod, as a bit set; 0 if all are the same
        to them, or there are too few."""
        slots = self._table.devices.rows[row][resource]
        free = bits(slots.free & ~slots.kept)
        if len(free) <= count:
            return 0
        need = DeviceNeed(resource, count, WHOLE)
        if self._policies.card_ranks and not self._choosers(needs):
            rankers = self._heard.rankers(needs, need)
            if rankers is not None:
                return self._best_whole(row, resource, need, free, rankers) if rankers else 0
        choose = self._choice(needs, row if self._policies.card_ranks else -1)
        if choose is None:
            return 0
        kit = self._cards.row(row).kit
        devices = [kit.cards[kit.slots[resource, index]].device for index in free]
        cards = [
            CardState(resource, d.index, d.model, d.memory_mib, WHOLE, d.memory_mib, 0, d.numa, d.link_group)
            for d in devices
        ]
        said = choose(need, cards)
        if said is None or len(set(said)) == 1:
            return 0
        order = sorted(range(len(cards)), key=lambda at: (-said[at], cards[at].index))
        return sum(1 << cards[at].index for at in order[:count])

    def _best_whole(
        self, row: int, resource: str, need: DeviceNeed, free: Sequence[int], rankers: Rankers
    ) -> int:
        """:meth:`pick_whole` by points alone."""
        points, slots = self._heard.points(row, rankers), self._cards.row(row).kit.slots
        said = {index: points[slots[resource, index]] for index in free}
        if len(set(said.values())) == 1:
            return 0
        order = sorted(free, key=lambda index: (-said[index], index))
        return sum(1 << index for index in order[: need.count])

    def _choosers(self, needs: Needs) -> list[CardChoice]:
        """The policies that may have a word on single cards for such tasks."""
        found = []
        for plugin in self._policies.card_choices:
            dialects = getattr(plugin, "dialects", None)
            if dialects is None or needs.dialect in dialects:
                found.append(plugin)
        return found

    def _choice(self, needs: Needs, row: int = -1, *, later: bool = False) -> Choose | None:
        """What policies say of cards: those that look at one card, and those that look at the node."""
        plugins = self._choosers(needs)
        ranks = self._policies.card_ranks if row >= 0 else ()
        if not plugins and not ranks:
            return None
        view = TableView(self._table, np.array([row], dtype=np.int64), future=later) if ranks else None
        slots = self._cards.row(row).kit.slots if ranks else {}

        def choose(need: DeviceNeed, cards: Sequence[CardState]) -> Sequence[float] | None:
            if need.pack is not None:
                return None  # the pod's own word counts
            total = [0.0] * len(cards)
            any_said = False
            for plugin in plugins:
                said = plugin.prefer(needs, need, cards)
                if said is not None:
                    any_said = True
                    total = [a + plugin.weight * b for a, b in zip(total, said, strict=True)]
            for ranker in ranks:
                points = ranker.rank(needs, need, view) if view is not None else None
                if points is not None:
                    any_said = True
                    here = [float(points[0, slots[card.resource, card.index]]) for card in cards]
                    total = [a + ranker.weight * b for a, b in zip(total, here, strict=True)]
            return total if any_said else None

        return choose
