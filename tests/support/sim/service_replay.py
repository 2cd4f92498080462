"""One trace, played by the replay and through the service: who starts, and starts again, when, and on how many nodes.

The service runs on a fake API with a clock that moves from one moment of the trace to the next: jobs come as PodGroups
with pods, pods that are bound run at once, and end when the trace says so; a pod that is evicted, or whose node fails,
is made anew at once, and its job goes on from what it saved, after its restart. Nodes fail, are cordoned and drained
as a :class:`Scene` says.
"""

from __future__ import annotations

import asyncio
import heapq
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import ceil
from random import Random
from typing import Any
from unittest import mock

import msgspec
from kaiobjects import kai_group, kai_pod, kai_queue
from kubeobjects import group, node, pod, priority_class, queue
from msgspec.structs import replace as altered
from scheduler_api import Running, SchedulerApi

from windlass.api.annotations import (
    DEVICE_COMPUTE,
    DEVICE_COUNT,
    DEVICE_MODEL,
    FRACTION_COUNT_KAI,
    FRACTION_KAI,
)
from windlass.api.resources import (
    KAI_POD_GROUPS,
    KAI_QUEUES,
    NODES,
    POD_GROUPS,
    PODS,
    PRIORITY_CLASSES,
)
from windlass.api.views import decode_kai_queue
from windlass.engine.deltas import NodeUpserted
from windlass.kits.clock import FakeClock
from windlass.kits.timestamps import rfc3339
from windlass.model.cluster.engine_factory import make_engine
from windlass.model.queues.engine_queue import kai_queue_of
from windlass.plugins.queues.victims import TICK_SECONDS
from windlass.sim.cluster import GPU, make_nodes, parse
from windlass.sim.event_loop import Agenda, EventKind
from windlass.sim.jobs import WHOLE, TraceJob, pod_sizes
from windlass.sim.replay.job_progress import EXACT, Effort
from windlass.sim.replay.outcome import ReplayOutcome
from windlass.sim.replay.policies import ReplayEngine, ReplayPolicy
from windlass.sim.replay.replay import Replay, ReplayOptions
from windlass.spi.configuration import SchedulerConfig
from windlass.spi.objects import Dialect, Group, Node, Queue

Json = dict[str, Any]
Shape = tuple[tuple[int, int], ...]
"""How many nodes have how many of its pods: ((pods, nodes), …)."""
Start = tuple[float, str, Shape]
Terms = dict[str, dict[str, int]]
"""Queue → limit → GPUs."""
LARGEST = 8
"""GPUs of the largest node."""
HEARD = 10
"""So many turns of the loop, and the scheduler has heard of all that has happened."""
BEGIN = 1_767_268_800.0
"""Unix seconds, 2026-01-01T12:00:00Z."""
SOON = 0.001
"""Seconds. Who wakes so close to a moment wakes at it: the two clocks are not rounded in the same way."""
NEAR = 0.005
"""Seconds."""
EARLY = 1e-6
"""Seconds. Jobs end at whole seconds, and run up to one longer for that: objects tell no others. Who is so little late
ends at the one before."""
NEVER = 1e6
"""Seconds: who saves his work so seldom ends before, and says nothing of it."""
PATIENCE_SECONDS = 7200.0
"""So long is waited where nothing runs and nobody comes."""


@dataclass(frozen=True)
class Change:
    """What becomes of a node at a moment. ``what``: ``fail`` (it is gone with all that ran on it), ``return``,
    ``cordon``, ``drain`` (a cordon, and all that runs there is made anew elsewhere), ``uncordon``."""

    at: float
    node: str
    what: str


@dataclass(frozen=True)
class Scene:
    """``nodes``: as for :func:`~windlass.sim.cluster.parse`. ``terms``: ``None`` for one queue, ``default``.
    ``speeds``: of cards, by model."""

    jobs: Sequence[TraceJob]
    config: SchedulerConfig = field(default_factory=SchedulerConfig)
    terms: Terms | None = None
    nodes: str = "4x8"
    dialect: Dialect = Dialect.WINDLASS
    changes: tuple[Change, ...] = ()
    speeds: Mapping[str, float] = field(default_factory=dict)


