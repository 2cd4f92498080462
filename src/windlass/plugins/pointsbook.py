"""What placing a pod on a node comes to for fragmentation, one node at a time and remembered.

Of a node matter the models of its cards, what is free of each, and how many of the amounts of CPU that usual
pods ask for are free. Nodes come back to the same states over and over, so a state is worked out once: how
much of it is fragmented, for all kinds of pods together; the points of its cards, for each kind. All in whole
numbers, and the same as :func:`~windlass.plugins.fragmentation.descent` says (a property test holds it).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from windlass.plugins.cards import asked_of_kinds
from windlass.plugins.fragmentation import NO_PLACE, Demand, Mix
from windlass.plugins.openmilli import OpenMilli, remember
from windlass.spi.devices import DeviceNeed
from windlass.spi.scoring import CardKinds, NodeCards

Points = tuple[int, ...]
"""Per slot; of a pod that asks for other than one card a single entry."""
PointsOf = Callable[[Sequence[int], NodeCards], Points]
"""The points on one node by what is available of each resource, and by its cards."""


class PointsBook:
    """Of one mix. ``resources``: those of the nodes' amounts, in their order; may grow."""

    def __init__(self, mix: Mix, resources: Sequence[str]) -> None:
        self.mix = mix
        self.resources = resources
        self._open = OpenMilli(resources)
        self._fragments: dict[tuple[int, int, tuple[int, ...]], int] = {}
        self._points: dict[tuple[object, ...], Points] = {}
        self._asked: dict[tuple[int, CardKinds], tuple[int, ...]] = {}
        self._kinds: dict[tuple[Demand, DeviceNeed | None], int] = {}

    def of(self, demand: Demand, need: DeviceNeed | None) -> PointsOf:
        """For pods of a kind. ``need``: the need of cards that ``demand`` speaks of."""
        kind = self._kinds.setdefault((demand, need), len(self._kinds))
        known, level = self._points, self.mix.level
        open_milli, cpu = self._open.of, self._open.cpu

        def points(available: Sequence[int], cards: NodeCards) -> Points:
            here = available[cpu] if cpu >= 0 else 0
            before, after = level(here), level(here - demand.cpu)
            free = open_milli(available, cards)
            key = (kind, cards.kinds, before, after, free)
            found = known.get(key)
            if found is None:
                models = cards.kinds.models
                group = self.mix.group(models[0] if models else "")
                asked = self._asked_of(kind, need, cards.kinds)
                found = self._descent(demand, asked, group, (before, after), free or (0,))
                remember(known, key, found)
            return found

        return points

    def _asked_of(self, kind: int, need: DeviceNeed | None, kinds: CardKinds) -> tuple[int, ...]:
        if need is None:
            return ()
        found = self._asked.get((kind, kinds))
        if found is None:
            found = asked_of_kinds(need, kinds)
            remember(self._asked, (kind, kinds), found)
        return found

    def _fragment(self, group: int, level: int, free: Sequence[int]) -> int:
        key = (group, level, tuple(sorted(free)))  # which card is which does not matter
        found = self._fragments.get(key)
        if found is None:
            found = self.mix.fragment(group, level, key[2])
            remember(self._fragments, key, found)
        return found

    def _descent(
        self, demand: Demand, asked: Sequence[int], group: int, levels: tuple[int, int], free: tuple[int, ...]
    ) -> Points:
        """:func:`~windlass.plugins.fragmentation.descent` of one node. ``levels``: of its CPU, before and
        after. ``asked``: what is asked of each card; none: nothing of any."""
        mix, (level, after) = self.mix, levels
        before = self._fragment(group, level, free)
        if demand.count == 1:
            seen: dict[tuple[int, int], int] = {}
            found = []
            for slot, (amount, wanted) in enumerate(zip(free, asked, strict=False)):
                points = seen.get((amount, wanted))
                if points is None:
                    points = NO_PLACE
                    if amount >= wanted:
                        left = (*free[:slot], amount - wanted, *free[slot + 1 :])
                        points = mix.points(before - self._fragment(group, after, left))
                    seen[amount, wanted] = points
                found.append(points)
            return tuple(found) or (NO_PLACE,)
        left = list(free)
        if demand.count:
            fits = [slot for slot, wanted in enumerate(asked) if free[slot] >= wanted]
            if len(fits) < demand.count:
                return (NO_PLACE,)
            for slot in sorted(fits, key=free.__getitem__)[: demand.count]:
                left[slot] -= asked[slot]
        return (mix.points(before - self._fragment(group, after, left)),)
