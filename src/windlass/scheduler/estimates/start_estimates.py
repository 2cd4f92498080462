"""Estimated starts of pending groups, by simulation of the cluster.

While something waits, the engine's state is regularly handed to a thread. The thread
plays it forward a number of times, with run times drawn from what is known
(:mod:`windlass.sim.whatif.play_forward`). The median start is reported, with the band
of eight in ten starts, slightly widened for what no simulation knows. The first
estimate of each group is compared with its true start, and counted.

Invariants: nothing is simulated while nothing waits. The thread works on a copy, shares
nothing that changes, and rests nine times as long as it works.
"""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from math import inf

from windlass.api.reasons import MAX_PLANNED_NODES, Explanation
from windlass.engine.config import EngineConfig
from windlass.engine.decision import Bind
from windlass.engine.engine import Engine
from windlass.engine.timesharing import counts_text
from windlass.kits.clock import Clock
from windlass.model.cluster.cluster_model import ClusterModel
from windlass.model.cluster.engine_factory import make_engine
from windlass.model.cluster.run_time_traits import shapes_in
from windlass.observe import logs
from windlass.observe.scheduling import SchedulerMetrics
from windlass.scheduler.estimates.run_times import LearnedRunTimes
from windlass.scheduler.options import LiveOptions
from windlass.scheduler.status.group_reports import GroupReports
from windlass.scheduler.steady_time import SteadyTime
from windlass.sim.replay.decide_loop import Endless
from windlass.sim.whatif import run_times
from windlass.sim.whatif.compare import Band, Draws, SimulatedCluster, plays
from windlass.sim.whatif.play_forward import ForwardState, state_of
from windlass.spi.configuration import SchedulerConfig

log = logs.get("scheduler")
HORIZON_SECONDS = 7 * 86_400.0
"""Maximum time in seconds until a start that is reported."""
OFF_SECONDS = 30.0
"""Interval in seconds between checks whether estimates are turned on again."""
STALE_FACTOR = 10
"""Number of intervals after which an unchanged state is simulated again."""
REST_FACTOR = 9.0
"""Time for which the thread rests, as a multiple of the time for which it works."""
MAX_SECONDS = 120.0
"""Timeout of one estimate in seconds. Later samples are left out."""
MAX_PODS = 50_000
"""Maximum number of pods for which there are estimates.

Each sample begins with a new engine that is given all pods.
"""
SLACK, MIN_SLACK_SECONDS = 0.1, 15.0
"""Fraction of the wait by which a band is widened, and minimum in seconds."""
MIN_MOVE = 0.2
"""Minimum change of a start, as a fraction of the wait, for a new report."""


@dataclass(frozen=True, slots=True)
class Starts:
    """Bands of starts in seconds by group, and the number of samples behind them."""

    bands: Mapping[str, Band]
    samples: int
    nodes: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """Group → planned node → number of its pods, in most samples."""


RunInThread = Callable[[Callable[[], Starts]], Awaitable[Starts]]


@dataclass(frozen=True, slots=True)
class StartEstimate:
    """Estimated start of a group, in Unix seconds. ``basis``: for people."""

    at: float
    start: float
    low: float
    high: float
    basis: str
    nodes: Mapping[str, int] = field(default_factory=dict)

    @property
    def seconds(self) -> float:
        """Seconds from the estimate to the start."""
        return self.start - self.at

    @property
    def band(self) -> tuple[float, ...]:
        """Seconds to the earliest and to the latest start, if there is a latest."""
        return tuple([max(0.0, bound - self.at) for bound in (self.low, self.high) if bound != inf])