def trace(seed: int, count: int = 24) -> list[TraceJob]:
    """Whole seconds, no two of a moment."""
    rng = Random(seed)
    moments = sorted(rng.sample(range(1, 2400), count))
    sizes = [1, 1, 2, 4, 8, 8, 16, 24]
    return [
        TraceJob(f"job-{at:02d}", float(moment), float(rng.randrange(100, 900)), rng.choice(sizes))
        for at, moment in enumerate(moments)
    ]


def shape(nodes: Sequence[str]) -> Shape:
    return tuple(sorted(Counter(Counter(nodes).values()).items()))


def again(starts: list[Start]) -> int:
    """How many of the starts came after a stop, or with more or fewer pods."""
    return len(starts) - len({name for _, name, _ in starts})


def same(left: list[Start], right: list[Start]) -> bool:
    """Whether the same jobs start on as many nodes, at the same moments but for what the clocks differ by."""
    if len(left) != len(right):
        return False
    pairs = zip(
        *[sorted(starts, key=lambda start: (start[1], start[0])) for starts in (left, right)], strict=True
    )
    return all(one[1:] == other[1:] and abs(one[0] - other[0]) < NEAR for one, other in pairs)


# ---------------------------------------------------------------------- what owners say


def live_policy(config: SchedulerConfig, dialect: Dialect = Dialect.WINDLASS) -> ReplayPolicy:
    """What the scheduler decides by when it is configured so."""
    return ReplayPolicy(
        "live", "", lambda _: ReplayEngine(make_engine(config), dialect=dialect, confirms=True, dress=said)
    )


def said(group: Group, job: TraceJob) -> Group:
    """With what its owner states: the run time, whether it shares time, and what a stop loses."""
    return altered(group, run_estimate=estimate(job), annotations={**group.annotations, **stated(job)})


def estimate(job: TraceJob) -> float:
    """Seconds, as its owner says."""
    return job.duration_seconds if job.requested_seconds is None else job.requested_seconds


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


def sizes(job: TraceJob) -> list[int]:
    """The GPUs of each of its pods: of an elastic job every pod has one."""
    return pod_sizes(job, 1 if job.min_gpus else LARGEST)


def least(job: TraceJob) -> int:
    """With how many of its pods it runs."""
    return job.min_gpus or len(sizes(job))


# ---------------------------------------------------------------------- the simulator


def simulated(scene: Scene) -> list[Start]:
    """Every start, those after a stop too, and whenever a job has got or lost a pod."""
    outcome = played(scene)
    spans = [span for span in outcome.spans if not span.held]
    return sorted(
        (round(span.start * 1024) / 1024, outcome.jobs[span.job].job.id, shape(list(span.nodes)))
        for span in spans
    )


def played(scene: Scene) -> ReplayOutcome:
    return Staged(scene, options(scene.terms, Effort(speeds=scene.speeds), scene.dialect)).run()


def options(terms: Terms | None, effort: Effort, dialect: Dialect = Dialect.WINDLASS) -> ReplayOptions:
    known = {name: _queue(name, told, dialect) for name, told in (terms or {}).items()}
    return ReplayOptions(effort=effort, time_share=False, queues=bool(terms), terms=known)


def _queue(name: str, told: Mapping[str, int], dialect: Dialect) -> Queue:
    if dialect is Dialect.KAI:
        return replace(kai_queue_of(decode_kai_queue(msgspec.json.encode(_kai_queue(name, told)))), name=name)
    return Queue(name, **{limit: {GPU: gpus * WHOLE} for limit, gpus in told.items()})


def _kai_queue(name: str, told: Mapping[str, int]) -> Json:
    made = kai_queue(name, gpus=told.get("deserved", 0))
    made["metadata"]["creationTimestamp"] = rfc3339(BEGIN)
    if "capability" in told:
        made["spec"]["resources"]["gpu"]["limit"] = told["capability"]
    return made


def whole(moment: float) -> float:
    """The second at which a job ends."""
    return float(ceil(moment - EARLY))


class _WholeSeconds(Agenda):
    """Jobs end at whole seconds."""

    def add(self, moment: float, kind: EventKind, what: Any) -> None:
        super().add(whole(moment) if kind is EventKind.END else moment, kind, what)


