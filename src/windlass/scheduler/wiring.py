"""Composition of a scheduler: creates its components and connects them.

Each component gets what it uses as constructor arguments. They are created in the order
of their dependencies, so no component is connected before it exists. Two connections
run against this order, both explicit:
:class:`~windlass.scheduler.group_signal.GroupSignal`, and the subscribers of
:class:`~windlass.scheduler.engine_host.EngineHost`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterator
from typing import Any

from prometheus_client import CollectorRegistry

from windlass.client.client import Client
from windlass.client.informers import SharedInformers
from windlass.client.recorder import EventRecorder
from windlass.client.retries import RetryPolicy
from windlass.engine import deltas
from windlass.engine.engine import Engine
from windlass.kits.clock import Clock
from windlass.kits.rng import Random
from windlass.kits.tasks import TaskGroup
from windlass.model.cluster.cluster_model import ClusterModel
from windlass.model.cluster.node_usage import NodeUsage
from windlass.model.pods.device_exclusion import exclusive_rules
from windlass.observe.scheduling import SchedulerMetrics
from windlass.observe.tracing import Exporter
from windlass.scheduler import features
from windlass.scheduler.autoscaling.provisioning import ProvisioningRequests
from windlass.scheduler.backpressure import Backpressure
from windlass.scheduler.cache.event_handlers import EventHandlers
from windlass.scheduler.cache.initial_sync import InitialSync
from windlass.scheduler.cache.pod_changes import PodChanges
from windlass.scheduler.commit.bind_checks import BindChecks
from windlass.scheduler.commit.bind_guard import BindGuard
from windlass.scheduler.commit.bind_queue import BindQueue
from windlass.scheduler.commit.bind_results import BindResults
from windlass.scheduler.commit.binder import Binder
from windlass.scheduler.commit.committer import Committer
from windlass.scheduler.commit.concurrency_limit import AdaptiveLimit
from windlass.scheduler.commit.conflict_detector import BindConflicts
from windlass.scheduler.commit.device_reservations import DeviceReservations
from windlass.scheduler.commit.displacements import Displacements
from windlass.scheduler.commit.eviction_record import EvictionRecords
from windlass.scheduler.commit.eviction_results import EvictionResults
from windlass.scheduler.commit.evictor import Evictor
from windlass.scheduler.commit.gang_timeout import GangWatch
from windlass.scheduler.commit.incomplete_gangs import IncompleteGangs
from windlass.scheduler.commit.node_locks import NodeLocks
from windlass.scheduler.commit.overcommit import OvercommitCheck
from windlass.scheduler.commit.pod_lookup import PodLookup
from windlass.scheduler.commit.pre_bind import PreBind
from windlass.scheduler.commit.pre_bind_writer import PreBindWriter
from windlass.scheduler.commit.yield_to_others import YieldToOthers
from windlass.scheduler.cycle import SchedulingCycle
from windlass.scheduler.decision_reporter import DecisionReporter
from windlass.scheduler.engine_feed import EngineFeed
from windlass.scheduler.engine_host import EngineHost
from windlass.scheduler.estimates.run_times import LearnedRunTimes, learns
from windlass.scheduler.estimates.start_estimates import StartEstimates
from windlass.scheduler.estimates.time_share_counts import TimeShareCounts
from windlass.scheduler.group_signal import GroupSignal
from windlass.scheduler.leader.leadership import Leadership
from windlass.scheduler.observability.group_counters import GroupCounters
from windlass.scheduler.observability.observer import SchedulingObserver
from windlass.scheduler.options import LiveOptions, SchedulerOptions
from windlass.scheduler.policy_services import PolicyServices, ServiceContext
from windlass.scheduler.status.event_buffer import EventBuffer
from windlass.scheduler.status.explanations import Explanations
from windlass.scheduler.status.group_reports import GroupReports
from windlass.scheduler.status.pending_groups import PendingGroups
from windlass.scheduler.status.status_writer import StatusWriter
from windlass.scheduler.steady_time import SteadyTime
from windlass.spi.configuration import foreign_queue

COMPONENT = "windlass-scheduler"
_NO_RETRIES = RetryPolicy(attempts=1)


def new_model(options: SchedulerOptions) -> ClusterModel:
    """Return an empty model of the cluster."""
    model = ClusterModel(
        options.scheduler_names,
        wait_for_group=options.wait_for_group,
        wait_for_owner=options.wait_for_owner,
        tiers=bool(options.policy.tiers),
        exclusive=exclusive_rules(options.policy),
        foreign_queue=foreign_queue(options.policy),
        other_schedulers=options.other_schedulers,
    )
    model.features.claims.index.generated = True
    return model


class Components:
    """The components of one scheduler, connected.

    Only the service and tests read them here. See
    :class:`~windlass.scheduler.service.SchedulerService` for the arguments.
    """

    def __init__(
        self,
        client: Client,
        bind_client: Client | None,
        informers: SharedInformers,
        options: SchedulerOptions,
        recorder: EventRecorder | None,
        registry: CollectorRegistry | None,
        exporter: Exporter | None,
        *,
        engine: Engine | None,
        clock: Clock,
        rng: Random,
        stands_by: bool,
    ) -> None:
        self.client = client
        self.clock = clock
        self.rng = rng
        self.live = LiveOptions(options)
        self.recorder = recorder or EventRecorder(client, COMPONENT, clock, rng)
        self.metrics = SchedulerMetrics(registry or CollectorRegistry())
        self.model = new_model(options)
        self.leadership = Leadership(stands_by=stands_by)
        self.time = SteadyTime(clock)
        self.task_group = TaskGroup()
        self.wake_up = asyncio.Event()
        self.wake = self.wake_up.set
        self.inbox: list[deltas.Delta] = []
        """Deltas of the next cycle besides the changes of the model."""
        self._create_engine(engine)
        self._create_observers(exporter)
        self._create_status()
        self._create_evictor()
        self._create_binder(
            bind_client
            or Client(client.transport, clock=clock, rng=rng, retries=_NO_RETRIES, user_agent=COMPONENT)
        )
        self._create_cycle()
        self._create_informers(informers)

    # ------------------------------------------------------------------ engine

    def _create_engine(self, engine: Engine | None) -> None:
        policy, options = self.live.current.policy, self.live.current
        self.node_usage = NodeUsage(self.model.features.claims.index)
        self.engine_host = EngineHost(
            self.model, policy, engine, clock=self.clock, time=self.time, wake=self.wake
        )
        self.run_times = LearnedRunTimes(
            self.client,
            self.model,
            clock=self.clock,
            counts=TimeShareCounts(self.engine_host.time_sharing, self.time.now),
            enabled=learns(policy),
            namespace=options.own_namespace,
            finished=self.metrics.run_time_finished,
        )
        self.engine_host.subscribe(self.run_times.use_policy)
        self.engine_feed = EngineFeed(
            self.engine_host,
            self.model,
            self.run_times,
            self.metrics,
            self.leadership,
            self.inbox,
            clock=self.clock,
            time=self.time,
        )
        self.policy_services = PolicyServices(
            ServiceContext(
                self.client, self.model, self.clock, self.metrics, self.wake, self.task_group.start
            )
        )

    def _create_observers(self, exporter: Exporter | None) -> None:
        self.counters = GroupCounters(self.model)
        self.observers: list[SchedulingObserver] = []
        if exporter is not None:
            traces = features.load(features.TRACES)
            self.observers.append(traces.SchedulingTraces(exporter, self.model))

    # ------------------------------------------------------------------ status

    def _create_status(self) -> None:
        options = self.live.current
        self.bind_queue = BindQueue(
            AdaptiveLimit(options.bind_concurrency, ceiling=options.bind_concurrency_max)
        )
        self.backpressure = Backpressure(self.clock, self.bind_queue.is_backed_up)
        self.event_buffer = EventBuffer(self.recorder, self.clock, self._is_busy)
        self.pending = PendingGroups()
        self.reports = GroupReports()
        self.group_signal = GroupSignal()
        self.provisioning = ProvisioningRequests(
            self.client,
            self.model,
            self.recorder,
            self.metrics,
            self.live,
            self.pending,
            clock=self.clock,
            rng=self.rng,
            time=self.time,
            changed=self.group_signal.emit,
        )
        self.estimates = StartEstimates(
            self.model,
            self.run_times,
            self.live,
            self.metrics,
            self.reports,
            clock=self.clock,
            time=self.time,
            changed=self.group_signal.emit,
        )
        self.engine_host.subscribe(self.estimates.use_policy)
        self.eviction_results = EvictionResults(
            self.model, self.recorder, self.metrics, self.inbox, time=self.time, wake=self.wake
        )
        self.explanations = Explanations(
            self.model,
            self.engine_host,
            self.provisioning,
            self.estimates,
            self.eviction_results,
            time=self.time,
        )
        self.status_writer = StatusWriter(
            self.client,
            self.model,
            self.recorder,
            self.metrics,
            self.live,
            self.pending,
            self.provisioning,
            clock=self.clock,
            rng=self.rng,
            explain=self.explanations.explain,
            attained=self.engine_host.attained_service,
            under_pressure=self.backpressure,
        )

    def _is_busy(self) -> bool:
        """Return whether binds are in progress, or the API server is under pressure."""
        return self.bind_queue.busy > 0 or self.backpressure()

    # ------------------------------------------------------------------ commit

    def _create_evictor(self) -> None:
        self.evictor = Evictor(
            self.client,
            self.model.objects.pods,
            self.recorder,
            self.eviction_results.finished,
            delayed=self.eviction_results.delayed,
            holds_lease=self.leadership.holds_lease,
            clock=self.clock,
            rng=self.rng,
        )
        self.displacements = Displacements(self.model, self.engine_host, self.recorder, self.time)
        self.eviction_records = EvictionRecords(
            self.model, self.engine_host.attained_service, self.displacements, self.time
        )
        self.gang_watch = GangWatch(self.live.current.gang_seconds)
        self.gangs = IncompleteGangs(
            self.gang_watch,
            self.model,
            self.evictor,
            self.status_writer,
            self.counters,
            clock=self.clock,
            time=self.time,
        )
        self.reservations = DeviceReservations(
            self.client,
            self.model,
            self.live.current.reservation_pods,
            self.leadership,
            self.evictor,
            clock=self.clock,
            start=self.task_group.start,
            wake=self.wake,
        )

    def _create_binder(self, bind_client: Client) -> None:
        self._create_checks()
        options = self.live.current
        self.look_up = PodLookup(bind_client)
        self.bind_results = BindResults(
            self.model,
            self.recorder,
            self.metrics,
            self.live,
            self.inbox,
            self.look_up,
            self.event_buffer,
            self.backpressure,
            self.observers,
            clock=self.clock,
            time=self.time,
            task_group=self.task_group,
            wake=self.wake,
        )
        self.pre_bind = PreBind(
            self.model,
            self.node_usage,
            self.reservations,
            self.yield_to_others,
            self.status_writer.due_annotations,
            clock=self.clock,
            await_volumes=options.await_volumes,
        )
        self.node_locks = NodeLocks(self.client, self.model, clock=self.clock)
        writer = PreBindWriter(
            bind_client,
            self.bind_queue.limit,
            clock=self.clock,
            rng=self.rng,
            give_up_seconds=options.assume_seconds,
            holds_lease=self.leadership.holds_lease,
        )
        self.binder = Binder(
            bind_client,
            self.bind_queue,
            self.checks,
            self.node_locks,
            writer,
            self.look_up,
            self.bind_results.finished,
            clock=self.clock,
            rng=self.rng,
            annotations=self.model.writes.annotations,
            pre_bind_writes=self.pre_bind.claim_writes,
        )

    def _create_checks(self) -> None:
        options = self.live.current
        self.guard = BindGuard(self.model, self.node_usage) if options.bind_guard else None
        self.conflicts = BindConflicts(self.model, self.node_usage, 4 * options.assume_seconds)
        self.yield_to_others = YieldToOthers(
            self.client,
            self.model,
            self.node_usage,
            options.yield_seconds,
            options.max_yield_seconds,
            self._is_guarded,
        )
        self.checks = BindChecks(
            self.leadership,
            self.conflicts,
            self.yield_to_others,
            self.reservations,
            self.guard,
            clock=self.clock,
        )

    def _is_guarded(self) -> bool:
        """Return whether the API server asks Windlass about all bindings."""
        return self.guard is not None and self.guard.effective(self.clock.monotonic())

    # ------------------------------------------------------------------ loop

    def _create_cycle(self) -> None:
        self.reporter = DecisionReporter(
            self.model,
            self.engine_host,
            self.metrics,
            self.reports,
            self.pending,
            self.explanations,
            self.status_writer,
            self.provisioning,
            self.estimates,
            self.eviction_results,
            self.gangs,
            self.counters,
            self.bind_queue,
            self.observers,
            clock=self.clock,
            time=self.time,
        )
        self.group_signal.subscribe(self.reporter.report_group)
        committer = Committer(
            self.model,
            self.pre_bind,
            self.binder,
            self.eviction_records,
            self.displacements,
            self.evictor,
            self.status_writer,
            self.inbox,
            time=self.time,
        )
        self.cycle = SchedulingCycle(
            self.model,
            self.engine_host,
            self.engine_feed,
            self.leadership,
            committer,
            self.reporter,
            self.estimates,
            self.reservations,
            self.bind_results,
            self.gangs,
            self.checks,
            self.observers,
            clock=self.clock,
            time=self.time,
            wake=self.wake,
        )

    def _create_informers(self, informers: SharedInformers) -> None:
        overcommit = OvercommitCheck(
            self.model, self.node_usage, self.metrics, self.evictor, self.gangs, clock=self.clock
        )
        self.pod_changes = PodChanges(
            self.model,
            self.node_usage,
            self.leadership,
            self.run_times,
            self.backpressure,
            self.yield_to_others,
            self.conflicts,
            self.guard,
            overcommit,
            self.status_writer.pods,
            clock=self.clock,
        )
        self.event_handlers = EventHandlers(
            informers,
            self.model,
            self.client,
            on_pod=self.pod_changes.changed,
            on_queue_removed=self.reporter.remove_queue,
            wake=self.wake,
            clock=self.clock,
        )
        self.initial_sync = InitialSync(
            self.event_handlers,
            self.model,
            self.wake_up,
            begin=self.engine_feed.begin,
            deliver=self.engine_feed.deliver,
            now=self.time.now,
        )

    def background_tasks(self) -> Iterator[tuple[Coroutine[Any, Any, None], str]]:
        """Return the tasks that run while this instance leads, with their names."""
        yield self.recorder.run(), "events"
        yield self.status_writer.run(), "status writer"
        yield self.provisioning.run(), "provisioning requests"
        yield self.evictor.run(), "evictor"
        yield self.binder.run(), "binder"
        yield self.event_buffer.run(), "event buffer"
        yield self.run_times.run(), "learned run times"
        yield self.estimates.run(), "start estimates"
