"""Devices that claims can select: devices of ResourceSlices and devices that nodes report."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, NamedTuple

from windlass.api import views
from windlass.api.devices import cel
from windlass.api.devices.request import GPU, MIB, WHOLE
from windlass.api.views.claims import ALL, DeviceTaint
from windlass.model.devices import consumable_capacity
from windlass.model.devices.resource_slices import DeviceName, DevicePool, ListedDevice, listed_of, subject_in
from windlass.spi.devices import ConsumedCounters, DeviceMode, DeviceNeed
from windlass.spi.model_names import names_any
from windlass.spi.objects import Device

DRIVER = "gpu.nvidia.com"
"""Driver, and device class, of NVIDIA's GPUs."""


class DeviceKind(NamedTuple):
    """Properties that selectors can see of a device that its node reports."""

    resource: str
    model: str
    memory_mib: int
    compute: tuple[int, int]


@dataclass(frozen=True, slots=True)
class MatchedDevices:
    """Devices that match selectors.

    ``kinds``: kinds of devices that nodes report.
    ``listed``: devices of ResourceSlices.
    """

    kinds: tuple[DeviceKind, ...] = ()
    listed: tuple[ListedDevice, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.kinds or self.listed)

    def meets(self, other: MatchedDevices) -> bool:
        """Return whether some device is in both."""
        return not set(self.kinds).isdisjoint(other.kinds) or not {
            device.uuid for device in self.listed
        }.isdisjoint(device.uuid for device in other.listed)


def kinds_of(devices: Iterable[Device]) -> tuple[DeviceKind, ...]:
    """Return one kind per device, in their order."""
    return tuple(
        DeviceKind(device.resource, device.model, device.memory_mib, device.compute) for device in devices
    )


class UnownedAllocations(NamedTuple):
    """Devices, and shares of devices, that claims hold although no pod uses them."""

    devices: frozenset[DeviceName] = frozenset()
    parts: tuple[views.DeviceResult, ...] = ()

    def drawn(self, device: ListedDevice) -> tuple[tuple[str, int], ...]:
        """Return the consumed units of a shared device's capacities, by name."""
        consumed: dict[str, int] = {}
        for part in self.parts:
            if (part.driver, part.pool, part.device) == (device.driver, device.pool, device.name):
                for name, units, _ in device.draws_of(part.consumed):
                    consumed[name] = consumed.get(name, 0) + units
        return tuple(sorted(consumed.items()))


NO_ALLOCATIONS = UnownedAllocations()