class Staged(Replay):
    """A replay in which nodes fare as the scene says."""

    def __init__(self, scene: Scene, options: ReplayOptions) -> None:
        self._scene = scene
        policy = live_policy(scene.config, scene.dialect)
        super().__init__(list(scene.jobs), make_nodes(parse(scene.nodes)), policy, options)

    def _begin(self, jobs: Sequence[TraceJob]) -> None:
        self.agenda = _WholeSeconds()
        for change in self._scene.changes:
            self.agenda.add(change.at, EventKind.FAILURE, change)  # type: ignore[arg-type]
        super()._begin(jobs)

    def _failed(self, change: Any, now: float) -> None:
        node = self._nodes[change.node]
        if change.what == "fail":
            super()._failed(change.node, now)
        elif change.what == "return":
            super()._repaired(change.node, now)
        else:
            if change.what == "drain":
                self._lose(change.node, now)
            self._deltas.append(NodeUpserted(replace(node, unschedulable=change.what != "uncordon")))

    def _repaired(self, name: str, now: float) -> None:
        """When nodes come back the scene says."""

    def _plan_failure(self, name: str, now: float) -> None:
        pass


# ---------------------------------------------------------------------- the service


class GridClock(FakeClock):
    """Tells parts of a second as multiples of 1/1024: then sums and differences of moments are exact, as those of the
    simulator are, which begins at zero. Near 2^31 seconds a float is a quarter of a millionth off."""

    def now(self) -> float:
        return BEGIN + self.monotonic()

    def elapsed(self) -> float:
        return self.monotonic()

    def monotonic(self) -> float:
        return round(super().monotonic() * 1024) / 1024


