"""Reports of decisions: reasons for waiting, states, and metrics of the cycle.

The status writer performs the writes. This module decides what it is given.
"""

from __future__ import annotations

from collections.abc import Sequence

from windlass.engine.decision import Decision
from windlass.kits.clock import Clock
from windlass.model.cluster.cluster_model import ClusterModel
from windlass.model.groups.podgroups import is_implicit
from windlass.observe import logs
from windlass.observe.scheduling import SchedulerMetrics
from windlass.scheduler.autoscaling.provisioning import ProvisioningRequests
from windlass.scheduler.commit.bind_queue import BindQueue
from windlass.scheduler.commit.eviction_results import EvictionResults
from windlass.scheduler.commit.incomplete_gangs import IncompleteGangs
from windlass.scheduler.engine_host import EngineHost
from windlass.scheduler.estimates.start_estimates import StartEstimates
from windlass.scheduler.observability.group_counters import GroupCounters, plain_action
from windlass.scheduler.observability.lifecycle import PHASES
from windlass.scheduler.observability.observer import SchedulingObserver
from windlass.scheduler.status.explanations import Explanations
from windlass.scheduler.status.group_reports import GroupReports
from windlass.scheduler.status.kai_timestamps import timestamps_of
from windlass.scheduler.status.pending_groups import PendingGroups
from windlass.scheduler.status.status_writer import StatusWriter
from windlass.scheduler.steady_time import SteadyTime

log = logs.get("scheduler")
SLOW_CYCLE_SECONDS = 0.5
"""Duration of a cycle in seconds from which it is logged."""


