"""Which devices of a node serve the claims of a pod. Pure.

As kube-scheduler's structured allocator: claim by claim and request by request; of a request's alternatives the
first with which all that follows can be served, too; of devices the first in the order of the node. All
combinations are tried, and of devices that are alike only the first, which loses no solution. A claim has at most 32
devices. Counters that several devices draw from never go below zero. Who looks after devices (``adminAccess``) draws
from nothing, and sees those that others have. Of a device that is shared any number of requests have parts, as much as
it has; it draws from counters once, however many share it. ``All`` of them are those that have as much left.

The search of one node ends after so many steps; then the node counts as one that cannot serve the claims.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from windlass.engine.devices.matching import suits
from windlass.spi.devices import DeviceOption, DeviceRule, Draws, JointDeviceNeed, kind_key
from windlass.spi.objects import Device

MOST_RESULTS = 32
"""So many devices a claim can have (``AllocationResultsMaxSize``)."""
MOST_STEPS = 20_000
_Place = tuple[int, int, int]
"""Claim, request, option."""


class OfferedDevice(NamedTuple):
    """A device of the node. ``free``: nobody has it, and whoever asks may have it; one that is shared may be had by
    others, too, who have ``begun`` it."""

    device: Device
    uuid: str
    free: bool
    begun: bool = False


class HeldDevice(NamedTuple):
    """A device that is held, by its position among those offered, and what of it where it is shared."""

    at: int
    draws: Draws = ()


class PickedDevice(NamedTuple):
    """``at``: the position of the device among those offered. ``admin``: it is looked after, not held."""

    claim: int
    request: int
    option: int
    at: int
    admin: bool


def allocate(
    joint: JointDeviceNeed,
    offers: Sequence[OfferedDevice],
    used: Mapping[str, int],
    given: Sequence[HeldDevice] | None = None,
) -> tuple[PickedDevice, ...] | None:
    """Devices for all requests, in their order; ``None`` if the node cannot serve them.

    ``used``: what is taken of each counter. ``given``: the devices that are held are exactly these, in this order:
    which requests, and which of their alternatives, they serve is asked for.
    """
    search = _Search(joint, offers, used, given)
    return tuple(search.picks) if search.request(0, 0) else None


def part_of(joint: JointDeviceNeed, pick: PickedDevice, offers: Sequence[OfferedDevice]) -> Draws:
    """What is taken of a device that is shared; nothing of others."""
    option = joint.claims[pick.claim][pick.request][pick.option]
    return option.part_by_card.get(offers[pick.at].uuid, ())


def allocations(
    joint: JointDeviceNeed, offers: Sequence[OfferedDevice], used: Mapping[str, int]
) -> Iterator[tuple[PickedDevice, ...]]:
    """What pods of such claims get one after the other, until there is nothing left for another; one that holds
    nothing ends it, too. Without end where devices are shared of which nothing is used up."""
    search = _Search(joint, offers, used, None)
    while search.request(0, 0):
        yield tuple(search.picks)
        if not search.settle():
            return


class _Search:
    def __init__(
        self,
        joint: JointDeviceNeed,
        offers: Sequence[OfferedDevice],
        used: Mapping[str, int],
        given: Sequence[HeldDevice] | None,
    ) -> None:
        self.picks: list[PickedDevice] = []
        self._joint = joint
        self._offers = offers
        self._used = dict(used)
        self._given = given
        self._held = 0
        self._gone = set[int]()
        """Devices that a pod has that came before."""
        self._steps = MOST_STEPS
        self._taken: list[set[int]] = [set() for _ in offers]
        """By device, the claims of this pod that have it."""
        self._sharing = [1 if one.begun else 0 for one in offers]
        """By device, how many have begun it."""
        self._options: dict[_Place, DeviceOption] = {
            (claim, request, number): option
            for claim, requests in enumerate(joint.claims)
            for request, options in enumerate(requests)
            for number, option in enumerate(options)
        }
        self._suited = {
            place: [at for at, one in enumerate(offers) if suits(option.need, one.device, one.uuid)]
            for place, option in self._options.items()
        }
        self._serves = self._suited
        self._names: list[list[str]] = [
            sorted({name for one in self._options.values() for name, _, _ in self._part(one, at)})
            for at in range(len(offers))
        ]
        """By device, what is taken of it where it is shared."""
        self._rules: dict[_Place, list[int]] = {}
        for number, rule in enumerate(joint.rules):
            for request, option in rule.options:
                self._rules.setdefault((rule.claim, request, option), []).append(number)
        self._values = [[_value(rule, one) for one in offers] for rule in joint.rules]
        self._seen: list[list[str]] = [[] for _ in joint.rules]
        """By rule, the values of the devices that were picked."""
        self._begin()

    def _begin(self) -> None:
        self._serves = {
            place: [at for at in ats if self._is_left(self._options[place], at)]
            for place, ats in self._suited.items()
        }
        self._alike = self._signatures()

    def _is_left(self, option: DeviceOption, at: int) -> bool:
        """Of ``All`` devices those of which too little is left do not count; nor do those that were not given."""
        if not option.every or not self._offers[at].device.shared:
            return True
        if self._given is not None:
            return any(one.at == at for one in self._given)
        return draws_fit(self._part(option, at), self._used)

    def _part(self, option: DeviceOption, at: int) -> Draws:
        return option.part_by_card.get(self._offers[at].uuid, ())

    def settle(self) -> bool:
        """What was picked is taken for good; whether anything was."""
        held = [pick.at for pick in self.picks if not pick.admin]
        self._gone.update(at for at in held if not self._offers[at].device.shared)
        for claim, request, option, at, admin in self.picks:
            self._taken[at].clear()
            if admin and self._offers[at].device.shared:
                place = (claim, request, option)
                self._note(place, self._options[place], at, -1)
        for values in self._seen:
            values.clear()
        self.picks.clear()
        self._held, self._steps = 0, MOST_STEPS
        self._begin()
        return bool(held)

    def _signatures(self) -> list[tuple[object, ...]]:
        """Devices of one signature are interchangeable; of those that are shared as far as as much is taken of them."""
        serving: list[list[_Place]] = [[] for _ in self._offers]
        for place, ats in self._serves.items():
            for at in ats:
                serving[at].append(place)
        return [
            (
                one.free,
                one.device.draws,
                tuple(serving[at]),
                tuple(values[at] for values in self._values),
                tuple(
                    tuple((units, total) for _, units, total in self._part(self._options[place], at))
                    for place in (serving[at] if one.device.shared else ())
                ),
            )
            for at, one in enumerate(self._offers)
        ]

    def _signature(self, at: int) -> tuple[object, ...]:
        """:meth:`_signatures`, as it is now."""
        if not self._offers[at].device.shared:
            return self._alike[at]
        taken = (self._used.get(name, 0) for name in self._names[at])
        return (*self._alike[at], self._sharing[at] > 0, *taken)

    # ------------------------------------------------------------------ requests

    def request(self, claim: int, request: int) -> bool:
        """Serve a request and all that follow it."""
        if claim == len(self._joint.claims):
            return self._given is None or self._held == len(self._given)
        if request == len(self._joint.claims[claim]):
            return self.request(claim + 1, 0)
        for number, option in enumerate(self._joint.claims[claim][request]):
            place = (claim, request, number)
            count = len(self._serves[place]) if option.every else option.need.count
            inside = sum(pick.claim == claim for pick in self.picks) + count <= MOST_RESULTS
            if count and inside and self._devices(place, option, 0, count):
                return True
        return False

    def _devices(self, place: _Place, option: DeviceOption, start: int, left: int) -> bool:
        """Serve what is left of a request, by devices from a position on."""
        if not left:
            return self.request(place[0], place[1] + 1)
        tried = set[tuple[object, ...]]()
        candidates = self._serves[place]
        for position in range(start, len(candidates) - left + 1):
            at = candidates[position]
            if option.every and position > start:
                return False
            signature = self._signature(at)
            if self._given is None and signature in tried:
                continue
            if self._steps <= 0:
                return False
            self._steps -= 1
            if not self._take(place, option, at):
                continue
            if self._devices(place, option, position + 1, left - 1):
                return True
            self._give_back(place, option, at)
            tried.add(signature)
        return False

    # ------------------------------------------------------------------ devices

    def _take(self, place: _Place, option: DeviceOption, at: int) -> bool:
        """Pick a device, if it can be had now."""
        shared = self._offers[at].device.shared
        if option.admin and not shared:
            if place[0] in self._taken[at]:
                return False
        elif not (self._is_part_free(option, at) if shared else self._is_free(at)):
            return False
        if not self._obeys(place, at):
            return False
        for number in self._rules.get(place, ()):
            self._seen[number].append(self._values[number][at] or "")
        self._note(place, option, at, 1)
        self.picks.append(PickedDevice(*place, at, option.admin))
        return True

    def _note(self, place: _Place, option: DeviceOption, at: int, sign: int) -> None:
        """A device is picked (1), or not any more (-1)."""
        device = self._offers[at].device
        if not option.admin:
            self._held += sign
        if device.shared:
            self._draw(self._part(option, at), sign)
            before = self._sharing[at] if sign > 0 else self._sharing[at] - 1
            self._sharing[at] += sign
            if not before:
                self._draw(device.draws, sign)
            return
        if sign > 0:
            self._taken[at].add(place[0])
        else:
            self._taken[at].discard(place[0])
        if not option.admin:
            self._draw(device.draws, sign)

    def _draw(self, draws: Draws, sign: int) -> None:
        for name, units, _ in draws:
            self._used[name] = self._used.get(name, 0) + sign * units

    def _give_back(self, place: _Place, option: DeviceOption, at: int) -> None:
        self.picks.pop()
        self._note(place, option, at, -1)
        for number in self._rules.get(place, ()):
            self._seen[number].pop()

    def _is_free(self, at: int) -> bool:
        if self._taken[at] or at in self._gone:
            return False
        if self._given is not None:
            return self._held < len(self._given) and self._given[self._held].at == at
        return self._offers[at].free and draws_fit(self._offers[at].device.draws, self._used)

    def _is_part_free(self, option: DeviceOption, at: int) -> bool:
        part = self._part(option, at)
        if self._given is not None and not option.admin:
            return self._held < len(self._given) and self._given[self._held] == (at, part)
        begun = self._sharing[at] > 0
        draws = part if begun else (*self._offers[at].device.draws, *part)
        return (self._offers[at].free or option.admin) and draws_fit(draws, self._used)

    def _obeys(self, place: _Place, at: int) -> bool:
        for number in self._rules.get(place, ()):
            value, seen = self._values[number][at], self._seen[number]
            if value is None:
                return False
            if self._joint.rules[number].distinct:
                if value in seen:
                    return False
            elif seen and seen[0] != value:
                return False
        return True


def draws_fit(draws: Draws, used: Mapping[str, int]) -> bool:
    """Whether there is as much left of all that is drawn from."""
    return all(used.get(name, 0) + units <= total for name, units, total in draws)


def _value(rule: DeviceRule, offer: OfferedDevice) -> str | None:
    """Of the attribute that the rule is about; ``None`` for a device that lacks it."""
    found = rule.by_card.get(offer.uuid)
    if found is None:
        device = offer.device
        found = rule.by_card.get(kind_key(device.resource, device.model, device.memory_mib, device.compute))
    return found
