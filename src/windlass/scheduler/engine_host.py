"""The engine of one scheduler: by which policy it decides, what it was told, and whom its policies ask.

A policy that is handed in becomes another engine, which is told everything, piece by piece, before the next decision.
One that stands by has its engine know all that happens, so that it decides at once when its turn comes; as an engine
that never decides might keep what is long over, it begins with another one now and then.

Invariant: nothing here decides; whoever does asks :attr:`EngineHost.changed` first.
"""

from __future__ import annotations

from collections.abc import Sequence

from windlass.client.client import Client
from windlass.engine import deltas
from windlass.engine.engine import Engine
from windlass.engine.timesharing import counts_text
from windlass.kits import gc_tuning
from windlass.kits.tasks import wait_for
from windlass.model.cluster.engine_factory import make_engine
from windlass.model.pods.device_exclusion import exclusive_rules
from windlass.observe import logs
from windlass.scheduler.cache.initial_sync import PIECE, InitialSync
from windlass.scheduler.components import SchedulerComponents
from windlass.scheduler.estimates.run_times import learns
from windlass.scheduler.extender.client import ExtenderClients
from windlass.scheduler.extender.node_extender import NodeExtenders
from windlass.scheduler.loads.load_feed import LoadFeed
from windlass.spi.configuration import SchedulerConfig, foreign_queue

log = logs.get("scheduler")
STAND_BY_SECONDS = 5.0
ANEW, LEAST_ANEW = 10, 10_000
"""One that stands by begins with another engine after so many times as many changes as there are pods."""


class EngineHost:
    """``engine``: that of the options' policy unless given."""

    def __init__(self, components: SchedulerComponents, client: Client, engine: Engine | None) -> None:
        self._components = components
        self._policy = components.options().policy
        self._next: SchedulerConfig | None = None
        self._told = 0
        """Deltas since this engine is there."""
        self.engine = engine or make_engine(self._policy, log.warning)
        self.engine.stopwatch = components.clock.monotonic
        model, clock = components.model, components.clock
        model.read_labels(self.engine.reads, images=self.engine.reads_images)
        self._extender_clients = ExtenderClients(
            model, clock=clock, observe=components.metrics.extender_asked
        )
        self._node_extenders = NodeExtenders(
            model.nodes, components.wake, clock=clock, session=self._extender_clients.session
        )
        self.loads = LoadFeed(client, model.nodes, self.policies, components.wake, clock=clock)
        self.loads.use(self._policy.metrics)

    def policies(self) -> Sequence[object]:
        """Those in force."""
        return self.engine.state.plugins.plugins

    def serve(self) -> None:
        """Connect those of them who ask others."""
        self._node_extenders.serve(self.policies(), self._components.task_group.start)
        self._extender_clients.serve(self.policies())

    def close(self) -> None:
        self._extender_clients.close()

    # ------------------------------------------------------------------ which engine

    def use(self, policy: SchedulerConfig) -> None:
        """From the next decision on."""
        self._next = policy
        self._components.wake()

    @property
    def changed(self) -> bool:
        """Whether a policy was handed in that is not in force yet."""
        return self._next is not None

    def adopt(self) -> None:
        """Put the policy in force that was handed in last, if any. The engine has to be told everything then."""
        if self._next is not None:
            self._policy, self._next = self._next, None
            self._anew()
            if self._components.leads.is_set():
                self.serve()

    def _anew(self) -> None:
        policy, components = self._policy, self._components
        self._told = 0
        before, self.engine = self.engine, make_engine(policy, log.warning)
        counts_text.offer(
            self.engine.state.time_sharing, counts_text.as_text(before.state.time_sharing), components.time()
        )
        self.engine.stopwatch = components.clock.monotonic
        components.model.read_labels(self.engine.reads, images=self.engine.reads_images)
        components.model.configure(
            tiers=bool(policy.tiers),
            exclusive=exclusive_rules(policy),
            foreign_queue=foreign_queue(policy),
        )
        self.loads.use(policy.metrics)
        components.run_times.enabled = learns(policy)
        components.starts.policy = policy
        components.model.resend()
        components.inbox.clear()
        gc_tuning.collect_again()  # the former engine

    # ------------------------------------------------------------------ what it knows

    async def begin(self) -> None:
        """Before anything is told."""
        await self._components.run_times.load()
        self.adopt()

    def tell(self, changes: list[deltas.Delta]) -> None:
        """Have the engine know, without a decision."""
        self._components.metrics.deltas.inc(len(changes))
        self._told += len(changes)
        self.engine.apply(self._components.run_times.filled(changes))

    async def stand_by(self, initial_sync: InitialSync) -> None:
        """Return when it is this one's turn to decide. Until then the engine is told what happens."""
        components = self._components
        if components.leads.is_set():
            return
        while not components.leads.is_set():
            self.adopt()
            if self._told > ANEW * max(LEAST_ANEW, len(components.model.pods)):
                self._anew()
            await initial_sync.rest()
            self.tell(components.model.take(components.time(), PIECE))
            components.model.take_changed()
            await wait_for(components.leads, components.clock, STAND_BY_SECONDS)
        await components.run_times.load()  # who led has learned meanwhile
        self.engine.apply(components.run_times.corrections())
        components.model.show_all()
