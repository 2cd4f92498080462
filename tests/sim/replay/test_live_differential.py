"""The simulator and the live scheduler decide the same: one trace, played by the replay and through the service.

The service runs on a fake API with a clock that this test moves from one moment of the trace to the next: jobs come as
PodGroups with pods, pods that are bound run at once, and end when the trace says so; a pod that is evicted is made anew
at once, and its job goes on from what it saved, after its restart. What is compared: who starts, and starts again, in
which order and when, and on how many nodes with how many pods on each: with gangs, with each kind of backfill, with
queues, with priorities and preemption, with queues that reclaim what they are due, and with jobs that share time, also
where a suspension loses work. What is foretold of those who wait (:mod:`windlass.sim.whatif.play_forward`) is held
against the replay of the same jobs.
"""

from __future__ import annotations

import asyncio
import heapq
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from math import ceil
from random import Random
from typing import Any, cast

import pytest
from example_counts import seeds
from kubeobjects import group, node, pod, priority_class, queue
from msgspec.structs import replace as altered
from scheduler_api import Running, SchedulerApi

from windlass.api.resources import POD_GROUPS, PODS, PRIORITY_CLASSES
from windlass.engine.decision import Decision
from windlass.engine.deltas import Delta
from windlass.engine.engine import Engine
from windlass.kits.clock import FakeClock
from windlass.kits.timestamps import rfc3339
from windlass.model.cluster.engine_factory import make_engine
from windlass.plugins.queues.victims import TICK_SECONDS
from windlass.sim.cluster import GPU, make_nodes, parse
from windlass.sim.jobs import TraceJob, pod_sizes
from windlass.sim.replay.job_progress import Effort
from windlass.sim.replay.outcome import ReplayOutcome
from windlass.sim.replay.policies import ReplayEngine, ReplayPolicy
from windlass.sim.replay.replay import Replay, ReplayOptions, replay
from windlass.sim.whatif.play_forward import Forward, state_of
from windlass.spi.configuration import SchedulerConfig
from windlass.spi.objects import Dialect, Group, Queue

Shape = tuple[tuple[int, int], ...]
"""How many nodes have how many of its pods: ((pods, nodes), …)."""
Start = tuple[float, str, Shape]
Terms = dict[str, dict[str, int]]
"""Queue → limit → GPUs."""
NODES, LARGEST = 4, 8
HEARD = 10
"""So many turns of the loop, and the scheduler has heard of all that has happened."""
BEGIN = 1_767_268_800.0
"""Unix seconds, 2026-01-01T12:00:00Z."""
SOON = 0.001
"""Seconds. Who wakes so close to a moment wakes at it: the two clocks are not rounded in the same way."""


def trace(seed: int, count: int = 24) -> list[TraceJob]:
    """Whole seconds, no two of a moment."""
    rng = Random(seed)
    moments = sorted(rng.sample(range(1, 2400), count))
    sizes = [1, 1, 2, 4, 8, 8, 16, 24]
    return [
        TraceJob(f"job-{at:02d}", float(moment), float(rng.randrange(100, 900)), rng.choice(sizes))
        for at, moment in enumerate(moments)
    ]


def shape(nodes: list[str]) -> Shape:
    return tuple(sorted(Counter(Counter(nodes).values()).items()))


def live_policy(config: SchedulerConfig) -> ReplayPolicy:
    """What the scheduler decides by when it is configured so."""
    return ReplayPolicy(
        "live",
        "",
        lambda _: ReplayEngine(make_engine(config), dialect=Dialect.WINDLASS, confirms=True, dress=said),
    )


def said(group: Group, job: TraceJob) -> Group:
    """With what its owner states: the run time, whether it shares time, and what a stop loses."""
    return altered(group, run_estimate=estimate(job), annotations={**group.annotations, **stated(job)})


def estimate(job: TraceJob) -> float:
    """How long its owner says that it runs, in seconds: as long as it does unless the trace says otherwise."""
    return job.requested_seconds or job.duration_seconds


def stated(job: TraceJob) -> dict[str, str]:
    """Annotations of time-sharing."""
    if not job.time_share:
        return {}
    found = {"windlass.dev/time-share": "true"}
    if job.checkpoint_seconds is not None and job.checkpoint_seconds < NEVER:
        found["windlass.dev/checkpoint-every"] = f"{job.checkpoint_seconds:g}s"
    if job.restart_seconds:
        found["windlass.dev/restart-cost"] = f"{job.restart_seconds:g}s"
    return found


