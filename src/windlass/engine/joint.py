"""Which devices of a node serve the claims of a pod. Pure.

As kube-scheduler's structured allocator: claim by claim and request by request; of a request's alternatives the
first with which all that follows can be served, too; of devices the first in the order of the node. All
combinations are tried, and of devices that are alike only the first, which loses no solution. A claim has at most 32
devices. Counters that several devices draw from never go below zero. Who looks after devices (``adminAccess``) draws
from nothing, and sees those that others have.

The search of one node ends after so many steps; then the node counts as one that cannot serve the claims.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from windlass.engine.cardwish import suits
from windlass.spi.devices import DeviceOption, DeviceRule, Joint, kind_key
from windlass.spi.objects import Device

MOST_RESULTS = 32
"""So many devices a claim can have (``AllocationResultsMaxSize``)."""
MOST_STEPS = 20_000
_Place = tuple[int, int, int]
"""Claim, request, option."""


class Offer(NamedTuple):
    """A device of the node. ``free``: nobody has it, and whoever asks may have it."""

    device: Device
    uuid: str
    free: bool


class Pick(NamedTuple):
    """``at``: the position of the device among those offered. ``admin``: it is looked after, not held."""

    claim: int
    request: int
    option: int
    at: int
    admin: bool


def allocate(
    joint: Joint,
    offers: Sequence[Offer],
    used: Mapping[str, int],
    given: Sequence[int] | None = None,
) -> tuple[Pick, ...] | None:
    """Devices for all requests, in their order; ``None`` if the node cannot serve them.

    ``used``: what is taken of each counter. ``given``: the devices that are held are exactly these, in this order:
    which requests, and which of their alternatives, they serve is asked for.
    """
    search = _Search(joint, offers, used, given)
    return tuple(search.picks) if search.request(0, 0) else None


def allocations(joint: Joint, offers: Sequence[Offer], used: Mapping[str, int]) -> Iterator[tuple[Pick, ...]]:
    """What pods of such claims get one after the other, until there is nothing left for another; one that holds
    nothing ends it, too."""
    search = _Search(joint, offers, used, None)
    while search.request(0, 0):
        yield tuple(search.picks)
        if not search.settle():
            return


class _Search:
    def __init__(
        self, joint: Joint, offers: Sequence[Offer], used: Mapping[str, int], given: Sequence[int] | None
    ) -> None:
        self.picks: list[Pick] = []
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
        self._serves: dict[_Place, list[int]] = {}
        for claim, requests in enumerate(joint.claims):
            for request, options in enumerate(requests):
                for number, option in enumerate(options):
                    self._serves[claim, request, number] = [
                        at for at, one in enumerate(offers) if suits(option.need, one.device, one.uuid)
                    ]
        self._rules: dict[_Place, list[int]] = {}
        for number, rule in enumerate(joint.rules):
            for request, option in rule.options:
                self._rules.setdefault((rule.claim, request, option), []).append(number)
        self._values = [[_value(rule, one) for one in offers] for rule in joint.rules]
        self._seen: list[list[str]] = [[] for _ in joint.rules]
        """By rule, the values of the devices that were picked."""
        self._alike = self._signatures()

    def settle(self) -> bool:
        """What was picked is taken for good; whether anything was."""
        held = [pick.at for pick in self.picks if not pick.admin]
        self._gone.update(held)
        for pick in self.picks:
            self._taken[pick.at].clear()
        for values in self._seen:
            values.clear()
        self.picks.clear()
        self._held, self._steps = 0, MOST_STEPS
        return bool(held)

    def _signatures(self) -> list[tuple[object, ...]]:
        """Devices of one signature are interchangeable."""
        serving: list[list[_Place]] = [[] for _ in self._offers]
        for place, ats in self._serves.items():
            for at in ats:
                serving[at].append(place)
        return [
            (one.free, one.device.draws, tuple(serving[at]), tuple(values[at] for values in self._values))
            for at, one in enumerate(self._offers)
        ]

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
            if self._given is None and self._alike[at] in tried:
                continue
            if self._steps <= 0:
                return False
            self._steps -= 1
            if not self._take(place, option, at):
                continue
            if self._devices(place, option, position + 1, left - 1):
                return True
            self._give_back(place, option, at)
            tried.add(self._alike[at])
        return False

    # ------------------------------------------------------------------ devices

    def _take(self, place: _Place, option: DeviceOption, at: int) -> bool:
        """Pick a device, if it can be had now."""
        if option.admin:
            if place[0] in self._taken[at]:
                return False
        elif not self._is_free(at):
            return False
        if not self._obeys(place, at):
            return False
        for number in self._rules.get(place, ()):
            self._seen[number].append(self._values[number][at] or "")
        self._taken[at].add(place[0])
        if not option.admin:
            self._held += 1
            for name, units, _ in self._offers[at].device.draws:
                self._used[name] = self._used.get(name, 0) + units
        self.picks.append(Pick(*place, at, option.admin))
        return True

    def _give_back(self, place: _Place, option: DeviceOption, at: int) -> None:
        self.picks.pop()
        if not option.admin:
            self._held -= 1
            for name, units, _ in self._offers[at].device.draws:
                self._used[name] -= units
        self._taken[at].discard(place[0])
        for number in self._rules.get(place, ()):
            self._seen[number].pop()

    def _is_free(self, at: int) -> bool:
        if self._taken[at] or at in self._gone:
            return False
        if self._given is not None:
            return self._held < len(self._given) and self._given[self._held] == at
        return self._offers[at].free and draws_fit(self._offers[at].device, self._used)

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


def draws_fit(device: Device, used: Mapping[str, int]) -> bool:
    """Whether the counters that the device draws from have as much left."""
    return all(used.get(name, 0) + units <= total for name, units, total in device.draws)


def _value(rule: DeviceRule, offer: Offer) -> str | None:
    """Of the attribute that the rule is about; ``None`` for a device that lacks it."""
    found = rule.by_card.get(offer.uuid)
    if found is None:
        device = offer.device
        found = rule.by_card.get(kind_key(device.resource, device.model, device.memory_mib, device.compute))
    return found
