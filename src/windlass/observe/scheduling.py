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
            "cycle_duration_seconds", "One cycle: deltas applied, decisions taken"
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
        self.deltas = family.counter("deltas_total", "Changes of the world told to the engine")
        self.decisions = family.counter("decisions_total", "Decided binds, evictions, nominations", ["kind"])
        self.binds = family.counter("pods_bound_total", "Bindings carried out, by outcome", ["result"])
        self.conflicts = family.counter(
            "bind_conflicts_total",
            "What others did to binds decided here: elsewhere (bound by another), gone, recalled (not sent, the"
            " node was taken), overcommitted (the pod was evicted again)",
            ["kind"],
        )
        self.guarded = family.counter(
            "bind_guard_total",
            "Bindings by others that the API server asked about: allowed, refused, rehearsed (a dry run), unknown",
            ["answer"],
        )
        self.bind_seconds = family.histogram("bind_duration_seconds", "One binding request")
        self.wait_seconds = family.histogram(
            "pod_scheduling_duration_seconds", "From a pod's creation to its binding", buckets=SLOW
        )
        self.bind_limit = family.gauge("bind_concurrency", "How many bindings may be under way at once")
        self.assumed = family.gauge("assumed_pods", "Bindings decided and not yet seen")
        self.evictions = family.counter("evictions_total", "Pods evicted", ["reason", "result"])
        self.pending_groups = family.gauge("pending_groups", "Groups that wait, by reason", ["reason"])
        self.writes = family.counter(
            "status_writes_total", "Status, condition and annotation writes", ["what"]
        )
        self.extender_seconds = family.histogram(
            "extender_duration_seconds",
            "One question to the extender in the middle of a decision, or word to it",
            ["matter", "result"],
        )
        self._forecasts(family)
        self._requests(family)
        self.leader = family.gauge("leader", "1 on the instance that decides")
        self.clock_ahead = family.gauge(
            "clock_ahead_seconds",
            "By so much this instance's clock was ahead of the API server's when it wrote its lease, below 0:"
            " behind it; 0 where they go together to ten seconds, or it never led",
        )
        self.queue_resource = family.gauge(
            "queue_resource", "A queue's figures, by state", ["queue", "resource", "state"]
        )
        self.reasons: dict[str, int] = {}
        """How many groups wait, by reason."""
        self.figures: dict[str, dict[str, dict[str, float]]] = {}
        """Queue → state → resource → amount in base units, as last told."""
        self._queues: dict[str, set[tuple[str, str]]] = {}

    def _requests(self, family: MetricFactory) -> None:
        """What became of nodes that were asked for."""
        self.node_requests = family.counter(
            "node_requests_total",
            "Requests for the nodes of a gang, by what became of them: asked, accepted, provisioned, failed, booking"
            " expired, capacity revoked, withdrawn, refused (by the API server)",
            ["state"],
        )
        self.node_request_seconds = family.histogram(
            "node_request_duration_seconds", "From asking for a gang's nodes to their provision", buckets=SLOW
        )

    def _forecasts(self, family: MetricFactory) -> None:
        """How good what was foretold turned out to be."""
        self.start_estimates = family.counter(
            "start_estimates_total",
            "Groups that started after a start had been estimated for them, by where that fell in the band that they"
            " were told first: within, early, late",
            ["result"],
        )
        self.start_hits = family.gauge(
            "start_estimate_hit_ratio",
            "The part of those starts that fell within the band, since the process began; NaN before the first",
        )
        self.start_hits.set(nan)
        self.start_estimate_seconds = family.histogram(
            "start_estimate_duration_seconds", "One round of estimates, rests included", buckets=SLOW
        )
        self.run_time_estimates = family.counter(
            "run_time_estimates_total",
            "Groups that ended well, by what was expected of their run time (by the owner's word, by what was learned,"
            " none) and how it was: within, early (below p10), late (above p90 or the owner's word), unknown",
            ["source", "result"],
        )

    def waiting(self, reasons: Mapping[str, int]) -> None:
        """How many groups wait now, by reason. What was reported once must be in it again, if with 0."""
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

    def extender_asked(self, matter: str, result: str, seconds: float) -> None:
        """``result``: ``answered`` or ``failed``."""
        self.extender_seconds.labels(matter, result).observe(seconds)

    def run_time_ended(self, source: str, result: str) -> None:
        """``source``: ``owner``, ``learned`` or ``none``; ``result``: ``within``, ``early``, ``late``, ``unknown``."""
        self.run_time_estimates.labels(source, result).inc()

    def queue_gone(self, name: str) -> None:
        self.figures.pop(name, None)
        for resource, state in self._queues.pop(name, ()):
            self.queue_resource.remove(name, resource, state)
