"""Durations of scheduling passes: an engine of which every cycle is timed."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from windlass.engine.decision import Decision
from windlass.engine.deltas import Delta
from windlass.engine.engine import Engine
from windlass.kits.clock import Clock
from windlass.sim.replay.metrics import percentile


class TimedEngine:
    """Engine with a clock. One pass is what the engine is told, and the cycle after that."""

    def __init__(self, engine: Engine, clock: Clock) -> None:
        self._engine, self._clock = engine, clock
        self._told = 0.0
        self.seconds: list[float] = []
        self.moments: list[float] = []
        """Times of the virtual clock at which the passes were made."""
        self.decided = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    def apply(self, deltas: Iterable[Delta]) -> None:
        begun = self._clock.monotonic()
        self._engine.apply(list(deltas))
        self._told += self._clock.monotonic() - begun

    def cycle(self, now: float) -> Decision:
        begun = self._clock.monotonic()
        decision = self._engine.cycle(now)
        self.seconds.append(self._clock.monotonic() - begun + self._told)
        self.moments.append(now)
        self._told = 0.0
        self.decided += len(decision.binds) + len(decision.evictions)
        return decision

    @property
    def figures(self) -> dict[str, float]:
        """Return median, 99th percentile and maximum in milliseconds."""
        ordered = sorted(self.seconds)
        shown = {"p50": percentile(ordered, 50), "p99": percentile(ordered, 99)}
        return {
            name: round(1000 * value, 3)
            for name, value in (*shown.items(), ("max", max(ordered, default=0.0)))
        }
