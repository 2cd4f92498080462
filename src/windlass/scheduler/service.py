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
from windlass.kits.tasks import Keeper, wait_for
from windlass.model.cluster.cluster_model import ClusterModel
from windlass.model.cluster.node_usage import Ledger
from windlass.model.pods.device_exclusion import exclusive_rules
from windlass.observe import logs
from windlass.observe.scheduling import SchedulerMetrics
from windlass.observe.tracing import Exporter
from windlass.scheduler.autoscaling.provisioning import NodeRequests
from windlass.scheduler.backpressure import CROWD, Rush
from windlass.scheduler.bind_results import Returns
from windlass.scheduler.cache.event_handlers import Feed
from windlass.scheduler.cache.initial_sync import Reading
from windlass.scheduler.commit.bind_guard import BindGuard
from windlass.scheduler.commit.bind_webhook import Questions
from windlass.scheduler.commit.binder import Binder
from windlass.scheduler.commit.concurrency_limit import AdaptiveLimit
from windlass.scheduler.commit.conflict_detector import Contest
from windlass.scheduler.commit.device_reservations import UNSURE, CardReservations
from windlass.scheduler.commit.eviction_record import Leaving
from windlass.scheduler.commit.evictor import Evictor
from windlass.scheduler.commit.gang_timeout import GangWatch
from windlass.scheduler.commit.hami_node_lock import HamiLocks
from windlass.scheduler.commit.pre_bind import Reserver
from windlass.scheduler.commit.yield_to_others import Courtesy
from windlass.scheduler.compat_metrics.scrape import Sources
from windlass.scheduler.components import Crew
from windlass.scheduler.configuration import ConfigMapSource
from windlass.scheduler.decision_reporter import Showing
from windlass.scheduler.engine_host import Mind
from windlass.scheduler.estimates.run_times import RunTimes, learns
from windlass.scheduler.estimates.start_estimates import StartEstimates
from windlass.scheduler.estimates.time_share_counts import ShareCounts
from windlass.scheduler.observability.group_counters import Milestones
from windlass.scheduler.observability.traces import Journeys
from windlass.scheduler.options import SchedulerOptions
from windlass.scheduler.status.event_buffer import Announcer
from windlass.scheduler.status.status_writer import Publisher
from windlass.spi.configuration import SchedulerConfig, foreign_queue
from windlass.spi.objects import Past

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
        self._journeys = Journeys(exporter, self.model) if exporter is not None else None
        self.milestones = Milestones(self.model)
        self.recorder = recorder or EventRecorder(client, COMPONENT, clock, rng)
        self.last_decision = Decision(0)
        self._clock = clock
        self._own_informers = informers is None
        self._informers = informers or SharedInformers(client, clock, rng)
        self._wake = asyncio.Event()
        self.ready = asyncio.Event()
        self._keeper = Keeper()
        self._ledger = Ledger(self.model.claims)
        self._run_times = RunTimes(
            client,
            self.model,
            clock=clock,
            counts=ShareCounts(lambda: self.engine, self._time),
            enabled=learns(self.options.policy),
            namespace=self.options.own_namespace,
            ended=self.metrics.run_time_ended,
        )
        self._gangs = GangWatch(self.options.gang_seconds)
        self._ends = False
        self._crew = self._carriers(client, bind_client, rng)
        self._mind = Mind(self._crew, client, engine)
        self._returns = Returns(self._crew)
        self._showing = Showing(self._crew, lambda: self.engine, self._returns.refused)
        self.model.claims.generated = True
        self._feed, self._reading = self._sources(client)
        self._config_map = (
            ConfigMapSource(self._informers, self.recorder, self.use) if self.options.config_map else None
        )
        self._start_elapsed = clock.elapsed()
        self._start_time = clock.now()

    def _sources(self, client: Client) -> tuple[Feed, Reading]:
        """Who tells of the world."""
        gone, wake = self._showing.queue_gone, self._wake
        feed = Feed(self._informers, self.model, self._returns.pod_changed, gone, wake.set)
        feed.probe_with(client, self._clock)
        mind = self._mind
        return feed, Reading(feed, self.model, wake, begin=mind.begin, tell=mind.tell, time=self._time)

    def _carriers(self, client: Client, bind_client: Client | None, rng: Random) -> Crew:
        """Who carries out and shows what is decided."""
        clock, options, model = self._clock, self.options, self.model
        self._contest = Contest(model, self._ledger, 4 * options.assume_seconds)
        self._courtesy = Courtesy(
            client, model, self._ledger, options.turn_seconds, options.turn_most_seconds
        )
        self._guard = BindGuard(model, self._ledger) if options.bind_guard else None
        self._courtesy.off = self._guarded
        self._cards = self._card_holders(client)
        self._reserver = Reserver(
            model,
            self._ledger,
            self._notes,
            self._courtesy,
            clock=clock,
            await_volumes=options.await_volumes,
            cards=self._cards.awaited,
        )
        self._binder = Binder(
            bind_client
            or Client(client.transport, clock=clock, rng=rng, retries=_ONCE, user_agent=COMPONENT),
            lambda outcome: self._returns.bound(outcome),
            clock=clock,
            rng=rng,
            limit=AdaptiveLimit(options.bind_concurrency, ceiling=options.bind_concurrency_max),
            give_up_seconds=options.assume_seconds,
            words=model.binding_words,
            before=self._reserver.claim_writes,
            objection=self._objection,
            sure=lambda: self._sure(),
            alone=self._alone,
            turns=HamiLocks(client, model, clock=clock),
        )
        self._evictor = self._evicts(client, rng)
        self._leaving = Leaving(model, self._past, self._time)
        self._rush = Rush(clock, self._pressed)
        self._announcer = Announcer(self.recorder, clock, lambda: self._binder.busy > 0 or self._rush())
        told = (self.recorder, self.metrics, options, self.explain)
        self._nodes = self._node_requests(client, rng)
        self._publisher = Publisher(
            client, model, *told, clock=clock, rng=rng, nodes=self._nodes, past=self._past, rush=self._rush
        )
        self._starts = StartEstimates(
            model,
            self._run_times,
            lambda: self.options,
            self.metrics,
            clock=clock,
            now=self._time,
            waits=lambda: self._showing.waiting(),
            changed=lambda key: self._showing.group(key, clock.monotonic()),
        )
        return self._crew_made()

    def _evicts(self, client: Client, rng: Random) -> Evictor:
        return Evictor(
            client,
            self.model.pods,
            self.recorder,
            lambda result: self._returns.evicted(result),
            sure=lambda: self._sure(),
            waits=lambda order, why: self._returns.eviction_waits(order, why),
            clock=self._clock,
            rng=rng,
        )

    def _node_requests(self, client: Client, rng: Random) -> NodeRequests:
        return NodeRequests(
            client,
            self.model,
            self.recorder,
            self.metrics,
            lambda: self.options,
            clock=self._clock,
            rng=rng,
            now=self._time,
            lacks=lambda key: self._publisher.waits.lacks_nodes(key),
            changed=lambda key: self._showing.group(key, self._clock.monotonic()),
        )

    def _card_holders(self, client: Client) -> CardReservations:
        return CardReservations(
            client,
            self.model,
            self.options.card_pods,
            clock=self._clock,
            sure=lambda: self._sure(),
            start=self._keeper.start,
            evict=lambda order: self._evictor.submit(order),
            wake=self._wake.set,
        )

    def _crew_made(self) -> Crew:
        return Crew(
            clock=self._clock,
            time=self._time,
            options=lambda: self.options,
            wake=self._wake.set,
            leads=self._leads,
            keeper=self._keeper,
            model=self.model,
            ledger=self._ledger,
            metrics=self.metrics,
            recorder=self.recorder,
            contest=self._contest,
            courtesy=self._courtesy,
            guard=self._guard,
            gangs=self._gangs,
            run_times=self._run_times,
            journeys=self._journeys,
            milestones=self.milestones,
            binder=self._binder,
            evictor=self._evictor,
            announcer=self._announcer,
            publisher=self._publisher,
            nodes=self._nodes,
            rush=self._rush,
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
        return self._guarded() or (self._contest.alone(now) and not self._courtesy.lively(now))

    def _objection(self, bind: Bind) -> str:
        if not self._sure():
            return UNSURE
        why = self._contest.objection(bind) or self._cards.objection(bind)
        return why or (self._guard.objection(bind, self._clock.monotonic()) if self._guard else "")

    def _answered(self, what: str) -> None:
        self.metrics.guarded.labels(what).inc()
        self._wake.set()  # what was let through counts from the next cycle on

    def questions(self) -> Questions:
        """Who answers the API server's questions about bindings. Needs the option ``bind_guard``."""
        assert self._guard is not None
        return Questions(
            self._guard,
            self.model.pods,
            self._binder.look_up,
            lambda: self.ready.is_set() and self._leads.is_set() and not self._crew.takes_over,
            self._answered,
            clock=self._clock,
        )

    def sources(self, details: Collection[str] = ()) -> Sources:
        """Where its figures are kept. ``details``: what of them is told one by one."""
        return Sources(
            metrics=self.metrics,
            model=self.model,
            milestones=self.milestones,
            waits=self._publisher.waits,
            ledger=self._ledger,
            engine=lambda: self.engine,
            time=self._time,
            details=details,
        )

    @property
    def engine(self) -> Engine:
        """The one that decides now."""
        return self._mind.engine

    # ------------------------------------------------------------------ running

    async def run(self) -> None:
        """Schedule until cancelled. Raises what went wrong inside (a defect, never the server's doing)."""
        keeper = self._keeper
        try:
            if self._own_informers:
                keeper.start(self._informers.run(), "informers")
            keeper.start(self._decide(), "decisions")
            keeper.start(self._feed.follow_served(), "optional kinds")
            await keeper.watch()
        finally:
            self._mind.close()
            await keeper.stop()

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
        self._announcer.hurry()
        self._rush.end()
        until = self._clock.monotonic() + seconds
        while self._binder.busy or self._announcer.waiting or self.recorder.waiting or self._publisher.behind:
            if self._clock.monotonic() >= until:
                log.warning(
                    "ended with work undone",
                    binds=self._binder.busy,
                    events=self._announcer.waiting + self.recorder.waiting,
                )
                return
            await self._clock.sleep(WIND_DOWN_LOOK_SECONDS)

    async def _decide(self) -> None:
        await self._sync()
        await self._mind.stand_by(self._reading)
        await self._reading.rest()
        keeper = self._keeper
        keeper.start(self.recorder.run(), "events")
        keeper.start(self._publisher.run(), "publisher")
        keeper.start(self._nodes.run(), "requests for nodes")
        keeper.start(self._evictor.run(), "evictor")
        keeper.start(self._binder.run(), "binder")
        keeper.start(self._announcer.run(), "announcer")
        keeper.start(self._mind.loads.run(), "measured loads")
        keeper.start(self._run_times.run(), "learned run times")
        keeper.start(self._starts.run(), "start estimates")
        self._mind.serve()
        pause: float | None = 0.0
        while True:
            await wait_for(self._wake, self._clock, pause)
            collecting = self.options.debounce_seconds
            await self._clock.sleep(max(collecting, RUSH_CYCLE_SECONDS) if self._rush() else collecting)
            if self._ends:
                return
            self._wake.clear()
            while self._mind.changed:
                self._mind.adopt()
                await self._reading.rest()
            pause = self._cycle()

    async def _sync(self) -> None:
        patience = self._keeper.start(self._complain(), "sync warning")
        await self._feed.known()
        if self._config_map is not None:
            await self._config_map.informer.wait_synced()
        await self._reading.pods()
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
            log.warning("still waiting for the first lists", kinds=",".join(self._feed.unsynced()))

    def explain(self, group: str) -> Explanation | None:
        """Why a group waits, in full, as things stand; None if nothing of it waits."""
        return self._showing.explain(group)

    def use(self, policy: SchedulerConfig) -> None:
        """Decide by another configuration from the next cycle on. Running work is not touched by the
        change itself; what waits is judged anew."""
        self._mind.use(policy)

    def adjust(self, options: SchedulerOptions) -> None:
        """Other times and limits from now on. Names, policy, namespace and turns stay as they were."""
        if options.provisioning_class != self.options.provisioning_class:
            self.model.show_all()
            self._wake.set()
        self.options = options
        self._publisher.adjust(options)
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
        if self._crew.takes_over:
            changes = self._take_over(changes)
        inbox, self._crew.inbox = self._crew.inbox, []
        taken = self._clock.monotonic()
        self.engine.apply([*self._run_times.filled(changes), *inbox])
        moment = self._time()
        decision = self.engine.cycle(moment)
        self.last_decision = decision
        decided = self._clock.monotonic()
        for bind in decision.binds:
            self.model.assume_bind(bind, moment)
        self._starts.bound(decision.binds)
        self._showing.decision(decision)
        shown = self._clock.monotonic()
        self._carry_out(decision)
        self._cards.sweep()
        self._returns.expire()
        now = self._clock.monotonic()
        parts = (begun, taken, decided, shown, now)
        if self._journeys is not None:
            since = self._time() - now
            self._journeys.cycle(
                decision, len(changes) + len(inbox), tuple(since + moment for moment in parts)
            )
        self._showing.measure(decision, len(changes) + len(inbox), parts)
        if self._crew.inbox:
            self._wake.set()
        deadlines = (self._gangs.next_deadline(), self._returns.next_deadline)
        moments = [deadline for deadline in deadlines if deadline is not None]
        if self._guard is not None and self._guard.held:
            moments.append(self._guard.next_end)
        ahead = [moment for moment in (decision.wake_at, self.model.next_change()) if moment is not None]
        moments += [now + moment - self._time() for moment in ahead]
        return max(0.0, min(moments) - now) if moments else None

    def _take_over(self, changes: list[deltas.Delta]) -> list[deltas.Delta]:
        """What the world is told to the engine for the first time: what was begun by somebody else stands."""
        self._crew.takes_over = False
        self._publisher.pods.review()
        self._publisher.disowning.review()
        resumed = self._reserver.resumed(self._time())
        if resumed:
            changes = self.model.resume(resumed, changes)
            self._binder.submit(self._reserver.batches(resumed, self._time(), reserve=False))
        for orders in self._leaving.begun():
            self._evictor.submit_together(orders, None)
            self._crew.inbox += [deltas.EvictionBegun(order.key, order.uid) for order in orders]
        return changes

    def _carry_out(self, decision: Decision) -> None:
        if decision.binds:
            self._binder.submit(self._reserver.batches(decision.binds, self._time()))
        for orders, write in self._leaving.of(decision.evictions):
            self._evictor.submit_together(orders, write)

    def _past(self, group: str) -> Past | None:
        """What a group that shares time has behind it."""
        return self.engine.world.sharing.past(group)

    def _notes(self, group: str) -> Mapping[str, str | None]:
        """What is to be written on a group along with something else."""
        return self._publisher.notes(group)
