"""Metrics of the server: requests by verb and resource, open watches, the store.

Every request increments plain integers; they are converted to Prometheus' form on
request. Metrics that kube-apiserver
has, too, have its names, so that its dashboards can be used.
"""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from windlass.observe.metrics import Timings, exposition, registry
from windlass.store.store import Store


class Telemetry:
    """Metrics of one server."""

    def __init__(self, store: Store) -> None:
        self.requests: dict[tuple[str, str, int], int] = {}
        """Number of responses by (verb, resource, code)."""
        self._registry = registry()
        self._durations = Timings(
            "apiserver_request_duration_seconds",
            "From request to answer, without streams.",
            ("verb",),
            registry=self._registry,
        )
        self._registry.register(_Collector(self, store))

    def answered(self, verb: str, resource: str, code: int, seconds: float | None) -> None:
        """Count one response. ``seconds``: ``None`` for streams."""
        key = (verb, resource, code)
        self.requests[key] = self.requests.get(key, 0) + 1
        if seconds is not None:
            self._durations.add(seconds, verb.upper())

    def text(self) -> tuple[str, bytes]:
        """Return content type and body of ``/metrics``."""
        return exposition(self._registry)


class _Collector(Collector):
    """Exporter that reads the counters on request."""

    def __init__(self, telemetry: Telemetry, store: Store) -> None:
        self._telemetry = telemetry
        self._store = store

    def collect(self) -> Iterator[Metric]:
        yield self._requests()
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


def _by_resource(name: str, meaning: str, counts: dict[str, int]) -> Metric:
    family = GaugeMetricFamily(name, meaning, labels=("resource",))
    for resource, count in counts.items():
        family.add_metric((resource,), count)
    return family
