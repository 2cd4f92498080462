"""When what waits will start: the cluster played forward by the simulator, aside and at a small part of one core.

Every so often, as long as something waits, what the engine was told is handed to a thread, which plays it forward a
number of times with run times drawn from what is known (:mod:`windlass.sim.whatif.play_forward`). The middle of the
starts is what is told, with the band that holds eight of ten of them, widened a little for what no simulation knows.
What was told of a group first is held against its true start, and counted.

Invariants: nothing is played while nothing waits; the thread works on a copy, shares nothing that changes, and rests
nine times as long as it works.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from math import inf

from windlass.api.reasons import Explanation
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
from windlass.scheduler.options import SchedulerOptions
from windlass.sim.replay.decide_loop import Endless
from windlass.sim.whatif import run_times
from windlass.sim.whatif.compare import Band, Draws, SimulatedCluster, plays
from windlass.sim.whatif.play_forward import ForwardState, state_of
from windlass.spi.configuration import SchedulerConfig

log = logs.get("scheduler")
AHEAD_SECONDS = 7 * 86_400.0
"""What starts later is not told."""
OFF_SECONDS = 30.0
"""How often is looked whether estimates are wanted again."""
STALE = 10
"""After so many times as long it is played again though nothing has changed."""
REST = 9.0
"""So many times as long as it works the thread rests."""
LONGEST_SECONDS = 120.0
"""After so long what is found counts; the rest of the samples is left."""
MOST_PODS = 50_000
"""Of more there are no estimates: each play begins with telling an engine of all of them."""
SLACK, LEAST_SLACK_SECONDS = 0.1, 15.0
"""A band is widened by this part of the wait, and by so much at least."""
MOVED = 0.2
"""An estimate is told anew once the start has moved by more than this part of the wait."""


@dataclass(frozen=True, slots=True)
class Starts:
    """The bands of starts in seconds, by group, and how many plays they come of."""

    bands: Mapping[str, Band]
    samples: int


Aside = Callable[[Callable[[], Starts]], Awaitable[Starts]]


@dataclass(frozen=True, slots=True)
class StartEstimate:
    """Unix seconds. ``basis``: for people."""

    at: float
    start: float
    low: float
    high: float
    basis: str

    @property
    def seconds(self) -> float:
        """From when it was told to the start."""
        return self.start - self.at

    @property
    def band(self) -> tuple[float, ...]:
        """From when it was told to the earliest and the latest start, the earliest alone where there is no latest."""
        return tuple([max(0.0, one - self.at) for one in (self.low, self.high) if one != inf])


class StartEstimates:
    """``options``: those in force, asked each time. ``waits``: the groups that wait. ``changed`` is called with each
    group of which there is something new. ``aside``: how work is done beside the event loop."""

    def __init__(
        self,
        model: ClusterModel,
        run_times: LearnedRunTimes,
        options: Callable[[], SchedulerOptions],
        metrics: SchedulerMetrics,
        *,
        clock: Clock,
        now: Callable[[], float],
        waits: Callable[[], Iterable[str]],
        changed: Callable[[str], None],
        aside: Aside = asyncio.to_thread,
    ) -> None:
        self.policy: SchedulerConfig = options().policy
        self._model = model
        self._run_times = run_times
        self._options = options
        self._metrics = metrics
        self._clock = clock
        self._now = now
        self._waits = waits
        self._changed = changed
        self._aside = aside
        self._told: dict[str, StartEstimate] = {}
        self._first: dict[str, StartEstimate] = {}
        self._hits = self._starts = 0
        self._begun: set[str] = set()
        """Who has started since what is played began: if it waits again, none of that is of its next start."""
        self._last: ForwardState | None = None
        """What was played last."""

    # ------------------------------------------------------------------ telling

    def told(self, group: str, explanation: Explanation) -> Explanation:
        """The explanation with the estimate, where there is one."""
        found = self._told.get(group)
        if found is None:
            return explanation
        return replace(
            explanation,
            estimate_seconds=found.seconds,
            estimate_at=found.at,
            estimate_band=found.band,
            estimate_basis=found.basis,
        )

    def bound(self, binds: Iterable[Bind]) -> None:
        """Groups start: how true was what they were told?"""
        groups = dict.fromkeys(bind.group for bind in binds)
        self._begun |= groups.keys()
        now = self._now()
        for group in groups:
            first = self._first.pop(group, None)
            self._told.pop(group, None)
            if first is None:
                continue
            word = "early" if now < first.low else "late" if now > first.high else "within"
            self._starts += 1
            self._hits += word == "within"
            self._metrics.start_estimates.labels(word).inc()
            self._metrics.start_hits.set(self._hits / self._starts)

    def forget(self, group: str) -> None:
        """The group is gone."""
        self._told.pop(group, None)
        self._first.pop(group, None)
        self._begun.discard(group)

    # ------------------------------------------------------------------ estimating

    async def run(self) -> None:
        """Estimate again and again, until cancelled."""
        stop = threading.Event()
        try:
            while True:
                seconds = self._options().estimate_seconds
                await self._clock.sleep(seconds or OFF_SECONDS)
                if seconds:
                    await self._round(stop)
        finally:
            stop.set()

    async def _round(self, stop: threading.Event) -> None:
        waiting = set(self._waits())
        if not waiting or len(self._model.pods) > MOST_PODS:
            return
        now = self._now()
        state = state_of(self._model.told(), now)
        state.groups.update(self._run_times.groups())
        state.tasks.update(self._model.told_tasks())
        last = self._last
        fresh = last is not None and now - last.now < STALE * self._options().estimate_seconds
        if fresh and last is not None and replace(last, now=now) == state:
            return
        self._last = state
        self._begun.clear()
        # A snapshot: the history goes on learning meanwhile.
        history = type(self._run_times.history).of_record(self._run_times.history.as_record())
        draws = run_times.SampledRunTimes(history, shapes=shapes_in(self._model, state.groups))
        plays = Draws(draws, self._options().estimate_samples, 0, AHEAD_SECONDS)
        play = _Play(state, self.policy, plays, self._run_times.counts.text())
        pace = _Pace(self._clock, stop)
        begun = self._clock.monotonic()
        try:
            found = await self._aside(lambda: play.run(pace, waiting))
        except Endless as error:
            log.warning("no estimates of starts", why=str(error))
            return
        self._metrics.start_estimate_seconds.observe(self._clock.monotonic() - begun)
        self._take(found, waiting, now)

    def _take(self, found: Starts, waiting: Iterable[str], now: float) -> None:
        if not found.samples:
            return
        still, lag = set(self._waits()) - self._begun, self._now() - now
        for group in waiting:
            if group not in still:
                continue
            before, band = self._told.get(group), found.bands.get(group)
            if band is None or band.middle == inf:
                if before is not None:
                    del self._told[group]
                    self._changed(group)
                continue
            told = _told(band, now, lag, found.samples)
            if before is not None and not _moved(before, told):
                continue
            self._told[group] = told
            self._first.setdefault(group, told)
            self._changed(group)


def _told(band: Band, now: float, lag: float, samples: int) -> StartEstimate:
    """``now``: the moment that was played from; it was ``lag`` seconds ago."""
    slack = max(LEAST_SLACK_SECONDS, SLACK * band.middle)
    low, high = max(0.0, band.low - slack), band.high + slack
    basis = f"by {samples} simulated course{'s' if samples > 1 else ''}"
    return StartEstimate(now + lag, now + max(band.middle, lag), now + low, now + high, basis)


def _moved(before: StartEstimate, after: StartEstimate) -> bool:
    wait = max(after.seconds, LEAST_SLACK_SECONDS)
    return any(
        abs(one - other) > MOVED * wait
        for one, other in ((before.start, after.start), (before.low, after.low), (before.high, after.high))
        if one != other
    )


class Stopped(Exception):
    """No further cycle."""


class _Pace:
    """Keeps a thread to its part of a core. Called before every piece of work."""

    def __init__(self, clock: Clock, stop: threading.Event) -> None:
        self._clock = clock
        self._stop = stop
        self._begun = self._since = clock.monotonic()

    def __call__(self) -> None:
        now = self._clock.monotonic()
        if self._stop.wait(REST * (now - self._since)) or now - self._begun > LONGEST_SECONDS:
            raise Stopped
        self._since = self._clock.monotonic()


@dataclass(frozen=True, slots=True)
class _Play:
    """What the thread does. ``counts``: what time-sharing has counted."""

    state: ForwardState
    policy: SchedulerConfig
    draws: Draws
    counts: str | None

    def run(self, pace: Callable[[], None], waiting: Iterable[str]) -> Starts:
        """The bands of starts, in seconds from the state's moment, by the samples that there was time for."""
        world = SimulatedCluster(self.state, self._engine)
        found: dict[str, list[float]] = {group: [] for group in waiting}
        try:
            for number in range(self.draws.samples):
                courses = plays(world, self.draws, number, pace)
                for group, seconds in found.items():
                    course = courses.get(group)
                    start = course.started if course is not None else None
                    seconds.append(start - self.state.now if start is not None else inf)
        except Stopped:
            pass
        bands = {group: Band.of(seconds) for group, seconds in found.items() if seconds}
        return Starts(bands, max(map(len, found.values()), default=0))

    def _engine(self) -> Engine:
        """That decides as the one in force does."""
        engine = make_engine(self.policy, lambda _: None, base=EngineConfig(reports=False))
        counts_text.offer(engine.state.time_sharing, self.counts, self.state.now)
        return engine
