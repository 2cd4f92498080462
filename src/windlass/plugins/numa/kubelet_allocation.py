"""Allocation of one pod from a node's NUMA zones as in the kubelet: hints, admission,
allocation.

The containers are handled one by one. The rules are those of Kubernetes' kubelet
(``pkg/kubelet/cm``: ``topologymanager/scope_container.go``, ``scope_pod.go``,
``cpumanager/policy_static.go``, ``memorymanager/policy_static.go``,
``devicemanager/manager.go``). Details that a scheduler cannot see are replaced by
amounts. The individual CPUs of a zone are not modelled. CPUs from several zones fill
whole free zones first, then the zone with the least left.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from windlass.plugins.numa.topology_hints import (
    Distances,
    Hints,
    Merged,
    admits,
    hints_of,
    merge,
    sets_by_size,
    sums,
)
from windlass.spi.numa import (
    CPU,
    HUGE_PAGES,
    MEMORY,
    AlignmentPolicy,
    ContainerKind,
    ContainerNeed,
    NumaHolding,
    NumaNeed,
    NumaTopology,
)
from windlass.spi.quantities import is_device

WHOLE = 1000


def unit_of(resource: str) -> int:
    """Return the engine units of one CPU or one device."""
    return WHOLE if resource == CPU or is_device(resource) else 1


def is_memory(resource: str) -> bool:
    return resource == MEMORY or resource.startswith(HUGE_PAGES)


@dataclass(frozen=True, slots=True, eq=False)
class ZoneLayout:
    """NUMA zones of a node as columns, by position; equal nodes share one object.

    ``devices``: resources other than CPU and memory.
    """

    node: NumaTopology
    size: int
    capacity: Mapping[str, tuple[int, ...]]
    allocatable: Mapping[str, tuple[int, ...]]
    devices: frozenset[str]
    with_cpus: int
    distances: Distances | None
    places: Mapping[int, int]
    """Zone number → position."""


@lru_cache(maxsize=4096)
def layout_of(node: NumaTopology) -> ZoneLayout:
    """Return the layout of a node's zones; equal nodes share one object."""
    names = sorted({name for zone in node.zones for name, _ in (*zone.capacity, *zone.allocatable)})
    capacity = {name: tuple(dict(zone.capacity).get(name, 0) for zone in node.zones) for name in names}
    allocatable = {name: tuple(dict(zone.allocatable).get(name, 0) for zone in node.zones) for name in names}
    cpus = capacity.get(CPU, ())
    known = all(len(zone.distances) == len(node.zones) for zone in node.zones)
    return ZoneLayout(
        node=node,
        size=len(node.zones),
        capacity=capacity,
        allocatable=allocatable,
        devices=frozenset(name for name in names if name != CPU and not is_memory(name)),
        with_cpus=sum(1 << place for place, amount in enumerate(cpus) if amount),
        distances=Distances(tuple(zone.distances for zone in node.zones)) if node.closest and known else None,
        places={zone.number: place for place, zone in enumerate(node.zones)},
    )


@dataclass(slots=True)
class KubeletAllocation:
    """Free amounts of a node while pods are allocated.

    ``assignments``: number of pinned memory blocks by zone. ``cells``: by zone the set
    of zones that these blocks span.
    """

    free: dict[str, list[int]]
    assignments: list[int]
    cells: list[int]

    def copy(self) -> KubeletAllocation:
        free = {name: list(amounts) for name, amounts in self.free.items()}
        return KubeletAllocation(free, list(self.assignments), list(self.cells))


@dataclass(slots=True)
class _Reusable:
    """Resources that init containers left to later containers of the pod."""

    amounts: dict[str, list[int]] = field(default_factory=dict)
    memory: dict[tuple[int, str], int] = field(default_factory=dict)
    """(set of zones, resource) → bytes."""


class _Rejected(Exception):
    """The kubelet would reject the pod."""


