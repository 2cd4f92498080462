"""The devices that ResourceSlices list: pools, what the devices of a pool share, and how each of them counts.

A driver's pool is the slices of its newest generation; before all of them are there, nothing of it is handed out, as
by kube-scheduler. Devices that draw from the same counters (a device and its MIG slices) cannot be counted side by
side: the largest of them that fit together count, the others are parts of these.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from math import ceil
from typing import Any, NamedTuple

from windlass.api import views
from windlass.api.devices import cel
from windlass.api.devices.request import WHOLE
from windlass.api.quantities import QuantityError, parse
from windlass.api.views.claims import DeviceTaint
from windlass.model.devices import consumable_capacity
from windlass.spi.devices import ConsumedCounters

DeviceName = tuple[str, str, str]
"""Driver, pool and name."""
_MILLI = 1000
"""Counters are counted in thousandths."""


@dataclass(frozen=True, slots=True)
class ListedDevice:
    """One device of a slice. ``index`` counts the devices of a driver on its node. ``known``: all slices of its pool
    have been seen, so that it may be handed out. ``part``: it is carved of the same stuff as devices that count
    before it; ``milli``: the part of that stuff that it takes, in thousandths."""

    node: str
    driver: str
    pool: str
    name: str
    index: int
    subject: cel.Subject
    known: bool
    taints: tuple[DeviceTaint, ...] = ()
    draws: tuple[tuple[str, int, int], ...] = ()
    part: bool = False
    milli: int = WHOLE
    shared: bool = False
    capacity: tuple[views.DeviceCapacity, ...] = ()
    ready: tuple[str, ...] = ()
    failed: tuple[str, ...] = ()
    late: bool = False
    """Some device of its pool has to be made ready for who gets it: the pool comes after all others."""

    @property
    def named(self) -> bool:
        """True if it counts for nothing in its resource."""
        return self.part or bool(self.taints)

    @property
    def meant(self) -> bool:
        """True if it is given to those alone who mean it."""
        return self.named or self.shared

    def milli_with(self, draws: ConsumedCounters) -> int:
        """The part of a device that somebody has, in thousandths: all of the device, or ``draws`` where it is
        shared."""
        return -(-consumable_capacity.share_of(draws) * self.milli // WHOLE) if self.shared else self.milli

    def draws_of(self, consumed: Iterable[tuple[str, str]]) -> ConsumedCounters:
        """What a part of it takes of its capacities. ``consumed``: capacity, quantity as text. A capacity that it
        does not have holds nobody back."""
        totals = {one.name: one.value for one in self.capacity}
        return tuple(
            (f"{self.uuid}:{name}", consumable_capacity.units(text), consumable_capacity.units(totals[name]))
            for name, text in sorted(consumed)
            if name in totals
        )

    def borne(self, tolerations: Sequence[views.DeviceToleration]) -> bool:
        """Return whether all its taints are tolerated."""
        return all(any(one.tolerates(taint) for one in tolerations) for taint in self.taints)

    @property
    def resource(self) -> str:
        return resource_of(self.driver)

    @property
    def model(self) -> str:
        return str(self.subject.attributes.get(self.driver, {}).get("productName", ""))

    @property
    def uuid(self) -> str:
        """What tells it from all others, whatever its driver says of it."""
        return f"{self.driver}/{self.pool}/{self.name}"


def resource_of(driver: str) -> str:
    """Under which name the engine counts a driver's devices."""
    return f"{driver}/accelerator"


class DevicePool(NamedTuple):
    """The newest generation of a driver's pool. ``whole``: all its slices are there, and no device twice."""

    generation: int
    whole: bool
    totals: Mapping[tuple[str, str], int]
    """Counter set and counter → how much there is."""

    @staticmethod
    def of(slices: Iterable[views.ResourceSlice]) -> DevicePool:
        """``slices``: all of one pool, of every node and generation."""
        every = list(slices)
        generation = max((one.generation for one in every), default=0)
        newest = [one for one in every if one.generation == generation]
        names = [device.name for one in newest for device in one.devices]
        whole = all(one.slices == len(newest) for one in newest) and len(names) == len(set(names))
        totals = {(group, name): _units(text) for one in newest for group, name, text in one.counters}
        return DevicePool(generation, whole, totals)