class DeviceInventory:
    """All devices of the cluster, by node."""

    def __init__(self) -> None:
        self._slices: dict[str, views.ResourceSlice] = {}
        self._of_node: dict[str, dict[str, views.ResourceSlice]] = {}
        self._listings: dict[str, tuple[ListedDevice, ...]] = {}
        self._stale: set[str] = set()
        """Nodes with a device list that has to be rebuilt."""
        self._pools: dict[tuple[str, str], dict[str, views.ResourceSlice]] = {}
        """Driver and pool → its slices, of all nodes."""
        self._kinds: dict[str, tuple[DeviceKind, ...]] = {}
        self._own: dict[str, tuple[Device, ...]] = {}
        """Node → the devices that it reports."""

    # ------------------------------------------------------------------ devices

    def upsert(self, item: views.ResourceSlice) -> bool:
        before = self._slices.get(item.name)
        if before == item:
            return False
        if before is not None:
            self._drop(before)
        self._slices[item.name] = item
        self._of_node.setdefault(item.node, {})[item.name] = item
        self._pools.setdefault((item.driver, item.pool), {})[item.name] = item
        self._stale |= self.nodes_of(item)
        return True

    def remove(self, name: str) -> bool:
        before = self._slices.pop(name, None)
        if before is not None:
            self._drop(before)
        return before is not None

    def _drop(self, item: views.ResourceSlice) -> None:
        self._stale |= self.nodes_of(item)
        self._of_node[item.node].pop(item.name, None)
        self._pools[item.driver, item.pool].pop(item.name, None)

    def nodes_of(self, item: views.ResourceSlice) -> set[str]:
        """Return the nodes that have devices of the slice's pool."""
        pool = self._pools.get((item.driver, item.pool), {})
        return {entry.node for entry in (item, *pool.values()) if entry.node}

    @property
    def _listed(self) -> dict[str, tuple[ListedDevice, ...]]:
        """Current devices per node."""
        pools: dict[tuple[str, str], DevicePool] = {}
        for node in self._stale:
            of_node = list(self._of_node.get(node, {}).values())
            for key in {(one.driver, one.pool) for one in of_node}:
                if key not in pools:
                    pools[key] = DevicePool.of(self._pools[key].values())
            current = [one for one in of_node if one.generation == pools[one.driver, one.pool].generation]
            listed = listed_of(sorted(current, key=lambda one: (one.driver, one.pool, one.name)), pools)
            if listed:
                self._listings[node] = listed
            else:
                self._listings.pop(node, None)
        self._stale.clear()
        return self._listings

    def nodes(self) -> set[str]:
        """Return the nodes that have devices in slices."""
        return set(self._listed)

    def listed_devices(self, node: str, unowned: UnownedAllocations = NO_ALLOCATIONS) -> tuple[Device, ...]:
        """Return the devices that slices list for a node.

        ``unowned``: allocations without a pod on the node. Their devices count as
            unhealthy.
        """
        return tuple(
            Device(
                index=device.index,
                resource=device.resource,
                model=device.model,
                memory_mib=int(device.subject.capacity.get(device.driver, {}).get("memory", 0) // MIB),
                uuid=device.uuid,
                healthy=device.known and (device.driver, device.pool, device.name) not in unowned.devices,
                mode=DeviceMode.NAMED if device.named else DeviceMode.PLAIN,
                draws=device.draws,
                late=device.late,
                shared=device.shared,
                drawn=unowned.drawn(device) if device.shared else (),
            )
            for device in self._listed.get(node, ())
        )

    def attaches(self, node: str) -> bool:
        """Return whether devices of the node need preparation before a pod can be bound."""
        return any(device.late for device in self._listed.get(node, ()))

    def reported_devices(self, node: str) -> tuple[Device, ...]:
        """Return the devices that the node reports."""
        return self._own.get(node, ())

    def learn(self, node: str, devices: tuple[Device, ...]) -> bool:
        """Store the devices that a node reports. Return whether the kinds of devices changed."""
        kinds = kinds_of(devices)
        if devices:
            self._own[node] = devices
        else:
            self._own.pop(node, None)
        if self._kinds.get(node, ()) == kinds:
            return False
        if kinds:
            self._kinds[node] = kinds
        else:
            del self._kinds[node]
        return True

    # ------------------------------------------------------------------ selection

    def matching(
        self, selectors: Sequence[str], option: views.DeviceRequest
    ) -> tuple[MatchedDevices, tuple[DeviceTaint, ...], str]:
        """Return the matching devices, or the reason why they cannot be determined.

        The first value holds the devices that meet all selectors and have only
        tolerated taints. The second holds the taints of devices that meet the selectors
        and are not tolerated. The third is the reason; "" if there is none.
        """
        try:
            tests = [cel.compiled(selector) for selector in selectors]
        except cel.CelError as error:
            return (
                MatchedDevices(),
                (),
                f"a selector of class {option.device_class} or of the request {error}",
            )
        try:
            kinds = tuple(
                kind
                for kind in sorted({kind for node_kinds in self._kinds.values() for kind in node_kinds})
                if kind.resource == GPU and all(test(subject_of(kind)) for test in tests)
            )
            listed = tuple(
                device
                for devices in self._listed.values()
                for device in devices
                if all(test(device.subject) for test in tests)
            )
        except cel.CelFailure as error:
            return MatchedDevices(), (), f"a selector has no value for a device of the cluster: {error}"
        matched = MatchedDevices(kinds, listed)
        if not matched and (unsupported := self._unsupported(tests)):
            return MatchedDevices(), (), unsupported
        kinds = tuple(kind for kind in kinds if _gives(_capacity_of(kind), option))
        listed = tuple(device for device in listed if _gives(device.capacity, option))
        if matched and not kinds and not listed:
            requested = ", ".join(f"{name} {text}" for name, text in option.capacity)
            return (
                MatchedDevices(),
                (),
                f"no device of class {option.device_class} that meets the selectors can give {requested}",
            )
        tolerated = tuple(device for device in listed if device.tolerated_by(option.tolerations))
        if option.mode == ALL:  # a tainted device blocks all others of its node
            blocked = {device.node for device in listed if not device.tolerated_by(option.tolerations)}
            tolerated = tuple(device for device in tolerated if device.node not in blocked)
        if len(tolerated) == len(listed):
            return MatchedDevices(kinds, listed), (), ""
        taints = {
            taint
            for device in listed
            if not device.tolerated_by(option.tolerations)
            for taint in device.taints
        }
        return (
            MatchedDevices(kinds, tolerated),
            tuple(sorted(taints, key=lambda device: (device.key, device.value, device.effect))),
            "",
        )

    def _unsupported(self, tests: Sequence[Callable[[cel.Subject], Any]]) -> str:
        """Return why matching devices that several nodes reach cannot be used; "" without any."""
        for item in self._of_node.get("", {}).values():
            for device in item.devices:
                with suppress(cel.CelFailure):
                    if all(test(subject_in(item.driver, device)) for test in tests):
                        return (
                            f"device {item.driver}/{item.pool}/{device.name} is in ResourceSlice {item.name}, which "
                            "several nodes may reach (nodeSelector, allNodes or perDeviceNodeSelection): that is not "
                            "served; name devices that a slice lists by nodeName"
                        )
        return ""

    def per_node(self, matched: MatchedDevices) -> set[int]:
        """Return the distinct numbers of matching devices per node, without 0."""
        wanted = set(matched.kinds)
        numbers = {sum(kind in wanted for kind in node_kinds) for node_kinds in self._kinds.values()}
        by_node: dict[str, int] = {}
        for device in matched.listed:
            by_node[device.node] = by_node.get(device.node, 0) + 1
        return {number for number in (*numbers, *by_node.values()) if number}

    def need(self, matched: MatchedDevices, count: int) -> tuple[DeviceNeed | None, str]:
        """Return the need for ``count`` whole devices among those that match, or why there is none."""
        if matched.kinds and matched.listed:
            return None, (
                "such devices are both listed by ResourceSlices and told by nodes without a driver: narrow the "
                "selectors to one of them"
            )
        if matched.listed:
            return self._need_of_listed(matched, count), ""
        return self._need_of_kinds(matched, count)

    def _need_of_listed(self, matched: MatchedDevices, count: int) -> DeviceNeed:
        """Select by model if that separates the devices from all others, else by UUID."""
        meant = {device.uuid for device in matched.listed}
        resources = {device.resource for device in matched.listed}
        resource = next(iter(resources)) if len(resources) == 1 else ""
        others = [
            device
            for devices in self._listed.values()
            for device in devices
            if device.resource in resources and device.uuid not in meant and not device.selected_only
        ]
        if any(device.selected_only for device in matched.listed):
            return DeviceNeed(resource, count, milli=WHOLE, uuids=tuple(sorted(meant)))
        if not others:
            return DeviceNeed(resource, count, milli=WHOLE)
        models, strangers = {device.model for device in matched.listed}, {device.model for device in others}
        if models.isdisjoint(strangers) and "" not in models:
            return _by_model(resource, count, models, strangers)
        return DeviceNeed(resource, count, milli=WHOLE, uuids=tuple(sorted(meant)))

    def _need_of_kinds(self, matched: MatchedDevices, count: int) -> tuple[DeviceNeed | None, str]:
        every = {kind for node_kinds in self._kinds.values() for kind in node_kinds if kind.resource == GPU}
        others = every - set(matched.kinds)
        if not others:
            return DeviceNeed(GPU, count, milli=WHOLE), ""
        models = {kind.model for kind in matched.kinds}
        if models.isdisjoint(kind.model for kind in others) and "" not in models:
            return _by_model(GPU, count, models, {kind.model for kind in others}), ""
        least = min(kind.memory_mib for kind in matched.kinds)
        if all(kind.memory_mib < least for kind in others):
            return DeviceNeed(GPU, count, milli=WHOLE, min_memory_mib=least), ""
        return None, "the selectors distinguish GPUs of one model, which nodes do not report: select by model"

    def name_of(self, node: str, resource: str, index: int) -> DeviceName:
        """Return driver, pool and name of a device."""
        device = self.listed_at(node, resource, index)
        if device is not None:
            return device.driver, device.pool, device.name
        return DRIVER, node, f"gpu-{index}"

    def listed_at(self, node: str, resource: str, index: int) -> ListedDevice | None:
        """Return the listed device with this resource and index; ``None`` if no slice lists it."""
        devices = self._listed.get(node, ())
        return next(
            (device for device in devices if (device.resource, device.index) == (resource, index)), None
        )

    def milli_of(self, node: str, resource: str, index: int, draws: ConsumedCounters = ()) -> int:
        """Return the size of a device in thousandths.

        For a shared device: the share that ``draws`` consume.
        """
        device = self.listed_at(node, resource, index)
        return WHOLE if device is None else device.milli_with(draws)

    def place_of(self, node: str, driver: str, pool: str, name: str) -> tuple[str, int] | None:
        """Return resource and index of a device, given the driver's name for it.

        This is the inverse of :meth:`name_of`.
        """
        for device in self._listed.get(node, ()):
            if (device.driver, device.pool, device.name) == (driver, pool, name):
                return device.resource, device.index
        number = name.removeprefix("gpu-")
        if (driver, pool) != (DRIVER, node) or number == name or not (number.isascii() and number.isdigit()):
            return None
        return (GPU, int(number)) if not self._listed.get(node) else None


def _by_model(resource: str, count: int, models: set[str], others: set[str]) -> DeviceNeed:
    """Return a need for any of ``models``, excluding ``others`` that contain one of them."""
    unwanted = {name for name in others if names_any(models, name)}
    return DeviceNeed(
        resource,
        count,
        milli=WHOLE,
        models=tuple(sorted(models)),
        models_not=tuple(sorted(unwanted)),
    )


def _gives(capacity: tuple[views.DeviceCapacity, ...], option: views.DeviceRequest) -> bool:
    """Return whether an unused device has the requested capacities."""
    return consumable_capacity.consumed(option.capacity, capacity) is not None


def _capacity_of(kind: DeviceKind) -> tuple[views.DeviceCapacity, ...]:
    return (views.DeviceCapacity("memory", f"{kind.memory_mib}Mi"),) if kind.memory_mib else ()


def subject_of(kind: DeviceKind) -> cel.Subject:
    """Return the selector's view of a device that a node reports, with NVIDIA's attribute names."""
    attributes: dict[str, Any] = {"type": "gpu", "productName": kind.model.replace("-", " ")}
    if kind.compute != (0, 0):
        attributes["cudaComputeCapability"] = cel.Version(*kind.compute, 0)
    capacity: Mapping[str, Fraction] = {}
    if kind.memory_mib:
        capacity = {"memory": Fraction(kind.memory_mib * MIB)}
    return cel.Subject(DRIVER, {DRIVER: attributes}, {DRIVER: capacity})