def serve(
    need: NumaNeed, layout: ZoneLayout, allocation: KubeletAllocation, policy: AlignmentPolicy
) -> NumaHolding | None:
    """Allocate the pod from ``allocation`` and return its resources; ``None`` if it
    would be rejected.

    After a rejection ``allocation`` is invalid.
    """
    before = {name: list(amounts) for name, amounts in allocation.free.items()}
    serving = _Serving(need, layout, allocation, policy)
    try:
        serving.run()
    except _Rejected:
        return None
    zones = []
    for place, zone in enumerate(layout.node.zones):
        held = tuple(
            (name, before[name][place] - allocation.free[name][place])
            for name in sorted(before)
            if before[name][place] != allocation.free[name][place]
        )
        if held:
            zones.append((zone.number, held))
    return NumaHolding(tuple(zones), tuple(serving.spans))


class _Serving:
    def __init__(
        self, need: NumaNeed, layout: ZoneLayout, allocation: KubeletAllocation, policy: AlignmentPolicy
    ) -> None:
        self._need = need
        self._layout = layout
        self._allocation = allocation
        self._policy = policy
        self._reusable = _Reusable()
        self.spans: list[tuple[int, ...]] = []

    def run(self) -> None:
        pod_wide = self._layout.node.pod_scope and self._policy is not AlignmentPolicy.NONE
        merged = self._agree(self.totals()) if pod_wide else None
        for container in self._need.containers:
            amounts = dict(container.amounts)
            hint = merged or self._agree(amounts)
            self._devices(amounts, hint, container.kind)
            self._cpus(amounts, hint, container.kind)
            self._memory(amounts, hint, container.kind)

    def totals(self) -> dict[str, int]:
        """Return the request of the whole pod.

        That is the sum of all containers that run together, or the largest init
        container with the sidecars started before it. Only containers with exclusive
        CPUs count for CPU.
        """
        running: dict[str, int] = {}
        sidecars: dict[str, int] = {}
        peak: dict[str, int] = {}
        for container in self._need.containers:
            for name, amount in self._counted(container).items():
                if container.kind is ContainerKind.SIDECAR:
                    sidecars[name] = sidecars.get(name, 0) + amount
                elif container.kind is ContainerKind.INIT:
                    peak[name] = max(peak.get(name, 0), sidecars.get(name, 0) + amount)
                else:
                    running[name] = running.get(name, 0) + amount
        names = {*running, *sidecars, *peak}
        return {n: max(running.get(n, 0) + sidecars.get(n, 0), peak.get(n, 0)) for n in names}

    def _counted(self, container: ContainerNeed) -> dict[str, int]:
        amounts = dict(container.amounts)
        if CPU in amounts and not self._whole_cpus(amounts):
            del amounts[CPU]
        return amounts

    # ------------------------------------------------------------------ hints

    def _agree(self, amounts: Mapping[str, int]) -> Merged:
        if self._policy is AlignmentPolicy.NONE:
            return Merged(0, False)
        layout = self._layout
        devices = [name for name in sorted(layout.devices & amounts.keys()) if amounts[name] > 0]
        everywhere = (1 << layout.size) - 1
        lists: list[Hints | None] = [self._hints(name, amounts[name], everywhere) for name in devices]
        if self._whole_cpus(amounts):
            lists.append(self._hints(CPU, amounts[CPU], layout.with_cpus))
        wanted = self._pinned(amounts)
        if wanted:
            hints = self._memory_hints(wanted)
            lists += [hints if hints.sets else None] * len(wanted)
        merged = merge(self._policy, lists, layout.size, layout.distances)
        if not admits(self._policy, merged):
            raise _Rejected
        return merged

    def _hints(self, name: str, wanted: int, among: int) -> Hints:
        unit = unit_of(name)
        return hints_of(
            -(-wanted // unit),
            [amount // unit for amount in self._layout.capacity[name]],
            [max(amount, 0) // unit for amount in self._allocation.free[name]],
            among=among,
            reusable=[amount // unit for amount in self._reusable.amounts.get(name, ())] or None,
        )

    def _whole_cpus(self, amounts: Mapping[str, int]) -> bool:
        """Return whether the container gets exclusive CPUs."""
        wanted = amounts.get(CPU, 0)
        node = self._layout.node
        return (
            self._need.guaranteed
            and node.exclusive_cpus
            and bool(self._layout.with_cpus)
            and wanted > 0
            and wanted % WHOLE == 0
        )

    def _pinned(self, amounts: Mapping[str, int]) -> dict[str, int]:
        """Return the pinned memory by resource."""
        node = self._layout.node
        if not (self._need.guaranteed and node.pinned_memory and MEMORY in self._layout.allocatable):
            return {}
        return {name: amount for name, amount in amounts.items() if is_memory(name)}

    def _memory_hints(self, wanted: Mapping[str, int]) -> Hints:
        """Return the hints of the memory manager, equal for memory and each size of huge pages.

        A zone with memory pinned to it alone is not combined with others. Zones with
        memory pinned to a set are used only in that same set.
        """
        layout, allocation = self._layout, self._allocation
        nothing = (0,) * layout.size
        in_all = {name: sums(layout.allocatable.get(name, nothing)) for name in wanted}
        at_hand = {name: sums([max(0, a) for a in allocation.free.get(name, nothing)]) for name in wanted}
        sets = preferred = 0
        least = layout.size
        for mask in sets_by_size(layout.size):
            if any(in_all[name][mask] < amount for name, amount in wanted.items()):
                continue
            least = min(least, mask.bit_count())
            if self._occupied_otherwise(mask):
                continue
            reusable = self._reusable.memory
            if any(at_hand[n][mask] + reusable.get((mask, n), 0) < amount for n, amount in wanted.items()):
                continue
            sets |= 1 << mask
            if mask.bit_count() == least:
                preferred |= 1 << mask
        return Hints(sets, preferred)

    def _occupied_otherwise(self, mask: int) -> bool:
        if mask.bit_count() == 1:
            return self._allocation.cells[mask.bit_length() - 1].bit_count() > 1
        return self._violates(mask)

    def _violates(self, mask: int) -> bool:
        allocation = self._allocation
        if mask.bit_count() == 1:
            return False
        return any(
            allocation.assignments[place] and allocation.cells[place] != mask for place in _places(mask)
        )

    # ------------------------------------------------------------------ allocation

    def _devices(self, amounts: Mapping[str, int], hint: Merged, kind: ContainerKind) -> None:
        for name in sorted(self._layout.devices & amounts.keys()):
            unit = unit_of(name)
            left = -(-amounts[name] // unit) * unit
            reusable = self._reusable.amounts.setdefault(name, [0] * self._layout.size)
            taken = [0] * self._layout.size
            for place, amount in enumerate(reusable):
                taken[place] = min(amount, left)
                left -= taken[place]
            if kind is not ContainerKind.INIT:
                for place, amount in enumerate(taken):
                    reusable[place] -= amount
            free = self._allocation.free[name]
            for place in self._device_places(free, hint.zones, left):
                amount = min(max(free[place], 0) // unit * unit, left)
                free[place] -= amount
                left -= amount
                if kind is ContainerKind.INIT:
                    reusable[place] += amount
            if left:
                raise _Rejected

    def _device_places(self, free: Sequence[int], zones: int, wanted: int) -> list[int]:
        """Return the zones in the order of allocation.

        Zones of the hint come first, by number. Without a hint the fullest zone that
        has the whole amount comes first.
        """
        every = range(self._layout.size)
        if zones:
            return sorted(every, key=lambda place: (not zones >> place & 1, place))
        return sorted(every, key=lambda place: (free[place] < wanted, free[place], place))

    def _cpus(self, amounts: Mapping[str, int], hint: Merged, kind: ContainerKind) -> None:
        if not self._whole_cpus(amounts):
            return
        size, free = self._layout.size, self._allocation.free[CPU]
        reusable = self._reusable.amounts.setdefault(CPU, [0] * size)
        at_hand = [max(free[place], 0) // WHOLE * WHOLE + reusable[place] for place in range(size)]
        wanted = amounts[CPU]
        aligned = [at_hand[place] if hint.zones >> place & 1 else 0 for place in range(size)]
        taken = self._packed(aligned, min(wanted, sum(aligned)))
        rest = [amount - gone for amount, gone in zip(at_hand, taken, strict=True)]
        left = wanted - sum(taken)
        if left > sum(rest):
            raise _Rejected
        taken = [amount + more for amount, more in zip(taken, self._packed(rest, left), strict=True)]
        for place, amount in enumerate(taken):
            again = min(amount, reusable[place])
            free[place] -= amount - again
            if kind is ContainerKind.INIT:
                reusable[place] += amount - again
            else:
                reusable[place] -= again

    def _packed(self, at_hand: Sequence[int], wanted: int) -> list[int]:
        """Take whole free zones first, then the zones with the least left."""
        taken = [0] * len(at_hand)
        capacity = self._layout.capacity[CPU]
        for place, amount in enumerate(at_hand):
            if 0 < amount <= wanted and amount == capacity[place]:
                taken[place] = amount
                wanted -= amount
        for place in sorted(range(len(at_hand)), key=lambda place: (at_hand[place], place)):
            amount = min(at_hand[place] - taken[place], wanted)
            taken[place] += amount
            wanted -= amount
        return taken

    def _memory(self, amounts: Mapping[str, int], hint: Merged, kind: ContainerKind) -> None:
        wanted = self._pinned(amounts)
        if not wanted:
            return
        zones = self._memory_zones(wanted, hint)
        for name in sorted(wanted):
            key = (zones, name)
            reusable = self._reusable.memory.get(key, 0)
            left = max(0, wanted[name] - reusable)
            if kind is ContainerKind.INIT:
                self._reusable.memory[key] = max(reusable, wanted[name])
            elif reusable:
                self._reusable.memory[key] = max(0, reusable - wanted[name])
            free = self._allocation.free.get(name)
            self.spans.append(tuple(self._layout.node.zones[place].number for place in _places(zones)))
            for place in _places(zones):
                self._allocation.assignments[place] += 1
                self._allocation.cells[place] = zones
                if free is not None:
                    amount = min(max(free[place], 0), left)
                    free[place] -= amount
                    left -= amount

    def _memory_zones(self, wanted: Mapping[str, int], hint: Merged) -> int:
        """Return the zones to which memory is pinned: those of the hint, extended if
        they have too little."""
        zones, preferred = hint.zones, hint.preferred
        if not zones:
            zones, found_preferred = self._best_memory(wanted, 0)
            if preferred and not found_preferred:
                raise _Rejected
            preferred = found_preferred
        free = self._allocation.free
        nothing = (0,) * self._layout.size
        if any(sums([max(0, a) for a in free.get(n, nothing)])[zones] < a for n, a in wanted.items()):
            zones, found_preferred = self._best_memory(wanted, zones)
            if preferred and not found_preferred:
                raise _Rejected
        if self._violates(zones):
            raise _Rejected
        return zones

    def _best_memory(self, wanted: Mapping[str, int], containing: int) -> tuple[int, bool]:
        hints = self._memory_hints(wanted)
        masks = [
            mask
            for mask in sets_by_size(self._layout.size)
            if hints.sets >> mask & 1 and mask & containing == containing
        ]
        if not masks:
            raise _Rejected
        best = next((mask for mask in masks if hints.preferred >> mask & 1), masks[0])
        return best, bool(hints.preferred >> best & 1)


def _places(zones: int) -> list[int]:
    return [place for place in range(zones.bit_length()) if zones >> place & 1]
