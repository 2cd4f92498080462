"""NUMA zones: what nodes, reports and pods say of them → the engine's words.

A node's zones come from one report: the NodeResourceTopology of its name, else its Numatopology, else what its
own agent has written on the Node. Devices whose zone the agent has found count where the report says nothing of
devices.
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
_UNSAID = ""


class NumaReports:
    """The reports about nodes, by kind and node."""

    def __init__(self) -> None:
        self._by_node: dict[str, dict[str, NodeTopology]] = {}

    def upsert(self, report: NodeTopology) -> bool:
        """Return whether it says anything new."""
        known = self._by_node.setdefault(report.name, {})
        old = known.get(report.kind)
        known[report.kind] = report
        return old is None or _said(old) != _said(report)

    def remove(self, report: NodeTopology) -> bool:
        known = self._by_node.get(report.name, {})
        if known.pop(report.kind, None) is None:
            return False
        if not known:
            del self._by_node[report.name]
        return True

    def of(self, node: str) -> NodeTopology | None:
        """The report that counts."""
        known = self._by_node.get(node)
        if not known:
            return None
        return known.get(NRT) or next(iter(known.values()))


def _said(report: NodeTopology) -> tuple[object, ...]:
    return (
        report.zones,
        report.policy,
        report.scope,
        report.cpu_manager,
        report.memory_manager,
        report.closest,
    )


def numa_zones_of(view: views.NodeObject, report: NodeTopology | None) -> NumaTopology | None:
    """The zones of a node; ``None`` where nobody knows of any, or of more than a kubelet aligns pods to."""
    found: NumaTopology | None = None
    if report is not None and report.zones:
        found = _reported(view, report)
    else:
        record = numa_annotations.read(view.annotations).record
        found = _published(view, record) if record is not None and record.zones else None
    return None if found is None or len(found.zones) > MAX_NUMA_ZONES else found


def _reported(view: views.NodeObject, report: NodeTopology) -> NumaTopology:
    """An exporter that does not tell which managers run is taken to report what they give: processors and
    memory of its zones count for Guaranteed pods."""
    cards = () if devices_in(report) else _cards(view)
    found = []
    for zone in report.zones:
        capacity, allocatable = dict(zone.capacity), dict(zone.allocatable)
        for name, amounts in _card_amounts(view, zone.number).items():
            if not devices_in(report):
                capacity[name], allocatable[name] = amounts
        free = None if zone.free is None or cards else _pairs(zone.free)
        costs = tuple(zone.costs.get(other.number, 0) for other in report.zones) if zone.costs else ()
        found.append(NumaZone(zone.number, _pairs(capacity), _pairs(allocatable), free, costs))
    policy = AlignmentPolicy(report.policy)
    aligned = policy is not AlignmentPolicy.NONE
    return NumaTopology(
        zones=tuple(found),
        policy=policy,
        pod_scope=report.scope == "pod",
        exclusive_cpus=report.cpu_manager.lower() in (_UNSAID, "static"),
        pinned_memory=report.memory_manager.lower() == "static" or (aligned and not report.memory_manager),
        closest=report.closest,
        cards=cards or _cards(view) or _counted_off(view, tuple(found)),
    )


def _published(view: views.NodeObject, record: numa_annotations.NumaNodeRecord) -> NumaTopology:
    """What our own agent says. It serves pods by the scheduler's word, so that of a pod counts as well."""
    left = record.reserved_cpus
    found = []
    for zone in sorted(record.zones, key=lambda zone: zone.number):
        cpus = WHOLE * len(_cpus(zone.cpus))
        kept = min(left, cpus)
        left -= kept
        capacity = {CPU: cpus, MEMORY: zone.memory}
        allocatable = {CPU: (cpus - kept) // WHOLE * WHOLE, MEMORY: zone.memory}
        for name, amounts in _card_amounts(view, zone.number).items():
            capacity[name], allocatable[name] = amounts
        found.append(NumaZone(zone.number, _pairs(capacity), _pairs(allocatable), None, zone.distances))
    return NumaTopology(
        zones=tuple(found),
        policy=AlignmentPolicy(record.policy),
        pod_scope=record.scope == "pod",
        exclusive_cpus=True,
        pinned_memory=False,
        closest=record.closest,
        obeys=True,
        cards=_cards(view),
    )


def _cpus(text: str) -> tuple[int, ...]:
    try:
        return numa_annotations.cpus_of(text)
    except ValueError:
        return ()


def _cards(view: views.NodeObject) -> tuple[tuple[str, int, int], ...]:
    """(resource, index, zone) of the devices whose zone is known."""
    return tuple(
        (card.resource, card.index, card.numa)
        for card in node_annotation.read(view.annotations).cards
        if card.numa >= 0 and card.resource in view.allocatable
    )


def _counted_off(view: views.NodeObject, found: tuple[NumaZone, ...]) -> tuple[tuple[str, int, int], ...]:
    """Where nobody tells devices apart but every one is in some zone: as drivers number them, zone by zone."""
    cards = []
    for resource, units in view.allocatable.items():
        amounts = [(zone.number, dict(zone.capacity).get(resource, 0)) for zone in found]
        if is_device(resource) and units and sum(amount for _, amount in amounts) == units:
            numbers = [number for number, amount in amounts for _ in range(amount // WHOLE)]
            cards += [(resource, index, number) for index, number in enumerate(numbers)]
    return tuple(cards)


def _card_amounts(view: views.NodeObject, zone: int) -> dict[str, tuple[int, int]]:
    """Of each resource, all devices of the zone, and those that are healthy."""
    found: dict[str, tuple[int, int]] = {}
    for card in node_annotation.read(view.annotations).cards:
        if card.numa == zone and card.resource in view.allocatable:
            whole, healthy = found.get(card.resource, (0, 0))
            found[card.resource] = (whole + WHOLE, healthy + WHOLE * card.healthy)
    return found


def _pairs(amounts: Mapping[str, int]) -> Amounts:
    return tuple(sorted(amounts.items()))


# ------------------------------------------------------------------ pods


def need_of(shape: PodShape, policy: str = "", parted: Collection[str] = frozenset()) -> NumaNeed | None:
    """What a pod asks of zones; ``None`` where nothing of it could be given from one. ``policy``: the one that
    the pod names; a word that is none counts as none. ``parted``: resources of whose devices it has parts."""
    named = AlignmentPolicy(policy) if policy in numa_annotations.POLICIES else None
    containers = tuple(
        ContainerNeed(
            tuple((name, units) for name, units in one.amounts if _zoned(name) and name not in parted),
            ContainerKind(one.kind),
        )
        for one in shape.containers
    )
    counts = shape.guaranteed or named not in (None, AlignmentPolicy.NONE)
    if not counts and not any(is_device(name) for one in containers for name, _ in one.amounts):
        return None
    return _shared(NumaNeed(containers, shape.guaranteed, named))


@lru_cache(maxsize=4096)
def _shared(need: NumaNeed) -> NumaNeed:
    return need


def _zoned(name: str) -> bool:
    return name in (CPU, MEMORY) or name.startswith(HUGE_PAGES) or "/" in name


def holding_of(annotations: Mapping[str, str]) -> NumaHolding | None:
    """What a pod holds, by what was observed or written with its binding."""
    placement = numa_annotations.placement_of(annotations)
    return None if placement is None else _holding(placement)


@lru_cache(maxsize=16384)
def _holding(placement: numa_annotations.Placement) -> NumaHolding:
    """Memory of several zones was pinned as one piece, per kind of memory."""
    spans: dict[str, list[int]] = {}
    for number, amounts in placement:
        for name, units in amounts:
            if units and (name == MEMORY or name.startswith(HUGE_PAGES)):
                spans.setdefault(name, []).append(number)
    return NumaHolding(placement, tuple(tuple(numbers) for _, numbers in sorted(spans.items())))


def annotations_of(holding: NumaHolding | None) -> dict[str, str]:
    """The annotation that goes with the binding of a pod that is served from certain zones."""
    if holding is None or not holding.zones:
        return {}
    return {numa_annotations.PLACEMENT: numa_annotations.placement_text(holding.zones)}
