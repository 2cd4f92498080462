"""Which cards of a node a pod gets, and how many such pods the node's cards hold.

Both are answered by the same code on a copy of the row's state: pods are seated one after the other until no
further one fits. So a count is what placing one by one comes to. Where a need is of one card and nothing else
is in the way, the cards are counted alone and summed up instead: then the order does not matter.

*Now*: what terminates still holds its part, and what is promised may not be taken but by room that is being
vacated for it. *Later*: what terminates is gone, and promises are kept.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

from windlass.engine.devices.device_state import (
    PLENTY,
    DeviceState,
    capacity_of,
    opening_of,
    rank_of,
    share_of,
)
from windlass.engine.devices.dra_allocator import OfferedDevice, allocate, allocations, draws_fit, part_of
from windlass.engine.devices.need_on_device import NeedOnDevice
from windlass.engine.devices.share_table import HELD, KEPT, LEAVING, RowDevices, TaskShare, TaskShares
from windlass.engine.devices.whole_device_table import WHOLE
from windlass.spi.devices import CandidateDevice, DeviceNeed, Draws, JointDeviceNeed
from windlass.spi.quantities import scale

__all__ = ["PLENTY", "Budgets", "Choose", "DeviceSummary", "NodeDeviceAssignment"]

Budgets = dict[str, list[int]]
"""Resource → allocatable, used, releasing, promised in the planes."""
Choose = Callable[[DeviceNeed, Sequence[CandidateDevice]], Sequence[float] | None]
"""What policies say of the cards that do, larger for better; ``None`` if they say nothing."""
_Saved = tuple[list[DeviceState], Budgets, dict[int, list[TaskShare]], dict[str, int]]
MOST_PODS = 1_000
"""No more pods are counted on the devices that a node's claims share."""


@dataclass(frozen=True, slots=True)
class DeviceSummary:
    """What the cards of a row say to one need of a task: how many are of the kind that is asked for, how many
    of those take it; the most compute (milli) and memory (MiB) that is left on one of them; ``crowded``: how many
    are shared by as many as may share them."""

    need: DeviceNeed
    cards: int
    taking: int
    milli: int
    mib: int
    crowded: int = 0
    listed: bool = False

    @property
    def lacking(self) -> float:
        """The part of the cards that is missing."""
        return max(0, self.need.count - self.taking) / max(1, self.need.count)


