"""One scheduling cycle: take changes in, decide, report, commit."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from windlass.engine.decision import Decision
from windlass.kits.clock import Clock
from windlass.model.cluster.cluster_model import ClusterModel
from windlass.scheduler.commit.bind_checks import BindChecks
from windlass.scheduler.commit.bind_results import BindResults
from windlass.scheduler.commit.committer import Committer
from windlass.scheduler.commit.device_reservations import DeviceReservations
from windlass.scheduler.commit.incomplete_gangs import IncompleteGangs
from windlass.scheduler.decision_reporter import DecisionReporter
from windlass.scheduler.engine_feed import EngineFeed
from windlass.scheduler.engine_host import EngineHost
from windlass.scheduler.estimates.start_estimates import StartEstimates
from windlass.scheduler.leader.leadership import Leadership
from windlass.scheduler.observability.observer import SchedulingObserver
from windlass.scheduler.steady_time import SteadyTime


class SchedulingCycle:
    """Runs scheduling cycles. ``wake()`` requests another one."""

    def __init__(
        self,
        model: ClusterModel,
        host: EngineHost,
        feed: EngineFeed,
        leadership: Leadership,
        committer: Committer,
        reporter: DecisionReporter,
        estimates: StartEstimates,
        reservations: DeviceReservations,
        bind_results: BindResults,
        gangs: IncompleteGangs,
        checks: BindChecks,
        observers: Sequence[SchedulingObserver],
        *,
        clock: Clock,
        time: SteadyTime,
        wake: Callable[[], None],
    ) -> None:
        self._model = model
        self._host = host
        self._feed = feed
        self._leadership = leadership
        self._committer = committer
        self._reporter = reporter
        self._estimates = estimates
        self._reservations = reservations
        self._bind_results = bind_results
        self._gangs = gangs
        self._checks = checks
        self._observers = observers
        self._clock = clock
        self._time = time
        self._wake = wake
        self.last_decision = Decision(0)

    def run(self) -> float | None:
        """Run one cycle.

        Return the seconds until the next is due, ``None`` if none is.
        """
        start = self._clock.monotonic()
        self._checks.expire(start)
        changes = self._model.take(self._time.now())
        if self._leadership.taking_over:
            self._leadership.taking_over = False
            changes = self._committer.take_over(changes)
        inbox = self._feed.take_inbox()
        taken = self._clock.monotonic()

        self._feed.deliver_with_inbox(changes, inbox)
        decision = self.last_decision = self._decide()
        decided = self._clock.monotonic()

        self._estimates.started(decision.binds)
        self._reporter.report(decision)
        reported = self._clock.monotonic()

        self._committer.commit(decision)
        self._reservations.clean_up()
        self._bind_results.look_up_overdue(self._clock.monotonic())
        self._gangs.evict_overdue(self._clock.monotonic())
        committed = self._clock.monotonic()

        self._measure(decision, len(changes) + len(inbox), (start, taken, decided, reported, committed))
        if self._feed.inbox:
            self._wake()
        return self._seconds_to_next(decision, committed)

    def _decide(self) -> Decision:
        """Decide, and assume the decided binds."""
        now = self._time.now()
        decision = self._host.engine.cycle(now)
        for bind in decision.binds:
            self._model.binds.assume(bind, now)
        return decision

    def _measure(self, decision: Decision, changes: int, times: tuple[float, ...]) -> None:
        """Measure a cycle.

        ``times``: its start and the ends of its phases, monotonic.
        """
        offset = self._time.now() - times[-1]
        for observer in self._observers:
            observer.cycle_finished(decision, changes, tuple(offset + time for time in times))
        self._reporter.measure(decision, changes, times)

    def _seconds_to_next(self, decision: Decision, now: float) -> float | None:
        deadlines = [
            self._gangs.next_deadline(),
            self._bind_results.next_deadline,
            self._checks.next_deadline(),
        ]
        offset = self._time.now() - now
        unix_times = (decision.wake_at, self._model.next_change())
        due = [deadline for deadline in deadlines if deadline is not None]
        due += [time - offset for time in unix_times if time is not None]
        return max(0.0, min(due) - now) if due else None
