"""The scheduler service: informers feed the engine, its decisions are carried out and shown.

One task decides. Events of the informers mark what changed and wake it; a few milliseconds later one
cycle takes all changes in, decides, and hands binds and evictions to their own tasks. What comes of them
returns as deltas. There is no polling: between events the service sleeps until a moment that the
engine, an assumed bind or an incomplete gang has named.

Invariants: a decided bind counts as done until the pod shows it, its failure is known, or it was looked
up; nothing is decided before every informer is synced; all state can be lost, a restart reads it anew.
One that stands by follows everything, has its engine know it, and writes nothing until it leads.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping

from prometheus_client import CollectorRegistry

from windlass.api.reasons import Explanation
from windlass.client.client import Client
from windlass.client.informers import SharedInformers
from windlass.client.recorder import EventRecorder
from windlass.client.retries import RetryPolicy
from windlass.engine import deltas
from windlass.engine.decision import Bind, Decision
from windlass.engine.engine import Engine
from windlass.kits.clock import Clock
from windlass.kits.rng import Random
from windlass.kits.tasks import TaskGroup, wait_for
from windlass.model.cluster.cluster_model import ClusterModel
from windlass.model.cluster.node_usage import NodeUsage
from windlass.model.pods.device_exclusion import exclusive_rules
from windlass.observe import logs
from windlass.observe.scheduling import SchedulerMetrics
from windlass.observe.tracing import Exporter
from windlass.scheduler.autoscaling.provisioning import ProvisioningRequests
from windlass.scheduler.backpressure import CROWD, Backpressure
from windlass.scheduler.bind_results import BindResults
from windlass.scheduler.cache.event_handlers import EventHandlers
from windlass.scheduler.cache.initial_sync import InitialSync
from windlass.scheduler.commit.bind_guard import BindGuard
from windlass.scheduler.commit.bind_webhook import WebhookHandler
from windlass.scheduler.commit.binder import Binder
from windlass.scheduler.commit.concurrency_limit import AdaptiveLimit
from windlass.scheduler.commit.conflict_detector import BindConflicts
from windlass.scheduler.commit.device_reservations import UNSURE, DeviceReservations
from windlass.scheduler.commit.eviction_record import EvictionRecords
from windlass.scheduler.commit.evictor import Evictor
from windlass.scheduler.commit.gang_timeout import GangWatch
from windlass.scheduler.commit.hami_node_lock import HamiLocks
from windlass.scheduler.commit.pre_bind import PreBind
from windlass.scheduler.commit.yield_to_others import YieldToOthers
from windlass.scheduler.compat_metrics.scrape import Sources
from windlass.scheduler.components import SchedulerComponents
from windlass.scheduler.configuration import ConfigMapSource
from windlass.scheduler.decision_reporter import DecisionReporter
from windlass.scheduler.engine_host import EngineHost
from windlass.scheduler.estimates.run_times import LearnedRunTimes, learns
from windlass.scheduler.estimates.start_estimates import StartEstimates
from windlass.scheduler.estimates.time_share_counts import TimeShareCounts
from windlass.scheduler.observability.group_counters import GroupCounters
from windlass.scheduler.observability.traces import SchedulingTraces
from windlass.scheduler.options import SchedulerOptions
from windlass.scheduler.status.event_buffer import EventBuffer
from windlass.scheduler.status.status_writer import StatusWriter
from windlass.spi.configuration import SchedulerConfig, foreign_queue
from windlass.spi.objects import AttainedService

log = logs.get("scheduler")
COMPONENT = "windlass-scheduler"
WIND_DOWN_LOOK_SECONDS = 0.02
RUSH_CYCLE_SECONDS = 0.05
"""So long are changes collected at least in a rush: a cycle for each few pods costs more than it gives."""
_ONCE = RetryPolicy(attempts=1)


def _model_of(options: SchedulerOptions) -> ClusterModel:
    return ClusterModel(
        options.scheduler_names,
        wait_for_group=options.wait_for_group,
        tiers=bool(options.policy.tiers),
        exclusive=exclusive_rules(options.policy),
        foreign_queue=foreign_queue(options.policy),
        beside=options.beside,
    )


class SchedulerService:
    """``informers`` may be shared with other services of the process, which then run them; without, the
    service runs its own. ``engine`` is the default policy unless given. ``bind_client`` must not repeat
    requests by itself: the binder wants to see every refusal for overload. ``stands_by``: until :meth:`lead`."""

    def __init__(
        self,
        client: Client,
        *,
        clock: Clock,
        rng: Random,
        options: SchedulerOptions | None = None,
        informers: SharedInformers | None = None,
        engine: Engine | None = None,
        recorder: EventRecorder | None = None,
        bind_client: Client | None = None,
        registry: CollectorRegistry | None = None,
        stands_by: bool = False,
        exporter: Exporter | None = None,
    ) -> None:
        self.options = options or SchedulerOptions()
        self._leads = asyncio.Event()
        self._sure: Callable[[], bool] = lambda: True
        if not stands_by:
            self._leads.set()
        self.metrics = SchedulerMetrics(registry or CollectorRegistry())
        self.model = _model_of(self.options)
        self._traces = SchedulingTraces(exporter, self.model) if exporter is not None else None
        self.group_counters = GroupCounters(self.model)
        self.recorder = recorder or EventRecorder(client, COMPONENT, clock, rng)
        self.last_decision = Decision(0)
        self._clock = clock
        self._own_informers = informers is None
        self._informers = informers or SharedInformers(client, clock, rng)
        self._wake = asyncio.Event()
        self.ready = asyncio.Event()
        self._task_group = TaskGroup()
        self._ledger = NodeUsage(self.model.claims)
        self._run_times = LearnedRunTimes(
            client,
            self.model,
            clock=clock,
            counts=TimeShareCounts(lambda: self.engine, self._time),
            enabled=learns(self.options.policy),
            namespace=self.options.own_namespace,
            ended=self.metrics.run_time_ended,
        )
        self._gangs = GangWatch(self.options.gang_seconds)
        self._ends = False
        self._components = self._carriers(client, bind_client, rng)
        self._engine_host = EngineHost(self._components, client, engine)
        self._bind_results = BindResults(self._components)
        self._decision_reporter = DecisionReporter(
            self._components, lambda: self.engine, self._bind_results.refused
        )
        self.model.claims.generated = True
        self._event_handlers, self._initial_sync = self._sources(client)
        self._config_map = (
            ConfigMapSource(self._informers, self.recorder, self.use) if self.options.config_map else None
        )
        self._start_elapsed = clock.elapsed()
        self._start_time = clock.now()

    def _sources(self, client: Client) -> tuple[EventHandlers, InitialSync]:
        """Who tells of the world."""
        gone, wake = self._decision_reporter.queue_gone, self._wake
        event_handlers = EventHandlers(
            self._informers, self.model, self._bind_results.pod_changed, gone, wake.set
        )
        event_handlers.probe_with(client, self._clock)
        engine_host = self._engine_host
        return event_handlers, InitialSync(
            event_handlers, self.model, wake, begin=engine_host.begin, tell=engine_host.tell, time=self._time
        )

    def _carriers(self, client: Client, bind_client: Client | None, rng: Random) -> SchedulerComponents:
        """Who carries out and shows what is decided."""
        clock, options, model = self._clock, self.options, self.model
        self._conflicts = BindConflicts(model, self._ledger, 4 * options.assume_seconds)
        self._yield_to_others = YieldToOthers(
            client, model, self._ledger, options.turn_seconds, options.turn_most_seconds
        )
        self._guard = BindGuard(model, self._ledger) if options.bind_guard else None
        self._yield_to_others.off = self._guarded
        self._cards = self._card_holders(client)
        self._pre_bind = PreBind(
            model,
            self._ledger,
            self._notes,
            self._yield_to_others,
            clock=clock,
            await_volumes=options.await_volumes,
            cards=self._cards.awaited,
        )
        self._binder = Binder(
            bind_client
            or Client(client.transport, clock=clock, rng=rng, retries=_ONCE, user_agent=COMPONENT),
            lambda result: self._bind_results.bound(result),
            clock=clock,
            rng=rng,
            limit=AdaptiveLimit(options.bind_concurrency, ceiling=options.bind_concurrency_max),
            give_up_seconds=options.assume_seconds,
            words=model.binding_words,
            before=self._pre_bind.claim_writes,
            objection=self._objection,
            sure=lambda: self._sure(),
            alone=self._alone,
            turns=HamiLocks(client, model, clock=clock),
        )
        self._evictor = self._evicts(client, rng)
        self._eviction_records = EvictionRecords(model, self._past, self._time)
        self._backpressure = Backpressure(clock, self._pressed)
        self._event_buffer = EventBuffer(
            self.recorder, clock, lambda: self._binder.busy > 0 or self._backpressure()
        )
        told = (self.recorder, self.metrics, options, self.explain)
        self._nodes = self._node_requests(client, rng)
        self._status_writer = StatusWriter(
            client,
            model,
            *told,
            clock=clock,
            rng=rng,
            nodes=self._nodes,
            past=self._past,
            rush=self._backpressure,
        )
        self._starts = StartEstimates(
            model,
            self._run_times,
            lambda: self.options,
            self.metrics,
            clock=clock,
            now=self._time,
            waits=lambda: self._decision_reporter.waiting(),
            changed=lambda key: self._decision_reporter.group(key, clock.monotonic()),
        )
        return self._crew_made()

    def _evicts(self, client: Client, rng: Random) -> Evictor:
        return Evictor(
            client,
            self.model.pods,
            self.recorder,
            lambda result: self._bind_results.evicted(result),
            sure=lambda: self._sure(),
            waits=lambda order, why: self._bind_results.eviction_waits(order, why),
            clock=self._clock,
            rng=rng,
        )

    def _node_requests(self, client: Client, rng: Random) -> ProvisioningRequests:
        return ProvisioningRequests(
            client,
            self.model,
            self.recorder,
            self.metrics,
            lambda: self.options,
            clock=self._clock,
            rng=rng,
            now=self._time,
            lacks=lambda key: self._status_writer.waits.lacks_nodes(key),
            changed=lambda key: self._decision_reporter.group(key, self._clock.monotonic()),
        )

    def _card_holders(self, client: Client) -> DeviceReservations:
        return DeviceReservations(
            client,
            self.model,
            self.options.card_pods,
            clock=self._clock,
            sure=lambda: self._sure(),
            start=self._task_group.start,
            evict=lambda order: self._evictor.submit(order),
            wake=self._wake.set,
        )

    def _crew_made(self) -> SchedulerComponents:
        return SchedulerComponents(
            clock=self._clock,
            time=self._time,
            options=lambda: self.options,
            wake=self._wake.set,
            leads=self._leads,
            task_group=self._task_group,
            model=self.model,
            ledger=self._ledger,
            metrics=self.metrics,
            recorder=self.recorder,
            conflicts=self._conflicts,
            yield_to_others=self._yield_to_others,
            guard=self._guard,
            gangs=self._gangs,
            run_times=self._run_times,
            traces=self._traces,
            group_counters=self.group_counters,
            binder=self._binder,
            evictor=self._evictor,
            event_buffer=self._event_buffer,
            status_writer=self._status_writer,
            nodes=self._nodes,
            backpressure=self._backpressure,
            starts=self._starts,
        )

    def _pressed(self) -> bool:
        """Whether binds queue up: many do, or as many as the server bears."""
        return self._binder.busy >= min(CROWD, self._binder.limit.limit)

    def _guarded(self) -> bool:
        """Whether the API server asks here before it lets others bind."""
        return self._guard is not None and self._guard.effective(self._clock.monotonic())

    def _alone(self, now: float) -> bool:
        """Whether nobody else may take room while a bind is on its way."""
        return self._guarded() or (self._conflicts.alone(now) and not self._yield_to_others.lively(now))

    def _objection(self, bind: Bind) -> str:
        if not self._sure():
            return UNSURE
        why = self._conflicts.objection(bind) or self._cards.objection(bind)
        return why or (self._guard.objection(bind, self._clock.monotonic()) if self._guard else "")

    def _answered(self, what: str) -> None:
        self.metrics.guarded.labels(what).inc()
        self._wake.set()  # what was let through counts from the next cycle on

    def questions(self) -> WebhookHandler:
        """Who answers the API server's questions about bindings. Needs the option ``bind_guard``."""
        assert self._guard is not None
        return WebhookHandler(
            self._guard,
            self.model.pods,
            self._binder.look_up,
            lambda: self.ready.is_set() and self._leads.is_set() and not self._components.takes_over,
            self._answered,
            clock=self._clock,
        )

    def sources(self, details: Collection[str] = ()) -> Sources:
        """Where its figures are kept. ``details``: what of them is told one by one."""
        return Sources(
            metrics=self.metrics,
            model=self.model,
            group_counters=self.group_counters,
            waits=self._status_writer.waits,
            ledger=self._ledger,
            engine=lambda: self.engine,
            time=self._time,
            details=details,
        )

    @property
    def engine(self) -> Engine:
        """The one that decides now."""
        return self._engine_host.engine

    # ------------------------------------------------------------------ running

    async def run(self) -> None:
        """Schedule until cancelled. Raises what went wrong inside (a defect, never the server's doing)."""
        task_group = self._task_group
        try:
            if self._own_informers:
                task_group.start(self._informers.run(), "informers")
            task_group.start(self._decide(), "decisions")
            task_group.start(self._event_handlers.follow_served(), "optional kinds")
            await task_group.watch()
        finally:
            self._engine_host.close()
            await task_group.stop()

    def lead(self, sure: Callable[[], bool] = lambda: True, ahead: float = 0.0) -> None:
        """Decide from now on; nothing is bound while it is not ``sure`` that nobody else leads. ``ahead``: by so many
        seconds this machine's clock is ahead of the API server's, by which everything here is reckoned from now on."""
        self._sure = sure
        if ahead:
            self._start_time -= ahead
            self.model.time_was_set()
        self._leads.set()

    async def wind_down(self, seconds: float) -> None:
        """Decide nothing more, and return once what was decided is bound and told, at the latest after ``seconds``.
        :meth:`run` must be running, and is to be cancelled afterwards."""
        self._ends = True
        self._wake.set()
        self._event_buffer.hurry()
        self._backpressure.end()
        until = self._clock.monotonic() + seconds
        while (
            self._binder.busy
            or self._event_buffer.waiting
            or self.recorder.waiting
            or self._status_writer.behind
        ):
            if self._clock.monotonic() >= until:
                log.warning(
                    "ended with work undone",
                    binds=self._binder.busy,
                    events=self._event_buffer.waiting + self.recorder.waiting,
                )
                return
            await self._clock.sleep(WIND_DOWN_LOOK_SECONDS)

    async def _decide(self) -> None:
        await self._sync()
        await self._engine_host.stand_by(self._initial_sync)
        await self._initial_sync.rest()
        task_group = self._task_group
        task_group.start(self.recorder.run(), "events")
        task_group.start(self._status_writer.run(), "publisher")
        task_group.start(self._nodes.run(), "requests for nodes")
        task_group.start(self._evictor.run(), "evictor")
        task_group.start(self._binder.run(), "binder")
        task_group.start(self._event_buffer.run(), "announcer")
        task_group.start(self._engine_host.loads.run(), "measured loads")
        task_group.start(self._run_times.run(), "learned run times")
        task_group.start(self._starts.run(), "start estimates")
        self._engine_host.serve()
        pause: float | None = 0.0
        while True:
            await wait_for(self._wake, self._clock, pause)
            collecting = self.options.debounce_seconds
            await self._clock.sleep(
                max(collecting, RUSH_CYCLE_SECONDS) if self._backpressure() else collecting
            )
            if self._ends:
                return
            self._wake.clear()
            while self._engine_host.changed:
                self._engine_host.adopt()
                await self._initial_sync.rest()
            pause = self._cycle()

    async def _sync(self) -> None:
        patience = self._task_group.start(self._complain(), "sync warning")
        await self._event_handlers.known()
        if self._config_map is not None:
            await self._config_map.informer.wait_synced()
        await self._initial_sync.pods()
        patience.cancel()
        model = self.model
        log.info(
            "synced",
            nodes=len(model.nodes),
            pods=len(model.pods),
            groups=len(model.groups),
            queues=len(model.queues),
        )
        self.ready.set()

    async def _complain(self) -> None:
        while True:
            await self._clock.sleep(self.options.sync_warning_seconds)
            log.warning("still waiting for the first lists", kinds=",".join(self._event_handlers.unsynced()))

    def explain(self, group: str) -> Explanation | None:
        """Why a group waits, in full, as things stand; None if nothing of it waits."""
        return self._decision_reporter.explain(group)

    def use(self, policy: SchedulerConfig) -> None:
        """Decide by another configuration from the next cycle on. Running work is not touched by the
        change itself; what waits is judged anew."""
        self._engine_host.use(policy)

    def adjust(self, options: SchedulerOptions) -> None:
        """Other times and limits from now on. Names, policy, namespace and turns stay as they were."""
        if options.provisioning_class != self.options.provisioning_class:
            self.model.show_all()
            self._wake.set()
        self.options = options
        self._status_writer.adjust(options)
        self._gangs.patience = options.gang_seconds
        limit = self._binder.limit
        limit.ceiling = options.bind_concurrency_max
        limit.limit = min(limit.limit, limit.ceiling)

    def _time(self) -> float:
        """Unix seconds that never run backwards, whatever is done to the machine's clock; a night for which it was
        suspended is counted."""
        return self._start_time + (self._clock.elapsed() - self._start_elapsed)

    # ------------------------------------------------------------------ one cycle

    def _cycle(self) -> float | None:
        """Take changes in, decide, hand out. Returns the seconds until the next cycle is due anyway."""
        begun = self._clock.monotonic()
        if self._guard is not None:
            self._guard.forget(begun)
        changes = self.model.take(self._time())
        if self._components.takes_over:
            changes = self._take_over(changes)
        inbox, self._components.inbox = self._components.inbox, []
        taken = self._clock.monotonic()
        self.engine.apply([*self._run_times.filled(changes), *inbox])
        moment = self._time()
        decision = self.engine.cycle(moment)
        self.last_decision = decision
        decided = self._clock.monotonic()
        for bind in decision.binds:
            self.model.assume_bind(bind, moment)
        self._starts.bound(decision.binds)
        self._decision_reporter.decision(decision)
        shown = self._clock.monotonic()
        self._carry_out(decision)
        self._cards.sweep()
        self._bind_results.expire()
        now = self._clock.monotonic()
        parts = (begun, taken, decided, shown, now)
        if self._traces is not None:
            since = self._time() - now
            self._traces.cycle(decision, len(changes) + len(inbox), tuple(since + moment for moment in parts))
        self._decision_reporter.measure(decision, len(changes) + len(inbox), parts)
        if self._components.inbox:
            self._wake.set()
        deadlines = (self._gangs.next_deadline(), self._bind_results.next_deadline)
        moments = [deadline for deadline in deadlines if deadline is not None]
        if self._guard is not None and self._guard.held:
            moments.append(self._guard.next_end)
        ahead = [moment for moment in (decision.wake_at, self.model.next_change()) if moment is not None]
        moments += [now + moment - self._time() for moment in ahead]
        return max(0.0, min(moments) - now) if moments else None

    def _take_over(self, changes: list[deltas.Delta]) -> list[deltas.Delta]:
        """What the world is told to the engine for the first time: what was begun by somebody else stands."""
        self._components.takes_over = False
        self._status_writer.pods.review()
        self._status_writer.foreign_cleanup.review()
        resumed = self._pre_bind.resumed(self._time())
        if resumed:
            changes = self.model.resume(resumed, changes)
            self._binder.submit(self._pre_bind.batches(resumed, self._time(), reserve=False))
        for orders in self._eviction_records.begun():
            self._evictor.submit_together(orders, None)
            self._components.inbox += [deltas.EvictionBegun(order.key, order.uid) for order in orders]
        return changes

    def _carry_out(self, decision: Decision) -> None:
        if decision.binds:
            self._binder.submit(self._pre_bind.batches(decision.binds, self._time()))
        for orders, write in self._eviction_records.of(decision.evictions):
            self._evictor.submit_together(orders, write)

    def _past(self, group: str) -> AttainedService | None:
        """What a group that shares time has behind it."""
        return self.engine.state.time_sharing.past(group)

    def _notes(self, group: str) -> Mapping[str, str | None]:
        """What is to be written on a group along with something else."""
        return self._status_writer.notes(group)