class NodeDeviceAssignment:
    """The cards of one row while pods are seated on them. Nothing of it is written anywhere.

    ``choose``: what policies say of cards.
    """

    def __init__(
        self,
        found: RowDevices,
        cells: Sequence[Sequence[int]],
        budgets: Budgets,
        *,
        later: bool,
        vacated: frozenset[int] = frozenset(),
        choose: Choose | None = None,
        listed: Collection[str] | None = None,
        given_back: Mapping[str, int] = MappingProxyType({}),
    ) -> None:
        """``listed``: the resources that the node lists; ``None``: those of which it has anything. ``given_back``: what
        is had again of cards that claims share, beside what terminates."""
        self.found = found
        self.later = later
        self.devices = [
            DeviceState(card, cells[slot], later=later, vacated=slot in vacated)
            for slot, card in enumerate(found.device_set.cards)
        ]
        self._budgets = budgets
        self._listed = {name for name, b in budgets.items() if b[0] > 0} if listed is None else listed
        self._choose = choose
        self._tokens: dict[int, list[TaskShare]] = {}
        self._taken: dict[str, int] = {
            name: self._counted(sums, later=later) - given_back.get(name, 0)
            for name, sums in found.draws.items()
        }
        """What is taken of the cards that claims share, by name."""
        for name, units in found.device_set.drawn:
            self._taken[name] = self._taken.get(name, 0) + units

    @staticmethod
    def _counted(sums: Sequence[int], *, later: bool) -> int:
        rest = sums[HELD] - sums[LEAVING] + sums[KEPT]
        return rest if later else max(sums[HELD], rest)

    # ------------------------------------------------------------------ questions

    def count(self, needs: Sequence[DeviceNeed], plans: Sequence[Sequence[NeedOnDevice]], most: int) -> int:
        """How many pods of these needs could be seated one after the other, up to ``most``."""
        alone = len(needs) == 1 and needs[0].count == 1 and needs[0].joint is None
        if alone and needs[0].listed not in self._listed:
            total = self._summed(needs[0], plans[0], most)
            if total is not None:
                return total
        if len(needs) == 1 and (joint := needs[0].joint) is not None:
            total = self._joint_count(needs[0], joint, plans[0], most)
            if total is not None:
                return total
        done = 0
        if any(need.joint is not None for need in needs):
            most = min(most, MOST_PODS)
        while done < most and (cuts := self.device(needs, plans)) is not None:
            if not cuts:
                return most
            done += 1
        return done

    def _summed(self, need: DeviceNeed, plan: Sequence[NeedOnDevice], most: int) -> int | None:
        """The sum over cards, if there is budget for opening all of them; ``None`` if there is not."""
        total = 0
        opened: dict[str, int] = {}
        for wish in plan:
            device = self.devices[wish.slot]
            here = self._capacity(need, wish, device)
            if not here:
                continue
            total += here
            if device.card.counted and opening_of(device, later=self.later):
                resource = device.card.device.resource
                opened[resource] = opened.get(resource, 0) + 1
                if device.kept or device.held:
                    return None
        for resource, n in opened.items():
            if self._free(self._budgets[resource]) < n * WHOLE:
                return None
        return min(total, most)

    def _capacity(self, need: DeviceNeed, wish: NeedOnDevice, device: DeviceState) -> int:
        """How many pods one card would take, alone."""
        return 0 if self._conflict(wish.slot, need) else capacity_of(need, wish, device)

    def device(
        self, needs: Sequence[DeviceNeed], plans: Sequence[Sequence[NeedOnDevice]]
    ) -> TaskShares | None:
        """Seat one pod; ``None`` if it cannot be, and then nothing is taken."""
        if len(needs) == 1:
            return self._seat_need(needs[0], plans[0])
        saved = self._save()
        found: dict[int, TaskShares] = {}
        for at in sorted(range(len(needs)), key=lambda at: _bulk(needs[at]), reverse=True):
            cuts = self._seat_need(needs[at], plans[at])
            if cuts is None:
                self._restore(saved)
                return None
            found[at] = cuts
        return tuple(share for at in sorted(found) for share in found[at])

    def _seat_joint(
        self, need: DeviceNeed, joint: JointDeviceNeed, plan: Sequence[NeedOnDevice]
    ) -> TaskShares | None:
        """All that claims hold, in the order of their requests."""
        found = self._joint_slots(need, joint, plan)
        if found is None:
            return None
        saved = self._save() if len(found) > 1 else None
        wishes = {wish.slot: wish for wish in plan}
        shares: list[TaskShare] = []
        for slot, draws in found:
            share = self._cut(need, wishes[slot])
            if share is None or not self._pay(self.devices[slot]):
                if saved is not None:
                    self._restore(saved)
                return None
            if draws:
                share = replace(share, draws=draws)
            self._seat_cut(slot, share)
            shares.append(share)
        return tuple(shares)

    def _joint_count(
        self, need: DeviceNeed, joint: JointDeviceNeed, plan: Sequence[NeedOnDevice], most: int
    ) -> int | None:
        """:meth:`count` in one search; ``None`` where more than the devices decides."""
        if self.later or need.carries or need.avoids:
            return None
        known, offers = self._offers(need, plan)
        total = 0
        opened: dict[str, int] = {}
        begun = {at for at, offer in enumerate(offers) if offer.begun}
        for picks in allocations(joint, offers, self._drawn()):
            held = {pick.at for pick in picks if not pick.admin}
            for card in (self.devices[known[at]].card for at in held - begun):
                if card.counted:
                    opened[card.device.resource] = opened.get(card.device.resource, 0) + 1
            begun |= held
            total += 1 if held else most
            if total >= min(most, MOST_PODS):
                break
        if any(self._free(self._budgets[name]) < units * WHOLE for name, units in opened.items()):
            return None
        return min(total, most)

    def _joint_slots(
        self, need: DeviceNeed, joint: JointDeviceNeed, plan: Sequence[NeedOnDevice]
    ) -> list[tuple[int, Draws]] | None:
        """The cards that claims would hold, and what of those that are shared; nothing is taken yet."""
        known, offers = self._offers(need, plan)
        picks = allocate(joint, offers, self._drawn())
        if picks is None:
            return None
        return [(known[pick.at], part_of(joint, pick, offers)) for pick in picks if not pick.admin]

    def _offers(
        self, need: DeviceNeed, plan: Sequence[NeedOnDevice]
    ) -> tuple[list[int], list[OfferedDevice]]:
        """The devices of the node, by slot, and which of them can be had."""
        free = {wish.slot for wish in plan if self._cut(need, wish) is not None}
        known = [slot for slot, device in enumerate(self.devices) if device.card.known]
        known.sort(key=lambda slot: self.devices[slot].card.device.late)
        return known, [
            OfferedDevice(
                self.devices[slot].card.device,
                self.found.uuids[slot],
                slot in free,
                begun=self.devices[slot].shares > 0,
            )
            for slot in known
        ]

    def _drawn(self) -> dict[str, int]:
        """What those who have devices take of each counter, and of devices that are shared."""
        used = dict(self._taken)
        for device in self.devices:
            if device.card.device.draws and (device.shares or device.taken):
                for name, units, _ in device.card.device.draws:
                    used[name] = used.get(name, 0) + units
        return used

    def draws_hold(self) -> bool:
        """Whether those who have devices take no more of any counter than there is."""
        used = self._drawn()
        totals = {name: total for device in self.devices for name, _, total in device.card.device.draws}
        totals |= {
            name: total
            for cuts in self.found.holders.values()
            for share in cuts
            for name, _, total in share.draws
        }
        return all(units <= totals.get(name, units) for name, units in used.items())

    def _seat_cut(self, slot: int, share: TaskShare) -> None:
        self.devices[slot].take(share, later=self.later)
        self._draw(share)
        if share.carries or share.avoids:
            self._tokens.setdefault(slot, []).append(share)

    def _draw(self, share: TaskShare) -> None:
        for name, units, _ in share.draws:
            self._taken[name] = self._taken.get(name, 0) + units

    def _seat_need(self, need: DeviceNeed, plan: Sequence[NeedOnDevice]) -> TaskShares | None:
        if need.joint is not None:
            return self._seat_joint(need, need.joint, plan)
        if need.listed in self._listed:
            return self._seat_listed(need, need.listed)
        options = [(wish, share) for wish in plan if (share := self._cut(need, wish)) is not None]
        if len(options) < need.count:
            return None
        saved = self._save() if need.count > 1 else None
        shares: list[TaskShare] = []
        for wish, share in self._ranked(need, options):
            device = self.devices[wish.slot]
            if not self._pay(device):
                continue
            self._seat_cut(wish.slot, share)
            shares.append(share)
            if len(shares) == need.count:
                return tuple(shares)
        if saved is not None:
            self._restore(saved)
        return None

    def _seat_listed(self, need: DeviceNeed, listed: str) -> TaskShares | None:
        units = need.count * scale(listed)
        budget = self._budgets[listed]
        if self._free(budget) < units:
            return None
        budget[3 if self.later else 1] += units
        return (TaskShare(listed, -1, units),)

    def takes(self, cuts: TaskShares) -> bool:
        """Whether exactly these parts can be had; they are taken then."""
        for share in cuts:
            if share.index < 0:
                budget = self._budgets.get(share.resource)
                if budget is None or self._free(budget) < share.milli:
                    return False
                budget[3 if self.later else 1] += share.milli
                continue
            slot = self.found.device_set.slots.get((share.resource, share.index))
            if slot is None or not self._takes(slot, share):
                return False
        return True

    def _takes(self, slot: int, share: TaskShare) -> bool:
        device = self.devices[slot]
        geometry = device.card.geometry
        if not device.card.usable or self._at_odds(slot, share.carries, share.avoids):
            return False
        if share.profile:
            code = geometry.codes.get(share.profile, -1) if geometry is not None else -1
            if geometry is None or code < 0 or device.shares or device.taken:
                return False
            if share.start not in geometry.starts(device.state, code):
                return False
        elif not device.takes_share((share.milli, share.mib)):
            return False
        begun = device.card.device.shared and device.shares > 0
        draws = share.draws if begun else (*device.card.device.draws, *share.draws)
        if draws and not draws_fit(draws, self._drawn()):
            return False
        if not self._pay(device):
            return False
        device.take(share, later=self.later)
        self._draw(share)
        self._tokens.setdefault(slot, []).append(share)
        return True

    def summary(self, need: DeviceNeed, plan: Sequence[NeedOnDevice]) -> DeviceSummary:
        """What the cards say to one need."""
        if need.listed in self._listed:
            free = max(0, self._free(self._budgets[need.listed])) // scale(need.listed)
            return DeviceSummary(need, need.count, min(free, need.count), 0, 0, listed=True)
        taking = sum(self._cut(need, wish) is not None for wish in plan)
        if need.joint is not None:
            served = self._joint_slots(need, need.joint, plan) is not None
            taking = need.count if served else min(taking, need.count - 1)
        open_to = [self.devices[w.slot] for w in plan if not self.devices[w.slot].taken]
        shared = [device for device in open_to if not device.slices and not device.crowded]
        return DeviceSummary(
            need,
            len(plan),
            taking,
            max((WHOLE - device.milli for device in shared), default=0),
            max((device.free_mib() for device in open_to if not device.crowded), default=0),
            sum(device.crowded for device in open_to),
        )

    # ------------------------------------------------------------------ cards

    def _cut(self, need: DeviceNeed, wish: NeedOnDevice) -> TaskShare | None:
        """The part of one card that the need would get; ``None`` if the card does not do."""
        return None if self._conflict(wish.slot, need) else share_of(need, wish, self.devices[wish.slot])

    def _ranked(
        self, need: DeviceNeed, options: list[tuple[NeedOnDevice, TaskShare]]
    ) -> list[tuple[NeedOnDevice, TaskShare]]:
        """The cards in the order in which they are taken."""
        scores: Sequence[float] | None = None
        if self._choose is not None:
            scores = self._choose(need, [self._shown(wish, share) for wish, share in options])
        if scores is not None:
            order = sorted(
                range(len(options)), key=lambda at: (-scores[at], self._by_default(need, options[at]))
            )
            return [options[at] for at in order]
        if need.whole:
            return self._together(need, options)
        if len(options) == 1:
            return options
        return sorted(options, key=lambda option: self._by_default(need, option))

    def _by_default(self, need: DeviceNeed, option: tuple[NeedOnDevice, TaskShare]) -> tuple[bool, int, int]:
        wish, share = option
        return rank_of(need, share, self.devices[wish.slot], wish.slot)

    def _together(
        self, need: DeviceNeed, options: list[tuple[NeedOnDevice, TaskShare]]
    ) -> list[tuple[NeedOnDevice, TaskShare]]:
        """Whole cards: from the tightest group of joined cards, or NUMA zone, that has as many."""
        devices = [self.devices[wish.slot].card.device for wish, _ in options]
        for numbers in ([d.link_group for d in devices], [d.numa for d in devices]):
            sizes = {number: numbers.count(number) for number in numbers if number >= 0}
            holding = [number for number in sizes if sizes[number] >= need.count]
            if holding:
                chosen = min(holding, key=lambda number: (sizes[number], numbers.index(number)))
                inside = [option for option, number in zip(options, numbers, strict=True) if number == chosen]
                return inside + [option for option in options if option not in inside]
        return options

    def _shown(self, wish: NeedOnDevice, share: TaskShare) -> CandidateDevice:
        seat = self.devices[wish.slot]
        device, geometry = seat.card.device, seat.card.geometry
        keeps: tuple[tuple[str, int], ...] = ()
        if share.profile and geometry is not None:
            after = geometry.then(seat.state, geometry.codes[share.profile], share.start)
            left = geometry.more(after)
            keeps = tuple((p.name, left[at]) for at, p in enumerate(geometry.profiles))
        return CandidateDevice(
            device.resource,
            device.index,
            device.model,
            device.memory_mib,
            WHOLE - seat.milli,
            device.memory_mib - seat.mib,
            seat.shares + seat.slices,
            device.numa,
            device.link_group,
            share.profile,
            keeps,
        )

    # ------------------------------------------------------------------ tokens

    def _conflict(self, slot: int, need: DeviceNeed) -> bool:
        if not need.carries and not need.avoids:
            return False
        return self._at_odds(slot, need.carries, need.avoids)

    def _at_odds(self, slot: int, carries: Sequence[str], avoids: Sequence[str]) -> bool:
        for other in self._tokens.get(slot, ()):
            if not set(carries).isdisjoint(other.avoids) or not set(avoids).isdisjoint(other.carries):
                return True
        tokens = self.found.tokens.get(slot)
        if not tokens:
            return False
        return any(self._there(tokens.get((False, token))) for token in carries) or any(
            self._there(tokens.get((True, token))) for token in avoids
        )

    def _there(self, sums: list[int] | None) -> bool:
        if sums is None:
            return False
        return (sums[HELD] - sums[LEAVING] if self.later else sums[HELD]) + sums[KEPT] > 0

    # ------------------------------------------------------------------ the planes

    def _free(self, budget: list[int]) -> int:
        allocatable, used, releasing, kept = budget
        if self.later:
            return allocatable - used + releasing - kept
        return allocatable - used - max(kept - releasing, 0)

    def _pay(self, device: DeviceState) -> bool:
        """Charge the planes for opening a card, if they allow it."""
        change = opening_of(device, later=self.later) if device.card.counted else None
        if change is None:
            return True
        budget = self._budgets[device.card.device.resource]
        for at, step in enumerate(change, start=1):
            budget[at] += step * WHOLE
        if self._free(budget) >= 0:
            return True
        for at, step in enumerate(change, start=1):
            budget[at] -= step * WHOLE
        return False

    # ------------------------------------------------------------------ undo

    def _save(self) -> _Saved:
        return (
            [device.copy() for device in self.devices],
            {name: list(budget) for name, budget in self._budgets.items()},
            {slot: list(shares) for slot, shares in self._tokens.items()},
            dict(self._taken),
        )

    def _restore(self, saved: _Saved) -> None:
        self.devices, budgets, self._tokens, self._taken = saved
        self._budgets.clear()
        self._budgets.update(budgets)


def _bulk(need: DeviceNeed) -> tuple[int, int, int, int]:
    return int(need.whole), max(need.milli, need.memory_milli), need.memory_mib, len(need.profile)