NEVER = 1e6
"""Seconds: who saves his work so seldom ends before, and says nothing of it."""


def simulated(jobs: list[TraceJob], config: SchedulerConfig, terms: Terms | None = None) -> list[Start]:
    """Every start, those after a stop too."""
    outcome = played(jobs, config, terms)
    spans = [span for span in outcome.spans if not span.held]
    return sorted(
        (round(span.start, 3), outcome.jobs[span.job].job.id, shape(list(span.nodes))) for span in spans
    )


def played(jobs: list[TraceJob], config: SchedulerConfig, terms: Terms | None = None) -> ReplayOutcome:
    nodes = make_nodes(parse(f"{NODES}x{LARGEST}"))
    return replay(jobs, nodes, live_policy(config), _options(terms, Effort()))


def _options(terms: Terms | None, effort: Effort) -> ReplayOptions:
    queues = {name: Queue(name, **_units(told)) for name, told in (terms or {}).items()}
    return ReplayOptions(effort=effort, time_share=False, queues=bool(terms), terms=queues)


def _units(told: dict[str, int]) -> dict[str, Any]:
    return {name: {GPU: gpus * 1000} for name, gpus in told.items()}


def again(starts: list[Start]) -> int:
    """How many of the starts came after a stop."""
    return len(starts) - len({name for _, name, _ in starts})


class GridClock(FakeClock):
    """Tells parts of a second as multiples of 1/1024: then sums and differences of moments are exact, as those of the
    simulator are, which begins at zero. Near 2^31 seconds a float is a quarter of a millionth off."""

    def now(self) -> float:
        return BEGIN + self.monotonic()

    def elapsed(self) -> float:
        return self.monotonic()

    def monotonic(self) -> float:
        return round(super().monotonic() * 1024) / 1024


