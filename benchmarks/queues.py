"""Many queues that share: from the first delta in to the last decision out, on one engine.

``python -m benchmarks.queues --cohorts 10 --queues 1000 --workloads 50000 -o json``

Every cohort is a queue with leaves below it; every leaf deserves 20 CPUs and may borrow 100 more. It gets
one-pod workloads in three sizes (70 % of 1 CPU and 0.2 s, 20 % of 5 CPUs and 0.5 s, 10 % of 20 CPUs and
1 s; the larger the higher in priority), each size at its own pace, as in Kueue's published benchmark. Time
is virtual: workloads arrive, are decided on, run and end, in ticks of ``--tick`` seconds with one cycle
each, until the last has ended. Fair shares follow the demand in every cycle. Every decision is replayed:
no node and no queue over its amount. ``cpu_seconds`` is that of the engine alone (deltas and cycles).
"""

from __future__ import annotations

import argparse
import heapq
import sys
import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

from msgspec.structs import replace as altered

from benchmarks.report import add_output, show
from benchmarks.timing import memory_mib
from windlass.engine.config import EngineConfig
from windlass.engine.decision import Decision
from windlass.engine.deltas import (
    Delta,
    GroupRemoved,
    GroupUpserted,
    NodeUpserted,
    QueueUpserted,
    TaskRemoved,
    TaskUpserted,
)
from windlass.engine.engine import Engine
from windlass.kits import gc_tuning
from windlass.plugins.defaults import default_plugins
from windlass.spi.objects import Dialect, Group, Needs, Node, Queue, Task, TaskState

GIB = 1 << 30
DESERVED = 20_000
LIMIT = 120_000


@dataclass(frozen=True, slots=True)
class Size:
    """Workloads of one size: ``share`` of all, one every ``pace`` seconds, for ``runs`` seconds."""

    share: float
    cpus: int
    pace: float
    runs: float
    priority: int


SIZES = (Size(0.7, 1, 0.1, 0.2, 50), Size(0.2, 5, 0.5, 0.5, 60), Size(0.1, 20, 1.2, 1.0, 70))


@dataclass(frozen=True, slots=True)
class Shape:
    cohorts: int
    queues: int
    workloads: int
    api: str = "kai"
    actions: tuple[str, ...] = ("allocate",)
    tick: float = 0.1


@dataclass(order=True, slots=True)
class Workload:
    at: float
    name: str
    size: Size = field(compare=False)
    queue: str = field(compare=False)
    attempt: int = field(default=0, compare=False)
    node: str = field(default="", compare=False)

    @property
    def task(self) -> Task:
        needs = Needs(request=(("cpu", self.size.cpus * 1000), ("memory", GIB)))
        return Task(f"{self.name}-0", f"{self.name}.{self.attempt}", self.name, needs)


def make_queues(shape: Shape) -> list[Queue]:
    kai = shape.api == "kai"
    prefix, dialect = ("kai/", Dialect.KAI) if kai else ("", Dialect.VOLCANO)
    per_cohort = shape.queues // shape.cohorts
    found = [] if kai else [Queue("root")]
    for cohort in range(shape.cohorts):
        top = f"{prefix}cohort{cohort}"
        free = ("cpu", "memory") if kai else ()
        found.append(Queue(top, "" if kai else "root", dialect=dialect, unlimited=free))
        found += [
            Queue(
                f"{top}-q{leaf}",
                top,
                deserved={"cpu": DESERVED},
                capability={"cpu": LIMIT},
                created=float(leaf),
                dialect=dialect,
                unlimited=("memory",) if kai else (),
            )
            for leaf in range(per_cohort)
        ]
    return found


