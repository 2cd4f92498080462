"""Cached fragmentation scores of single nodes, in plain integers.

The score depends on the models of a node's devices, on the free share of each, and on
how many of the typical CPU requests fit. Nodes return to the same states again and
again, so each state is evaluated once: its fragmentation for all classes of pods
together, and the gain of a placement for each class. The shortage of CPU depends on the
exact amount and is added each time. The results are equal to those of
:func:`~windlass.plugins.devices.fragmentation.descent` (a property test checks this).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from windlass.plugins.devices.device_arrays import requests_of_kinds
from windlass.plugins.devices.fragmentation import NO_PLACE, PodDemand, WorkloadMix
from windlass.plugins.devices.free_share_cache import FreeShareCache, remember
from windlass.spi.devices import DeviceNeed
from windlass.spi.scoring import DeviceKinds, NodeDevices

Points = tuple[int, ...]
"""Points of each slot; one entry for a pod that requests none or several devices."""
PointsOf = Callable[[Sequence[int], NodeDevices], Points]
"""Function that returns the points on one node, given its available resources and its
devices."""
BestOf = Callable[[Sequence[int], NodeDevices], int]
"""Function that returns the largest of these points."""


@dataclass(frozen=True, slots=True)
class _Gains:
    """Gains of one class of pods in one state of a node.

    ``slots``: for each slot the gain (of fragmentation only) and the milli taken;
    ``None`` if the device cannot take the pod. ``best``: the largest gain for each
    number of milli taken. ``idle``: free milli of the node before the placement.
    """

    slots: tuple[tuple[int, int] | None, ...]
    best: tuple[tuple[int, int], ...]
    idle: int


class FragmentationCache:
    """Cache for one mix.

    :param resources: names of the resources in the nodes' amounts, in order; may grow
    """

    def __init__(self, mix: WorkloadMix, resources: Sequence[str]) -> None:
        self.mix = mix
        self.resources = resources
        self._free_shares = FreeShareCache(resources)
        self._fragments: dict[tuple[int, int, tuple[int, ...]], int] = {}
        self._gains: dict[tuple[object, ...], _Gains] = {}
        self._requested: dict[tuple[int, DeviceKinds], tuple[int, ...]] = {}
        self._kinds: dict[tuple[PodDemand, DeviceNeed | None], int] = {}

    def of(self, demand: PodDemand, need: DeviceNeed | None) -> PointsOf:
        """Return the function that computes points for pods of one class.

        :param need: the device need that ``demand`` was derived from
        """
        gains_on, column, mix, cpu = self._gains_of(demand, need), self._free_shares.cpu, self.mix, demand.cpu

        def points(available: Sequence[int], devices: NodeDevices) -> Points:
            gains, free_cpu = gains_on(available, devices), available[column] if column >= 0 else 0
            short = mix.shortage(free_cpu, gains.idle)
            return tuple(
                NO_PLACE
                if slot is None
                else mix.points(slot[0] + short - mix.shortage(free_cpu - cpu, gains.idle - slot[1]))
                for slot in gains.slots
            )

        return points

    def best_of(self, demand: PodDemand, need: DeviceNeed | None) -> BestOf:
        """Return the function that computes the largest of the points of :meth:`of`."""
        gains_on, column, mix, cpu = self._gains_of(demand, need), self._free_shares.cpu, self.mix, demand.cpu
        shortage = mix.shortage

        def best(available: Sequence[int], devices: NodeDevices) -> int:
            gains, free_cpu = gains_on(available, devices), available[column] if column >= 0 else 0
            if not gains.best:
                return NO_PLACE
            short, idle = shortage(free_cpu, gains.idle), gains.idle
            gain = max(gain - shortage(free_cpu - cpu, idle - taken) for gain, taken in gains.best)
            return mix.points(gain + short)

        return best

    def _gains_of(
        self, demand: PodDemand, need: DeviceNeed | None
    ) -> Callable[[Sequence[int], NodeDevices], _Gains]:
        kind = self._kinds.setdefault((demand, need), len(self._kinds))
        known, level, cpu = self._gains, self.mix.level, demand.cpu
        free_milli, column = self._free_shares.of, self._free_shares.cpu

        def gains_on(available: Sequence[int], devices: NodeDevices) -> _Gains:
            free_cpu = available[column] if column >= 0 else 0
            before, after = level(free_cpu), level(free_cpu - cpu)
            free = free_milli(available, devices)
            key = (kind, devices.kinds, before, after, free)
            gains = known.get(key)
            if gains is None:
                models = devices.kinds.models
                group = self.mix.group(models[0] if models else "")
                requested = self._requested_of(kind, need, devices.kinds)
                gains = self._descent(demand, requested, group, (before, after), free or (0,))
                remember(known, key, gains)
            return gains

        return gains_on

    def _requested_of(self, kind: int, need: DeviceNeed | None, kinds: DeviceKinds) -> tuple[int, ...]:
        if need is None:
            return ()
        requested = self._requested.get((kind, kinds))
        if requested is None:
            requested = requests_of_kinds(need, kinds)
            remember(self._requested, (kind, kinds), requested)
        return requested

    def _fragment(self, group: int, level: int, free: tuple[int, ...]) -> int:
        """Return the fragmentation of a state. ``free`` is sorted: the identity of
        devices is irrelevant."""
        key = (group, level, free)
        fragmented = self._fragments.get(key)
        if fragmented is None:
            fragmented = self.mix.fragment(group, level, free)
            remember(self._fragments, key, fragmented)
        return fragmented

    def _descent(
        self,
        demand: PodDemand,
        requested: Sequence[int],
        group: int,
        levels: tuple[int, int],
        free: tuple[int, ...],
    ) -> _Gains:
        """Return :func:`~windlass.plugins.devices.fragmentation.descent` of one node.

        :param levels: CPU levels of the node before and after the placement
        :param requested: request for each device; empty for a pod without devices
        """
        level, after = levels
        ordered = tuple(sorted(free))
        before, idle = self._fragment(group, level, ordered), sum(free)
        if demand.count == 1:
            seen: dict[tuple[int, int], tuple[int, int] | None] = {}
            for pair in zip(free, requested, strict=False):
                if pair not in seen:
                    amount, wanted = pair
                    seen[pair] = None
                    if amount >= wanted:
                        gain = before - self._with_one_less(group, after, ordered, amount, wanted)
                        seen[pair] = (gain, wanted)
            return _gains([seen[pair] for pair in zip(free, requested, strict=False)] or [None], idle)
        left = list(free)
        if demand.count:
            fits = [slot for slot, wanted in enumerate(requested) if free[slot] >= wanted]
            if len(fits) < demand.count:
                return _gains([None], idle)
            for slot in sorted(fits, key=free.__getitem__)[: demand.count]:
                left[slot] -= requested[slot]
        gain = before - self._fragment(group, after, tuple(sorted(left)))
        return _gains([(gain, idle - sum(left))], idle)

    def _with_one_less(
        self, group: int, level: int, ordered: tuple[int, ...], amount: int, wanted: int
    ) -> int:
        """Return the fragmentation after ``wanted`` is taken of a device with ``amount`` free."""
        index = ordered.index(amount)
        left = amount - wanted
        new_index = bisect_left(ordered, left, 0, index)
        return self._fragment(
            group, level, (*ordered[:new_index], left, *ordered[new_index:index], *ordered[index + 1 :])
        )


def _gains(slots: Sequence[tuple[int, int] | None], idle: int) -> _Gains:
    best: dict[int, int] = {}
    for slot in slots:
        if slot is not None:
            gain, taken = slot
            best[taken] = max(gain, best.get(taken, gain))
    return _Gains(tuple(slots), tuple((gain, taken) for taken, gain in best.items()), idle)
