"""Metrics of a process: its own registry, and its text on ``/metrics``.

Names follow the Prometheus conventions: ``windlass_<component>_<what>_<unit>``. Labels
have few values, and never the name of a pod, a group or a job.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Iterable, Iterator, Sequence

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, disable_created_metrics
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.gc_collector import GCCollector
from prometheus_client.metrics_core import HistogramMetricFamily, Metric
from prometheus_client.platform_collector import PlatformCollector
from prometheus_client.process_collector import ProcessCollector
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

FAST = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0)
"""Buckets (seconds) for durations of a machine."""
SLOW = (0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0, 7200.0, 43200.0, 172800.0)
"""Buckets (seconds) for waiting times of users."""


def registry() -> CollectorRegistry:
    """Return a registry with the metrics of the process: CPU, memory, descriptors, collections.

    Series have no ``_created`` sample: ``process_start_time_seconds`` covers all
    counters.
    """
    disable_created_metrics()
    made = CollectorRegistry()
    ProcessCollector(registry=made)
    PlatformCollector(registry=made)
    GCCollector(registry=made)
    return made


class Collected(CollectorRegistry):
    """Snapshot of a registry, to be rendered once, possibly in another thread.

    Rendering releases its values there, too: releasing a hundred thousand values takes
    a while.
    """

    def __init__(self, families: Iterable[Metric]) -> None:
        super().__init__()
        self._families = deque(families)

    def collect(self) -> Iterator[Metric]:
        while self._families:
            yield self._families.popleft()


def exposition(source: CollectorRegistry) -> tuple[str, bytes]:
    """Return content type and body of a response to ``/metrics``."""
    return CONTENT_TYPE_LATEST, generate_latest(source)


def bound_text(bound: float) -> str:
    """A bucket's bound as Prometheus' own clients write it."""
    return floatToGoString(float(f"{bound:g}"))


class Durations:
    """Histogram in plain integers, for frequent events. The last bucket is above all ``bounds``."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: Sequence[float] = FAST) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def add(self, amount: float) -> None:
        self.counts[bisect_left(self.bounds, amount)] += 1
        self.total += amount

    @property
    def count(self) -> int:
        return sum(self.counts)

    def buckets(self, factor: float = 1.0) -> list[tuple[str, float]]:
        """Return cumulative buckets as in Prometheus. ``factor``: exported unit per counted unit."""
        running, found = 0, []
        bounds = (*(bound_text(bound * factor) for bound in self.bounds), "+Inf")
        for bound, count in zip(bounds, self.counts, strict=True):
            running += count
            found.append((bound, float(running)))
        return found


class Timings(Collector):
    """:class:`Durations` by labels, created on demand, and exported under ``name``."""

    def __init__(
        self,
        name: str = "",
        meaning: str = "",
        labels: Sequence[str] = (),
        bounds: Sequence[float] = FAST,
        *,
        registry: CollectorRegistry | None = None,
    ) -> None:
        self.by: dict[tuple[str, ...], Durations] = {}
        self._name, self._meaning = name, meaning
        self._labelnames = tuple(labels)
        self._bounds = bounds
        if registry is not None:
            registry.register(self)

    def add(self, amount: float, *labels: str) -> None:
        found = self.by.get(labels)
        if found is None:
            found = self.by[labels] = Durations(self._bounds)
        found.add(amount)

    def of(self, *labels: str) -> Durations:
        """Return the durations with these labels; empty ones if there are none."""
        return self.by.get(labels) or Durations(self._bounds)

    def counts(self) -> dict[tuple[str, ...], int]:
        """Return the number of observations by labels."""
        return {labels: durations.count for labels, durations in self.by.items()}

    def describe(self) -> list[Metric]:
        return [HistogramMetricFamily(self._name, self._meaning, labels=self._labelnames)]

    def collect(self) -> Iterator[Metric]:
        yield self.family(self._name, self._meaning, self._labelnames)

    def family(self, name: str, meaning: str, labels: Sequence[str], factor: float = 1.0) -> Metric:
        """Return all durations as one metric. ``factor``: exported unit per counted unit."""
        family = HistogramMetricFamily(name, meaning, labels=labels)
        for values, durations in self.by.items():
            family.add_metric(values, durations.buckets(factor), durations.total * factor)
        return family


class MetricFactory:
    """Makes the metrics of one component, with its prefix."""

    def __init__(self, source: CollectorRegistry, component: str) -> None:
        self._registry = source
        self._prefix = f"windlass_{component}"

    def counter(self, name: str, meaning: str, labels: Sequence[str] = ()) -> Counter:
        return Counter(f"{self._prefix}_{name}", meaning, labels, registry=self._registry)

    def gauge(self, name: str, meaning: str, labels: Sequence[str] = ()) -> Gauge:
        return Gauge(f"{self._prefix}_{name}", meaning, labels, registry=self._registry)

    def histogram(
        self, name: str, meaning: str, labels: Sequence[str] = (), buckets: Sequence[float] = FAST
    ) -> Histogram:
        return Histogram(f"{self._prefix}_{name}", meaning, labels, buckets=buckets, registry=self._registry)

    def timings(self, name: str, meaning: str, labels: Sequence[str] = ()) -> Timings:
        """Return a histogram for frequent events."""
        return Timings(f"{self._prefix}_{name}", meaning, labels, FAST, registry=self._registry)
