"""What pods usually ask for, learned from those that exist: by it some scores tell what would be missed.

All that is learned is a function of one moment: which kinds of pods there are and how many, and which models
of cards the nodes have. A new moment is taken over only after :data:`PATIENCE_SECONDS`, and only if the
pods or the models have changed by more than :data:`TOLERANCE`; so the answers of scores stand still while
the cluster goes on as it did.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from windlass.plugins.cards import WHOLE, asked_of, part_of
from windlass.plugins.fragmentation import Demand
from windlass.spi.devices import DeviceNeed
from windlass.spi.nodes import NodeView
from windlass.spi.objects import Needs

PATIENCE_SECONDS = 60.0
TOLERANCE = 0.1
"""How large a part of the pods must be of other kinds before the new mix counts."""


@dataclass(frozen=True, slots=True)
class Moment:
    """``pods``: kind → how many exist; ``models``: model → how many cards; ``memory_mib``: of the middle one."""

    pods: tuple[tuple[Demand, int], ...] = ()
    models: tuple[tuple[str, int], ...] = ()
    memory_mib: int = 0

    @property
    def shared(self) -> bool:
        """Whether any pod asks for a part of a card."""
        return any(demand.count and demand.milli < WHOLE for demand, _ in self.pods)

    @property
    def mixed(self) -> bool:
        """Whether there is more than one model to choose from."""
        return len(self.models) > 1

    def differs(self, other: Moment) -> bool:
        """Whether it differs from ``other`` by more than :data:`TOLERANCE`."""
        if {name for name, _ in self.models} != {name for name, _ in other.models}:
            return True
        return _distance(dict(self.pods), dict(other.pods)) > TOLERANCE


def _distance(one: dict[Demand, int], two: dict[Demand, int]) -> float:
    """Half the sum of the differences of the parts: 0 for equal mixes, 1 for those without a common kind."""
    first, second = sum(one.values()), sum(two.values())
    if not first or not second:
        return float(first != second)
    kinds = one.keys() | two.keys()
    return sum(abs(one.get(kind, 0) / first - two.get(kind, 0) / second) for kind in kinds) / 2


def observe(kinds: Iterable[tuple[Needs, int]], nodes: NodeView) -> Moment:
    """The moment, from all kinds of pods with their numbers and from all nodes."""
    cards = nodes.cards()
    there = cards.exists & cards.healthy
    counts = np.bincount(cards.model[there], minlength=len(cards.models))
    models = {cards.models[code]: int(n) for code, n in enumerate(counts.tolist()) if n}
    sizes = np.sort(cards.memory_mib[there])
    memory = int(sizes[len(sizes) // 2]) if len(sizes) else 0
    pods: dict[Demand, int] = {}
    for needs, number in kinds:
        if number > 0:
            demand = demand_of(needs, memory)
            pods[demand] = pods.get(demand, 0) + number
    return Moment(tuple(sorted(pods.items())), tuple(sorted(models.items())), memory)


def demand_of(needs: Needs, memory_mib: int = 0) -> Demand:
    """A pod as fragmentation sees it. Of several needs of cards the first counts. ``memory_mib`` of a card,
    for what is asked in MiB; 0: that then counts as a whole card."""
    cpu = next((units for name, units in needs.request if name == "cpu"), 0)
    asked = asked_of(needs)
    if not asked:
        return Demand(cpu)
    need = asked[0]
    return Demand(cpu, milli_of(need, memory_mib), need.count, need.models, need.models_not)


def milli_of(need: DeviceNeed, memory_mib: int) -> int:
    """What a need takes of a card with that much memory, in milli, at least 1."""
    if need.profile:
        return part_of(need.profile)
    by_memory = 0
    if need.memory_mib:
        by_memory = -(-need.memory_mib * WHOLE // memory_mib) if memory_mib else WHOLE
    return min(WHOLE, max(need.milli, need.memory_milli, by_memory, 1))
