"""Host of the engine: the engine in force, and its replacement when the policy changes.

A new policy means a new engine, which is given the whole cluster state before the next
decision. Nothing here decides: the loop first checks :attr:`EngineHost.outdated`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from windlass.engine.engine import Engine
from windlass.engine.timesharing import counts_text
from windlass.engine.timesharing.attained_service import TimeSharingState
from windlass.kits import gc_tuning
from windlass.kits.clock import Clock
from windlass.model.cluster.cluster_model import ClusterModel
from windlass.model.cluster.engine_factory import make_engine
from windlass.model.pods.device_exclusion import exclusive_rules
from windlass.observe import logs
from windlass.scheduler.steady_time import SteadyTime
from windlass.spi.configuration import SchedulerConfig, foreign_queue
from windlass.spi.objects import AttainedService

log = logs.get("scheduler")


class EngineHost:
    """Holds the engine of one scheduler.

    ``engine``: that of ``policy`` unless given. ``wake()`` requests a cycle.
    """

    def __init__(
        self,
        model: ClusterModel,
        policy: SchedulerConfig,
        engine: Engine | None,
        *,
        clock: Clock,
        time: SteadyTime,
        wake: Callable[[], None],
    ) -> None:
        self._model = model
        self._clock = clock
        self._time = time
        self._wake = wake
        self._next: SchedulerConfig | None = None
        self._subscribers: list[Callable[[SchedulerConfig], None]] = []
        self.policy = policy
        self.engine = engine or make_engine(policy, log.warning)
        self._connect()

    def subscribe(self, subscriber: Callable[[SchedulerConfig], None]) -> None:
        """Call ``subscriber`` with the policy whenever the engine is replaced."""
        self._subscribers.append(subscriber)

    # ------------------------------------------------------------------ the engine in force

    def current(self) -> Engine:
        """Return the engine in force."""
        return self.engine

    def plugins(self) -> Sequence[object]:
        """Return the plugins in force."""
        return self.engine.state.plugins.plugins

    def time_sharing(self) -> TimeSharingState:
        """Return the time-sharing state of the engine in force."""
        return self.engine.state.time_sharing

    def attained_service(self, group: str) -> AttainedService | None:
        """Return the attained service of a group that shares time."""
        return self.engine.state.time_sharing.attained_service(group)

    # ------------------------------------------------------------------ replacement

    def use(self, policy: SchedulerConfig) -> None:
        """Decide by another policy from the next decision on."""
        self._next = policy
        self._wake()

    @property
    def outdated(self) -> bool:
        """Return whether a policy was given that is not in force yet."""
        return self._next is not None

    def adopt(self) -> None:
        """Put the policy given last in force, if any."""
        if self._next is not None:
            self.policy, self._next = self._next, None
            self.replace()

    def replace(self) -> None:
        """Begin with a new engine. It must be given the whole cluster state."""
        policy = self.policy
        before, self.engine = self.engine, make_engine(policy, log.warning)
        counts_text.load_if_possible(
            self.engine.state.time_sharing,
            counts_text.as_text(before.state.time_sharing),
            self._time.now(),
        )
        self._connect()
        self._model.configure(
            tiers=bool(policy.tiers),
            exclusive=exclusive_rules(policy),
            foreign_queue=foreign_queue(policy),
        )
        for subscriber in self._subscribers:
            subscriber(policy)
        self._model.resend()
        gc_tuning.collect_again()  # the former engine

    def _connect(self) -> None:
        self.engine.stopwatch = self._clock.monotonic
        self._model.read_labels(self.engine.reads, images=self.engine.reads_images)