class DecisionReporter:
    """Reports decisions to users, metrics and observers."""

    def __init__(
        self,
        model: ClusterModel,
        host: EngineHost,
        metrics: SchedulerMetrics,
        reports: GroupReports,
        pending: PendingGroups,
        explanations: Explanations,
        status_writer: StatusWriter,
        provisioning: ProvisioningRequests,
        estimates: StartEstimates,
        evictions: EvictionResults,
        gangs: IncompleteGangs,
        counters: GroupCounters,
        bind_queue: BindQueue,
        observers: Sequence[SchedulingObserver],
        *,
        clock: Clock,
        time: SteadyTime,
    ) -> None:
        self._model = model
        self._host = host
        self._metrics = metrics
        self._reports = reports
        self._pending = pending
        self._explanations = explanations
        self._status_writer = status_writer
        self._provisioning = provisioning
        self._estimates = estimates
        self._evictions = evictions
        self._gangs = gangs
        self._counters = counters
        self._bind_queue = bind_queue
        self._observers = observers
        self._clock = clock
        self._time = time
        self._table_shape = 0
        """Shape of the node table of which the status writer was told last."""

    # ------------------------------------------------------------------ a decision

    def report(self, decision: Decision) -> None:
        """Report what a decision has changed."""
        writer = self._status_writer
        writer.begin_cycle(decision.cycle)
        changed = dict.fromkeys(self._model.take_changed())
        for status in decision.groups:
            changed[status.group] = None
            if status.explanation is None and self._is_unreported(status.group):
                self._reports.forget(status.group)
            else:
                self._reports.put(status)
        self._counters.count_decision(decision, self._host.engine.passes, self._time.now())
        for key in changed:
            self.report_group(key)
        self._nominate(decision)
        shape = self._host.engine.state.table.shape
        if shape != self._table_shape:
            self._table_shape = shape
            writer.nodes_changed()
        writer.update_kai_timestamps(timestamps_of(decision, self._model, self._time.now()))
        for usage in decision.queues:
            writer.update_queue(usage)
            self._metrics.queue(
                usage.queue,
                {
                    "allocated": usage.allocated,
                    "requested": usage.requested,
                    "deserved": usage.deserved,
                    "guarantee": usage.guarantee,
                    "capability": usage.capability,
                    "fair_share": usage.fair_share,
                },
            )

    def _nominate(self, decision: Decision) -> None:
        pods, tasks = self._status_writer.pods, self._host.engine.state.tasks
        for nomination in decision.nominations:
            pods.nominate(nomination.task, nomination.node)
        for task in list(pods.nominated) if pods.nominated else ():
            entry = tasks.get(task)
            if entry is None or entry.nominated_row < 0:
                pods.withdraw(task)

    # ------------------------------------------------------------------ one group

    def report_group(self, key: str) -> None:
        """Report the state of a group."""
        if not self._model.groups.known(key):
            self._forget(key)
            return
        report = self._reports.get(key)
        explanation = self._explanations.short(key, report.explanation if report is not None else None)
        if explanation is None and key not in self._pending and self._is_unreported(key):
            return
        now = self._time.now()
        blocked = explanation is not None and self._model.blocked(key)
        members = self._model.groups.members(key)
        admitted = report is not None and report.admitted
        self._status_writer.update_group(key, admitted, explanation, blocked, members)
        for observer in self._observers:
            observer.group_updated(key, admitted, explanation, members, now)
        if not is_implicit(key):
            self._provisioning.update(key)
            self._counters.update_group(key, admitted, members, now)
            self._gangs.observe(key, members, self._clock.monotonic())

    def _forget(self, key: str) -> None:
        """Forget a group that does not exist any more."""
        self._reports.forget(key)
        self._evictions.forget(key)
        self._gangs.forget(key)
        self._estimates.forget(key)
        self._counters.remove_group(key)
        self._status_writer.remove_group(key)
        self._provisioning.update(key)
        self._status_writer.foreign_cleanup.check(key)
        for observer in self._observers:
            observer.group_removed(key, self._time.now())

    def _is_unreported(self, key: str) -> bool:
        """Return whether there is nothing to report of a group unless it waits.

        A pod without a PodGroup has no phase and no minimum. A large cluster may have a
        hundred thousand of them when it is first read.
        """
        return not self._observers and is_implicit(key)

    def remove_queue(self, name: str) -> None:
        """Forget a queue that does not exist any more."""
        self._status_writer.remove_queue(name)
        self._metrics.queue_gone(name)

    # ------------------------------------------------------------------ metrics

    def measure(self, decision: Decision, changes: int, times: Sequence[float]) -> None:
        """Measure a cycle.

        ``times``: its start and the ends of its phases, monotonic.
        """
        metrics = self._metrics
        seconds = times[-1] - times[0]
        metrics.cycle_seconds.observe(seconds)
        self._measure_phases(times)
        self._counters.end_cycle(any(metrics.reasons.values()), seconds)
        if seconds > SLOW_CYCLE_SECONDS:
            log.warning("slow cycle", seconds=round(seconds, 3), deltas=changes, binds=len(decision.binds))
        metrics.deltas.inc(changes)
        for kind, decided in (
            ("bind", decision.binds),
            ("eviction", decision.evictions),
            ("nomination", decision.nominations),
        ):
            if decided:
                metrics.decisions.labels(kind).inc(len(decided))
        metrics.waiting(self._pending.reasons)
        metrics.assumed.set(len(self._model.binds.assumed))
        metrics.bind_limit.set(self._bind_queue.limit.limit)

    def _measure_phases(self, times: Sequence[float]) -> None:
        metrics = self._metrics
        last = {"cycle": times[-1] - times[0]}
        for phase, start, end in zip(PHASES, times, times[1:], strict=False):
            last[phase] = end - start
            metrics.part_seconds.add(end - start, phase)
        by_action: dict[str, float] = {}
        for action_pass in self._host.engine.passes:
            name = plain_action(action_pass.action)
            by_action[name] = by_action.get(name, 0.0) + action_pass.seconds
        for name, seconds in by_action.items():
            metrics.action_seconds.add(seconds, name)
        metrics.last_cycle, metrics.last_actions = last, by_action