class Life:
    """The trace through the service. Moments are seconds since its begin."""

    def __init__(self, api: SchedulerApi, running: Running, jobs: list[TraceJob]) -> None:
        self.api = api
        self.running = running
        self.origin = (ceil(api.clock.now() / TICK_SECONDS) + 1) * TICK_SECONDS
        """A whole second, as objects tell no others; where the order of victims is made anew, as zero is."""
        self.jobs = {job.id: job for job in jobs}
        self.events: list[tuple[float, int, str, int]] = [(job.submit_seconds, 1, job.id, 0) for job in jobs]
        """Moments, 1 for who comes and 0 for who ends, names, and which of his runs it is."""
        heapq.heapify(self.events)
        self.started: list[Start] = []
        self.waiting: dict[str, list[str]] = {}
        self.left = {job.id: job.duration_seconds for job in jobs}
        self.lost = 0.0
        """Seconds of work that suspensions cost."""
        self.since: dict[str, float] = {}
        """Of those that run."""
        self.runs: Counter[str] = Counter()
        self.made: dict[str, Any] = {}
        """Pods as their owners make them."""

    async def play(self) -> list[Start]:
        while self.events:
            moment = await self._following()
            while self.events and self.events[0][0] == moment:
                _, kind, name, run = heapq.heappop(self.events)
                if kind:
                    self._arrives(name)
                elif name in self.since and run == self.runs[name]:
                    self._ends(name)
            await self._settle(moment)
        return sorted(self.started)

    async def _following(self) -> float:
        """The moment of the next event, to which time has come then. What the scheduler does by itself in between (a
        reservation, a pause of claims) is seen when it happens: who starts by that may be the next who ends. It hears
        of what happens at a moment before it does what it wanted to do then, as in the simulator."""
        clock = self.api.clock
        while (left := self.origin + self.events[0][0] - clock.now()) > 0:
            due = clock.left()
            if due is None or due > left - SOON:
                clock.jump(left)
                break
            await clock.advance(due)
            await self._settle(round(clock.now() - self.origin, 3))
        return self.events[0][0]

    async def _settle(self, moment: float) -> None:
        """Time stands still until nothing more follows from what happened."""
        quiet = 0
        for _ in range(HEARD):
            await asyncio.sleep(0)
        while quiet < 3:
            for _ in range(5):
                await self.api.clock.advance(0.0)
            quiet = 0 if self._look(moment) else quiet + 1

    def _arrives(self, name: str) -> None:
        job = self.jobs[name]
        urgent = {"priorityClassName": f"p{job.priority}"} if job.priority else {}
        made = group(name, len(pod_sizes(job, LARGEST)), queue=job.queue, **urgent)
        made["metadata"]["creationTimestamp"] = rfc3339(self.origin + job.submit_seconds)
        said = {"windlass.dev/run-estimate": f"{estimate(job):g}s", **stated(job)}
        made["metadata"]["annotations"] = said
        made["metadata"]["uid"] = f"uid-{name}"
        pods = []
        for at, gpus in enumerate(pod_sizes(job, LARGEST)):
            spec = {"priority": job.priority} if job.priority else {}
            one = pod(f"{name}-{at}", group=name, requests={GPU: str(gpus)}, **spec)
            one["metadata"]["creationTimestamp"] = made["metadata"]["creationTimestamp"]
            pods.append(one)
            self.made[one["metadata"]["name"]] = one
        self.waiting[name] = [one["metadata"]["name"] for one in pods]
        self.api.add(made, *pods)

    def _look(self, moment: float) -> bool:
        """Who was evicted comes again, and his job waits; bound pods run at once, and a gang that is whole has started.
        Whether there was anything of that."""
        found = self._evicted(moment)
        for name, pods in list(self.waiting.items()):
            places = [self.api.node_of(one) for one in pods]
            if not all(places):
                continue
            begun = rfc3339(self.origin + moment)
            for one in pods:
                self.api.change(PODS, f"default/{one}", status={"phase": "Running", "startTime": begun})
            del self.waiting[name]
            self.started.append((moment, name, shape(places)))
            self.since[name] = moment
            self.runs[name] += 1
            end = moment + self._restart(name) + self.left[name]
            heapq.heappush(self.events, (end, 0, name, self.runs[name]))
            found = True
        return found

    def _evicted(self, moment: float) -> bool:
        """Pods that were told to go are gone at once, and made anew."""
        there = {one["metadata"]["name"]: one for one in self.api.objects(PODS)}
        gone = [name for name in self.made if "deletionTimestamp" in there[name]["metadata"]]
        for one in gone:
            name = one.rpartition("-")[0]
            if name in self.since:
                begun = self.since.pop(name)
                if begun == moment:  # the simulator notes no run of no length
                    self.started.remove(next(one for one in self.started if one[:2] == (moment, name)))
                self._stops(name, moment - begun)
                self.waiting[name] = [f"{name}-{at}" for at in range(self._pods(name))]
            self.made[one]["metadata"]["uid"] += "+"
            self.api.remove(PODS, f"default/{one}")
            self.api.add(self.made[one])
        return bool(gone)

    def _restart(self, name: str) -> float:
        """What its run takes before work goes on."""
        return (self.jobs[name].restart_seconds or 0.0) if self.runs[name] > 1 else 0.0

    def _stops(self, name: str, ran: float) -> None:
        """What it has not saved is to be done again."""
        job = self.jobs[name]
        done = job.duration_seconds - self.left[name] + max(ran - self._restart(name), 0.0)
        every = job.checkpoint_seconds or 0.0
        kept = done // every * every if every else done
        self.lost += done - kept
        self.left[name] = job.duration_seconds - kept

    def _pods(self, name: str) -> int:
        return len(pod_sizes(self.jobs[name], LARGEST))

    def _ends(self, name: str) -> None:
        del self.since[name]
        for at in range(self._pods(name)):
            del self.made[f"{name}-{at}"]
            self.api.remove(PODS, f"default/{name}-{at}")
        self.api.remove(POD_GROUPS, f"default/{name}")


async def lived(jobs: list[TraceJob], config: SchedulerConfig, terms: Terms | None = None) -> list[Start]:
    api = SchedulerApi(GridClock())
    api.add(queue("root"))
    if not terms:  # it would have a part of what is divided, which it has not in the simulator
        api.add(queue("default"))
    for name, told in (terms or {}).items():
        api.add(queue(name, **{limit: {GPU: str(gpus)} for limit, gpus in told.items()}))
    for value in {job.priority for job in jobs} - {0}:
        api.put(PRIORITY_CLASSES, priority_class(f"p{value}", value))
    api.add(*[node(f"node-{at:04d}", gpus=LARGEST, cpu="100000", memory="1000Ti") for at in range(NODES)])
    async with Running(api, policy=config, debounce_seconds=0.0) as running:
        return await Life(api, running, jobs).play()


