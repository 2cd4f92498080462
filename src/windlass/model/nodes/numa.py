"""Translation of NUMA zones: from nodes, reports and pods to the engine's types.

A node's zones come from one report: the NodeResourceTopology of its name, else its
Numatopology, else the record of Windlass' own agent on the Node. If the report does not
contain devices, the devices come from the agent's record.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import lru_cache

from windlass.api import views
from windlass.api.devices import node_annotation, numa_annotations
from windlass.api.quantities import is_device
from windlass.api.views import PodShape
from windlass.api.views.numa import NRT, NodeTopology, devices_in
from windlass.spi.numa import (
    CPU,
    HUGE_PAGES,
    MAX_NUMA_ZONES,
    MEMORY,
    AlignmentPolicy,
    Amounts,
    ContainerKind,
    ContainerNeed,
    NumaHolding,
    NumaNeed,
    NumaTopology,
    NumaZone,
)

WHOLE = 1000
_UNSPECIFIED = ""


class NumaReports:
    """Reports about nodes, by kind and node."""

    def __init__(self) -> None:
        self._by_node: dict[str, dict[str, NodeTopology]] = {}

    def upsert(self, report: NodeTopology) -> bool:
        """Store a report. Return whether a relevant field changed."""
        known = self._by_node.setdefault(report.name, {})
        old = known.get(report.kind)
        known[report.kind] = report
        return old is None or _content(old) != _content(report)

    def remove(self, report: NodeTopology) -> bool:
        known = self._by_node.get(report.name, {})
        if known.pop(report.kind, None) is None:
            return False
        if not known:
            del self._by_node[report.name]
        return True

    def of(self, node: str) -> NodeTopology | None:
        """Return the report of a node that takes precedence."""
        known = self._by_node.get(node)
        if not known:
            return None
        return known.get(NRT) or next(iter(known.values()))


def _content(report: NodeTopology) -> tuple[object, ...]:
    return (
        report.zones,
        report.policy,
        report.scope,
        report.cpu_manager,
        report.memory_manager,
        report.closest,
    )


def numa_zones_of(view: views.NodeObject, report: NodeTopology | None) -> NumaTopology | None:
    """Return the zones of a node; ``None`` if unknown, or more than a kubelet aligns pods to."""
    topology: NumaTopology | None = None
    if report is not None and report.zones:
        topology = _reported(view, report)
    else:
        record = numa_annotations.read(view.annotations).record
        topology = _published(view, record) if record is not None and record.zones else None
    return None if topology is None or len(topology.zones) > MAX_NUMA_ZONES else topology


def _reported(view: views.NodeObject, report: NodeTopology) -> NumaTopology:
    """Return the zones in a report.

    An exporter that does not state the active managers is assumed to report their
    allocations. Processors and memory of its zones then count for Guaranteed pods.
    """
    devices = () if devices_in(report) else _devices(view)
    zones = []
    for zone in report.zones:
        capacity, allocatable = dict(zone.capacity), dict(zone.allocatable)
        for name, amounts in _device_amounts(view, zone.number).items():
            if not devices_in(report):
                capacity[name], allocatable[name] = amounts
        free = None if zone.free is None or devices else _pairs(zone.free)
        costs = tuple(zone.costs.get(other.number, 0) for other in report.zones) if zone.costs else ()
        zones.append(NumaZone(zone.number, _pairs(capacity), _pairs(allocatable), free, costs))
    policy = AlignmentPolicy(report.policy)
    aligned = policy is not AlignmentPolicy.NONE
    return NumaTopology(
        zones=tuple(zones),
        policy=policy,
        pod_scope=report.scope == "pod",
        exclusive_cpus=report.cpu_manager.lower() in (_UNSPECIFIED, "static"),
        pinned_memory=report.memory_manager.lower() == "static" or (aligned and not report.memory_manager),
        closest=report.closest,
        cards=devices or _devices(view) or _numbered_by_zone(view, tuple(zones)),
    )


def _published(view: views.NodeObject, record: numa_annotations.NumaNodeRecord) -> NumaTopology:
    """Return the zones in the record of Windlass' own agent.

    The agent follows the scheduler's placement, so the zones of every pod count.
    """
    unassigned = record.reserved_cpus
    zones = []
    for zone in sorted(record.zones, key=lambda zone: zone.number):
        cpus = WHOLE * len(_cpus(zone.cpus))
        reserved = min(unassigned, cpus)
        unassigned -= reserved
        capacity = {CPU: cpus, MEMORY: zone.memory}
        allocatable = {CPU: (cpus - reserved) // WHOLE * WHOLE, MEMORY: zone.memory}
        for name, amounts in _device_amounts(view, zone.number).items():
            capacity[name], allocatable[name] = amounts
        zones.append(NumaZone(zone.number, _pairs(capacity), _pairs(allocatable), None, zone.distances))
    return NumaTopology(
        zones=tuple(zones),
        policy=AlignmentPolicy(record.policy),
        pod_scope=record.scope == "pod",
        exclusive_cpus=True,
        pinned_memory=False,
        closest=record.closest,
        obeys=True,
        cards=_devices(view),
    )


def _cpus(text: str) -> tuple[int, ...]:
    try:
        return numa_annotations.cpus_of(text)
    except ValueError:
        return ()


def _devices(view: views.NodeObject) -> tuple[tuple[str, int, int], ...]:
    """Return (resource, index, zone) of the devices with a known zone."""
    return tuple(
        (device.resource, device.index, device.numa)
        for device in node_annotation.read(view.annotations).cards
        if device.numa >= 0 and device.resource in view.allocatable
    )


def _numbered_by_zone(
    view: views.NodeObject, zones: tuple[NumaZone, ...]
) -> tuple[tuple[str, int, int], ...]:
    """Return devices numbered zone by zone, as drivers number them.

    This applies if no source identifies the devices, but each is in some zone.
    """
    devices = []
    for resource, units in view.allocatable.items():
        amounts = [(zone.number, dict(zone.capacity).get(resource, 0)) for zone in zones]
        if is_device(resource) and units and sum(amount for _, amount in amounts) == units:
            numbers = [number for number, amount in amounts for _ in range(amount // WHOLE)]
            devices += [(resource, index, number) for index, number in enumerate(numbers)]
    return tuple(devices)


def _device_amounts(view: views.NodeObject, zone: int) -> dict[str, tuple[int, int]]:
    """Return the total and the healthy devices of the zone, per resource."""
    by_resource: dict[str, tuple[int, int]] = {}
    for device in node_annotation.read(view.annotations).cards:
        if device.numa == zone and device.resource in view.allocatable:
            whole, healthy = by_resource.get(device.resource, (0, 0))
            by_resource[device.resource] = (whole + WHOLE, healthy + WHOLE * device.healthy)
    return by_resource


def _pairs(amounts: Mapping[str, int]) -> Amounts:
    return tuple(sorted(amounts.items()))


# ------------------------------------------------------------------ pods


def need_of(shape: PodShape, policy: str = "", parted: Collection[str] = frozenset()) -> NumaNeed | None:
    """Return the NUMA need of a pod; ``None`` if none of its resources can be aligned.

    ``policy``: the policy that the pod names; an unknown text counts as none.
    ``parted``: resources of which it requests device shares.
    """
    named = AlignmentPolicy(policy) if policy in numa_annotations.POLICIES else None
    containers = tuple(
        ContainerNeed(
            tuple((name, units) for name, units in container.amounts if _zoned(name) and name not in parted),
            ContainerKind(container.kind),
        )
        for container in shape.containers
    )
    counts = shape.guaranteed or named not in (None, AlignmentPolicy.NONE)
    if not counts and not any(is_device(name) for container in containers for name, _ in container.amounts):
        return None
    return _shared(NumaNeed(containers, shape.guaranteed, named))


@lru_cache(maxsize=4096)
def _shared(need: NumaNeed) -> NumaNeed:
    return need


def _zoned(name: str) -> bool:
    return name in (CPU, MEMORY) or name.startswith(HUGE_PAGES) or "/" in name


def holding_of(annotations: Mapping[str, str]) -> NumaHolding | None:
    """Return the zones that a pod uses, as observed or as written with its binding."""
    placement = numa_annotations.placement_of(annotations)
    return None if placement is None else _holding(placement)


@lru_cache(maxsize=16384)
def _holding(placement: numa_annotations.Placement) -> NumaHolding:
    """Return the zones of a placement. Memory of several zones is pinned as one span per kind."""
    spans: dict[str, list[int]] = {}
    for number, amounts in placement:
        for name, units in amounts:
            if units and (name == MEMORY or name.startswith(HUGE_PAGES)):
                spans.setdefault(name, []).append(number)
    return NumaHolding(placement, tuple(tuple(numbers) for _, numbers in sorted(spans.items())))


def annotations_of(holding: NumaHolding | None) -> dict[str, str]:
    """Return the annotation for the binding of a pod that is served from certain zones."""
    if holding is None or not holding.zones:
        return {}
    return {numa_annotations.PLACEMENT: numa_annotations.placement_text(holding.zones)}
