"""Random small clusters whose jobs run exactly as long as was said, or less: who was promised which start, and had it.

Everything is drawn from one ``Random``: nodes in racks, queues, and jobs of four kinds, all of them small enough to be
placed in an empty cluster. Moments are whole seconds, so that ends, arrivals and starts often fall together.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

from cluster_dsl import NAMESPACE, Cluster

from windlass.engine.config import EngineConfig
from windlass.spi.objects import TaskState
from windlass.spi.topology import Level, TopologyNeed

NEAR = TopologyNeed("network", (Level("rack"),), 0)
KINDS = ("flat", "flat", "wide", "wide", "mixed", "near")
"""Pods of one GPU; pods of several; pods of two sizes; pods of one size in one rack."""


@dataclass(frozen=True, slots=True)
class Job:
    """``pods``: how many GPUs each has. ``seconds``: as is said. ``runs``: how long it really runs; 0: as was said.
    ``ahead``: seconds from its arrival to its earliest start; 0: none is stated."""

    name: str
    arrives: int
    seconds: int
    pods: tuple[int, ...]
    queue: str
    near: bool = False
    runs: int = 0
    ahead: int = 0


@dataclass(slots=True)
class Told:
    """``promised``: by job, the start that was reserved first. ``started``: the one that it had."""

    promised: dict[str, float] = field(default_factory=dict)
    started: dict[str, float] = field(default_factory=dict)

    def late(self, more: float = 0.0) -> dict[str, tuple[float, float]]:
        """Job → the promise, and the start, of those that started ``more`` than so many seconds after it."""
        never = float("inf")
        found = {name: (moment, self.started.get(name, never)) for name, moment in self.promised.items()}
        return {name: pair for name, pair in found.items() if pair[1] > pair[0] + more}


def jobs_of(rng: Random, racks: int, nodes: int, gpus: int, queues: int, most: int) -> list[Job]:
    """``nodes`` with ``gpus`` each in every rack."""
    found = []
    for at in range(rng.randint(2, most)):
        kind = rng.choice(KINDS)
        width = 1 if kind == "flat" else rng.randint(1, gpus)
        room = (gpus // width) * nodes * (1 if kind == "near" else racks)
        pods = [width] * rng.randint(1, min(room, 12))
        if kind == "mixed":
            pods = [width] * rng.randint(1, max(1, room // 2)) + [1] * rng.randint(1, gpus)
            pods = pods if sum(pods) <= room * width else pods[:room]
        queue = f"q{rng.randrange(queues)}"
        found.append(
            Job(f"j{at}", rng.randint(0, 40), rng.randint(1, 40), tuple(pods), queue, kind == "near")
        )
    return sorted(found, key=lambda job: (job.arrives, job.name))


def played(
    rng: Random,
    backfill: str,
    queues: int,
    most: int = 14,
    late: float = 0.0,
    *,
    early: bool = False,
    ahead: bool = False,
) -> Told:
    """One drawn cluster until all its jobs have ended, each so much later than was said: then they run for minutes;
    or some of them ``early``. ``ahead``: a third of the jobs come first, with an earliest start and priority."""
    racks, nodes, gpus = rng.randint(1, 3), rng.randint(1, 2), rng.choice((2, 4, 8))
    world = Cluster(EngineConfig(backfill=backfill))
    for rack in range(racks):
        world.nodes(*(f"r{rack}n{at} gpu={gpus} cpu=64 rack=r{rack}" for at in range(nodes)))
    world.queues(*(f"q{at} deserved.gpu={rng.randint(0, gpus)}" for at in range(queues)))
    jobs = jobs_of(rng, racks, nodes, gpus, queues, most)
    if late:
        jobs = [replace(job, arrives=60 * job.arrives, seconds=60 * job.seconds) for job in jobs]
    if early:
        jobs = [replace(job, runs=rng.randint(1, job.seconds)) for job in jobs]
    if ahead:
        jobs = [
            replace(job, ahead=rng.randint(1, 60), arrives=0) if rng.random() < 1 / 3 else job for job in jobs
        ]
        jobs.sort(key=lambda job: (job.arrives, job.name))
    return _Life(world, jobs, late).play()


class _Life:
    def __init__(self, world: Cluster, jobs: list[Job], late: float) -> None:
        self.world = world
        self.late = late
        self.told = Told()
        self.coming = jobs
        self.ends: dict[str, float] = {}
        self.jobs = {job.name: job for job in jobs}
        self.begin = world.now

    def play(self) -> Told:
        wake: float | None = None
        while True:
            moments = [self.begin + job.arrives for job in self.coming[:1]] + list(self.ends.values())
            moment = min(moments + ([] if wake is None else [wake]), default=None)
            if moment is None:
                return self.told
            for name in [name for name, end in self.ends.items() if end <= moment]:
                self.world.finish(name)
                del self.ends[name]
            while self.coming and self.begin + self.coming[0].arrives <= moment:
                self._comes(self.coming.pop(0))
            wake = self._decides(moment)

    def _comes(self, job: Job) -> None:
        self.world.gang(job.name, 0, queue=job.queue)
        for width in job.pods:
            self.world.add_tasks(job.name, 1, f"gpu={width}")
        changes: dict[str, Any] = {"topology": NEAR} if job.near else {}
        if job.ahead:
            start = self.begin + job.arrives + job.ahead
            changes |= {"earliest_start": start, "reserve_until": 1e9, "priority": 1}
        self.world.change_group(
            job.name, run_estimate=float(job.seconds), min_member=len(job.pods), **changes
        )

    def _decides(self, moment: float) -> float | None:
        """Cycles until the engine has said all; when it wants to be woken."""
        for _ in range(60):
            decision = self.world.cycle(moment - self.world.now)
            for bind in decision.binds:
                name = bind.task.removeprefix(f"{NAMESPACE}/")
                self.world.change_task(name, state=TaskState.RUNNING, started=moment)
                self._started(name.rpartition("-")[0], moment)
            for key, start, _ in self.world.engine.reservations.as_records():
                self.told.promised.setdefault(key.removeprefix(f"{NAMESPACE}/"), start)
            for key, _, start, *_ in self.world.engine.reservations.early.as_records():
                self.told.promised.setdefault(key.removeprefix(f"{NAMESPACE}/"), start)
            if decision.wake_at is None or decision.wake_at > moment:
                return decision.wake_at
        raise AssertionError("no rest")

    def _started(self, name: str, moment: float) -> None:
        self.told.started[name] = moment
        job = self.jobs[name]
        self.ends[name] = moment + (job.runs or job.seconds) + self.late