@pytest.mark.parametrize("backfill", ["easy", "conservative", "none", "strict"])
async def test_a_live_run_and_the_simulator_give_the_same_decisions(backfill: str) -> None:
    config = SchedulerConfig(
        actions=("allocate",), configurations={"backfill": {"reservations": backfill, "learned": "false"}}
    )
    jobs = trace(1)
    expected = simulated(jobs, config)
    found = await lived(jobs, config)
    assert len(expected) == len(jobs)
    assert sum(start > jobs[int(name[4:])].submit_seconds for start, name, _ in expected) >= 5, "some wait"
    assert found == expected


@pytest.mark.parametrize("seed", [1, 2])
async def test_so_they_do_as_installed(seed: int) -> None:
    jobs = trace(seed)
    expected = simulated(jobs, SchedulerConfig())
    found = await lived(jobs, SchedulerConfig())
    assert found == expected


def urgent(jobs: list[TraceJob], rng: Random) -> list[TraceJob]:
    return [replace(job, priority=1000 if rng.random() < 0.3 else 0) for job in jobs]


def of_two_queues(jobs: list[TraceJob], rng: Random) -> list[TraceJob]:
    return [replace(job, queue="a" if rng.random() < 0.7 else "b") for job in jobs]


def sharing(jobs: list[TraceJob], rng: Random) -> list[TraceJob]:
    return [replace(job, time_share=True, checkpoint_seconds=0.0) for job in jobs]


def losing(jobs: list[TraceJob], rng: Random) -> list[TraceJob]:
    """Jobs that share time and save their work now and then, or never, and whose restart takes some time; half of them
    are long."""
    return [
        replace(
            job,
            duration_seconds=job.duration_seconds * rng.choice((1, 6)),
            time_share=True,
            checkpoint_seconds=rng.choice((NEVER, 0.0, 60.0, 200.0)),
            restart_seconds=rng.choice((0.0, 5.0, 30.0)),
        )
        for job in jobs
    ]


def losing_in_two_queues(jobs: list[TraceJob], rng: Random) -> list[TraceJob]:
    return of_two_queues(losing(jobs, rng), rng)


@pytest.mark.parametrize("backfill", ["easy", "conservative"])
async def test_so_they_do_where_jobs_end_before_their_time(backfill: str) -> None:
    """Reservations move forward at the same moments, and let the same jobs pass."""
    config = SchedulerConfig(
        actions=("allocate",), configurations={"backfill": {"reservations": backfill, "learned": "false"}}
    )
    moved = 0
    for seed in (1, 2):
        rng, exact = Random(seed), trace(seed, 28)
        jobs = [replace(job, requested_seconds=job.duration_seconds + rng.randrange(600)) for job in exact]
        expected = simulated(jobs, config)
        assert await lived(jobs, config) == expected, seed
        moved += expected != simulated(exact, config)
    assert moved, "it matters what owners say"


UNRESERVED = SchedulerConfig(configurations={"backfill": {"reservations": "none", "aging": "0s"}})
DUE: Terms = {"a": {"deserved": 16}, "b": {"deserved": 16}}


@pytest.mark.parametrize("backfill", ["easy", "conservative"])
async def test_so_they_do_where_room_is_kept_for_jobs_of_several_queues(backfill: str) -> None:
    """To the second: promises hold, also where the order of queues is not that of age."""
    config = SchedulerConfig(
        actions=("allocate",), configurations={"backfill": {"reservations": backfill, "learned": "false"}}
    )
    unreserved = replace(config, configurations={"backfill": {"reservations": "none"}})
    kept = 0
    for seed in (1, 2):
        jobs = of_two_queues(trace(seed, 28), Random(seed))
        expected = simulated(jobs, config, DUE)
        assert await lived(jobs, config, DUE) == expected, seed
        kept += expected != simulated(jobs, unreserved, DUE)
    assert kept, "somebody waited for the room that was kept"


