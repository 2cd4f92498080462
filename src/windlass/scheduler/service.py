"""The scheduler service: informers feed the engine, its decisions are carried out and shown.

One task decides. Events of the informers mark what changed and wake it; a few milliseconds later one
cycle takes all changes in, decides, and hands binds and evictions to their own tasks. What comes of them
returns as deltas. There is no polling: between events the service sleeps until a moment that the
engine, an assumed bind or an incomplete gang has named.

Invariants: a decided bind counts as done until the pod shows it, its failure is known, or it was looked
up; nothing is decided before every informer is synced; all state can be lost, a restart reads it anew.
One that stands by follows everything and writes nothing until it leads.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from prometheus_client import CollectorRegistry

from windlass.api import views
from windlass.api.errors import StatusError
from windlass.api.reasons import Explanation
from windlass.client.client import Client
from windlass.client.errors import Unreachable
from windlass.client.informers import SharedInformers
from windlass.client.recorder import EventRecorder, ObjectRef
from windlass.client.retries import RetryPolicy
from windlass.engine import deltas
from windlass.engine.decision import Bind, Decision, GroupStatus
from windlass.engine.engine import Engine
from windlass.kits import garbage
from windlass.kits.clock import Clock
from windlass.kits.rng import Random
from windlass.model.cluster import ClusterModel
from windlass.model.engines import make_engine
from windlass.model.groups import is_implicit, shown_key
from windlass.model.ledger import Ledger
from windlass.model.members import Members
from windlass.model.neighbours import exclusive_rules
from windlass.observe import logs
from windlass.observe.scheduling import SchedulerMetrics
from windlass.observe.tracing import Exporter
from windlass.scheduler import evictor as evictions
from windlass.scheduler.announcer import Announcer
from windlass.scheduler.binder import Binder, Outcome
from windlass.scheduler.configuration import ConfigMapSource
from windlass.scheduler.consultant import Consultants
from windlass.scheduler.contest import Contest, instead
from windlass.scheduler.courtesy import Courtesy
from windlass.scheduler.evictor import Evictor, Order
from windlass.scheduler.extender import Judges
from windlass.scheduler.feed import Feed
from windlass.scheduler.gangs import STARTED_PHASES, GangWatch
from windlass.scheduler.guard import BindGuard
from windlass.scheduler.guardserver import Questions
from windlass.scheduler.hamilock import HamiLocks
from windlass.scheduler.journeys import Journeys
from windlass.scheduler.kai_moments import moments_of
from windlass.scheduler.limiter import AdaptiveLimit
from windlass.scheduler.loads import LoadFeed
from windlass.scheduler.options import SchedulerOptions
from windlass.scheduler.publisher import Publisher
from windlass.scheduler.reserving import Reserver
from windlass.scheduler.runtimes import RunTimes, learns
from windlass.scheduler.starts import StartEstimates
from windlass.scheduler.waiting import Keeper, wait_for
from windlass.spi.configuration import SchedulerConfig, foreign_queue

log = logs.get("scheduler")
COMPONENT = "windlass-scheduler"
SLOW_CYCLE_SECONDS = 0.5
STAND_BY_SECONDS = 5.0
WIND_DOWN_LOOK_SECONDS = 0.02
CROWD = 16
"""From so many binds on that are under way or wait, news that can wait gives way to them."""
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
        policy = self.options.policy
        self.model = _model_of(self.options)
        self.engine = engine or make_engine(policy, log.warning)
        self.model.read_labels(self.engine.reads, images=self.engine.reads_images)
        self._next_policy: SchedulerConfig | None = None
        self._journeys = Journeys(exporter, self.model) if exporter is not None else None
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
            enabled=learns(policy),
            namespace=self.options.own_namespace,
            ended=self.metrics.run_time_ended,
        )
        self._gangs = GangWatch(self.options.gang_seconds)
        self._inbox: list[deltas.Delta] = []
        self._takes_over = True
        self._ends = False
        self._deadlines: deque[tuple[float, str, str]] = deque()
        self._said: dict[str, GroupStatus] = {}
        self._bound_counter = self.metrics.binds.labels("bound")
        self._refused: dict[str, str] = {}
        self._carriers(client, bind_client, rng)
        self.model.claims.generated = True
        self._sources(client)
        self._config_map = (
            ConfigMapSource(self._informers, self.recorder, self.use) if self.options.config_map else None
        )
        self._start_monotonic = clock.monotonic()
        self._start_time = clock.now()

    def _sources(self, client: Client) -> None:
        """Who tells of the world, and who is asked."""
        clock = self._clock
        self._feed = Feed(self._informers, self.model, self._pod_changed, self._queue_gone, self._wake.set)
        self._feed.probe_with(client, clock)
        self._consultants = Consultants(self.model, clock=clock, observe=self.metrics.extender_asked)
        self._judges = Judges(
            self.model.nodes, self._wake.set, clock=clock, session=self._consultants.session
        )
        self._loads = LoadFeed(client, self.model.nodes, self._policies, self._wake.set, clock=clock)
        self._loads.use(self.options.policy.metrics)

    def _carriers(self, client: Client, bind_client: Client | None, rng: Random) -> None:
        """Who carries out and shows what is decided."""
        clock, options, model = self._clock, self.options, self.model
        self._contest = Contest(model, self._ledger, 4 * options.assume_seconds)
        self._courtesy = Courtesy(
            client, model, self._ledger, options.turn_seconds, options.turn_most_seconds
        )
        self._guard = BindGuard(model, self._ledger) if options.bind_guard else None
        self._courtesy.off = self._guarded
        self._reserver = Reserver(
            model,
            self._ledger,
            self._notes,
            self._courtesy,
            clock=clock,
            await_volumes=options.await_volumes,
        )
        self._binder = Binder(
            bind_client
            or Client(client.transport, clock=clock, rng=rng, retries=_ONCE, user_agent=COMPONENT),
            self._bound,
            clock=clock,
            rng=rng,
            limit=AdaptiveLimit(options.bind_concurrency, ceiling=options.bind_concurrency_max),
            give_up_seconds=options.assume_seconds,
            words=model.binding_words,
            before=self._reserver.claim_writes,
            objection=self._objection,
            alone=self._alone,
            turns=HamiLocks(client, model.nodes, model.pods, clock=clock),
        )
        self._evictor = Evictor(
            client, self.recorder, self._evicted, waits=self._eviction_waits, clock=clock, rng=rng
        )
        self._announcer = Announcer(self.recorder, clock, lambda: self._binder.busy > 0)
        told = (self.recorder, self.metrics, options, self.explain)
        self._publisher = Publisher(client, model, *told, clock=clock, rng=rng, busy=self._crowded)
        self._starts = StartEstimates(
            model,
            self._run_times,
            lambda: self.options,
            self.metrics,
            clock=clock,
            now=self._time,
            waits=lambda: [key for key, said in self._said.items() if said.explanation is not None],
            changed=lambda key: self._show_group(key, clock.monotonic()),
        )

    def _crowded(self) -> bool:
        return self._binder.busy >= CROWD

    def _guarded(self) -> bool:
        """Whether the API server asks here before it lets others bind."""
        return self._guard is not None and self._guard.effective(self._clock.monotonic())

    def _alone(self, now: float) -> bool:
        """Whether nobody else may take room while a bind is on its way."""
        return self._guarded() or (self._contest.alone(now) and not self._courtesy.lively(now))

    def _objection(self, bind: Bind) -> str:
        if not self._sure():
            return "the lease may be another instance's"
        why = self._contest.objection(bind)
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
            lambda: self.ready.is_set() and self._leads.is_set() and not self._takes_over,
            self._answered,
            clock=self._clock,
        )

    def _policies(self) -> Sequence[object]:
        """Those in force."""
        return self.engine.world.policies.plugins

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
            self._consultants.close()
            await keeper.stop()

    def lead(self, sure: Callable[[], bool] = lambda: True) -> None:
        """Decide from now on; nothing is bound while it is not ``sure`` that nobody else leads."""
        self._sure = sure
        self._leads.set()

    async def wind_down(self, seconds: float) -> None:
        """Decide nothing more, and return once what was decided is bound and told, at the latest after ``seconds``.
        :meth:`run` must be running, and is to be cancelled afterwards."""
        self._ends = True
        self._wake.set()
        self._announcer.hurry()
        until = self._clock.monotonic() + seconds
        while self._binder.busy or self._announcer.waiting or self.recorder.waiting:
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
        await self._stand_by()
        await self._run_times.load()
        keeper = self._keeper
        keeper.start(self.recorder.run(), "events")
        keeper.start(self._publisher.run(), "publisher")
        keeper.start(self._evictor.run(), "evictor")
        keeper.start(self._binder.run(), "binder")
        keeper.start(self._announcer.run(), "announcer")
        keeper.start(self._loads.run(), "measured loads")
        keeper.start(self._run_times.run(), "learned run times")
        keeper.start(self._starts.run(), "start estimates")
        self._judges.serve(self._policies(), keeper.start)
        self._consultants.serve(self._policies())
        pause: float | None = 0.0
        while True:
            await wait_for(self._wake, self._clock, pause)
            await self._clock.sleep(self.options.debounce_seconds)
            if self._ends:
                return
            self._wake.clear()
            pause = self._cycle()

    async def _sync(self) -> None:
        patience = self._keeper.start(self._complain(), "sync warning")
        await self._feed.open_served()
        await self._feed.wait_synced()
        if self._config_map is not None:
            await self._config_map.informer.wait_synced()
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

    async def _stand_by(self) -> None:
        """Return when it is this one's turn to decide; until then marks of what changed are swept away."""
        if self._leads.is_set():
            return
        while not self._leads.is_set():
            self.model.take(self._time())
            self.model.take_changed()
            await wait_for(self._leads, self._clock, STAND_BY_SECONDS)
        self.model.resend()

    async def _complain(self) -> None:
        while True:
            await self._clock.sleep(self.options.sync_warning_seconds)
            log.warning("still waiting for the first lists", kinds=",".join(self._feed.unsynced()))

    def explain(self, group: str) -> Explanation | None:
        """Why a group waits, in full, as things stand; None if nothing of it waits."""
        told = self.model.explanation(group)
        if told is None:
            try:
                told = self.engine.explain(group, self._time())
            except KeyError:
                return None
        if told is not None:
            told = self._starts.told(group, told)
        if told is not None and group in self._refused:
            told = replace(told, extra={**told.extra, "no eviction": self._refused[group]})
        return None if told is None else self.model.readable().explanation(told)

    def use(self, policy: SchedulerConfig) -> None:
        """Decide by another configuration from the next cycle on. Running work is not touched by the
        change itself; what waits is judged anew."""
        self._next_policy = policy
        self._wake.set()

    def adjust(self, options: SchedulerOptions) -> None:
        """Other times and limits from now on. Names, policy, namespace and turns stay as they were."""
        self.options = options
        self._publisher.adjust(options)
        self._gangs.patience = options.gang_seconds
        limit = self._binder.limit
        limit.ceiling = options.bind_concurrency_max
        limit.limit = min(limit.limit, limit.ceiling)

    def _adopt_policy(self) -> None:
        policy, self._next_policy = self._next_policy, None
        if policy is not None:
            self.engine = make_engine(policy, log.warning)
            self._judges.serve(self._policies(), self._keeper.start)
            self._consultants.serve(self._policies())
            self.model.read_labels(self.engine.reads, images=self.engine.reads_images)
            self.model.configure(
                tiers=bool(policy.tiers),
                exclusive=exclusive_rules(policy),
                foreign_queue=foreign_queue(policy),
            )
            self._loads.use(policy.metrics)
            self._run_times.enabled = learns(policy)
            self._starts.policy = policy
            self.model.resend()
            self._inbox.clear()
            garbage.look_anew()  # the former engine

    def _time(self) -> float:
        """Unix seconds that never run backwards, whatever is done to the machine's clock."""
        return self._start_time + (self._clock.monotonic() - self._start_monotonic)

    # ------------------------------------------------------------------ one cycle

    def _cycle(self) -> float | None:
        """Take changes in, decide, hand out. Returns the seconds until the next cycle is due anyway."""
        begun = self._clock.monotonic()
        self._adopt_policy()
        if self._guard is not None:
            self._guard.forget(begun)
        changes = self.model.take(self._time())
        if self._takes_over:
            changes = self._take_over(changes)
        inbox, self._inbox = self._inbox, []
        taken = self._clock.monotonic()
        self.engine.apply([*self._run_times.filled(changes), *inbox])
        decision = self.engine.cycle(self._time())
        self.last_decision = decision
        decided = self._clock.monotonic()
        for bind in decision.binds:
            self.model.assume_bind(bind)
        self._starts.bound(decision.binds)
        self._show(decision)
        shown = self._clock.monotonic()
        self._carry_out(decision)
        self._expire()
        now = self._clock.monotonic()
        if self._journeys is not None:
            since = self._start_time - self._start_monotonic
            moments = tuple(since + moment for moment in (begun, taken, decided, shown, now))
            self._journeys.cycle(decision, len(changes) + len(inbox), moments)
        self._measure(decision, len(changes) + len(inbox), now - begun)
        if self._inbox:
            self._wake.set()
        moments = [deadline for deadline in (self._gangs.next_deadline(),) if deadline is not None]
        if self._deadlines:
            moments.append(self._deadlines[0][0])
        if self._guard is not None and self._guard.held:
            moments.append(self._guard.next_end)
        ahead = [moment for moment in (decision.wake_at, self.model.next_change()) if moment is not None]
        moments += [now + moment - self._time() for moment in ahead]
        return max(0.0, min(moments) - now) if moments else None

    def _take_over(self, changes: list[deltas.Delta]) -> list[deltas.Delta]:
        """What the world is told to the engine for the first time: what was begun by somebody else stands."""
        self._takes_over = False
        self._publisher.review_pods()
        resumed = self._reserver.resumed(self._time())
        if resumed:
            changes = self.model.resume(resumed, changes)
            self._binder.submit(self._reserver.batches(resumed, self._time(), reserve=False))
        return changes

    def _carry_out(self, decision: Decision) -> None:
        if decision.binds:
            self._binder.submit(self._reserver.batches(decision.binds, self._time()))
        for eviction in decision.evictions:
            self._evictor.submit(evictions.order_for(eviction))

    def _notes(self, group: str) -> Mapping[str, str | None]:
        """What is to be written on a group along with something else."""
        return self._publisher.notes(group)

    def _show(self, decision: Decision) -> None:
        self._publisher.cycle(decision.cycle)
        changed = dict.fromkeys(self.model.take_changed())
        for status in decision.groups:
            self._said[status.group] = status
            changed[status.group] = None
        now = self._clock.monotonic()
        for key in changed:
            self._show_group(key, now)
        self._nominate(decision)
        self._publisher.moments(moments_of(decision, self.model, self._time()))
        for usage in decision.queues:
            self._publisher.queue(usage)
            self.metrics.queue(
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
        publisher, tasks = self._publisher, self.engine.world.tasks
        for nomination in decision.nominations:
            publisher.nominate(nomination.task, nomination.node)
        for task in list(publisher.nominated) if publisher.nominated else ():
            entry = tasks.get(task)
            if entry is None or entry.promised < 0:
                publisher.withdraw(task)

    def _show_group(self, key: str, now: float) -> None:
        model = self.model
        if not model.known(key):
            self._said.pop(key, None)
            self._refused.pop(key, None)
            self._gangs.forget(key)
            self._starts.forget(key)
            self._publisher.gone(key)
            if self._journeys is not None:
                self._journeys.gone(key, self._time())
            return
        said = self._said.get(key)
        explanation = model.explanation(key) or (said.explanation if said else None)
        if explanation is not None:
            explanation = self._starts.told(key, explanation)
            explanation = model.readable().explanation(explanation)
        blocked = explanation is not None and model.blocked(key)
        members = model.members(key)
        admitted = said is not None and said.admitted
        self._publisher.group(key, admitted, explanation, blocked, members)
        if self._journeys is not None:
            self._journeys.group(key, admitted, explanation, members, self._time())
        if not is_implicit(key):
            self._watch_gang(key, members, now)

    def _watch_gang(self, key: str, members: Members, now: float) -> None:
        view, sent = self.model.groups.get(key), self.model.group_sent(key)
        minimum = view.min_member if view is not None else sent.min_member if sent is not None else 0
        if view is not None:
            started = view.phase in STARTED_PHASES
        else:  # nobody writes a phase on it
            started = members.scheduled < minimum and (
                self._gangs.was_whole(key)
                or self.model.started_before(key, self._time() - self.options.gang_seconds)
            )
        self._gangs.observe(key, started, minimum, members, now)

    def _measure(self, decision: Decision, changes: int, seconds: float) -> None:
        metrics = self.metrics
        metrics.cycle_seconds.observe(seconds)
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
        metrics.waiting(self._publisher.reasons)
        metrics.assumed.set(len(self.model.assumed))
        metrics.bind_limit.set(self._binder.limit.limit)

    # ------------------------------------------------------------------ what comes back

    def _pod_changed(self, old: views.Pod | None, new: views.Pod | None) -> None:
        """The informer shows a change of a pod; the model has it already."""
        self._ledger.change(old, new)
        self._courtesy.change(old, new, self._clock.monotonic())
        if self._leads.is_set():
            self._run_times.pod(old, new)
        assumed = self.model.assumed.get(new.key) if new is not None else None
        if self._guard is not None:
            here = (
                assumed is not None
                and new is not None
                and (assumed.uid, assumed.node) == (new.uid, new.node_name)
            )
            self._guard.seen(old, new, self._clock.monotonic(), foreign=not (self._takes_over or here))
        if new is None or not new.node_name:
            return
        if old is not None and old.node_name:
            if old.shape is not new.shape or old.annotations != new.annotations:
                self._contest.grown(new)
            return
        ours = assumed is not None and assumed.uid == new.uid
        if assumed is not None and ours:
            self.model.forget(new.key, new.uid)
            if assumed.node == new.node_name and self._contest.disputed(
                new.node_name, self._clock.monotonic()
            ):
                self._check_room(new)
        if self._takes_over:  # what was bound before is nobody's bind
            return
        if assumed is None or not ours or not assumed.shown_by(new):
            self._contest.seen(new, self._clock.monotonic())
        self._publisher.bound(new)

    def _queue_gone(self, name: str) -> None:
        self._publisher.queue_gone(name)
        self.metrics.queue_gone(name)

    def _check_room(self, pod: views.Pod) -> None:
        """Our bind came through; did another scheduler's come first and take the room?"""
        overflow = self._ledger.overflow(pod, self.model.nodes.get(pod.node_name))
        if overflow is not None:
            log.warning("another scheduler took the room", pod=pod.key, node=pod.node_name, why=overflow)
            self.metrics.conflicts.labels("overcommitted").inc()
            message = f"{overflow}: another scheduler's pod was bound there first"
            goes = instead(pod, self.model, self._ledger)
            self._evictor.submit(Order(goes.key, goes.uid, evictions.OVERCOMMITTED, message))

    def _bound(self, outcome: Outcome) -> None:
        bind = outcome.bind
        pod = self.model.pods.get(bind.task)
        seen = pod is not None and pod.uid == bind.uid and pod.node_name == bind.node
        if outcome.bound or seen:
            self._bind_succeeded(bind, outcome.seconds, pod)
        else:
            self._bind_failed(outcome)
        if self._journeys is not None:
            fault = "" if outcome.bound or seen else outcome.message
            self._journeys.bound(bind, outcome.seconds, self._time(), fault)
        self._wake.set()

    def _bind_succeeded(self, bind: Bind, seconds: float, pod: views.Pod | None) -> None:
        self._bound_counter.inc()
        self.metrics.bind_seconds.observe(seconds)
        if pod is not None and pod.created:
            self.metrics.wait_seconds.observe(max(0.0, self._clock.now() - pod.created))
        message = f"Successfully assigned {bind.task} to {bind.node}"
        self._announcer.say(_reference(bind), "Scheduled", message)
        if bind.task in self.model.assumed:
            due = self._clock.monotonic() + self.options.assume_seconds
            self._deadlines.append((due, bind.task, bind.uid))

    def _bind_failed(self, outcome: Outcome) -> None:
        bind = outcome.bind
        self.metrics.binds.labels("gone" if outcome.gone else "failed").inc()
        say = log.info if outcome.recalled else log.warning
        say("bind failed", pod=bind.task, node=bind.node, why=outcome.message)
        taken = outcome.pod is not None and outcome.pod.uid == bind.uid and bool(outcome.pod.node_name)
        kind = "elsewhere" if taken else "gone" if outcome.gone else "recalled" if outcome.recalled else ""
        if kind:
            self.metrics.conflicts.labels(kind).inc()
        if not self.model.forget(bind.task, bind.uid):
            return
        if taken and outcome.pod is not None:
            self._learn(outcome.pod)
            return
        self._inbox.append(deltas.BindFailed(bind.task, bind.uid, outcome.message))
        if not outcome.gone:
            message = f"binding to {bind.node} failed: {outcome.message}"
            self.recorder.event(_reference(bind), "Warning", "FailedScheduling", message)

    def _learn(self, pod: views.Pod) -> None:
        """A pod as it was looked up, unless the informer has shown as much since."""
        known = self.model.pods.get(pod.key)
        if known is not None and known.uid == pod.uid and not known.node_name:
            self.model.upsert_pod(pod)

    def _eviction_waits(self, order: Order, why: str) -> None:
        """A budget refuses to let a pod go: that is why its claimer still waits."""
        if order.claimer:
            self._refused[order.claimer] = f"eviction of pod {order.key} is refused: {why}"

    def _evicted(self, result: evictions.Result) -> None:
        order = result.order
        outcome = "done" if result.evicted else "refused" if result.refused else "failed"
        self.metrics.evictions.labels(order.reason, outcome).inc()
        if result.evicted:
            self._refused.pop(order.claimer, None)
            return
        log.warning("eviction failed", pod=order.key, why=result.message)
        if result.refused:  # until there is news of its budgets, they allow nothing
            self.model.spare(order.key, self._time() + evictions.COOLING_SECONDS)
            self._inbox += [deltas.BudgetUpserted(key, 0) for key in self.model.budgets_of(order.key)]
            self.recorder.event(
                ObjectRef("v1", "Pod", *_parts(order.key), order.uid),
                "Warning",
                "EvictionRefused",
                result.message,
            )
        self._inbox.append(deltas.EvictionFailed(order.key, order.uid, result.message))
        self._wake.set()

    # ------------------------------------------------------------------ what does not come back

    def _expire(self) -> None:
        now = self._clock.monotonic()
        while self._deadlines and self._deadlines[0][0] <= now:
            _, key, uid = self._deadlines.popleft()
            assumed = self.model.assumed.get(key)
            if assumed is not None and assumed.uid == uid:
                self._keeper.start(self._look_up(key, uid), f"look up {key}")
        self._contest.forget(now)
        for group in self._gangs.take_overdue(now):
            self._evict_incomplete(group)

    async def _look_up(self, key: str, uid: str) -> None:
        """A bind that succeeded but was never seen: what became of the pod?"""
        try:
            pod = await self._binder.look_up(key)
        except (StatusError, Unreachable) as error:
            log.warning("look-up failed", pod=key, why=error.message)
            self._deadlines.append((self._clock.monotonic() + self.options.assume_seconds, key, uid))
            return
        if not self.model.forget(key, uid):
            return
        if pod is not None and pod.uid == uid and pod.node_name:
            self._learn(pod)
        else:
            self._inbox.append(deltas.BindFailed(key, uid, "the binding did not last"))
        self._wake.set()

    def _evict_incomplete(self, group: str) -> None:
        shown = shown_key(group)
        message = f"gang {shown} did not reach its minimum within {self.options.gang_seconds:g} s of its last progress"
        log.warning("gang incomplete", group=shown)
        self._publisher.gang_failed(group, message)
        for pod in self.model.pods_of(group):
            if pod.node_name and not pod.finished and not pod.deleted:
                self._evictor.submit(Order(pod.key, pod.uid, evictions.GANG_BIND_FAILED, message))


def _parts(key: str) -> tuple[str, str]:
    namespace, _, name = key.partition("/")
    return namespace, name


def _reference(bind: Bind) -> ObjectRef:
    return ObjectRef("v1", "Pod", *_parts(bind.task), bind.uid)
