"""Nodes that fail and come back, by chance with a seed."""

from __future__ import annotations

from dataclasses import dataclass

from windlass.kits.rng import Random


@dataclass(frozen=True, slots=True)
class NodeFailures:
    """Each node fails by itself, on average every ``mean_seconds`` of being up (exponentially distributed), and
    is away for ``repair_seconds``. 0: never."""

    mean_seconds: float = 0.0
    repair_seconds: float = 14_400.0

    def next(self, random: Random, now: float) -> float:
        """When a node that is up at ``now`` fails next."""
        return now + random.expovariate(1.0 / self.mean_seconds)