RECLAIM_AND_RESERVE = (1, 8, 15)
"""First seeds of the parts of "reclaim-and-reserve"."""


@pytest.mark.seeds
@pytest.mark.parametrize(
    ("made", "config", "terms", "numbers"),
    [
        (urgent, SchedulerConfig(), None, seeds(range(14, 21), 2)),
        (of_two_queues, UNRESERVED, DUE, seeds(range(1, 8), 2)),
        *[
            (of_two_queues, SchedulerConfig(), DUE, seeds(range(at, min(at + 7, 21)), 2))
            for at in seeds(RECLAIM_AND_RESERVE, 1)
        ],
        (sharing, UNRESERVED, None, seeds(range(1, 5), 1)),
        (losing, UNRESERVED, None, seeds(range(2, 4), 1)),
        (losing_in_two_queues, UNRESERVED, DUE, seeds(range(2, 4), 1)),
        (sharing, SchedulerConfig(), None, seeds(range(2, 5), 1)),
        (losing, SchedulerConfig(), None, seeds(range(2, 4), 1)),
        (losing_in_two_queues, SchedulerConfig(), DUE, seeds(range(2, 4), 1)),
    ],
    ids=[
        "preempt",
        "reclaim",
        *[f"reclaim-and-reserve-{at}" for at in seeds(RECLAIM_AND_RESERVE, 1)],
        "time-share",
        "losses",
        "losses-in-two-queues",
        "time-share-and-reserve",
        "losses-and-reserve",
        "losses-in-two-queues-and-reserve",
    ],
)
async def test_so_they_do_where_groups_claim_room(
    made: Callable[[list[TraceJob], Random], list[TraceJob]],
    config: SchedulerConfig,
    terms: Terms | None,
    numbers: Sequence[int],
) -> None:
    """Live, pods that were told to go leave only after those cycles in which their room is promised, and some are
    planned to come after whom it was freed for. A claim that found nobody to evict pauses by the clock: however many
    cycles the service makes of a moment."""
    differ: list[int] = []
    stops = 0
    for seed in numbers:
        jobs = made(trace(seed, 28), Random(seed))
        expected = simulated(jobs, config, terms)
        if await lived(jobs, config, terms) != expected:
            differ.append(seed)
        stops += again(expected)
    assert not differ
    assert stops >= 3, "some were evicted, and started again at the same moments"


def drawn(seed: int) -> tuple[list[TraceJob], SchedulerConfig, Terms | None]:
    """Anything: up to four queues with shares and limits, priorities, jobs that share time and lose work, any backfill
    and any aging."""
    rng = Random(seed)
    jobs = trace(seed, 28)
    names = ["a", "b", "c", "d"][: rng.choice((1, 2, 3, 4))]
    terms: Terms | None = {}
    for name in names:
        terms[name] = {}
        if rng.random() < 0.7:
            terms[name]["deserved"] = rng.choice((4, 8, 12, 16))
        if rng.random() < 0.25:
            terms[name]["capability"] = rng.choice((16, 24, 32))
    if len(names) == 1 and rng.random() < 0.5:
        terms = None
    mode = rng.randrange(5)
    made: list[TraceJob] = []
    for job in jobs:
        changes: dict[str, Any] = {}
        if terms:
            changes["queue"] = rng.choice(names)
        if mode in (1, 3, 4) and rng.random() < 0.4:
            changes["priority"] = rng.choice((10, 100, 1000))
        if mode in (2, 3) or (mode == 4 and rng.random() < 0.5):
            changes["time_share"] = True
            changes["checkpoint_seconds"] = rng.choice((NEVER, 0.0, 60.0, 200.0))
            changes["restart_seconds"] = rng.choice((0.0, 0.0, 5.0, 30.0))
        if rng.random() < 0.2:
            changes["duration_seconds"] = job.duration_seconds * 4
        made.append(replace(job, **changes))
    reservations = rng.choice(("easy", "easy", "conservative", "none"))
    if rng.random() >= 0.7:
        return made, SchedulerConfig(), terms
    aging = rng.choice(("1h", "1h", "0s", "200s"))
    backfill = {"reservations": reservations, "learned": "false", "aging": aging}
    return made, SchedulerConfig(configurations={"backfill": backfill}), terms


