"""Feed of the engine: deltas of the model, completed by learned run times.

While this instance stands by, its engine is kept up to date, so that it decides at once
when it leads. An engine that never decides might keep what is long over, so it is
replaced now and then.
"""

from __future__ import annotations

from windlass.engine import deltas
from windlass.kits.clock import Clock
from windlass.kits.tasks import wait_for
from windlass.model.cluster.cluster_model import ClusterModel
from windlass.observe.scheduling import SchedulerMetrics
from windlass.scheduler.cache.initial_sync import BATCH_PODS, InitialSync
from windlass.scheduler.engine_host import EngineHost
from windlass.scheduler.estimates.run_times import LearnedRunTimes
from windlass.scheduler.leader.leadership import Leadership
from windlass.scheduler.steady_time import SteadyTime
from windlass.spi.configuration import SchedulerConfig

STAND_BY_SECONDS = 5.0
"""Interval in seconds between updates of the engine while this instance stands by."""
REPLACE_FACTOR, MIN_REPLACE_PODS = 10, 10_000
"""Maximum number of deltas per pod until an engine that stands by is replaced.

A cluster with fewer pods than the minimum counts as having so many.
"""


class EngineFeed:
    """Gives deltas to the engine.

    ``inbox``: deltas of the next cycle besides the changes of the model.
    """

    def __init__(
        self,
        host: EngineHost,
        model: ClusterModel,
        run_times: LearnedRunTimes,
        metrics: SchedulerMetrics,
        leadership: Leadership,
        inbox: list[deltas.Delta],
        *,
        clock: Clock,
        time: SteadyTime,
    ) -> None:
        self._host = host
        self._model = model
        self._run_times = run_times
        self._metrics = metrics
        self._leadership = leadership
        self._clock = clock
        self._time = time
        self.inbox = inbox
        self._delivered = 0
        """Number of deltas given to this engine before its first decision."""
        host.subscribe(self._engine_replaced)

    def _engine_replaced(self, policy: SchedulerConfig) -> None:
        self._delivered = 0
        self.inbox.clear()

    async def begin(self) -> None:
        """Prepare for the first deltas."""
        await self._run_times.load()
        self._host.adopt()

    def deliver(self, changes: list[deltas.Delta]) -> None:
        """Give changes of the model to the engine, without a decision."""
        self._metrics.deltas.inc(len(changes))
        self._delivered += len(changes)
        self._host.engine.apply(self._run_times.filled(changes))

    def deliver_with_inbox(self, changes: list[deltas.Delta], inbox: list[deltas.Delta]) -> None:
        """Give the deltas of a cycle to the engine."""
        self._host.engine.apply([*self._run_times.filled(changes), *inbox])

    def take_inbox(self) -> list[deltas.Delta]:
        """Empty the inbox, and return what was in it."""
        taken = list(self.inbox)
        self.inbox.clear()
        return taken

    async def stand_by(self, initial_sync: InitialSync) -> None:
        """Keep the engine up to date until this instance leads."""
        leadership, model = self._leadership, self._model
        if leadership.leads:
            return
        while not leadership.leads:
            self._host.adopt()
            if self._delivered > REPLACE_FACTOR * max(MIN_REPLACE_PODS, len(model.objects.pods)):
                self._host.replace()
            await initial_sync.rest()
            self.deliver(model.take(self._time.now(), BATCH_PODS))
            model.take_changed()
            await wait_for(leadership.started, self._clock, STAND_BY_SECONDS)
        await self._run_times.load()  # the earlier leader has learned meanwhile
        self._host.engine.apply(self._run_times.corrections())
        model.show_all()
