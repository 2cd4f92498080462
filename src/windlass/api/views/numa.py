"""NodeResourceTopology (``topology.node.k8s.io``, v1alpha1 and v1alpha2) and Volcano's Numatopology
(``nodeinfo.volcano.sh/v1alpha1``): the NUMA zones of one node, as its exporter reports them.

Both become one :class:`NodeTopology`, named after the node. Amounts in engine units.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from windlass.api.devices.numa_annotations import POLICIES, cpus_of, numa_node_number
from windlass.api.errors import FieldError
from windlass.api.quantities import MAX_NODE_AMOUNT, QuantityError, is_device, to_units
from windlass.api.views.wire import EMPTY, field_error, intern, metadata, part, split

NRT, NUMATOPOLOGY = "NodeResourceTopology", "Numatopology"
_NODE = "node"
_CPU_MILLI = 1000
_BY_LEGACY = {
    "SingleNUMANode": ("single-numa-node", "container"),
    "SingleNUMANodeContainerLevel": ("single-numa-node", "container"),
    "SingleNUMANodePodLevel": ("single-numa-node", "pod"),
    "Restricted": ("restricted", "container"),
    "RestrictedContainerLevel": ("restricted", "container"),
    "RestrictedPodLevel": ("restricted", "pod"),
    "BestEffort": ("best-effort", "container"),
    "BestEffortContainerLevel": ("best-effort", "container"),
    "BestEffortPodLevel": ("best-effort", "pod"),
    "None": ("none", "container"),
}
"""The deprecated ``topologyPolicies`` → (policy, scope)."""


class NumaZoneView(msgspec.Struct, frozen=True, gc=False):
    """``free`` is ``None`` where the report does not say. ``costs``: zone number → distance."""

    number: int
    capacity: dict[str, int]
    allocatable: dict[str, int]
    free: dict[str, int] | None = None
    costs: dict[int, int] = {}


class NodeTopology(msgspec.Struct, gc=False):
    """``cpu_manager`` and ``memory_manager`` are empty where the report does not say."""

    kind: str
    name: str
    uid: str
    resource_version: str
    zones: tuple[NumaZoneView, ...]
    policy: str
    scope: str
    cpu_manager: str
    memory_manager: str
    closest: bool
    problems: tuple[FieldError, ...]

    @property
    def key(self) -> str:
        return self.name


class _Pair(msgspec.Struct, gc=False):
    name: str = ""
    value: str | int | float = ""


class _ResourceWire(msgspec.Struct, gc=False):
    name: str = ""
    capacity: str | int | float | None = None
    allocatable: str | int | float | None = None
    available: str | int | float | None = None


class _ZoneWire(msgspec.Struct, gc=False):
    name: str = ""
    type: str = ""
    costs: tuple[_Pair, ...] | None = None
    resources: tuple[_ResourceWire, ...] | None = None


class _NrtWire(msgspec.Struct, gc=False, rename="camel"):
    metadata: msgspec.Raw = EMPTY
    topology_policies: tuple[str, ...] | None = None
    zones: msgspec.Raw = EMPTY
    attributes: tuple[_Pair, ...] | None = None


class _CpuWire(msgspec.Struct, gc=False):
    numa: int = 0
    socket: int = 0
    core: int = 0


class _ResInfo(msgspec.Struct, gc=False):
    allocatable: str = ""
    capacity: int = 0


class _MemoryTable(msgspec.Struct, gc=False, rename="camel"):
    total: int = 0
    system_reserved: int = 0
    allocatable: int = 0
    free: int = 0


class _MemoryNode(msgspec.Struct, gc=False, rename="camel"):
    memory_map: dict[str, _MemoryTable] | None = None


class _NumaSpec(msgspec.Struct, gc=False):
    policies: dict[str, str] = {}
    reserved: dict[str, str | int | float] = msgspec.field(name="resReserved", default={})
    resources: dict[str, _ResInfo] = msgspec.field(name="numares", default={})
    cpus: dict[str, _CpuWire] = msgspec.field(name="cpuDetail", default={})
    memory: dict[str, _MemoryNode] = msgspec.field(name="MemoryDetail", default={})


_nrt_decoder = msgspec.json.Decoder(_NrtWire)
_zones_decoder = msgspec.json.Decoder(tuple[_ZoneWire, ...])
_numa_decoder = msgspec.json.Decoder(_NumaSpec)


def decode_node_resource_topology(raw: bytes | msgspec.Raw) -> NodeTopology:
    """A NodeResourceTopology. Raises ``msgspec.DecodeError`` on what has no name.

    Attributes ``topologyManagerPolicy``, ``topologyManagerScope``, and where an exporter tells them,
    ``cpuManagerPolicy``, ``memoryManagerPolicy`` and ``topologyManagerPolicyOptions``.
    """
    problems: list[FieldError] = []
    whole = split(raw)
    meta = metadata(whole.metadata, problems)
    try:
        wire = _nrt_decoder.decode(bytes(raw))
    except (msgspec.DecodeError, RecursionError) as error:
        problems.append(field_error("", error))
        wire = _NrtWire()
    zones = part(_zones_decoder, wire.zones, "zones", tuple, problems)
    told = {pair.name: str(pair.value) for pair in wire.attributes or ()}
    policy, scope = _policy(wire, told, problems)
    found = [
        zone
        for at, one in enumerate(zones)
        if one.type.lower() == _NODE and (zone := _nrt_zone(one, f"zones[{at}]", problems)) is not None
    ]
    return NodeTopology(
        kind=NRT,
        name=intern(meta.name),
        uid=meta.uid,
        resource_version=meta.resource_version,
        zones=tuple(sorted(found, key=lambda zone: zone.number)),
        policy=policy,
        scope=scope,
        cpu_manager=told.get("cpuManagerPolicy", ""),
        memory_manager=told.get("memoryManagerPolicy", ""),
        closest="prefer-closest-numa-nodes=true" in told.get("topologyManagerPolicyOptions", ""),
        problems=tuple(problems),
    )


def _policy(wire: _NrtWire, told: Mapping[str, str], problems: list[FieldError]) -> tuple[str, str]:
    """The attributes' word, else the deprecated list's first."""
    legacy = next((_BY_LEGACY[name] for name in wire.topology_policies or () if name in _BY_LEGACY), None)
    policy, scope = legacy or ("none", "container")
    policy = told.get("topologyManagerPolicy") or policy
    scope = told.get("topologyManagerScope") or scope
    if policy not in POLICIES:
        problems.append(FieldError.not_supported("attributes[topologyManagerPolicy]", policy, POLICIES))
        policy = "none"
    return policy, scope


def _nrt_zone(wire: _ZoneWire, field: str, problems: list[FieldError]) -> NumaZoneView | None:
    number = numa_node_number(wire.name)
    if number is None:
        problems.append(FieldError.invalid(f"{field}.name", wire.name, "must end in the NUMA node's number"))
        return None
    capacity: dict[str, int] = {}
    allocatable: dict[str, int] = {}
    free: dict[str, int] | None = {}
    for at, one in enumerate(wire.resources or ()):
        place = f"{field}.resources[{at}]"
        has = _units(one.name, one.allocatable, f"{place}.allocatable", problems)
        if has is None:
            has = _units(one.name, one.capacity, f"{place}.capacity", problems) or 0
        whole = _units(one.name, one.capacity, f"{place}.capacity", problems)
        left = _units(one.name, one.available, f"{place}.available", problems)
        capacity[intern(one.name)] = max(has, whole or 0)
        allocatable[intern(one.name)] = has
        if left is None:
            free = None
        elif free is not None:
            free[intern(one.name)] = left
    costs = {}
    for pair in wire.costs or ():
        other, far = numa_node_number(pair.name), str(pair.value)
        if other is not None and far.isascii() and far.isdecimal() and len(far) < 6:
            costs[other] = int(far)
    return NumaZoneView(number, capacity, allocatable, free, costs)


def _units(name: str, amount: Any, field: str, problems: list[FieldError]) -> int | None:
    if amount is None:
        return None
    try:
        return min(max(0, to_units(name, amount)), MAX_NODE_AMOUNT)
    except QuantityError as error:
        problems.append(FieldError(field, str(error)))
        return None


def decode_numatopology(raw: bytes | msgspec.Raw) -> NodeTopology:
    """A Numatopology of Volcano. Raises ``msgspec.DecodeError`` on what has no name.

    ``numares.cpu.allocatable`` lists the processors that are free now; which ones the system keeps is told by
    ``resReserved.cpu`` alone: those of the lowest cores, as the static CPU manager takes them.
    """
    problems: list[FieldError] = []
    whole = split(raw)
    meta = metadata(whole.metadata, problems)
    spec = part(_numa_decoder, whole.spec, "spec", _NumaSpec, problems)
    policy = spec.policies.get("TopologyManagerPolicy", "") or "none"
    if policy not in POLICIES:
        problems.append(FieldError.not_supported("spec.policies[TopologyManagerPolicy]", policy, POLICIES))
        policy = "none"
    return NodeTopology(
        kind=NUMATOPOLOGY,
        name=intern(meta.name),
        uid=meta.uid,
        resource_version=meta.resource_version,
        zones=_volcano_zones(spec, problems),
        policy=policy,
        scope="container",
        cpu_manager=spec.policies.get("CPUManagerPolicy", "") or "none",
        memory_manager=spec.policies.get("MemoryManagerPolicy", "") or "None",
        closest=False,
        problems=tuple(problems),
    )


def _volcano_zones(spec: _NumaSpec, problems: list[FieldError]) -> tuple[NumaZoneView, ...]:
    cpus = {
        int(name): wire
        for name, wire in spec.cpus.items()
        if name.isascii() and name.isdecimal() and len(name) < 6
    }
    kept = _kept_cpus(spec, cpus, problems)
    free: set[int] | None = None
    info = spec.resources.get("cpu")
    if info is not None and info.allocatable:
        try:
            free = set(cpus_of(info.allocatable))
        except ValueError as error:
            problems.append(FieldError("spec.numares[cpu].allocatable", str(error)))
    numbers = {wire.numa for wire in cpus.values()}
    numbers |= {int(name) for name in spec.memory if name.isascii() and name.isdecimal() and len(name) < 5}
    found = []
    for number in sorted(numbers):
        mine = {cpu for cpu, wire in cpus.items() if wire.numa == number}
        capacity = {"cpu": _CPU_MILLI * len(mine)}
        allocatable = {"cpu": _CPU_MILLI * len(mine - kept)}
        left = None if free is None else {"cpu": _CPU_MILLI * len(mine & free - kept)}
        memory = spec.memory.get(str(number))
        for name, table in ((memory.memory_map if memory else None) or {}).items():
            capacity[name] = table.allocatable + table.system_reserved
            allocatable[name] = table.allocatable
            if left is not None:
                left[name] = table.free
        found.append(NumaZoneView(number, capacity, allocatable, left))
    return tuple(found)


def _kept_cpus(spec: _NumaSpec, cpus: Mapping[int, _CpuWire], problems: list[FieldError]) -> set[int]:
    amount = spec.reserved.get("cpu")
    units = _units("cpu", amount, "spec.resReserved[cpu]", problems) if amount is not None else 0
    count = -(-(units or 0) // _CPU_MILLI)
    ordered = sorted(cpus, key=lambda cpu: (cpus[cpu].socket, cpus[cpu].core, cpu))
    return set(ordered[:count])


def devices_in(view: NodeTopology) -> bool:
    """Return whether the report tells of devices."""
    return any(is_device(name) for zone in view.zones for name in zone.capacity)
