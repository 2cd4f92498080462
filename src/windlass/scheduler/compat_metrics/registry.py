"""Metrics under the names of other schedulers, for existing dashboards and alerts.

Each scrape renames what is counted anyway, and reads the state of groups, queues and
devices. Names, labels, units and meanings: :mod:`windlass.scheduler.compat_metrics`,
and the reference page written from it. Which names are exported:
:data:`windlass.scheduler.features.METRIC_NAMES`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from functools import cached_property
from types import ModuleType

from prometheus_client import CollectorRegistry
from prometheus_client.metrics_core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from windlass.scheduler import features
from windlass.scheduler.compat_metrics.families import DEVICES, LEGACY_DEVICES
from windlass.scheduler.compat_metrics.scrape import Scrape, Sources

OPTIONAL = OPTIONAL_KUEUE, OPTIONAL_YUNIKORN = ("kueue", "yunikorn")
"""Names that are exported only on request."""
OLDEST_WAIT = "windlass_scheduler_queue_oldest_wait_seconds"
OLDEST_WAIT_MEANING = (
    "How long the oldest group of a queue has waited, of those that waiting may help; 0: there is none"
)


def modules(names: Collection[str], details: Collection[str]) -> list[ModuleType]:
    """Return the modules of the metrics to export, imported.

    ``names``: requested ones of :data:`OPTIONAL`. HAMi's metrics are all details.
    """
    hami = DEVICES in details or LEGACY_DEVICES in details
    enabled = {
        "Kueue": OPTIONAL_KUEUE in names,
        "YuniKorn": OPTIONAL_YUNIKORN in names,
        "HAMi": hami,
    }
    return [features.load(feature) for feature in features.METRIC_NAMES if enabled.get(feature.name, True)]


class CompatMetrics(Collector):
    """Collector of the metrics.

    It reads its sources at each scrape, on the event loop's thread.

    ``names``: requested ones of :data:`OPTIONAL`. The modules are imported at the first
    scrape.
    """

    def __init__(self, registry: CollectorRegistry, sources: Sources, names: Collection[str] = ()) -> None:
        self._sources = sources
        self._names = names
        registry.register(self)

    @cached_property
    def _modules(self) -> list[ModuleType]:
        return modules(self._names, self._sources.details)

    def describe(self) -> Iterable[Metric]:
        return ()

    def collect(self) -> Iterator[Metric]:
        scrape = Scrape(self._sources)
        oldest = GaugeMetricFamily(OLDEST_WAIT, OLDEST_WAIT_MEANING, labels=["queue"])
        for queue, seconds in scrape.oldest_waits().items():
            oldest.add_metric([queue], seconds)
        yield oldest
        for module in self._modules:
            yield from module.export(scrape)