@pytest.mark.parametrize("seed", [4, 12, 57, 66, 87])
async def test_so_they_do_whatever_is_drawn(seed: int) -> None:
    """Seeds that have differed: 4, since the simulator told of binds with those that leave, 12 by the order of claims
    below a root, 57 by a run of no length, 66 and 87 as reasons that were told, and phases that were written down, made
    those pause again who claim in vain."""
    jobs, config, terms = drawn(seed)
    expected = simulated(jobs, config, terms)
    assert await lived(jobs, config, terms) == expected
    assert again(expected) >= 3


@pytest.mark.parametrize(
    ("made", "terms"),
    [
        (sharing, None),
        (losing, None),
        (lambda jobs, rng: urgent(sharing(jobs, rng), rng), None),
        (losing_in_two_queues, DUE),
    ],
    ids=["sharing", "losing", "with-priorities", "losing-in-two-queues"],
)
def test_as_installed_the_cluster_is_never_empty_while_jobs_wait(
    made: Callable[[list[TraceJob], Random], list[TraceJob]], terms: Terms | None
) -> None:
    """Every job fits into the whole cluster: whoever holds room back for whom, somebody runs."""
    for seed in range(100, 110):
        jobs = made(trace(seed, 28), Random(seed))
        outcome = played(jobs, SchedulerConfig(), terms)
        assert idle(outcome) == [], seed
        assert len({span.job for span in outcome.spans}) == len(jobs)


def idle(outcome: ReplayOutcome) -> list[tuple[float, float]]:
    """When nothing ran though some job had come and had not ended: begin and end of each such time."""
    ends: dict[int, float] = {}
    for span in outcome.spans:
        ends[span.job] = max(ends.get(span.job, 0.0), span.end)
    found: list[tuple[float, float]] = []
    busy_until = 0.0
    for span in sorted(outcome.spans, key=lambda span: span.start):
        there = [outcome.jobs[at].job.submit_seconds for at, end in ends.items() if end > busy_until]
        since = max(busy_until, min(there, default=span.start))
        if since < span.start:
            found.append((since, span.start))
        busy_until = max(busy_until, span.end)
    return found


class Heard:
    """An engine, and what it was told before it was first asked."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.first: list[Delta] = []
        self._asked = False

    def apply(self, deltas: Iterable[Delta]) -> None:
        found = list(deltas)
        self.first += [] if self._asked else found
        self.engine.apply(found)

    def cycle(self, now: float) -> Decision:
        self._asked = True
        return self.engine.cycle(now)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.engine, name)


@pytest.mark.parametrize("seed", [1, 7, 15, 18, 54])
def test_what_is_foretold_of_those_who_wait_is_what_the_simulator_plays(seed: int) -> None:
    """Jobs of one moment, whose stops lose all: forecasts told of binds together with departures, and ended where a
    cycle decided nothing though claims went on in the next. With seed 18 the engine decided without end, as who was
    promised room by a claim was planned again and again."""
    drawn_jobs, config, terms = drawn(seed)
    loses_all: dict[str, Any] = {"time_share": None, "checkpoint_seconds": None, "restart_seconds": None}
    jobs = [replace(job, submit_seconds=0.0, **loses_all) for job in drawn_jobs]
    heard = Heard(make_engine(config))
    policy = live_policy(config)
    told = replace(policy, make=lambda setting: replace(policy.make(setting), engine=cast(Engine, heard)))
    game = Replay(
        jobs, make_nodes(parse(f"{NODES}x{LARGEST}")), told, _options(terms, Effort(checkpoint_seconds=None))
    )
    game.run()
    seconds = {run.key: run.job.duration_seconds for run in game.runs}
    forward = Forward(state_of(heard.first, 0.0), make_engine(config), lambda group, *_: seconds[group.key])
    foretold = {key: (course.started, course.stops) for key, course in forward.run().items()}
    assert foretold == {run.key: (run.ended.started, run.ended.preemptions) for run in game.runs}
    assert any(stops for _, stops in foretold.values())


def test_a_difference_would_be_seen() -> None:
    """The comparison can fail: strict order and backfill start jobs at other times."""
    jobs = trace(1)
    strict = SchedulerConfig(configurations={"backfill": {"reservations": "strict"}})
    assert simulated(jobs, strict) != simulated(jobs, SchedulerConfig())
