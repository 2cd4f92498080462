"""The server's own metrics: requests by verb and resource, open watches, the store."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client import Counter, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from windlass.observe.metrics import FAST, Family, exposition, registry
from windlass.store.store import Store


class Telemetry:
    """Made once per server; ``text`` is the answer on ``/metrics``."""

    def __init__(self, store: Store) -> None:
        self._registry = registry()
        family = Family(self._registry, "server")
        self._requests = family.counter("requests", "Requests answered.", ("verb", "resource", "code"))
        self._seconds = family.histogram(
            "request_duration_seconds", "From request to answer, without streams.", ("verb",), FAST
        )
        self._counters: dict[tuple[str, str, int], Counter] = {}
        self._histograms: dict[str, Histogram] = {}
        self._registry.register(_StoreCollector(store))

    def answered(self, verb: str, resource: str, code: int, seconds: float | None) -> None:
        """Count one answer; ``seconds`` is ``None`` for streams."""
        key = (verb, resource, code)
        counter = self._counters.get(key)
        if counter is None:
            counter = self._counters[key] = self._requests.labels(verb, resource, str(code))
        counter.inc()
        if seconds is not None:
            histogram = self._histograms.get(verb)
            if histogram is None:
                histogram = self._histograms[verb] = self._seconds.labels(verb)
            histogram.observe(seconds)

    def text(self) -> tuple[str, bytes]:
        return exposition(self._registry)


class _StoreCollector(Collector):
    """Reads the store's figures when somebody asks."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def collect(self) -> Iterator[Metric]:
        objects = GaugeMetricFamily(
            "windlass_store_objects", "Objects stored, by resource.", labels=("resource",)
        )
        for resource, count in self._store.counts().items():
            objects.add_metric((resource,), count)
        yield objects
        watches = GaugeMetricFamily(
            "windlass_store_watches", "Open watches, by resource.", labels=("resource",)
        )
        for resource, count in self._store.watchers().items():
            watches.add_metric((resource,), count)
        yield watches
        yield CounterMetricFamily(
            "windlass_store_commits", "Transactions committed since the start.", value=self._store.commits
        )
        yield GaugeMetricFamily(
            "windlass_store_resource_version", "The newest durable version.", value=self._store.rv
        )
