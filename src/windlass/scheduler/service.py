"""Scheduler service: informers feed the engine, its decisions are committed and reported.

One task decides. Events of the informers mark what changed and wake it. A few
milliseconds later one cycle takes all changes in, decides, and hands binds and
evictions over to their own tasks. Their results come back as deltas. Nothing is polled:
between events the service sleeps until a time that the engine, an assumed bind or an
incomplete gang has set.

Invariants:

* A decided bind counts as done until the informer shows the pod, its failure is known,
  or it was looked up.
* Nothing is decided before every informer is synced.
* All state can be lost. A restart reads it from the API server.
* An instance that stands by follows everything, keeps its engine up to date, and writes
  nothing until it leads.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection

from prometheus_client import CollectorRegistry

from windlass.api.reasons import Explanation
from windlass.client.client import Client
from windlass.client.informers import SharedInformers
from windlass.client.recorder import EventRecorder
from windlass.engine.decision import Decision
from windlass.engine.engine import Engine
from windlass.kits.clock import Clock
from windlass.kits.rng import Random
from windlass.kits.tasks import wait_for
from windlass.model.cluster.cluster_model import ClusterModel
from windlass.observe import logs
from windlass.observe.scheduling import SchedulerMetrics
from windlass.observe.tracing import Exporter
from windlass.scheduler.commit.bind_webhook import WebhookHandler
from windlass.scheduler.compat_metrics.scrape import Sources
from windlass.scheduler.configuration import ConfigMapSource
from windlass.scheduler.options import SchedulerOptions
from windlass.scheduler.wiring import Components
from windlass.spi.configuration import SchedulerConfig

log = logs.get("scheduler")
DRAIN_CHECK_SECONDS = 0.02
"""Interval in seconds between checks whether a drain is finished."""
BUSY_DEBOUNCE_SECONDS = 0.05
"""Minimum debounce interval in seconds under backpressure.

