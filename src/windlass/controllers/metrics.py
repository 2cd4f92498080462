"""Figures of the reconcilers: ``windlass_controller_…``, by controller."""

from __future__ import annotations

from prometheus_client import CollectorRegistry

from windlass.observe.metrics import FAST, MetricFactory

_BY = ("controller",)


class ControllerMetrics:
    def __init__(self, source: CollectorRegistry) -> None:
        family = MetricFactory(source, "controller")
        self.looks = family.counter("looks_total", "Looks at one key.", _BY)
        self.writes = family.counter("writes_total", "Writes that the server accepted.", _BY)
        self.failures = family.counter(
            "failures_total",
            "Looks that could not be finished: conflict, refused, unreachable, error.",
            ("controller", "kind"),
        )
        self.look_seconds = family.histogram("look_seconds", "One look with its writes.", _BY, FAST)
        self.waiting = family.gauge("waiting_keys", "Keys that are ready and wait for a worker.", _BY)