class StartEstimates:
    """Estimates the starts of pending groups.

    ``changed(group)`` is called with each group that has a new estimate.
    ``run_in_thread`` performs work outside the event loop.
    """

    def __init__(
        self,
        model: ClusterModel,
        run_times: LearnedRunTimes,
        options: LiveOptions,
        metrics: SchedulerMetrics,
        reports: GroupReports,
        *,
        clock: Clock,
        time: SteadyTime,
        changed: Callable[[str], None],
        run_in_thread: RunInThread = asyncio.to_thread,
    ) -> None:
        self._policy = options.current.policy
        self._model = model
        self._run_times = run_times
        self._options = options
        self._metrics = metrics
        self._reports = reports
        self._clock = clock
        self._time = time
        self._changed = changed
        self._run_in_thread = run_in_thread
        self._estimates: dict[str, StartEstimate] = {}
        self._first: dict[str, StartEstimate] = {}
        self._hits = self._starts = 0
        self._started: set[str] = set()
        """Groups started since the simulation began, so that its result is outdated."""
        self._last: ForwardState | None = None
        """State that was simulated last."""

    def use_policy(self, policy: SchedulerConfig) -> None:
        """Simulate by another policy."""
        self._policy = policy

    # ------------------------------------------------------------------ reports

    def complete(self, group: str, explanation: Explanation) -> Explanation:
        """Return the explanation with the estimate, if there is one."""
        estimate = self._estimates.get(group)
        if estimate is None:
            return explanation
        return replace(
            explanation,
            estimate_seconds=estimate.seconds,
            estimate_at=estimate.at,
            estimate_band=estimate.band,
            estimate_basis=estimate.basis,
            planned_nodes=estimate.nodes or explanation.planned_nodes,
        )

    def started(self, binds: Iterable[Bind]) -> None:
        """Compare the first estimates of groups that start with their true starts."""
        groups = dict.fromkeys(bind.group for bind in binds)
        self._started |= groups.keys()
        now = self._time.now()
        for group in groups:
            first = self._first.pop(group, None)
            self._estimates.pop(group, None)
            if first is None:
                continue
            result = "early" if now < first.low else "late" if now > first.high else "within"
            self._starts += 1
            self._hits += result == "within"
            self._metrics.start_estimates.labels(result).inc()
            self._metrics.start_hits.set(self._hits / self._starts)

    def forget(self, group: str) -> None:
        """Forget a group that does not exist any more."""
        self._estimates.pop(group, None)
        self._first.pop(group, None)
        self._started.discard(group)

    # ------------------------------------------------------------------ simulation

    async def run(self) -> None:
        """Estimate repeatedly, until cancelled."""
        stop = threading.Event()
        try:
            while True:
                seconds = self._options.current.estimate_seconds
                await self._clock.sleep(seconds or OFF_SECONDS)
                if seconds:
                    await self._estimate(stop)
        finally:
            stop.set()

    async def _estimate(self, stop: threading.Event) -> None:
        pending, options = set(self._reports.pending()), self._options.current
        if not pending or len(self._model.objects.pods) > MAX_PODS:
            return
        now = self._time.now()
        state = state_of(self._model.sent_deltas(), now)
        state.groups.update(self._run_times.groups())
        state.tasks.update(self._model.sent_tasks())
        last = self._last
        fresh = last is not None and now - last.now < STALE_FACTOR * options.estimate_seconds
        if fresh and last is not None and replace(last, now=now) == state:
            return
        self._last = state
        self._started.clear()
        # A copy, since the history goes on learning.
        history = type(self._run_times.history).of_record(self._run_times.history.as_record())
        sampled = run_times.SampledRunTimes(history, shapes=shapes_in(self._model.groups, state.groups))
        draws = Draws(sampled, options.estimate_samples, 0, HORIZON_SECONDS)
        simulation = _Simulation(state, self._policy, draws, self._run_times.counts.text())
        throttle = _Throttle(self._clock, stop)
        start = self._clock.monotonic()
        try:
            starts = await self._run_in_thread(lambda: simulation.run(throttle, pending))
        except Endless as error:
            log.warning("no start estimates", why=str(error))
            return
        self._metrics.start_estimate_seconds.observe(self._clock.monotonic() - start)
        self._take(starts, pending, now)

    def _take(self, starts: Starts, pending: Iterable[str], now: float) -> None:
        """Take in the result of a simulation that began at ``now``."""
        if not starts.samples:
            return
        still_pending, lag = set(self._reports.pending()) - self._started, self._time.now() - now
        for group in pending:
            if group not in still_pending:
                continue
            before, band = self._estimates.get(group), starts.bands.get(group)
            if band is None or band.middle == inf:
                if before is not None:
                    del self._estimates[group]
                    self._changed(group)
                continue
            estimate = _estimate_of(band, now, lag, starts.samples)
            estimate = replace(estimate, nodes=starts.nodes.get(group, {}))
            if before is not None and not _has_moved(before, estimate):
                continue
            self._estimates[group] = estimate
            self._first.setdefault(group, estimate)
            self._changed(group)


