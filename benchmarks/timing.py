"""Duration of an engine's work on arrivals: batches of deltas, each followed by one cycle."""

from __future__ import annotations

import resource
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from benchmarks.report import percentile
from windlass.engine.decision import Decision
from windlass.engine.deltas import Delta
from windlass.engine.engine import Engine
from windlass.kits import gc_tuning


@dataclass(slots=True)
class Timed:
    """``latencies`` in seconds, one per unit: from its delta to the end of the cycle. ``cpu`` of this process."""

    decisions: list[Decision] = field(default_factory=list)
    latencies: list[float] = field(default_factory=list)
    seconds: float = 0.0
    cpu: float = 0.0

    @property
    def placed(self) -> int:
        return sum(len(decision.binds) for decision in self.decisions)

    def milliseconds(self, share: float) -> float:
        """The latency below which that part of the units stays."""
        return round(1000 * percentile(self.latencies, share), 3)


def batched(units: Sequence[Sequence[Delta]], each: int) -> list[list[Delta]]:
    """Return the deltas in batches of ``each`` units."""
    return [[delta for unit in units[i : i + each] for delta in unit] for i in range(0, len(units), each)]


def drive(engine: Engine, batches: Sequence[list[Delta]], units: Callable[[list[Delta]], int]) -> Timed:
    """``units``: how many a batch brings."""
    gc_tuning.tune_for_long_lived_objects()  # as the scheduler's process does
    timed = Timed()
    cpu, start = time.process_time(), time.perf_counter()
    for now, batch in enumerate(batches, start=1):
        at = time.perf_counter()
        engine.apply(batch)
        timed.decisions.append(engine.cycle(float(now)))
        timed.latencies += [time.perf_counter() - at] * units(batch)
    timed.seconds = time.perf_counter() - start
    timed.cpu = time.process_time() - cpu
    return timed


def memory_mib() -> float:
    """The most that this process has had resident."""
    return round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, 1)
