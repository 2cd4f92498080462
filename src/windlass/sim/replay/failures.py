"""Nodes that fail and come back, by chance with a seed."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from windlass.kits.rng import Random


@dataclass(frozen=True, slots=True)
class Quarantine:
    """A node that failed ``failures`` times within ``within_seconds`` stays away for ``seconds``. 0: no such rule."""

    failures: int = 0
    within_seconds: float = 7 * 86_400.0
    seconds: float = 14 * 86_400.0


@dataclass(frozen=True, slots=True)
class NodeFailures:
    """Each node fails by itself, on average every ``mean_seconds`` of being up (exponentially distributed), and
    is away for ``repair_seconds``. 0: never. ``bad_nodes`` of them, drawn by chance, fail every
    ``bad_mean_seconds`` instead."""

    mean_seconds: float = 0.0
    repair_seconds: float = 14_400.0
    bad_nodes: int = 0
    bad_mean_seconds: float = 86_400.0
    quarantine: Quarantine = field(default_factory=Quarantine)


class Breakdowns:
    """Failure times of nodes, and the durations of their outages."""

    def __init__(self, failures: NodeFailures, random: Random) -> None:
        self._failures = failures
        self._random = random
        self._bad: frozenset[str] = frozenset()
        self._past: dict[str, list[float]] = {}

    def begin(self, nodes: Iterable[str]) -> list[str]:
        """The nodes that will ever fail; draws those that are bad."""
        names, failures = list(nodes), self._failures
        if failures.bad_nodes:
            self._bad = frozenset(self._random.sample(names, min(failures.bad_nodes, len(names))))
        return names if failures.mean_seconds > 0 else [name for name in names if name in self._bad]

    def next(self, node: str, now: float) -> float:
        """Return the next failure time of a node that is up at ``now``."""
        failures = self._failures
        mean = failures.bad_mean_seconds if node in self._bad else failures.mean_seconds
        return now + self._random.expovariate(1.0 / mean)

    def away(self, node: str, now: float) -> float:
        """For how long a node that fails ``now`` is away."""
        rule = self._failures.quarantine
        if not rule.failures:
            return self._failures.repair_seconds
        past = [moment for moment in self._past.get(node, ()) if moment > now - rule.within_seconds]
        self._past[node] = past = [*past, now]
        if len(past) < rule.failures:
            return self._failures.repair_seconds
        self._past[node] = []
        return rule.seconds