class Work:
    """How the work of one job goes on. ``pods``: name → node, empty while it has none."""

    def __init__(self, job: TraceJob) -> None:
        self.job = job
        self.pods = {f"{job.id}-{at}": "" for at in range(len(sizes(job)))}
        self.left = job.duration_seconds
        self.rate = 0.0
        self.warming = 0.0
        self.since = 0.0
        self.runs = 0
        """Counts its plans, older ends are void."""
        self.ran = False

    def places(self) -> list[str]:
        return [node for node in self.pods.values() if node]

    def settle(self, now: float) -> None:
        if self.rate:
            passed = now - self.since
            self.ran = self.ran or passed > 0
            warm = min(self.warming, passed)
            self.warming -= warm
            self.left = max(0.0, self.left - (passed - warm) * self.rate)
        self.since = now

    def goes(self, speeds: Mapping[str, float]) -> float:
        """It runs with the pods that it has; in how many seconds it will have ended. ``speeds``: of nodes."""
        if not self.rate and self.ran:
            self.warming += self.job.restart_seconds or 0.0
        part = len(self.places()) / len(self.pods)
        self.rate = part * min(speeds[node] for node in self.places())
        self.runs += 1
        return self.warming + self.left / self.rate

    def stops(self) -> None:
        """What it has not saved is to be done again."""
        every = self.job.checkpoint_seconds or 0.0
        done = self.job.duration_seconds - self.left
        self.left = self.job.duration_seconds - ((done + EXACT) // every * every if every else done)
        self.rate = self.warming = 0.0
        self.runs += 1


class Life:
    """The scene through the service. Moments are seconds since its begin."""

    def __init__(self, api: SchedulerApi, scene: Scene) -> None:
        self.api = api
        self.scene = scene
        self.kai = scene.dialect is Dialect.KAI
        self.origin = (ceil(api.clock.now() / TICK_SECONDS) + 1) * TICK_SECONDS
        """A whole second, as objects tell no others; where the order of victims is made anew, as zero is."""
        self.jobs = {job.id: job for job in scene.jobs}
        self.works: dict[str, Work] = {}
        self.nodes = {one.name: one for one in make_nodes(parse(scene.nodes))}
        self.speeds = {
            name: scene.speeds.get(one.devices[0].model, 1.0) if one.devices else 1.0
            for name, one in self.nodes.items()
        }
        self.events: list[tuple[float, int, int, Any, int]] = []
        """Moments, what kind, what came first, what, and which of a job's runs it is."""
        self._numbers = 0
        for change in scene.changes:
            self._plan(change.at, EventKind.FAILURE, change)
        for job in scene.jobs:
            self._plan(job.submit_seconds, EventKind.ARRIVAL, job.id)
        self.started: dict[tuple[float, str], Shape] = {}
        self.made: dict[str, Json] = {}
        """Pods as their owners make them."""

    def _plan(self, moment: float, kind: EventKind, what: Any, run: int = 0) -> None:
        self._numbers += 1
        heapq.heappush(self.events, (moment, int(kind), self._numbers, what, run))

    async def play(self) -> list[Start]:
        while (moment := await self._following()) is not None:
            while self.events and self.events[0][0] == moment:
                _, kind, _, what, run = heapq.heappop(self.events)
                if kind == EventKind.ARRIVAL:
                    self._arrives(what)
                elif kind == EventKind.FAILURE:
                    self._changes(what, moment)
                elif what in self.works and run == self.works[what].runs:
                    self._ends(what)
            await self._settle(moment)
        return sorted((moment, name, shape) for (moment, name), shape in self.started.items())

    async def _following(self) -> float | None:
        """The moment of the next event, to which time has come then. What the scheduler does by itself in between (a
        reservation, a pause of claims) is seen when it happens: who starts by that may be the next who ends. It hears
        of what happens at a moment before it does what it wanted to do then, as in the simulator."""
        clock = self.api.clock
        last = clock.now() - self.origin + PATIENCE_SECONDS
        while self.works or self.events:
            left = self.origin + (self.events[0][0] if self.events else last) - clock.now()
            due = clock.left()
            if left <= 0 or due is None or due > left - SOON:
                clock.jump(max(left, 0.0))
                return self.events[0][0] if self.events else None
            await clock.advance(due)
            await self._settle(round((clock.now() - self.origin) * 1024) / 1024)
        return None

    async def _settle(self, moment: float) -> None:
        """Time stands still until nothing more follows from what happened."""
        quiet = 0
        for _ in range(HEARD):
            await asyncio.sleep(0)
        while quiet < 3:
            for _ in range(5):
                await self.api.clock.advance(0.0)
            quiet = 0 if self._look(moment) else quiet + 1

    # ------------------------------------------------------------------ owners

    def _arrives(self, name: str) -> None:
        job = self.jobs[name]
        created = rfc3339(self.origin + job.submit_seconds)
        made = self._group(job)
        made["metadata"]["creationTimestamp"] = created
        notes = {"windlass.dev/run-estimate": f"{estimate(job):g}s", **stated(job)}
        made["metadata"]["annotations"] = notes
        made["metadata"]["uid"] = f"uid-{name}"
        self.api.put(KAI_POD_GROUPS if self.kai else POD_GROUPS, made)
        work = self.works[name] = Work(job)
        for one, gpus in zip(work.pods, sizes(job), strict=True):
            made = self._pod(job, one, gpus)
            made["metadata"]["creationTimestamp"] = created
            self.made[one] = made
            self.api.add(made)

    def _group(self, job: TraceJob) -> Json:
        urgent = {"priorityClassName": f"p{job.priority}"} if job.priority or self.kai else {}
        if self.kai:
            return kai_group(job.id, least(job), job.queue, **urgent)
        return group(job.id, least(job), queue=job.queue, **urgent)

    def _pod(self, job: TraceJob, name: str, gpus: int) -> Json:
        notes: dict[str, str] = {}
        requests = {GPU: str(gpus)}
        if job.gpu_milli < WHOLE:
            requests, part = {}, f"{job.gpu_milli / 10:g}"
            notes = {DEVICE_COMPUTE: part, DEVICE_COUNT: str(gpus)}
            if self.kai:
                notes = {FRACTION_KAI: f"{job.gpu_milli / WHOLE:g}", FRACTION_COUNT_KAI: str(gpus)}
        if job.gpu_models:
            notes[DEVICE_MODEL] = ",".join(job.gpu_models)
        spec = {"priority": job.priority} if job.priority else {}
        if not self.kai:
            return pod(name, group=job.id, requests=requests, annotations=notes, **spec)
        made = kai_pod(name, job.id, job.queue, requests=requests, **spec)
        made["metadata"]["annotations"].update(notes)
        owner = {"apiVersion": "v1", "kind": "Job", "name": job.id, "uid": job.id, "controller": True}
        made["metadata"]["ownerReferences"] = [owner]  # only pods that are created again are relocated
        return made

    def _ends(self, name: str) -> None:
        for one in self.works.pop(name).pods:
            del self.made[one]
            self.api.remove(PODS, f"default/{one}")
        self.api.remove(KAI_POD_GROUPS if self.kai else POD_GROUPS, f"default/{name}")

    def _anew(self, work: Work, one: str) -> None:
        """A pod that is gone is made anew."""
        work.pods[one] = ""
        self.made[one]["metadata"]["uid"] += "+"
        self.api.remove(PODS, f"default/{one}")
        self.api.add(self.made[one])

    # ------------------------------------------------------------------ nodes

    def _changes(self, change: Change, now: float) -> None:
        if change.what in ("fail", "drain"):
            for work in self.works.values():
                if change.node in work.places():
                    work.settle(now)
                    if work.rate:
                        work.stops()
                    for one in work.pods:
                        self._anew(work, one)
        if change.what == "fail":
            self.api.remove(NODES, change.node)
        elif change.what == "return":
            self.api.add(as_object(self.nodes[change.node]))
        else:
            self.api.change(NODES, change.node, spec={"unschedulable": change.what != "uncordon"})

    # ------------------------------------------------------------------ what the scheduler did

    def _look(self, moment: float) -> bool:
        """Who was evicted comes again, and waits; bound pods run at once, and a gang that has its minimum has started.
        Whether there was anything of that."""
        found = self._evicted(moment) | self._bound(moment)
        for work in found:
            places = work.places()
            if work.rate:
                self.started[moment, work.job.id] = shape(places)
            else:  # the simulator notes no run of no length
                self.started.pop((moment, work.job.id), None)
        return bool(found)

    def _evicted(self, moment: float) -> dict[Work, None]:
        """Pods that were told to go are gone at once, and made anew."""
        there = self.api.stored.get(PODS, {})
        found: dict[Work, None] = {}
        for one in [
            name for name in self.made if "deletionTimestamp" in there[f"default/{name}"]["metadata"]
        ]:
            work = self.works[one.rpartition("-")[0]]
            work.settle(moment)
            self._anew(work, one)
            found[work] = None
        for work in found:
            self._goes_on(work, moment)
        return found

    def _bound(self, moment: float) -> dict[Work, None]:
        there = self.api.stored.get(PODS, {})
        found: dict[Work, None] = {}
        begun = rfc3339(self.origin + moment)
        for work in self.works.values():
            for one, place in list(work.pods.items()):
                now_at = place or there[f"default/{one}"]["spec"].get("nodeName", "")
                if now_at != place:
                    work.settle(moment)
                    work.pods[one] = now_at
                    self.api.change(PODS, f"default/{one}", status={"phase": "Running", "startTime": begun})
                    found[work] = None
        for work in found:
            self._goes_on(work, moment)
        return found

    def _goes_on(self, work: Work, moment: float) -> None:
        """With the pods that it has now, as far as it can."""
        if len(work.places()) >= least(work.job):
            end = moment + work.goes(self.speeds)
            self._plan(whole(end), EventKind.END, work.job.id, work.runs)
        elif work.rate:
            work.stops()


def as_object(one: Node) -> Json:
    """The node of the simulator on the wire."""
    model = one.devices[0].model if one.devices else ""
    labels = {"nvidia.com/gpu.product": model} if model else {}
    gpus = one.allocatable[GPU] // WHOLE
    cpu, memory = f"{one.allocatable['cpu']}m", str(one.allocatable["memory"])
    return node(one.name, gpus=gpus, cpu=cpu, memory=memory, pods=one.allocatable["pods"], labels=labels)


async def lived(scene: Scene) -> list[Start]:
    api = SchedulerApi(GridClock())
    api.add(queue("root"))
    kai = scene.dialect is Dialect.KAI
    if not scene.terms:  # it would have a part of what is divided, which it has not in the simulator
        api.add(queue("default"))
    for name, told in (scene.terms or {}).items():
        if kai:
            api.put(KAI_QUEUES, _kai_queue(name, told))
        else:
            api.add(queue(name, **{limit: {GPU: str(gpus)} for limit, gpus in told.items()}))
    for value in {job.priority for job in scene.jobs} - ({0} if not kai else set()):
        api.put(PRIORITY_CLASSES, priority_class(f"p{value}", value))
    api.add(*map(as_object, make_nodes(parse(scene.nodes))))
    unhurried = mock.patch("windlass.scheduler.service.BUSY_DEBOUNCE_SECONDS", 0.0)
    with unhurried:
        async with Running(api, policy=scene.config, debounce_seconds=0.0):
            return await Life(api, scene).play()