def make_nodes(shape: Shape) -> list[Node]:
    """Enough for what the queues deserve, no more."""
    count = -(-shape.queues * DESERVED // 128_000)
    amounts = {"cpu": 128_000, "memory": 1024 * GIB, "pods": 250}
    return [Node(f"node-{i:04d}", amounts, {"kubernetes.io/hostname": f"node-{i:04d}"}) for i in range(count)]


def make_workloads(shape: Shape) -> list[Workload]:
    leaves = [queue.name for queue in make_queues(shape) if queue.deserved]
    each = shape.workloads // len(leaves)
    found = []
    for queue in leaves:
        for size in SIZES:
            for number in range(round(each * size.share)):
                name = f"bench/{queue.replace('/', '-')}-{size.cpus}-{number}"
                found.append(Workload(number * size.pace, name, size, queue))
    return sorted(found)


class World:
    """Starts and ends pods as decided, and keeps books of its own."""

    def __init__(self, shape: Shape) -> None:
        self.free = {node.name: node.allocatable["cpu"] for node in make_nodes(shape)}
        self.held: dict[str, int] = defaultdict(int)
        self.by_task: dict[str, Workload] = {}
        self.ends: list[tuple[float, str, int]] = []
        self.decided = 0
        self.evicted = 0
        self.done = 0
        self.news: list[Delta] = []

    def arrive(self, workload: Workload) -> None:
        task = workload.task
        self.by_task[task.key] = workload
        group = Group(
            workload.name,
            workload.queue,
            workload.size.priority,
            created=workload.at,
            uid=workload.name,
            dialect=Dialect.KAI if workload.queue.startswith("kai/") else Dialect.VOLCANO,
        )
        self.news += [GroupUpserted(group), TaskUpserted(task)]

    def carry_out(self, decision: Decision, now: float) -> None:
        for bind in decision.binds:
            workload = self.by_task[bind.task]
            units = workload.size.cpus * 1000
            self.free[bind.node] -= units
            self.held[workload.queue] += units
            assert self.free[bind.node] >= 0, f"{bind.node} is over-committed"
            assert self.held[workload.queue] <= LIMIT, f"{workload.queue} is over its limit"
            workload.node = bind.node
            self.decided += 1
            heapq.heappush(self.ends, (now + workload.size.runs, bind.task, workload.attempt))
            self.news.append(TaskUpserted(altered(workload.task, state=TaskState.RUNNING, node=bind.node)))
        for eviction in decision.evictions:
            workload = self.by_task[eviction.task]
            self._leave(workload)
            workload.attempt += 1
            self.evicted += 1
            self.news += [TaskRemoved(eviction.task), TaskUpserted(workload.task)]

    def end(self, now: float) -> None:
        while self.ends and self.ends[0][0] <= now:
            _, key, attempt = heapq.heappop(self.ends)
            workload = self.by_task.get(key)
            if workload is None or workload.attempt != attempt:
                continue
            self._leave(workload)
            del self.by_task[key]
            self.done += 1
            self.news += [TaskRemoved(key), GroupRemoved(workload.name)]

    def _leave(self, workload: Workload) -> None:
        units = workload.size.cpus * 1000
        self.free[workload.node] += units
        self.held[workload.queue] -= units


def run(shape: Shape) -> dict[str, float]:
    """The whole scenario. Raises ``AssertionError`` for a decision that is impossible."""
    workloads, world = make_workloads(shape), World(shape)
    engine = Engine(EngineConfig(actions=shape.actions), default_plugins())
    gc_tuning.tune_for_long_lived_objects()  # as the scheduler's process does
    world.news = [QueueUpserted(queue) for queue in make_queues(shape)]
    world.news += [NodeUpserted(node) for node in make_nodes(shape)]
    cpu, longest, cycles, next_one, now = 0.0, 0.0, 0, 0, 0.0
    while world.done < len(workloads):
        while next_one < len(workloads) and workloads[next_one].at <= now:
            world.arrive(workloads[next_one])
            next_one += 1
        world.end(now)
        if world.news:
            news, world.news = world.news, []
            began = time.process_time()
            engine.apply(news)
            decision = engine.cycle(now)
            took = time.process_time() - began
            cpu, longest, cycles = cpu + took, max(longest, took), cycles + 1
            world.carry_out(decision, now)
        now = round(now + shape.tick, 6)
    return {
        "cpu_seconds": round(cpu, 3),
        "decisions": world.decided,
        "decisions_per_cpu_second": round(world.decided / cpu, 1),
        "evictions": world.evicted,
        "cycles": cycles,
        "longest_cycle_ms": round(1000 * longest, 2),
        "virtual_seconds": round(now, 2),
        "rss_mib": memory_mib(),
    }


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.queues", description=__doc__)
    parser.add_argument("--cohorts", type=int, default=10)
    parser.add_argument("--queues", type=int, default=1000, help="leaves, in all cohorts together")
    parser.add_argument("--workloads", type=int, default=50_000)
    parser.add_argument("--api", choices=["kai", "volcano"], default="kai")
    parser.add_argument("--actions", default="allocate", help="of a cycle, in order")
    parser.add_argument("--tick", type=float, default=0.1, help="virtual seconds between cycles")
    add_output(parser)
    options = parser.parse_args(arguments)
    if options.workloads < options.queues or options.queues < options.cohorts:
        parser.error("every cohort needs a queue, and every queue a workload")
    record = run(
        Shape(
            options.cohorts,
            options.queues,
            options.workloads,
            options.api,
            tuple(options.actions.split(",")),
            options.tick,
        )
    )
    show(record, options.output)
    return 0


if __name__ == "__main__":
    sys.exit(main())
