"""Past usage of queues with exponential decay: it counts half after one half-life.

The past usage of a queue is the integral of what it held, each instant weighted by
``0.5 ** (age / half-life)``. It is divided by the integral of the cluster's total with
equal weights. It is updated from cycle to cycle in closed form, because holdings are
constant between two cycles. Plugins see it as ``QueueView.usage`` in parts per million.
It is renewed once a minute; in between, it is constant, and so are the shares that
depend on it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import log

from windlass.engine.queues.tree import QueueEntry, QueueTree

RENEW_SECONDS = 60.0
MILLION = 1_000_000


@dataclass(slots=True)
class Meter:
    """One decaying integral.

    ``since``: time up to which it is computed.
    ``level``: its growth per second since then.
    """

    since: float
    level: dict[str, int] = field(default_factory=dict)
    sums: dict[str, float] = field(default_factory=dict)

    def advance(self, now: float, half_life: float) -> None:
        """Compute the integral up to ``now``."""
        if now <= self.since:
            return
        factor = 0.5 ** ((now - self.since) / half_life)
        growth = (1.0 - factor) * half_life / log(2.0)
        for name in sorted({*self.sums, *self.level}):
            self.sums[name] = self.sums.get(name, 0.0) * factor + self.level.get(name, 0) * growth
        self.since = now


class DecayedUsage:
    """Past usage of all queues. Does nothing without a half-life."""

    def __init__(self, queues: QueueTree, total: Mapping[str, int], half_life: float) -> None:
        self._queues = queues
        self._total = total
        self.half_life = half_life
        self.renewed: float | None = None
        """Time at which ``QueueEntry.usage`` was last renewed."""
        self.cluster: Meter | None = None
        self.meters: dict[str, Meter] = {}

    @property
    def due(self) -> float | None:
        """Return the time of the next renewal; ``None``: never, or at once."""
        return None if self.renewed is None else self.renewed + RENEW_SECONDS

    def renew(self, now: float) -> None:
        """Set the past usage of every queue, if it is due."""
        if not self.half_life or (self.renewed is not None and now < self.renewed + RENEW_SECONDS):
            return
        self.renewed = now
        cluster = self._cluster(now)
        for name in [name for name in self.meters if name not in self._queues.entries]:
            del self.meters[name]
        for entry in self._queues:
            meter = self.meters.get(entry.name)
            usage: dict[str, int] = {}
            if meter is not None:
                meter.advance(now, self.half_life)
                for resource, used in meter.sums.items():
                    capacity = cluster.sums.get(resource, 0.0)
                    if capacity > 0.0 and used > 0.0:
                        usage[resource] = min(MILLION, round(used / capacity * MILLION))
            if usage != entry.usage:
                entry.usage = usage
                self._queues.redivide = True

    def record(self, changed: Mapping[str, QueueEntry], now: float) -> None:
        """Record what queues hold from ``now`` on. ``changed``: queues with possible changes."""
        if not self.half_life:
            return
        self._cluster(now)
        for entry in changed.values():
            held = {name: units for name, units in entry.allocated.items() if units}
            meter = self.meters.get(entry.name)
            if meter is None:
                if held and not entry.missing:
                    self.meters[entry.name] = Meter(now, held)
            elif meter.level != held:
                meter.advance(now, self.half_life)
                meter.level = held

    def _cluster(self, now: float) -> Meter:
        if self.cluster is None:
            self.cluster = Meter(now, dict(self._total))
        else:
            self.cluster.advance(now, self.half_life)
            self.cluster.level = dict(self._total)
        return self.cluster