def listed_of(
    slices: Iterable[views.ResourceSlice], pools: Mapping[tuple[str, str], DevicePool]
) -> tuple[ListedDevice, ...]:
    """The devices of one node, in the order of its slices. ``pools``: theirs, and maybe others."""
    every = list(slices)
    late = {(one.driver, one.pool) for one in every if any(device.ready for device in one.devices)}
    counts: dict[str, int] = {}
    numbers: dict[tuple[str, str], int] = {}
    found: list[ListedDevice] = []
    for one in sorted(every, key=lambda one: (one.driver, one.pool) in late):
        key = (one.driver, one.pool)
        numbers.setdefault(key, len(numbers))
        for device in one.devices:
            index = counts.get(one.driver, 0)
            counts[one.driver] = index + 1
            draws = _draws(device, pools[key].totals, f"{one.driver}/{numbers[key]}")
            found.append(
                ListedDevice(
                    one.node,
                    one.driver,
                    one.pool,
                    device.name,
                    index,
                    subject_in(one.driver, device),
                    known=pools[key].whole,
                    taints=device.taints,
                    draws=draws,
                    milli=max((_share(units, total) for _, units, total in draws), default=WHOLE),
                    shared=device.shared,
                    capacity=device.capacity,
                    late=key in late,
                    ready=device.ready,
                    failed=device.failed,
                )
            )
    return _counted(found)


def _draws(
    device: views.SliceDevice, totals: Mapping[tuple[str, str], int], pool: str
) -> tuple[tuple[str, int, int], ...]:
    """What a device takes of the counters of its pool. One that the pool does not have holds nobody back."""
    return tuple(
        (f"{pool}/{group}/{name}", units, totals[group, name])
        for group, name, text in sorted(device.draws)
        if (group, name) in totals and (units := _units(text))
    )


def _counted(devices: list[ListedDevice]) -> tuple[ListedDevice, ...]:
    """With those told that are parts of others: who takes more of the counters counts before who takes less."""
    used: dict[str, int] = {}
    parts = set[int]()
    for at in sorted(range(len(devices)), key=lambda at: (-devices[at].milli, at)):
        draws = devices[at].draws
        if any(used.get(name, 0) + units > total for name, units, total in draws):
            parts.add(at)
            continue
        for name, units, _ in draws:
            used[name] = used.get(name, 0) + units
    return tuple(replace(one, part=True) if at in parts else one for at, one in enumerate(devices))


def _share(units: int, total: int) -> int:
    return min(WHOLE, -(-units * WHOLE // total)) if total else WHOLE


def _units(text: str) -> int:
    try:
        return ceil(parse(text) * _MILLI)
    except QuantityError:
        return 0


def subject_in(driver: str, device: views.SliceDevice) -> cel.Subject:
    """A device of a slice, as selectors see it."""
    attributes: dict[str, dict[str, Any]] = {}
    for name, value in device.attributes:
        domain, plain = _domain(name, driver)
        shown: Any = value
        if name in device.versions:
            try:
                shown = cel.semver(str(value))
            except cel.CelFailure:
                continue
        attributes.setdefault(domain, {})[plain] = shown
    capacity: dict[str, dict[str, Fraction]] = {}
    for one in device.capacity:
        domain, plain = _domain(one.name, driver)
        try:
            capacity.setdefault(domain, {})[plain] = parse(one.value)
        except QuantityError:
            continue
    return cel.Subject(driver, attributes, capacity, device.shared)


def _domain(name: str, driver: str) -> tuple[str, str]:
    domain, slash, plain = name.rpartition("/")
    return (domain, plain) if slash else (driver, name)


def value_of(subject: cel.Subject, attribute: str) -> str | None:
    """Of a fully qualified attribute, with its type; ``None`` where the device lacks it."""
    domain, plain = _domain(attribute, subject.driver)
    value = subject.attributes.get(domain, {}).get(plain)
    return None if value is None else f"{type(value).__name__}:{value}"