A cycle for every few pods costs more than it saves.
"""


def _always() -> bool:
    return True


class SchedulerService:
    """One scheduler.

    ``informers``: shared with other services of the process, which run them. Without
    them, the service runs its own.
    ``engine``: that of the options' policy unless given.
    ``bind_client``: must not repeat requests by itself, since the binder handles
    overload.
    ``stands_by``: nothing is decided until :meth:`lead` is called.
    """

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
        options = options or SchedulerOptions()
        self._own_informers = SharedInformers(client, clock, rng) if informers is None else None
        informers = informers or self._own_informers
        assert informers is not None
        self.components = Components(
            client,
            bind_client,
            informers,
            options,
            recorder,
            registry,
            exporter,
            engine=engine,
            clock=clock,
            rng=rng,
            stands_by=stands_by,
        )
        self._config_map = ConfigMapSource(informers, self.recorder, self.use) if options.config_map else None
        self._clock = clock
        self._ending = False
        self.ready = asyncio.Event()
        """Set once every informer is synced."""

    @property
    def options(self) -> SchedulerOptions:
        """The options in force."""
        return self.components.live.current

    @property
    def model(self) -> ClusterModel:
        return self.components.model

    @property
    def metrics(self) -> SchedulerMetrics:
        return self.components.metrics

    @property
    def recorder(self) -> EventRecorder:
        return self.components.recorder

    @property
    def engine(self) -> Engine:
        """The engine in force."""
        return self.components.engine_host.engine

    @property
    def last_decision(self) -> Decision:
        return self.components.cycle.last_decision

    # ------------------------------------------------------------------ running

    async def run(self) -> None:
        """Schedule until cancelled. Raises defects, never errors of the server."""
        task_group = self.components.task_group
        try:
            if self._own_informers is not None:
                task_group.start(self._own_informers.run(), "informers")
            task_group.start(self._schedule(), "decisions")
            task_group.start(self.components.event_handlers.follow_new_kinds(), "optional kinds")
            await task_group.watch()
        finally:
            self.components.policy_services.close()
            await task_group.stop()

    async def _schedule(self) -> None:
        components = self.components
        host, task_group = components.engine_host, components.task_group
        await self._sync()
        await components.engine_feed.stand_by(components.initial_sync)
        await components.initial_sync.rest()
        for work, name in components.background_tasks():
            task_group.start(work, name)
        self._serve_policy()
        pause: float | None = 0.0
        while True:
            await wait_for(components.wake_up, self._clock, pause)
            await self._clock.sleep(self._debounce_seconds())
            if self._ending:
                return
            components.wake_up.clear()
            while host.outdated:
                host.adopt()
                self._serve_policy()
                await components.initial_sync.rest()
            pause = components.cycle.run()

    def _debounce_seconds(self) -> float:
        seconds = self.options.debounce_seconds
        return max(seconds, BUSY_DEBOUNCE_SECONDS) if self.components.backpressure() else seconds

    def _serve_policy(self) -> None:
        """Connect the plugins in force with the services that they need."""
        host = self.components.engine_host
        self.components.policy_services.serve(host.plugins(), host.policy)

    async def _sync(self) -> None:
        components, model = self.components, self.model
        warning = components.task_group.start(self._warn_unsynced(), "sync warning")
        await components.event_handlers.wait_kinds()
        if self._config_map is not None:
            await self._config_map.informer.wait_synced()
        await components.initial_sync.pods()
        warning.cancel()
        log.info(
            "synced",
            nodes=len(model.objects.nodes),
            pods=len(model.objects.pods),
            groups=len(model.objects.groups),
            queues=len(model.objects.queues),
        )
        self.ready.set()

    async def _warn_unsynced(self) -> None:
        while True:
            await self._clock.sleep(self.options.sync_warning_seconds)
            kinds = ",".join(self.components.event_handlers.unsynced())
            log.warning("still waiting for the first lists", kinds=kinds)

    # ------------------------------------------------------------------ control

    def lead(self, holds_lease: Callable[[], bool] = _always, ahead: float = 0.0) -> None:
        """Decide from now on.

        Nothing is written while ``holds_lease()`` is false. ``ahead``: seconds by which
        this machine's clock is ahead of the API server's. All times are corrected by
        it.
        """
        if ahead:
            self.components.time.correct(ahead)
            self.model.time_was_set()
        self.components.leadership.start(holds_lease)

    async def drain(self, seconds: float) -> None:
        """Decide nothing more, and return once all binds and events are written.

        Returns after ``seconds`` at the latest. :meth:`run` must be running, and is to
        be cancelled afterwards.
        """
        components = self.components
        queue, events = components.bind_queue, components.event_buffer
        self._ending = True
        components.wake()
        events.drain()
        components.backpressure.end()
        until = self._clock.monotonic() + seconds
        while queue.busy or events.waiting or self.recorder.waiting or components.status_writer.behind:
            if self._clock.monotonic() >= until:
                waiting = events.waiting + self.recorder.waiting
                log.warning("stopping with unfinished work", binds=queue.busy, events=waiting)
                return
            await self._clock.sleep(DRAIN_CHECK_SECONDS)

    def use(self, policy: SchedulerConfig) -> None:
        """Decide by another policy from the next cycle on.

        The change itself does not affect running pods. Pending groups are evaluated
        again.
        """
        self.components.engine_host.use(policy)

    def adjust(self, options: SchedulerOptions) -> None:
        """Use other times and limits from now on.

        Names, policy, namespace and times of other schedulers' precedence stay as they
        were.
        """
        components = self.components
        if options.provisioning_class != self.options.provisioning_class:
            self.model.show_all()
            components.wake()
        components.live.current = options
        components.gang_watch.patience = options.gang_seconds
        limit = components.bind_queue.limit
        limit.ceiling = options.bind_concurrency_max
        limit.limit = min(limit.limit, limit.ceiling)

    # ------------------------------------------------------------------ state

    def explain(self, group: str) -> Explanation | None:
        """Return why a group waits, in all detail, ``None`` if nothing of it waits."""
        return self.components.explanations.explain(group)

    def webhook(self) -> WebhookHandler:
        """Return the handler of the bind guard's webhook.

        Needs the option ``bind_guard``.
        """
        components = self.components
        assert components.guard is not None
        return WebhookHandler(
            components.guard,
            self.model.objects.pods,
            components.look_up,
            self._is_authoritative,
            self._count_webhook,
            clock=self._clock,
        )

    def _is_authoritative(self) -> bool:
        return self.ready.is_set() and self.components.leadership.settled

    def _count_webhook(self, result: str) -> None:
        self.metrics.guarded.labels(result).inc()
        self.components.wake()  # an allowed binding counts from the next cycle on

    def sources(self, details: Collection[str] = ()) -> Sources:
        """Return where the metrics are kept.

        ``details``: what is exported one by one.
        """
        components = self.components
        return Sources(
            metrics=self.metrics,
            model=self.model,
            counters=components.counters,
            pending=components.pending,
            node_usage=components.node_usage,
            engine=components.engine_host.current,
            now=components.time.now,
            details=details,
        )
