"""The server's own metrics: requests by verb and resource, open watches, the store.

Counted in plain integers, since every request pays for it; turned into Prometheus' form when asked. What
kube-apiserver tells too has its names, so that its dashboards fit.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from windlass.observe.metrics import FAST, exposition, registry
from windlass.store.store import Store


class Telemetry:
    """Made once per server; ``text`` is the answer on ``/metrics``."""

    def __init__(self, store: Store) -> None:
        self.requests: dict[tuple[str, str, int], int] = {}
        """(verb, resource, code) → answers."""
        self.durations: dict[str, Durations] = {}
        """Verb → how long answers took, without streams."""
        self._registry = registry()
        self._registry.register(_Collector(self, store))

    def answered(self, verb: str, resource: str, code: int, seconds: float | None) -> None:
        """Count one answer; ``seconds`` is ``None`` for streams."""
        key = (verb, resource, code)
        self.requests[key] = self.requests.get(key, 0) + 1
        if seconds is not None:
            durations = self.durations.get(verb)
            if durations is None:
                durations = self.durations[verb] = Durations()
            durations.counts[bisect_left(FAST, seconds)] += 1
            durations.total += seconds

    def text(self) -> tuple[str, bytes]:
        """Content type and body."""
        return exposition(self._registry)


class Durations:
    """Counts per bucket of ``FAST``; the last one is for what took longer."""

    __slots__ = ("counts", "total")

    def __init__(self) -> None:
        self.counts = [0] * (len(FAST) + 1)
        self.total = 0.0

    def buckets(self) -> list[tuple[str, float]]:
        """Cumulative, as Prometheus wants them."""
        running, found = 0, []
        for bound, count in zip((*map(str, FAST), "+Inf"), self.counts, strict=True):
            running += count
            found.append((bound, float(running)))
        return found


class _Collector(Collector):
    """Reads the figures when somebody asks."""

    def __init__(self, telemetry: Telemetry, store: Store) -> None:
        self._telemetry = telemetry
        self._store = store

    def collect(self) -> Iterator[Metric]:
        yield self._requests()
        yield self._seconds()
        store = self._store
        yield _by_resource("windlass_store_objects", "Objects stored, by resource.", store.counts())
        yield _by_resource("windlass_store_watches", "Open watches, by resource.", store.watchers())
        yield CounterMetricFamily(
            "windlass_store_commits", "Transactions committed since the start.", value=store.commits
        )
        yield GaugeMetricFamily(
            "windlass_store_resource_version", "The newest durable version.", value=store.rv
        )

    def _requests(self) -> Metric:
        family = CounterMetricFamily(
            "apiserver_request", "Requests answered.", labels=("verb", "resource", "code")
        )
        for (verb, resource, code), count in self._telemetry.requests.items():
            family.add_metric((verb.upper(), resource, str(code)), count)
        return family

    def _seconds(self) -> Metric:
        family = HistogramMetricFamily(
            "apiserver_request_duration_seconds",
            "From request to answer, without streams.",
            labels=("verb",),
        )
        for verb, durations in self._telemetry.durations.items():
            family.add_metric((verb.upper(),), durations.buckets(), durations.total)
        return family


def _by_resource(name: str, meaning: str, counts: dict[str, int]) -> Metric:
    family = GaugeMetricFamily(name, meaning, labels=("resource",))
    for resource, count in counts.items():
        family.add_metric((resource,), count)
    return family
