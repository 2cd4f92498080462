"""Devices in ResourceSlices: their pools, shared counters and amounts.

A driver's pool consists of the slices of its newest generation. Its devices are
allocated only when all of them are there, as in kube-scheduler. Devices that consume
the same counters (a device and its MIG slices) cannot all be counted. The largest
devices that fit together count; the others are parts of them.
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
"""Unit of counters: one thousandth."""


@dataclass(frozen=True, slots=True)
class ListedDevice:
    """Device of a slice.

    ``index``: number of the device among those of its driver on the node.
    ``known``: true if all slices of its pool have been seen, so that it can be
        allocated.
    ``part``: true if it consumes the same counters as devices that count before it.
    ``milli``: largest share of a counter that it consumes, in thousandths.
    """

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
    """True if a device of its pool needs preparation. Such pools come after all others."""

    @property
    def named(self) -> bool:
        """True if it adds nothing to the amount of its resource."""
        return self.part or bool(self.taints)

    @property
    def selected_only(self) -> bool:
        """True if it is allocated only to requests that select it."""
        return self.named or self.shared

    def milli_with(self, draws: ConsumedCounters) -> int:
        """Return the used share in thousandths: ``draws`` of a shared device, else the whole device."""
        return -(-consumable_capacity.share_of(draws) * self.milli // WHOLE) if self.shared else self.milli

    def draws_of(self, consumed: Iterable[tuple[str, str]]) -> ConsumedCounters:
        """Return the consumption of the device's capacities.

        ``consumed``: capacity and quantity as text. Capacities that the device lacks
            are ignored.
        """
        totals = {item.name: item.value for item in self.capacity}
        return tuple(
            (f"{self.uuid}:{name}", consumable_capacity.units(text), consumable_capacity.units(totals[name]))
            for name, text in sorted(consumed)
            if name in totals
        )

    def tolerated_by(self, tolerations: Sequence[views.DeviceToleration]) -> bool:
        """Return whether all its taints are tolerated."""
        return all(any(toleration.tolerates(taint) for toleration in tolerations) for taint in self.taints)

    @property
    def resource(self) -> str:
        return resource_of(self.driver)

    @property
    def model(self) -> str:
        return str(self.subject.attributes.get(self.driver, {}).get("productName", ""))

    @property
    def uuid(self) -> str:
        """Unique name of the device, independent of its attributes."""
        return f"{self.driver}/{self.pool}/{self.name}"


def resource_of(driver: str) -> str:
    """Return the name under which the engine counts a driver's devices."""
    return f"{driver}/accelerator"


class DevicePool(NamedTuple):
    """Newest generation of a driver's pool.

    ``whole``: true if all its slices are there, and no device occurs twice.
    """

    generation: int
    whole: bool
    totals: Mapping[tuple[str, str], int]
    """Counter set and counter → its total."""

    @staticmethod
    def of(slices: Iterable[views.ResourceSlice]) -> DevicePool:
        """Return the pool, given all its ``slices`` of every node and generation."""
        every = list(slices)
        generation = max((item.generation for item in every), default=0)
        newest = [item for item in every if item.generation == generation]
        names = [device.name for item in newest for device in item.devices]
        whole = all(item.slices == len(newest) for item in newest) and len(names) == len(set(names))
        totals = {(group, name): _units(text) for item in newest for group, name, text in item.counters}
        return DevicePool(generation, whole, totals)


def listed_of(
    slices: Iterable[views.ResourceSlice], pools: Mapping[tuple[str, str], DevicePool]
) -> tuple[ListedDevice, ...]:
    """Return the devices of one node, in the order of its slices.

    ``pools``: at least the pools of the slices.
    """
    every = list(slices)
    late = {(item.driver, item.pool) for item in every if any(device.ready for device in item.devices)}
    counts: dict[str, int] = {}
    numbers: dict[tuple[str, str], int] = {}
    devices: list[ListedDevice] = []
    for item in sorted(every, key=lambda item: (item.driver, item.pool) in late):
        key = (item.driver, item.pool)
        numbers.setdefault(key, len(numbers))
        for device in item.devices:
            index = counts.get(item.driver, 0)
            counts[item.driver] = index + 1
            draws = _draws(device, pools[key].totals, f"{item.driver}/{numbers[key]}")
            devices.append(
                ListedDevice(
                    item.node,
                    item.driver,
                    item.pool,
                    device.name,
                    index,
                    subject_in(item.driver, device),
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
    return _counted(devices)


def _draws(
    device: views.SliceDevice, totals: Mapping[tuple[str, str], int], pool: str
) -> tuple[tuple[str, int, int], ...]:
    """Return the pool counters that a device consumes. Counters that the pool lacks are ignored."""
    return tuple(
        (f"{pool}/{group}/{name}", units, totals[group, name])
        for group, name, text in sorted(device.draws)
        if (group, name) in totals and (units := _units(text))
    )


def _counted(devices: list[ListedDevice]) -> tuple[ListedDevice, ...]:
    """Return the devices with ``part`` set; devices that consume more of a counter count first."""
    used: dict[str, int] = {}
    parts = set[int]()
    for at in sorted(range(len(devices)), key=lambda at: (-devices[at].milli, at)):
        draws = devices[at].draws
        if any(used.get(name, 0) + units > total for name, units, total in draws):
            parts.add(at)
            continue
        for name, units, _ in draws:
            used[name] = used.get(name, 0) + units
    return tuple(replace(device, part=True) if at in parts else device for at, device in enumerate(devices))


def _share(units: int, total: int) -> int:
    return min(WHOLE, -(-units * WHOLE // total)) if total else WHOLE


def _units(text: str) -> int:
    try:
        return ceil(parse(text) * _MILLI)
    except QuantityError:
        return 0


def subject_in(driver: str, device: views.SliceDevice) -> cel.Subject:
    """Return the selectors' view of a device in a slice."""
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
    for item in device.capacity:
        domain, plain = _domain(item.name, driver)
        try:
            capacity.setdefault(domain, {})[plain] = parse(item.value)
        except QuantityError:
            continue
    return cel.Subject(driver, attributes, capacity, device.shared)


def _domain(name: str, driver: str) -> tuple[str, str]:
    domain, slash, plain = name.rpartition("/")
    return (domain, plain) if slash else (driver, name)


def value_of(subject: cel.Subject, attribute: str) -> str | None:
    """Return the value of a fully qualified attribute with its type; ``None`` if it is missing."""
    domain, plain = _domain(attribute, subject.driver)
    value = subject.attributes.get(domain, {}).get(plain)
    return None if value is None else f"{type(value).__name__}:{value}"
