"""What queues have used in the past, fading: an hour ago counts half of now after one half-life.

A queue's past usage is the integral of what it held, each moment weighed by ``0.5 ** (age / half-life)``,
divided by the equally weighed integral of what the cluster had. It is kept from cycle to cycle in closed
form: between two cycles holdings are constant. Policies see it as ``QueueView.usage`` in parts per million,
renewed once a minute; in between it stands still, and with it the shares that depend on it.
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
    """One fading integral. ``since``: up to when it is counted; ``level``: what it grows by since then."""

    since: float
    level: dict[str, int] = field(default_factory=dict)
    sums: dict[str, float] = field(default_factory=dict)

    def advance(self, now: float, half_life: float) -> None:
        """Count up to ``now``."""
        if now <= self.since:
            return
        fade = 0.5 ** ((now - self.since) / half_life)
        grown = (1.0 - fade) * half_life / log(2.0)
        for name in sorted({*self.sums, *self.level}):
            self.sums[name] = self.sums.get(name, 0.0) * fade + self.level.get(name, 0) * grown
        self.since = now


class DecayedUsage:
    """Does nothing at all unless there is a half-life."""

    def __init__(self, queues: QueueTree, total: Mapping[str, int], half_life: float) -> None:
        self._queues = queues
        self._total = total
        self._half_life = half_life
        self.renewed: float | None = None
        """When ``QueueEntry.usage`` was renewed last."""
        self.cluster: Meter | None = None
        self.meters: dict[str, Meter] = {}

    @property
    def due(self) -> float | None:
        """When it is to be renewed next; ``None``: never, or at once."""
        return None if self.renewed is None else self.renewed + RENEW_SECONDS

    def renew(self, now: float) -> None:
        """Give every queue its past usage, if it is time."""
        if not self._half_life or (self.renewed is not None and now < self.renewed + RENEW_SECONDS):
            return
        self.renewed = now
        cluster = self._cluster(now)
        for name in [name for name in self.meters if name not in self._queues.entries]:
            del self.meters[name]
        for entry in self._queues:
            meter = self.meters.get(entry.name)
            usage: dict[str, int] = {}
            if meter is not None:
                meter.advance(now, self._half_life)
                for resource, used in meter.sums.items():
                    there = cluster.sums.get(resource, 0.0)
                    if there > 0.0 and used > 0.0:
                        usage[resource] = min(MILLION, round(used / there * MILLION))
            if usage != entry.usage:
                entry.usage = usage
                self._queues.redivide = True

    def note(self, changed: Mapping[str, QueueEntry], now: float) -> None:
        """What queues hold from ``now`` on. ``changed``: those of which it may have changed."""
        if not self._half_life:
            return
        self._cluster(now)
        for entry in changed.values():
            held = {name: units for name, units in entry.allocated.items() if units}
            meter = self.meters.get(entry.name)
            if meter is None:
                if held and not entry.missing:
                    self.meters[entry.name] = Meter(now, held)
            elif meter.level != held:
                meter.advance(now, self._half_life)
                meter.level = held

    def _cluster(self, now: float) -> Meter:
        if self.cluster is None:
            self.cluster = Meter(now, dict(self._total))
        else:
            self.cluster.advance(now, self._half_life)
            self.cluster.level = dict(self._total)
        return self.cluster
