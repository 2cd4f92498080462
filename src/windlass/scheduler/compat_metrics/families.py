"""Families of metrics: declared once, told from there, and written on the reference page from there."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from prometheus_client.metrics_core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
    UnknownMetricFamily,
)
from prometheus_client.registry import Collector
from prometheus_client.samples import Sample

from windlass.observe.metrics import Durations, Timings, bound_text

Row = tuple[Sequence[str], float]
DETAILS = CARDS, OLD_CARDS, JOBS = ("cards", "legacyCards", "jobs")
"""What may be told one by one: each card and each pod's part of one, by HAMi's names of today and of old; each job."""


@dataclass(frozen=True, slots=True)
class MetricFamily:
    """``name`` as others have it; ``kind`` gauge, counter or histogram. ``detail``: only where that is asked for."""

    name: str
    kind: str
    labels: tuple[str, ...]
    meaning: str
    detail: str = ""


class LeftOut(NamedTuple):
    names: str
    why: str


def families(kind: str, labels: str, names: Mapping[str, str], detail: str = "") -> tuple[MetricFamily, ...]:
    """Several with the same labels (by blanks): name → meaning."""
    return tuple(
        MetricFamily(name, kind, tuple(labels.split()), meaning, detail) for name, meaning in names.items()
    )


class Later(Metric):
    """One whose values are looked up when they are first asked for, once: by who writes them, beside the event loop.
    ``values`` must not look at anything that changes meanwhile."""

    def __init__(self, like: Metric, values: Callable[[], list[Sample]]) -> None:
        super().__init__(like.name, like.documentation, like.type)
        del self.samples  # else nobody would ask
        self._values = values

    @cached_property
    def samples(self) -> list[Sample]:  # type: ignore[override]
        return self._values()


class MetricsExporter:
    """Makes metrics of declared families."""

    def __init__(self, declared: Iterable[MetricFamily]) -> None:
        self._declared = {family.name: family for family in declared}

    def rows(self, name: str, rows: Iterable[Row]) -> Metric:
        """A gauge or a counter with its values by labels."""
        family = self._declared[name]
        made = _made(family)
        for labels, amount in rows:
            made.add_metric(labels, amount)
        return made

    def later(self, name: str, rows: Callable[[], Iterable[Row]]) -> Metric:
        """The same, of many values: see :class:`Later`."""
        return Later(_made(self._declared[name]), lambda: self.rows(name, rows()).samples)

    def value(self, name: str, amount: float) -> Metric:
        """One without labels."""
        return self.rows(name, [((), amount)])

    def each(self, values: Iterable[tuple[str, Iterable[Row]]]) -> Iterator[Metric]:
        for name, rows in values:
            yield self.rows(name, rows)

    def durations(self, name: str, durations: Durations, factor: float = 1.0) -> Metric:
        """A histogram without labels; ``factor``: the unit told in the unit counted."""
        family = HistogramMetricFamily(name, self._declared[name].meaning)
        family.add_metric((), durations.buckets(factor), durations.total * factor)
        return family

    def timings(self, name: str, timings: Timings, factor: float = 1.0) -> Metric:
        """A histogram with the labels that were counted, in the order declared."""
        family = self._declared[name]
        return timings.family(name, family.meaning, family.labels, factor)

    def renamed(self, name: str, source: Collector, factor: float = 1.0, **labels: str) -> Metric:
        """Another histogram under this name."""
        (metric,) = source.collect()
        found = Metric(name, self._declared[name].meaning, metric.type)
        for sample in metric.samples:
            tail = sample.name.removeprefix(metric.name)
            if tail == "_created":
                continue
            words, value = {**labels, **sample.labels}, sample.value
            if "le" in words and words["le"] != "+Inf":
                words["le"] = bound_text(float(words["le"]) * factor)
            if tail == "_sum":
                value *= factor
            found.samples.append(Sample(name + tail, words, value))
        return found


def _made(family: MetricFamily) -> GaugeMetricFamily | CounterMetricFamily | UnknownMetricFamily:
    labels = list(family.labels)
    if family.kind == "gauge":
        return GaugeMetricFamily(family.name, family.meaning, labels=labels)
    if family.name.endswith("_total"):
        return CounterMetricFamily(family.name.removesuffix("_total"), family.meaning, labels=labels)
    # Counted, but without the ending that the exposition gives to a counter.
    return UnknownMetricFamily(family.name, family.meaning, labels=labels)


def total(source: Collector, **labels: str) -> float:
    """The sum of a counter's values with these labels."""
    return sum(
        sample.value
        for metric in source.collect()
        for sample in metric.samples
        if sample.name.endswith("_total") and labels.items() <= sample.labels.items()
    )
