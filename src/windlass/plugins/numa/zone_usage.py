"""Accounting of NUMA zones: free amounts by node, and the allocation of pods.

There is one :class:`RowZones` per node with zones. The allocation of a pod depends only
on its request, the node's layout and the free amounts. So nodes in equal states are
evaluated once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace

from windlass.plugins.numa.kubelet_allocation import (
    WHOLE,
    KubeletAllocation,
    ZoneLayout,
    is_memory,
    layout_of,
    serve,
    unit_of,
)
from windlass.plugins.numa.topology_hints import sets_by_size
from windlass.spi.numa import (
    CPU,
    AlignmentPolicy,
    ContainerNeed,
    NumaHolding,
    NumaNeed,
    NumaTopology,
)

DeviceKey = tuple[str, int]
State = tuple[object, ...]


@dataclass(frozen=True, slots=True)
class NumaService:
    """Policy by which a node serves certain requests, and the requests that count."""

    need: NumaNeed
    policy: AlignmentPolicy


def service(need: NumaNeed, node: NumaTopology) -> NumaService:
    """Return how a node serves a request.

    A node that ``obeys`` applies the policy that the pod names. It then aligns all
    memory and whole CPUs, whatever the pod's quality of service. For a pod that names
    none it aligns devices only.
    """
    if not node.obeys or node.policy is not AlignmentPolicy.NONE:
        return NumaService(need, node.policy)
    if need.policy is None or need.policy is AlignmentPolicy.NONE:
        return NumaService(replace(need, guaranteed=False), AlignmentPolicy.NONE)
    containers = tuple(
        replace(c, amounts=tuple((n, _rounded(n, amount)) for n, amount in c.amounts))
        for c in need.containers
    )
    return NumaService(NumaNeed(containers, guaranteed=True, policy=need.policy), need.policy)


def _rounded(name: str, amount: int) -> int:
    return -(-amount // WHOLE) * WHOLE if name == CPU else amount


class RowZones:
    """NUMA zones of one node. Allocated amounts may exceed the capacity if the cluster says so."""

    __slots__ = ("_pods_by_device", "_reported", "_state", "_zone_of", "layout", "spans", "used")

    def __init__(self, node: NumaTopology) -> None:
        self._reported = node.zones
        self.layout: ZoneLayout = layout_of(_without_free(node))
        self.used = {name: [0] * self.layout.size for name in self.layout.capacity}
        self.spans: Counter[tuple[int, ...]] = Counter()
        self._pods_by_device: dict[DeviceKey, int] = {}
        """Device → number of pods that hold it or a share of it."""
        self._zone_of = {(resource, index): zone for resource, index, zone in node.cards}
        self._state: State | None = None

    def state(self) -> State:
        """Return a key that is equal for nodes of one layout with the same free amounts."""
        if self._state is None:
            spans = tuple(sorted(self.spans))
            self._state = (self.layout, spans, *(tuple(amounts) for amounts in self.used.values()))
        return self._state

    def allocation(self) -> KubeletAllocation:
        """Return the free amounts as the start of an allocation."""
        size = self.layout.size
        free = {
            name: [has - used for has, used in zip(amounts, self.used[name], strict=True)]
            for name, amounts in self.layout.allocatable.items()
        }
        assignments, cells = [0] * size, [1 << place for place in range(size)]
        for span, count in self.spans.items():
            places = [self.layout.places[number] for number in span if number in self.layout.places]
            for place in places:
                assignments[place] += count
                cells[place] = sum(1 << other for other in places)
        return KubeletAllocation(free, assignments, cells)

    def change(self, holding: NumaHolding, sign: int) -> None:
        """Add an allocation (sign 1) or remove it (-1)."""
        self._state = None
        exact = {resource for resource, index in holding.cards if (resource, index) in self._zone_of}
        for number, amounts in holding.zones:
            place = self.layout.places.get(number)
            if place is None:
                continue
            for name, amount in amounts:
                if name in self.used and name not in exact:
                    self.used[name][place] += sign * amount
        for span in holding.spans:
            self.spans[span] += sign
            if not self.spans[span]:
                del self.spans[span]
        for device in holding.cards:
            self._count_device(device, sign)

    def _count_device(self, device: DeviceKey, sign: int) -> None:
        number = self._zone_of.get(device)
        place = None if number is None else self.layout.places.get(number)
        resource = device[0]
        if place is None or resource not in self.used:
            return
        before = self._pods_by_device.get(device, 0)
        after = before + sign
        if after:
            self._pods_by_device[device] = after
        else:
            self._pods_by_device.pop(device, None)
        self.used[resource][place] += unit_of(resource) * (bool(after) - bool(before))

    def with_devices(self, holding: NumaHolding, cards: Iterable[DeviceKey]) -> NumaHolding:
        """Return the allocation with the pod's actual devices, if their zones are known.

        A shared device counts as in use. Amounts include whole devices only, as in NUMA
        requests.
        """
        known = [device for device in cards if device in self._zone_of]
        if not known:
            return holding
        requested = {name for _, amounts in holding.zones for name, _ in amounts}
        resources = {resource for resource, _ in known}
        zones: dict[int, dict[str, int]] = {
            number: {name: amount for name, amount in amounts if name not in resources}
            for number, amounts in holding.zones
        }
        for resource, index in known:
            if resource not in requested:
                continue
            amounts_there = zones.setdefault(self._zone_of[resource, index], {})
            amounts_there[resource] = amounts_there.get(resource, 0) + unit_of(resource)
        held = tuple((n, tuple(sorted(zones[n].items()))) for n in sorted(zones) if zones[n])
        return NumaHolding(held, holding.spans, tuple(sorted(known)))

    def estimated(self, requested: NumaService) -> NumaHolding:
        """Return the estimated allocation of a running pod without a reported one.

        The node's reported use beyond the known allocations is assigned to it, if that
        accounts for the request. Otherwise the pod gets what it would get now, aligned
        if possible.
        """
        reported = self._unexplained()
        if reported is not None:
            holding = self._matching(requested.need, reported)
            if holding is not None:
                return holding
        for policy in dict.fromkeys((requested.policy, AlignmentPolicy.BEST_EFFORT, AlignmentPolicy.NONE)):
            holding = serve(requested.need, self.layout, self.allocation(), policy)
            if holding is not None:
                return holding
        return NumaHolding()

    def _unexplained(self) -> dict[str, list[int]] | None:
        """Return by zone the reported use less the known allocations; ``None`` without a report."""
        zones = self._reported
        if any(zone.free is None for zone in zones):
            return None
        unexplained: dict[str, list[int]] = {}
        for name, amounts in self.layout.allocatable.items():
            free = [dict(zone.free or ()).get(name, 0) for zone in zones]
            booked = self.used[name]
            unexplained[name] = [
                has - left - mine for has, left, mine in zip(amounts, free, booked, strict=True)
            ]
        return unexplained

    def _matching(self, need: NumaNeed, unexplained: dict[str, list[int]]) -> NumaHolding | None:
        """Return the pod's allocation from the smallest set of zones with enough
        unexplained use."""
        allocation = KubeletAllocation(
            {n: [max(0, a) for a in v] for n, v in unexplained.items()}, *_unpinned(self.layout.size)
        )
        for mask in sets_by_size(self.layout.size):
            only = allocation.copy()
            for amounts in only.free.values():
                for place in range(self.layout.size):
                    if not mask >> place & 1:
                        amounts[place] = 0
            holding = serve(need, self.layout, only, AlignmentPolicy.NONE)
            if holding is not None and holding.zones:
                return holding
        return None


def _without_free(node: NumaTopology) -> NumaTopology:
    """Return the node without values that change between reports, so that equal nodes
    share the rest."""
    if all(zone.free is None for zone in node.zones):
        return node
    return replace(node, zones=tuple(replace(zone, free=None) for zone in node.zones))


def _unpinned(size: int) -> tuple[list[int], list[int]]:
    return [0] * size, [1 << place for place in range(size)]


def counted(need: NumaNeed, node: NumaTopology) -> dict[str, int]:
    """Return the part of a pod's request that NUMA zones serve, summed over containers."""
    totals: dict[str, int] = {}
    layout = layout_of(node)
    for container in need.containers:
        for name, amount in _of_container(need, container, layout).items():
            totals[name] = totals.get(name, 0) + amount
    return totals


def _of_container(need: NumaNeed, container: ContainerNeed, layout: ZoneLayout) -> dict[str, int]:
    node = layout.node
    counted_amounts = {}
    for name, amount in container.amounts:
        if name == CPU:
            counts = (
                need.guaranteed and node.exclusive_cpus and amount % WHOLE == 0 and name in layout.capacity
            )
        elif is_memory(name):
            counts = need.guaranteed and node.pinned_memory and name in layout.allocatable
        else:
            counts = name in layout.devices
        if counts and amount > 0:
            counted_amounts[name] = amount
    return counted_amounts