def _estimate_of(band: Band, now: float, lag: float, samples: int) -> StartEstimate:
    """Return the estimate of a simulation that began at ``now``, ``lag`` seconds ago."""
    slack = max(MIN_SLACK_SECONDS, SLACK * band.middle)
    low, high = max(0.0, band.low - slack), band.high + slack
    basis = f"by {samples} simulated course{'s' if samples > 1 else ''}"
    return StartEstimate(now + lag, now + max(band.middle, lag), now + low, now + high, basis)


def _has_moved(before: StartEstimate, after: StartEstimate) -> bool:
    wait = max(after.seconds, MIN_SLACK_SECONDS)
    pairs = ((before.start, after.start), (before.low, after.low), (before.high, after.high))
    return any(abs(old - new) > MIN_MOVE * wait for old, new in pairs if old != new)


class Stopped(Exception):
    """The simulation is to end."""


class _Throttle:
    """Limits a thread to its share of a core. Called before every piece of work."""

    def __init__(self, clock: Clock, stop: threading.Event) -> None:
        self._clock = clock
        self._stop = stop
        self._start = self._since = clock.monotonic()

    def __call__(self) -> None:
        now = self._clock.monotonic()
        if self._stop.wait(REST_FACTOR * (now - self._since)) or now - self._start > MAX_SECONDS:
            raise Stopped
        self._since = self._clock.monotonic()


@dataclass(frozen=True, slots=True)
class _Simulation:
    """Work of the thread. ``counts``: stored counters of time-sharing."""

    state: ForwardState
    policy: SchedulerConfig
    draws: Draws
    counts: str | None

    def run(self, throttle: Callable[[], None], pending: Iterable[str]) -> Starts:
        """Return the bands of starts, in seconds from the state's time.

        Samples for which there is no time are left out.
        """
        cluster = SimulatedCluster(self.state, self._engine)
        seconds_by_group: dict[str, list[float]] = {group: [] for group in pending}
        nodes_by_group: dict[str, Counter[tuple[tuple[str, int], ...]]] = {}
        try:
            for number in range(self.draws.samples):
                courses = plays(cluster, self.draws, number, throttle)
                for group, seconds in seconds_by_group.items():
                    course = courses.get(group)
                    start = course.started if course is not None else None
                    seconds.append(start - self.state.now if start is not None else inf)
                    if course is not None and course.nodes:
                        planned = tuple(sorted(course.nodes.items())[:MAX_PLANNED_NODES])
                        nodes_by_group.setdefault(group, Counter())[planned] += 1
        except Stopped:
            pass
        bands = {group: Band.of(seconds) for group, seconds in seconds_by_group.items() if seconds}
        nodes = {group: dict(found.most_common(1)[0][0]) for group, found in nodes_by_group.items()}
        return Starts(bands, max(map(len, seconds_by_group.values()), default=0), nodes)

    def _engine(self) -> Engine:
        """Return an engine that decides as the one in force does."""
        engine = make_engine(self.policy, lambda _: None, base=EngineConfig(reports=False))
        counts_text.load_if_possible(engine.state.time_sharing, self.counts, self.state.now)
        return engine
