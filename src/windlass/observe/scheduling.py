"""The scheduler's metrics."""

from __future__ import annotations

from collections.abc import Mapping
from math import nan

from prometheus_client import CollectorRegistry

from windlass.api.quantities import scale
from windlass.observe.metrics import SLOW, MetricFactory


class SchedulerMetrics:
    """Written by the scheduler service; times in seconds, resources in their base units."""

    def __init__(self, source: CollectorRegistry) -> None:
        family = MetricFactory(source, "scheduler")
        self.cycle_seconds = family.histogram(
            "cycle_duration_seconds", "One cycle: deltas applied, decisions made"
        )
        self.part_seconds = family.timings(
            "cycle_part_duration_seconds", "Parts of a cycle: take, decide, show, carry out", ["part"]
        )
        self.action_seconds = family.timings(
            "action_duration_seconds", "One pass of an action of a cycle", ["action"]
        )
        self.last_cycle: dict[str, float] = {}
        """Part of the last cycle → seconds; ``cycle``: all of it."""
        self.last_actions: dict[str, float] = {}
        self.deltas = family.counter("deltas_total", "Changes of the cluster applied to the engine")
        self.decisions = family.counter("decisions_total", "Decided binds, evictions, nominations", ["kind"])
        self.binds = family.counter("pods_bound_total", "Bindings executed, by result", ["result"])
        self.conflicts = family.counter(
            "bind_conflicts_total",
            "Conflicts of decided binds: elsewhere (bound by another scheduler), gone (pod deleted), recalled (not"
            " sent, the node was taken), overcommitted (the pod was evicted again)",
            ["kind"],
        )
        self.guarded = family.counter(
            "bind_guard_total",
            "Bindings of other schedulers reviewed by the bind guard: allowed, refused, rehearsed (a dry run), unknown",
            ["answer"],
        )
        self.bind_seconds = family.histogram("bind_duration_seconds", "One binding request")
        self.wait_seconds = family.histogram(
            "pod_scheduling_duration_seconds", "From a pod's creation to its binding", buckets=SLOW
        )
        self.bind_limit = family.gauge("bind_concurrency", "Maximum number of concurrent bindings")
        self.assumed = family.gauge("assumed_pods", "Bindings decided and not yet observed")
        self.evictions = family.counter("evictions_total", "Pods evicted", ["reason", "result"])
        self.pending_groups = family.gauge("pending_groups", "Pending groups, by reason", ["reason"])
        self.writes = family.counter(
            "status_writes_total", "Status, condition and annotation writes", ["what"]
        )
        self.extender_seconds = family.histogram(
            "extender_duration_seconds",
            "One request to the extender during a decision, or notification to it",
            ["matter", "result"],
        )
        self._forecasts(family)
        self._requests(family)
        self.leader = family.gauge("leader", "1 on the leader")
        self.clock_ahead = family.gauge(
            "clock_ahead_seconds",
            "Difference between this instance's clock and the API server's at the last write of its lease; below 0"
            " it is behind; 0 if they agree within ten seconds, or it never was the leader",
        )
        self.queue_resource = family.gauge(
            "queue_resource", "Resources of a queue, by state", ["queue", "resource", "state"]
        )
        self.reasons: dict[str, int] = {}
        """Number of pending groups by reason."""
        self.figures: dict[str, dict[str, dict[str, float]]] = {}
        """Queue → state → resource → quantity in base units, as last reported."""
        self._queues: dict[str, set[tuple[str, str]]] = {}

    def _requests(self, family: MetricFactory) -> None:
        """Create the metrics of ProvisioningRequests."""
        self.node_requests = family.counter(
            "node_requests_total",
            "ProvisioningRequests for the nodes of a gang, by state: asked, accepted, provisioned, failed, booking"
            " expired, capacity revoked, withdrawn, refused (by the API server)",
            ["state"],
        )
        self.node_request_seconds = family.histogram(
            "node_request_duration_seconds", "From requesting a gang's nodes to their provision", buckets=SLOW
        )

    def _forecasts(self, family: MetricFactory) -> None:
        """Create the metrics of the accuracy of estimates."""
        self.start_estimates = family.counter(
            "start_estimates_total",
            "Groups that started after a start had been estimated, by the position of the start relative to the"
            " first reported band: within, early, late",
            ["result"],
        )
        self.start_hits = family.gauge(
            "start_estimate_hit_ratio",
            "Fraction of those starts within the band, since the start of the process; NaN before the first",
        )
        self.start_hits.set(nan)
        self.start_estimate_seconds = family.histogram(
            "start_estimate_duration_seconds", "One round of estimates, including pauses", buckets=SLOW
        )
        self.run_time_estimates = family.counter(
            "run_time_estimates_total",
            "Groups that completed, by source of the expected run time (declared by the owner, learned, none) and"
            " result: within, early (below p10), late (above p90 or the declared time), unknown",
            ["source", "result"],
        )

    def waiting(self, reasons: Mapping[str, int]) -> None:
        """Set the number of pending groups by reason.

        Reasons that were reported before must be present, if necessary with 0.
        """
        for reason, number in reasons.items():
            if self.reasons.get(reason) != number:
                self.reasons[reason] = number
                self.pending_groups.labels(reason).set(number)

    def queue(self, name: str, figures: Mapping[str, Mapping[str, int]]) -> None:
        """``figures``: state (allocated, requested, …) → resource → engine units."""
        current = {(resource, state) for state, amounts in figures.items() for resource in amounts}
        for resource, state in self._queues.get(name, set()) - current:
            self.queue_resource.labels(name, resource, state).set(0)
        for state, amounts in figures.items():
            for resource, units in amounts.items():
                self.queue_resource.labels(name, resource, state).set(units / scale(resource))
        self._queues[name] = self._queues.get(name, set()) | current
        self.figures[name] = {
            state: {resource: units / scale(resource) for resource, units in amounts.items()}
            for state, amounts in figures.items()
        }

    def extender_queried(self, matter: str, result: str, seconds: float) -> None:
        """``result``: ``answered`` or ``failed``."""
        self.extender_seconds.labels(matter, result).observe(seconds)

    def run_time_finished(self, source: str, result: str) -> None:
        """``source``: ``owner``, ``learned`` or ``none``; ``result``: ``within``, ``early``, ``late``, ``unknown``."""
        self.run_time_estimates.labels(source, result).inc()

    def queue_gone(self, name: str) -> None:
        self.figures.pop(name, None)
        for resource, state in self._queues.pop(name, ()):
            self.queue_resource.remove(name, resource, state)
