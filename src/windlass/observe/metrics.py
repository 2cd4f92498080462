"""Metrics of a process: a registry of its own, and its text on ``/metrics``.

Names follow the Prometheus conventions: ``windlass_<component>_<what>_<unit>``. Labels have few values:
never a pod's, group's or job's name.
"""

from __future__ import annotations

from collections.abc import Sequence

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, disable_created_metrics
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.gc_collector import GCCollector
from prometheus_client.platform_collector import PlatformCollector
from prometheus_client.process_collector import ProcessCollector

FAST = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0)
"""Buckets in seconds for what a machine does."""
SLOW = (0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0, 7200.0, 43200.0, 172800.0)
"""Buckets in seconds for what people wait for."""


def registry() -> CollectorRegistry:
    """A registry with the process's own figures: CPU, memory, descriptors, garbage collection. No series says when a
    counter began: that is what ``process_start_time_seconds`` says for all."""
    disable_created_metrics()
    made = CollectorRegistry()
    ProcessCollector(registry=made)
    PlatformCollector(registry=made)
    GCCollector(registry=made)
    return made


def exposition(source: CollectorRegistry) -> tuple[str, bytes]:
    """Content type and body of an answer on ``/metrics``."""
    return CONTENT_TYPE_LATEST, generate_latest(source)


class Family:
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
