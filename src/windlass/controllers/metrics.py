"""Metrics of the reconcilers: ``windlass_controller_…``, by controller."""

from __future__ import annotations

from prometheus_client import CollectorRegistry

from windlass.observe.metrics import FAST, MetricFactory

_BY = ("controller",)


class ControllerMetrics:
    def __init__(self, source: CollectorRegistry) -> None:
        family = MetricFactory(source, "controller")
        self.reconciles = family.counter("looks_total", "Reconciliations of one key.", _BY)
        self.writes = family.counter("writes_total", "Writes that the server accepted.", _BY)
        self.failures = family.counter(
            "failures_total",
            "Reconciliations that failed: conflict, refused, unreachable, error.",
            ("controller", "kind"),
        )
        self.reconcile_seconds = family.histogram(
            "look_seconds", "Duration of one reconciliation with its writes.", _BY, FAST
        )
        self.spot_interruptions = MetricFactory(source, "spot").counter(
            "interruptions_total", "Pods evicted because their spot machine was to end."
        )
        self.waiting = family.gauge("waiting_keys", "Keys that wait for a worker.", _BY)
