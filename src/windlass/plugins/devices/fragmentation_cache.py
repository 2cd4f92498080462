"""What placing a pod on a node comes to for fragmentation, one node at a time and remembered.

Of a node matter the models of its cards, what is free of each, and how many of the amounts of CPU that usual
pods ask for are free. Nodes come back to the same states over and over, so a state is worked out once: how
much of it is fragmented, for all kinds of pods together; what placing one gains, for each kind. What a shortage
of CPU counts depends on the amount, and is added each time. All in whole numbers, and the same as
:func:`~windlass.plugins.devices.fragmentation.descent` says (a property test holds it).
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
"""Per slot; of a pod that asks for other than one card a single entry."""
PointsOf = Callable[[Sequence[int], NodeDevices], Points]
"""The points on one node by what is available of each resource, and by its cards."""
BestOf = Callable[[Sequence[int], NodeDevices], int]
"""The largest of them."""


@dataclass(frozen=True, slots=True)
class _Gains:
    """Of one kind of pods on one state of a node. ``slots``: per slot what is gained there (of fragmentation
    alone) and what is taken; ``None`` where the card does not take the pod. ``best``: of each amount taken, the
    largest gain. ``idle``: the milli that are free before."""

    slots: tuple[tuple[int, int] | None, ...]
    best: tuple[tuple[int, int], ...]
    idle: int


class FragmentationCache:
    """Of one mix. ``resources``: those of the nodes' amounts, in their order; may grow."""

    def __init__(self, mix: WorkloadMix, resources: Sequence[str]) -> None:
        self.mix = mix
        self.resources = resources
        self._open = FreeShareCache(resources)
        self._fragments: dict[tuple[int, int, tuple[int, ...]], int] = {}
        self._gains: dict[tuple[object, ...], _Gains] = {}
        self._requested: dict[tuple[int, DeviceKinds], tuple[int, ...]] = {}
        self._kinds: dict[tuple[PodDemand, DeviceNeed | None], int] = {}

    def of(self, demand: PodDemand, need: DeviceNeed | None) -> PointsOf:
        """For pods of a kind. ``need``: the need of cards that ``demand`` speaks of."""
        look, column, mix, cpu = self._look_of(demand, need), self._open.cpu, self.mix, demand.cpu

        def points(available: Sequence[int], devices: NodeDevices) -> Points:
            found, here = look(available, devices), available[column] if column >= 0 else 0
            short = mix.shortage(here, found.idle)
            return tuple(
                NO_PLACE
                if slot is None
                else mix.points(slot[0] + short - mix.shortage(here - cpu, found.idle - slot[1]))
                for slot in found.slots
            )

        return points

    def best_of(self, demand: PodDemand, need: DeviceNeed | None) -> BestOf:
        """The largest of the points of :meth:`of`."""
        look, column, mix, cpu = self._look_of(demand, need), self._open.cpu, self.mix, demand.cpu
        shortage = mix.shortage

        def best(available: Sequence[int], devices: NodeDevices) -> int:
            found, here = look(available, devices), available[column] if column >= 0 else 0
            if not found.best:
                return NO_PLACE
            short, idle = shortage(here, found.idle), found.idle
            gain = max(gain - shortage(here - cpu, idle - taken) for gain, taken in found.best)
            return mix.points(gain + short)

        return best

    def _look_of(
        self, demand: PodDemand, need: DeviceNeed | None
    ) -> Callable[[Sequence[int], NodeDevices], _Gains]:
        kind = self._kinds.setdefault((demand, need), len(self._kinds))
        known, level, cpu = self._gains, self.mix.level, demand.cpu
        open_milli, column = self._open.of, self._open.cpu

        def look(available: Sequence[int], devices: NodeDevices) -> _Gains:
            here = available[column] if column >= 0 else 0
            before, after = level(here), level(here - cpu)
            free = open_milli(available, devices)
            key = (kind, devices.kinds, before, after, free)
            found = known.get(key)
            if found is None:
                models = devices.kinds.models
                group = self.mix.group(models[0] if models else "")
                requested = self._asked_of(kind, need, devices.kinds)
                found = self._descent(demand, requested, group, (before, after), free or (0,))
                remember(known, key, found)
            return found

        return look

    def _asked_of(self, kind: int, need: DeviceNeed | None, kinds: DeviceKinds) -> tuple[int, ...]:
        if need is None:
            return ()
        found = self._requested.get((kind, kinds))
        if found is None:
            found = requests_of_kinds(need, kinds)
            remember(self._requested, (kind, kinds), found)
        return found

    def _fragment(self, group: int, level: int, free: tuple[int, ...]) -> int:
        """``free``: sorted; which card is which does not matter."""
        key = (group, level, free)
        found = self._fragments.get(key)
        if found is None:
            found = self.mix.fragment(group, level, free)
            remember(self._fragments, key, found)
        return found

    def _descent(
        self,
        demand: PodDemand,
        requested: Sequence[int],
        group: int,
        levels: tuple[int, int],
        free: tuple[int, ...],
    ) -> _Gains:
        """:func:`~windlass.plugins.devices.fragmentation.descent` of one node. ``levels``: of its CPU, before and
        after. ``requested``: what is asked of each card; none: nothing of any."""
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
        """What is fragmented once ``wanted`` is taken of a card that has ``amount``."""
        at = ordered.index(amount)
        left = amount - wanted
        to = bisect_left(ordered, left, 0, at)
        return self._fragment(group, level, (*ordered[:to], left, *ordered[to:at], *ordered[at + 1 :]))


def _gains(slots: Sequence[tuple[int, int] | None], idle: int) -> _Gains:
    best: dict[int, int] = {}
    for slot in slots:
        if slot is not None:
            gain, taken = slot
            best[taken] = max(gain, best.get(taken, gain))
    return _Gains(tuple(slots), tuple((gain, taken) for taken, gain in best.items()), idle)
