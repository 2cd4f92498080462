"""Metric families: declared once, exported from there, and documented from there."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
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
"""Label values, and the value."""
DETAILS = DEVICES, LEGACY_DEVICES, JOBS = ("cards", "legacyCards", "jobs")
"""Items that may be exported one by one.

Devices and the shares of pods, under HAMi's current and older names, and jobs.
"""


@dataclass(frozen=True, slots=True)
class MetricFamily:
    """Declared metric family.

    ``name``: as in the other scheduler.
    ``kind``: gauge, counter or histogram.
    ``detail``: exported only if this detail is requested.
    """

    name: str
    kind: str
    labels: tuple[str, ...]
    meaning: str
    detail: str = ""


class LeftOut(NamedTuple):
    """Metrics of another scheduler that are not exported, and why."""

    names: str
    why: str


def families(kind: str, labels: str, names: Mapping[str, str], detail: str = "") -> tuple[MetricFamily, ...]:
    """Return families with the same labels, separated by blanks.

    ``names``: name → meaning.
    """
    return tuple(
        MetricFamily(name, kind, tuple(labels.split()), meaning, detail) for name, meaning in names.items()
    )


class DeferredMetric(Metric):
    """Metric with values that are computed once, when they are first read.

    They are read outside the event loop, when the response is written. So ``values``
    must not use anything that changes meanwhile.
    """

    def __init__(self, like: Metric, values: Callable[[], list[Sample]]) -> None:
        super().__init__(like.name, like.documentation, like.type)
        del self.samples  # the property below takes its place
        self._values = values

    @cached_property
    def samples(self) -> list[Sample]:  # type: ignore[override]
        return self._values()


class MetricsExporter:
    """Creates metrics of declared families."""

    def __init__(self, declared: Iterable[MetricFamily]) -> None:
        self._declared = {family.name: family for family in declared}

    def rows(self, name: str, rows: Iterable[Row]) -> Metric:
        """Return a gauge or a counter with its values by labels."""
        family = self._declared[name]
        metric = _metric(family)
        for labels, value in rows:
            metric.add_metric(labels, value)
        return metric

    def deferred(self, name: str, rows: Callable[[], Iterable[Row]]) -> Metric:
        """Return the same for many values (:class:`DeferredMetric`)."""
        return DeferredMetric(_metric(self._declared[name]), lambda: self.rows(name, rows()).samples)

    def value(self, name: str, value: float) -> Metric:
        """Return a metric without labels."""
        return self.rows(name, [((), value)])

    def durations(self, name: str, durations: Durations, factor: float = 1.0) -> Metric:
        """Return a histogram without labels.

        ``factor``: exported units per counted unit.
        """
        family = HistogramMetricFamily(name, self._declared[name].meaning)
        family.add_metric((), durations.buckets(factor), durations.total * factor)
        return family

    def timings(self, name: str, timings: Timings, factor: float = 1.0) -> Metric:
        """Return a histogram with the labels that were counted, in the declared order."""
        family = self._declared[name]
        return timings.family(name, family.meaning, family.labels, factor)

    def renamed(self, name: str, source: Collector, factor: float = 1.0, **labels: str) -> Metric:
        """Return another histogram under this name."""
        (metric,) = source.collect()
        renamed = Metric(name, self._declared[name].meaning, metric.type)
        for sample in metric.samples:
            suffix = sample.name.removeprefix(metric.name)
            if suffix == "_created":
                continue
            all_labels, value = {**labels, **sample.labels}, sample.value
            if "le" in all_labels and all_labels["le"] != "+Inf":
                all_labels["le"] = bound_text(float(all_labels["le"]) * factor)
            if suffix == "_sum":
                value *= factor
            renamed.samples.append(Sample(name + suffix, all_labels, value))
        return renamed


def _metric(family: MetricFamily) -> GaugeMetricFamily | CounterMetricFamily | UnknownMetricFamily:
    labels = list(family.labels)
    if family.kind == "gauge":
        return GaugeMetricFamily(family.name, family.meaning, labels=labels)
    if family.name.endswith("_total"):
        return CounterMetricFamily(family.name.removesuffix("_total"), family.meaning, labels=labels)
    # A counter without the suffix that the exposition format gives to counters.
    return UnknownMetricFamily(family.name, family.meaning, labels=labels)


def total(source: Collector, **labels: str) -> float:
    """Return the sum of a counter's values with these labels."""
    return sum(
        sample.value
        for metric in source.collect()
        for sample in metric.samples
        if sample.name.endswith("_total") and labels.items() <= sample.labels.items()
    )
