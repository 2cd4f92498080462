"""Allocation of the devices of one node to the resource claims of a pod (DRA).

The order is that of kube-scheduler's structured allocator: claim by claim, request by
request. Of the alternatives of a request, the first one is used with which all later
requests can be served. Devices are tried in the order of the node. The search is
exhaustive. Of interchangeable devices only the first one is tried, which loses no
solution.

* A claim has at most 32 devices.
* Counters that several devices consume from never go below zero.
* A request with admin access (``adminAccess``) consumes nothing, and may use allocated
  devices.
* A shared device serves any number of requests, as far as its own capacity allows. It
  consumes from counters once, independent of the number of its users.
* ``All`` on shared devices means all devices that have enough capacity left.

The search of one node ends after a maximum number of steps. The node then counts as
unable to serve the claims.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from windlass.engine.devices.matching import matches
from windlass.spi.devices import ConsumedCounters, DeviceOption, DeviceRule, JointDeviceNeed, kind_key
from windlass.spi.objects import Device

MAX_RESULTS = 32
"""Maximum number of devices of a claim (``AllocationResultsMaxSize``)."""
MAX_STEPS = 20_000
_Place = tuple[int, int, int]
"""(Claim, request, option)."""


class OfferedDevice(NamedTuple):
    """Device of the node as it is offered to the search.

    ``free``: not allocated, and permitted for this pod.
    ``in_use``: a shared device that already has users; it can get more.
    """

    device: Device
    uuid: str
    free: bool
    in_use: bool = False


class HeldDevice(NamedTuple):
    """Allocated device by its position among the offers, with the consumption of a shared one."""

    position: int
    consumption: ConsumedCounters = ()


class PickedDevice(NamedTuple):
    """Device that the search picked.

    ``position``: position of the device among the offers.
    ``admin``: admin access; the device is not allocated.
    """

    claim: int
    request: int
    option: int
    position: int
    admin: bool


def allocate(
    joint: JointDeviceNeed,
    offers: Sequence[OfferedDevice],
    used: Mapping[str, int],
    held: Sequence[HeldDevice] | None = None,
) -> tuple[PickedDevice, ...] | None:
    """Return devices for all requests in their order; ``None`` if the node cannot serve them.

    ``used``: consumption of each counter.
    ``held``: if given, exactly these devices are allocated, in this order. The search
    then finds the requests and alternatives that they serve.
    """
    search = _Search(joint, offers, used, held)
    return tuple(search.picks) if search.request(0, 0) else None


def shared_consumption(
    joint: JointDeviceNeed, pick: PickedDevice, offers: Sequence[OfferedDevice]
) -> ConsumedCounters:
    """Return the consumption from a shared device; empty for others."""
    option = joint.claims[pick.claim][pick.request][pick.option]
    return option.share_by_device.get(offers[pick.position].uuid, ())


def allocations(
    joint: JointDeviceNeed, offers: Sequence[OfferedDevice], used: Mapping[str, int]
) -> Iterator[tuple[PickedDevice, ...]]:
    """Yield the devices of one pod after the other until the next one cannot be served.

    A pod that holds no device ends the iteration. It is infinite if shared devices are
    used without consumption.
    """
    search = _Search(joint, offers, used, None)
    while search.request(0, 0):
        yield tuple(search.picks)
        if not search.commit():
            return


class _Search:
    def __init__(
        self,
        joint: JointDeviceNeed,
        offers: Sequence[OfferedDevice],
        used: Mapping[str, int],
        held: Sequence[HeldDevice] | None,
    ) -> None:
        self.picks: list[PickedDevice] = []
        self._joint = joint
        self._offers = offers
        self._used = dict(used)
        self._required = held
        self._held = 0
        self._unavailable = set[int]()
        """Devices that previous pods hold."""
        self._steps = MAX_STEPS
        self._users_by_claim: list[set[int]] = [set() for _ in offers]
        """By device, the claims of this pod that use it."""
        self._user_counts = [1 if offer.in_use else 0 for offer in offers]
        """By device, the number of its users."""
        self._options: dict[_Place, DeviceOption] = {
            (claim, request, number): option
            for claim, requests in enumerate(joint.claims)
            for request, options in enumerate(requests)
            for number, option in enumerate(options)
        }
        self._matching = {
            place: [
                position
                for position, offer in enumerate(offers)
                if matches(option.need, offer.device, offer.uuid)
            ]
            for place, option in self._options.items()
        }
        self._candidates = self._matching
        self._counter_names: list[list[str]] = [
            sorted(
                {
                    name
                    for offer in self._options.values()
                    for name, _, _ in self._consumption(offer, position)
                }
            )
            for position in range(len(offers))
        ]
        """By device, the names of what is consumed of it if it is shared."""
        self._rules: dict[_Place, list[int]] = {}
        for number, rule in enumerate(joint.rules):
            for request, option in rule.options:
                self._rules.setdefault((rule.claim, request, option), []).append(number)
        self._values = [[_value(rule, offer) for offer in offers] for rule in joint.rules]
        self._rule_values: list[list[str]] = [[] for _ in joint.rules]
        """By rule, the attribute values of the picked devices."""
        self._reset_candidates()

    def _reset_candidates(self) -> None:
        self._candidates = {
            place: [
                position for position in positions if self._counts_for_all(self._options[place], position)
            ]
            for place, positions in self._matching.items()
        }
        self._base_signatures = self._signatures()

    def _counts_for_all(self, option: DeviceOption, position: int) -> bool:
        """Return whether the device counts for an ``All`` request.

        A shared device does not count if too little of it is left, or if the given
        allocation does not contain it.
        """
        if not option.every or not self._offers[position].device.shared:
            return True
        if self._required is not None:
            return any(held.position == position for held in self._required)
        return consumption_fits(self._consumption(option, position), self._used)

    def _consumption(self, option: DeviceOption, position: int) -> ConsumedCounters:
        return option.share_by_device.get(self._offers[position].uuid, ())

    def commit(self) -> bool:
        """Make the picked devices permanent. Return whether any was picked."""
        held = [pick.position for pick in self.picks if not pick.admin]
        self._unavailable.update(index for index in held if not self._offers[index].device.shared)
        for claim, request, option, position, admin in self.picks:
            self._users_by_claim[position].clear()
            if admin and self._offers[position].device.shared:
                place = (claim, request, option)
                self._record(place, self._options[place], position, -1)
        for values in self._rule_values:
            values.clear()
        self.picks.clear()
        self._held, self._steps = 0, MAX_STEPS
        self._reset_candidates()
        return bool(held)

    def _signatures(self) -> list[tuple[object, ...]]:
        """Return the signature of each device. Devices with equal signatures are interchangeable.

        For shared devices this holds only while their consumption is equal.
        """
        places: list[list[_Place]] = [[] for _ in self._offers]
        for place, positions in self._candidates.items():
            for position in positions:
                places[position].append(place)
        return [
            (
                offer.free,
                offer.device.draws,
                tuple(places[index]),
                tuple(values[index] for values in self._values),
                tuple(
                    tuple(
                        (units, total) for _, units, total in self._consumption(self._options[place], index)
                    )
                    for place in (places[index] if offer.device.shared else ())
                ),
            )
            for index, offer in enumerate(self._offers)
        ]

    def _signature(self, position: int) -> tuple[object, ...]:
        """Return the signature of a device, for shared ones with the current consumption."""
        if not self._offers[position].device.shared:
            return self._base_signatures[position]
        taken = (self._used.get(name, 0) for name in self._counter_names[position])
        return (*self._base_signatures[position], self._user_counts[position] > 0, *taken)

    # ------------------------------------------------------------------ requests

    def request(self, claim: int, request: int) -> bool:
        """Serve a request and all later ones."""
        if claim == len(self._joint.claims):
            return self._required is None or self._held == len(self._required)
        if request == len(self._joint.claims[claim]):
            return self.request(claim + 1, 0)
        for number, option in enumerate(self._joint.claims[claim][request]):
            place = (claim, request, number)
            count = len(self._candidates[place]) if option.every else option.need.count
            inside = sum(pick.claim == claim for pick in self.picks) + count <= MAX_RESULTS
            if count and inside and self._devices(place, option, 0, count):
                return True
        return False

    def _devices(self, place: _Place, option: DeviceOption, start: int, left: int) -> bool:
        """Serve the remaining ``left`` devices of a request, from position ``start`` on."""
        if not left:
            return self.request(place[0], place[1] + 1)
        tried = set[tuple[object, ...]]()
        candidates = self._candidates[place]
        for position in range(start, len(candidates) - left + 1):
            index = candidates[position]
            if option.every and position > start:
                return False
            signature = self._signature(index)
            if self._required is None and signature in tried:
                continue
            if self._steps <= 0:
                return False
            self._steps -= 1
            if not self._take(place, option, index):
                continue
            if self._devices(place, option, position + 1, left - 1):
                return True
            self._give_back(place, option, index)
            tried.add(signature)
        return False

    # ------------------------------------------------------------------ devices

    def _take(self, place: _Place, option: DeviceOption, position: int) -> bool:
        """Pick a device if it is available now."""
        shared = self._offers[position].device.shared
        if option.admin and not shared:
            if place[0] in self._users_by_claim[position]:
                return False
        elif not (self._is_share_free(option, position) if shared else self._is_free(position)):
            return False
        if not self._satisfies_rules(place, position):
            return False
        for number in self._rules.get(place, ()):
            self._rule_values[number].append(self._values[number][position] or "")
        self._record(place, option, position, 1)
        self.picks.append(PickedDevice(*place, position, option.admin))
        return True

    def _record(self, place: _Place, option: DeviceOption, position: int, sign: int) -> None:
        """Update the counts after a device is picked (``sign`` 1) or returned (-1)."""
        device = self._offers[position].device
        if not option.admin:
            self._held += sign
        if device.shared:
            self._consume(self._consumption(option, position), sign)
            earlier_users = self._user_counts[position] if sign > 0 else self._user_counts[position] - 1
            self._user_counts[position] += sign
            if not earlier_users:
                self._consume(device.draws, sign)
            return
        if sign > 0:
            self._users_by_claim[position].add(place[0])
        else:
            self._users_by_claim[position].discard(place[0])
        if not option.admin:
            self._consume(device.draws, sign)

    def _consume(self, draws: ConsumedCounters, sign: int) -> None:
        for name, units, _ in draws:
            self._used[name] = self._used.get(name, 0) + sign * units

    def _give_back(self, place: _Place, option: DeviceOption, position: int) -> None:
        self.picks.pop()
        self._record(place, option, position, -1)
        for number in self._rules.get(place, ()):
            self._rule_values[number].pop()

    def _is_free(self, position: int) -> bool:
        if self._users_by_claim[position] or position in self._unavailable:
            return False
        if self._required is not None:
            return self._held < len(self._required) and self._required[self._held].position == position
        return self._offers[position].free and consumption_fits(
            self._offers[position].device.draws, self._used
        )

    def _is_share_free(self, option: DeviceOption, position: int) -> bool:
        consumption = self._consumption(option, position)
        if self._required is not None and not option.admin:
            return self._held < len(self._required) and self._required[self._held] == (position, consumption)
        in_use = self._user_counts[position] > 0
        draws = consumption if in_use else (*self._offers[position].device.draws, *consumption)
        return (self._offers[position].free or option.admin) and consumption_fits(draws, self._used)

    def _satisfies_rules(self, place: _Place, position: int) -> bool:
        for number in self._rules.get(place, ()):
            value, values = self._values[number][position], self._rule_values[number]
            if value is None:
                return False
            if self._joint.rules[number].distinct:
                if value in values:
                    return False
            elif values and values[0] != value:
                return False
        return True


def consumption_fits(draws: ConsumedCounters, used: Mapping[str, int]) -> bool:
    """Return whether all consumed counters have enough left."""
    return all(used.get(name, 0) + units <= total for name, units, total in draws)


def _value(rule: DeviceRule, offer: OfferedDevice) -> str | None:
    """Return the value of the rule's attribute; ``None`` for a device without it."""
    value = rule.by_device.get(offer.uuid)
    if value is None:
        device = offer.device
        value = rule.by_device.get(kind_key(device.resource, device.model, device.memory_mib, device.compute))
    return value
