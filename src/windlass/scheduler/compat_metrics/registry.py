"""The scheduler's figures under the names of the field, so that boards and alerts made for others show something.

Each scrape renames what is counted anyway, and looks at groups, queues and cards as they are. Which names, labels and
units there are, and what they mean here: :mod:`windlass.scheduler.compat_metrics`, and the reference page written from
it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from prometheus_client import CollectorRegistry
from prometheus_client.metrics_core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from windlass.scheduler.compat_metrics import hami, kai, kube, kueue, volcano, yunikorn
from windlass.scheduler.compat_metrics.scrape import Scrape, Sources

PEERS = {
    "kube-scheduler": kube,
    "Volcano": volcano,
    "Kueue": kueue,
    "KAI": kai,
    "YuniKorn": yunikorn,
    "HAMi": hami,
}
OLDEST_WAIT = "windlass_scheduler_queue_oldest_wait_seconds"
OLDEST_WAIT_MEANING = "For so long the oldest group of a queue waits that waiting may help; 0: there is none"


class FieldMetrics(Collector):
    """Registered once. Reads what it is given at each scrape, in the thread of the event loop."""

    def __init__(self, registry: CollectorRegistry, sources: Sources) -> None:
        self._sources = sources
        registry.register(self)

    def describe(self) -> Iterable[Metric]:
        return ()

    def collect(self) -> Iterator[Metric]:
        scrape = Scrape(self._sources)
        oldest = GaugeMetricFamily(OLDEST_WAIT, OLDEST_WAIT_MEANING, labels=["queue"])
        for queue, seconds in scrape.oldest_waits().items():
            oldest.add_metric([queue], seconds)
        yield oldest
        for peer in PEERS.values():
            yield from peer.export(scrape)
