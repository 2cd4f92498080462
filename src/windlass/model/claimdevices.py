"""The devices that claims choose among: those of ResourceSlices, and the cards that nodes tell of themselves."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, NamedTuple

from windlass.api import cel, views
from windlass.api.deviceasks import GPU, MIB, WHOLE
from windlass.api.quantities import QuantityError, parse
from windlass.spi.devices import DeviceNeed
from windlass.spi.objects import Device

DRIVER = "gpu.nvidia.com"
"""The driver, and the device class, of NVIDIA's GPUs."""


DeviceName = tuple[str, str, str]
"""Driver, pool and name."""


class Kind(NamedTuple):
    """What the cards of a node that tells of itself have in common, as far as selectors can see."""

    resource: str
    model: str
    memory_mib: int
    compute: tuple[int, int]


@dataclass(frozen=True, slots=True)
class Listed:
    """One device of a slice. ``index`` counts the devices of a driver on its node."""

    node: str
    driver: str
    pool: str
    name: str
    index: int
    subject: cel.Subject
    healthy: bool

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


@dataclass(frozen=True, slots=True)
class Matched:
    """``kinds`` of cards of nodes that tell of themselves, and ``listed`` devices. ``all_kinds``: every kind
    of its resource is among them."""

    kinds: tuple[Kind, ...] = ()
    listed: tuple[Listed, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.kinds or self.listed)


def resource_of(driver: str) -> str:
    """Under which name the engine counts a driver's devices."""
    return f"{driver}/accelerator"


def kinds_of(devices: Iterable[Device]) -> tuple[Kind, ...]:
    """One entry per card."""
    return tuple(Kind(one.resource, one.model, one.memory_mib, one.compute) for one in devices)


class Shelf:
    """All devices of the cluster, by node."""

    def __init__(self) -> None:
        self._slices: dict[str, views.ResourceSlice] = {}
        self._of_node: dict[str, dict[str, views.ResourceSlice]] = {}
        self._listed: dict[str, tuple[Listed, ...]] = {}
        self._told: dict[str, tuple[Kind, ...]] = {}

    # ------------------------------------------------------------------ what there is

    def upsert(self, item: views.ResourceSlice) -> bool:
        before = self._slices.get(item.name)
        if before == item:
            return False
        if before is not None:
            self._of_node.get(before.node, {}).pop(item.name, None)
        self._slices[item.name] = item
        self._of_node.setdefault(item.node, {})[item.name] = item
        self._relist({item.node, before.node if before is not None else item.node})
        return True

    def remove(self, name: str) -> bool:
        before = self._slices.pop(name, None)
        if before is not None:
            self._of_node[before.node].pop(name, None)
            self._relist({before.node})
        return before is not None

    def _relist(self, nodes: Iterable[str]) -> None:
        for node in nodes:
            of_node = list(self._of_node.get(node, {}).values()) if node else []
            newest: dict[tuple[str, str], int] = {}
            for one in of_node:
                pool = (one.driver, one.pool)
                newest[pool] = max(newest.get(pool, 0), one.generation)
            current = [one for one in of_node if one.generation == newest[(one.driver, one.pool)]]
            listed = tuple(_listed(sorted(current, key=lambda one: (one.driver, one.pool, one.name))))
            if listed:
                self._listed[node] = listed
            else:
                self._listed.pop(node, None)

    def nodes(self) -> set[str]:
        """Those for which slices list devices."""
        return set(self._listed)

    def cards_of(self, node: str, apart: Container[DeviceName] = ()) -> tuple[Device, ...]:
        """``apart``: devices that nobody may have though no pod on the node holds them."""
        return tuple(
            Device(
                index=one.index,
                resource=one.resource,
                model=one.model,
                memory_mib=int(one.subject.capacity.get(one.driver, {}).get("memory", 0) // MIB),
                uuid=one.uuid,
                healthy=one.healthy and (one.driver, one.pool, one.name) not in apart,
            )
            for one in self._listed.get(node, ())
        )

    def learn(self, node: str, kinds: tuple[Kind, ...]) -> bool:
        if self._told.get(node, ()) == kinds:
            return False
        if kinds:
            self._told[node] = kinds
        else:
            del self._told[node]
        return True

    # ------------------------------------------------------------------ what is meant

    def matching(self, selectors: Sequence[str], device_class: str) -> tuple[Matched, str]:
        """The devices for which all selectors hold, or why that cannot be said."""
        try:
            tests = [cel.compiled(selector) for selector in selectors]
        except cel.CelError as error:
            return Matched(), f"a selector of class {device_class} or of the request {error}"
        try:
            kinds = tuple(
                kind
                for kind in sorted({kind for told in self._told.values() for kind in told})
                if kind.resource == GPU and all(test(_subject(kind)) for test in tests)
            )
            listed = tuple(
                one
                for devices in self._listed.values()
                for one in devices
                if all(test(one.subject) for test in tests)
            )
        except cel.CelFailure as error:
            return Matched(), f"a selector has no value for a device of the cluster: {error}"
        return Matched(kinds, listed), ""

    def per_node(self, matched: Matched) -> set[int]:
        """How many of the devices nodes have, nodes without any left out."""
        wanted = set(matched.kinds)
        numbers = {sum(kind in wanted for kind in told) for told in self._told.values()}
        by_node: dict[str, int] = {}
        for one in matched.listed:
            by_node[one.node] = by_node.get(one.node, 0) + 1
        return {number for number in (*numbers, *by_node.values()) if number}

    def need(self, matched: Matched, count: int) -> tuple[DeviceNeed | None, str]:
        """Whole cards, any of those that match."""
        if matched.kinds and matched.listed:
            return None, (
                "such devices are both listed by ResourceSlices and told by nodes without a driver: narrow the "
                "selectors to one of them"
            )
        if matched.listed:
            return self._need_of_listed(matched, count), ""
        return self._need_of_kinds(matched, count)

    def _need_of_listed(self, matched: Matched, count: int) -> DeviceNeed:
        """By model where that tells them from the others, else one by one."""
        meant = {one.uuid for one in matched.listed}
        resources = {one.resource for one in matched.listed}
        resource = next(iter(resources)) if len(resources) == 1 else ""
        others = [
            one
            for devices in self._listed.values()
            for one in devices
            if one.resource in resources and one.uuid not in meant
        ]
        if not others:
            return DeviceNeed(resource, count, milli=WHOLE)
        models, strangers = {one.model for one in matched.listed}, {one.model for one in others}
        if models.isdisjoint(strangers) and "" not in models:
            return _by_model(resource, count, models, strangers)
        return DeviceNeed(resource, count, milli=WHOLE, uuids=tuple(sorted(meant)))

    def _need_of_kinds(self, matched: Matched, count: int) -> tuple[DeviceNeed | None, str]:
        every = {kind for told in self._told.values() for kind in told if kind.resource == GPU}
        others = every - set(matched.kinds)
        if not others:
            return DeviceNeed(GPU, count, milli=WHOLE), ""
        models = {kind.model for kind in matched.kinds}
        if models.isdisjoint(kind.model for kind in others) and "" not in models:
            return _by_model(GPU, count, models, {kind.model for kind in others}), ""
        least = min(kind.memory_mib for kind in matched.kinds)
        if all(kind.memory_mib < least for kind in others):
            return DeviceNeed(GPU, count, milli=WHOLE, min_memory_mib=least), ""
        return None, "the selectors part cards of one model that nodes do not tell apart: name models"

    def name_of(self, node: str, resource: str, index: int) -> DeviceName:
        """A card of a node."""
        for one in self._listed.get(node, ()):
            if (one.resource, one.index) == (resource, index):
                return one.driver, one.pool, one.name
        return DRIVER, node, f"gpu-{index}"

    def place_of(self, node: str, driver: str, pool: str, name: str) -> tuple[str, int] | None:
        """Resource and index of a card of a node by the driver's name for it; the inverse of :meth:`name_of`."""
        for one in self._listed.get(node, ()):
            if (one.driver, one.pool, one.name) == (driver, pool, name):
                return one.resource, one.index
        number = name.removeprefix("gpu-")
        if (driver, pool) != (DRIVER, node) or number == name or not (number.isascii() and number.isdigit()):
            return None
        return (GPU, int(number)) if not self._listed.get(node) else None


def _by_model(resource: str, count: int, models: set[str], others: set[str]) -> DeviceNeed:
    """Any of ``models``; of ``others`` those are named whose names one of them is a part of."""
    unwanted = {name for name in others if any(model.casefold() in name.casefold() for model in models)}
    return DeviceNeed(
        resource,
        count,
        milli=WHOLE,
        models=tuple(sorted(models)),
        models_not=tuple(sorted(unwanted)),
    )


def _listed(slices: Iterable[views.ResourceSlice]) -> Iterable[Listed]:
    counts: dict[str, int] = {}
    for one in slices:
        for device in one.devices:
            if device.partitioned:
                continue
            index = counts.get(one.driver, 0)
            counts[one.driver] = index + 1
            subject = _listed_subject(one.driver, device)
            yield Listed(one.node, one.driver, one.pool, device.name, index, subject, not device.tainted)


def _listed_subject(driver: str, device: views.SliceDevice) -> cel.Subject:
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
    for name, text in device.capacity:
        domain, plain = _domain(name, driver)
        try:
            capacity.setdefault(domain, {})[plain] = parse(text)
        except QuantityError:
            continue
    return cel.Subject(driver, attributes, capacity)


def _domain(name: str, driver: str) -> tuple[str, str]:
    domain, slash, plain = name.rpartition("/")
    return (domain, plain) if slash else (driver, name)


def _subject(kind: Kind) -> cel.Subject:
    """A card that a node tells of itself, with the names of NVIDIA's driver."""
    attributes: dict[str, Any] = {"type": "gpu", "productName": kind.model.replace("-", " ")}
    if kind.compute != (0, 0):
        attributes["cudaComputeCapability"] = cel.Version(*kind.compute, 0)
    capacity: Mapping[str, Fraction] = {}
    if kind.memory_mib:
        capacity = {"memory": Fraction(kind.memory_mib * MIB)}
    return cel.Subject(DRIVER, {DRIVER: attributes}, {DRIVER: capacity})
