"""A large cluster in motion: pods arrive and leave all the time, on one engine.

``python -m benchmarks.churn --nodes 30000 --pods 800000 --rate 10000 -o json``

The cluster runs ``--pods`` pods. Then, for ``--seconds`` of arrivals, batches of new pods come and as many of
the oldest go, each batch handed over as the deltas of one tick and followed by one cycle. A pod's latency
runs from its arrival (evenly within the tick) to the end of the cycle that binds it, with a tick's work
waiting for the one before: where the engine is slower than the arrivals, latencies grow without end.
Every bind is replayed: nothing over-committed. The first second of arrivals (``--warm-up``) is not counted: the
engine then looks at all nodes for each class for the first time; ``first_ms`` says how long the first tick took.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from msgspec.structs import replace as altered

from benchmarks.engine import GIB, GPU
from benchmarks.report import add_output, percentile, show
from benchmarks.timing import memory_mib
from windlass.engine.decision import Bind
from windlass.engine.deltas import (
    Delta,
    GroupRemoved,
    GroupUpserted,
    NodeUpserted,
    QueueUpserted,
    TaskRemoved,
    TaskUpserted,
)
from windlass.kits import gc_tuning
from windlass.model.cluster.engine_factory import default_engine
from windlass.spi.objects import Group, Needs, Node, Queue, Task, TaskState


@dataclass(frozen=True, slots=True)
class Shape:
    """``rate``: arrivals (and departures) per second; ``tick``: seconds of arrivals per cycle."""

    nodes: int
    pods: int
    rate: int
    classes: int
    seconds: float
    tick: float
    seed: int
    warm_up: float = 1.0


class World:
    """Replayed cluster state: running pods in order of age, and free capacity of the nodes."""

    def __init__(self, shape: Shape) -> None:
        rng = random.Random(shape.seed)
        self.rng = rng
        self.needs = [
            Needs(request=(("cpu", 500 + 50 * rng.randrange(20)), ("memory", (1 + i % 4) * GIB)))
            for i in range(shape.classes)
        ]
        each = -(-shape.pods // shape.nodes)
        amounts = {"cpu": 2000 * each + 16_000, "memory": 6 * each * GIB, "pods": 2 * each + 16, GPU: 8000}
        self.nodes = [
            Node(f"node-{i:05d}", amounts, {"kubernetes.io/hostname": f"node-{i:05d}"})
            for i in range(shape.nodes)
        ]
        self.free = {node.name: dict(amounts) for node in self.nodes}
        self.running: deque[Task] = deque()
        self.waiting: dict[str, Task] = {}
        self.number = 0

    def fill(self, pods: int) -> list[Delta]:
        deltas: list[Delta] = []
        for i in range(pods):
            task = self._new(deltas, node=self.nodes[i % len(self.nodes)].name)
            self._take(task)
            self.running.append(task)
        return deltas

    def tick(self, n: int) -> list[Delta]:
        """``n`` pods arrive, and ``n`` of the oldest go."""
        deltas: list[Delta] = []
        for _ in range(min(n, len(self.running))):
            task = self.running.popleft()
            for name, units in (*task.needs.request, ("pods", 1)):
                self.free[task.node][name] += units
            deltas += [TaskRemoved(task.key, task.uid), GroupRemoved(task.group)]
        for _ in range(n):
            task = self._new(deltas)
            self.waiting[task.key] = task
        return deltas

    def carry_out(self, binds: Sequence[Bind]) -> list[Delta]:
        """The world confirms the binds; raises ``AssertionError`` for one that is impossible."""
        deltas: list[Delta] = []
        for bind in binds:
            task = altered(self.waiting.pop(bind.task), node=bind.node, state=TaskState.BOUND)
            self._take(task)
            self.running.append(task)
            deltas.append(TaskUpserted(task))
        return deltas

    def _new(self, deltas: list[Delta], node: str = "") -> Task:
        self.number += 1
        key = f"bench/p{self.number}"
        state = TaskState.RUNNING if node else TaskState.PENDING
        needs = self.needs[self.rng.randrange(len(self.needs))]
        task = Task(key, key, key, needs, node=node, state=state)
        deltas.append(GroupUpserted(Group(key, queue="q", created=float(self.number), uid=key)))
        deltas.append(TaskUpserted(task))
        return task

    def _take(self, task: Task) -> None:
        room = self.free[task.node]
        for name, units in (*task.needs.request, ("pods", 1)):
            room[name] -= units
            assert room[name] >= 0, f"{task.node} is over-committed in {name}"


def run(shape: Shape) -> dict[str, float]:
    world, engine = World(shape), default_engine()
    began = time.perf_counter()
    engine.apply([QueueUpserted(Queue("q"))])
    engine.apply([NodeUpserted(node) for node in world.nodes])
    engine.apply(world.fill(shape.pods))
    engine.cycle(0.0)
    setup = time.perf_counter() - began
    gc_tuning.tune_for_long_lived_objects()  # as the scheduler's process does
    per_tick = max(1, round(shape.rate * shape.tick))
    latencies: list[float] = []
    confirmed: list[Delta] = []
    busy = cpu = first = 0.0
    bound = 0
    before, ticks = round(shape.warm_up / shape.tick), round(shape.seconds / shape.tick)
    clock = begins = before * shape.tick
    for number in range(1, before + ticks + 1):
        deltas = confirmed + world.tick(per_tick)
        arrived = number * shape.tick
        at, cpu_at = time.perf_counter(), time.process_time()
        engine.apply(deltas)
        decision = engine.cycle(arrived)
        took, cpu_after = time.perf_counter() - at, time.process_time()
        first = first or took
        confirmed = world.carry_out(decision.binds)
        if number <= before:
            continue
        cpu += cpu_after - cpu_at
        busy += took
        clock = max(clock, arrived) + took
        bound += len(decision.binds)
        half = shape.tick / 2
        latencies += [clock - arrived + half] * len(decision.binds)
    return {
        "arrivals_per_second": shape.rate,
        "sustained_per_second": round(bound / busy, 1),
        "keeps_up": clock - begins <= ticks * shape.tick + 10 * shape.tick,
        "p50_ms": round(1000 * percentile(latencies, 0.5), 2),
        "p99_ms": round(1000 * percentile(latencies, 0.99), 2),
        "first_ms": round(1000 * first, 1),
        "busy_share": round(busy / (ticks * shape.tick), 3),
        "cpu_us_per_pod": round(1e6 * cpu / max(bound, 1), 1),
        "bound": bound,
        "waiting": len(world.waiting),
        "rss_mib": memory_mib(),
        "setup_seconds": round(setup, 2),
    }


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.churn", description=__doc__)
    parser.add_argument("--nodes", type=int, default=30_000)
    parser.add_argument("--pods", type=int, default=800_000, help="that run all the time")
    parser.add_argument("--rate", type=int, default=10_000, help="arrivals, and departures, per second")
    parser.add_argument("--classes", type=int, default=50)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--tick", type=float, default=0.02, help="seconds of arrivals per cycle")
    parser.add_argument("--warm-up", type=float, default=1.0, help="seconds of arrivals before, not counted")
    parser.add_argument("--seed", type=int, default=1)
    add_output(parser)
    options = vars(parser.parse_args(arguments))
    output = options.pop("output")
    record = run(Shape(**options))
    show(record, output)
    return 0


if __name__ == "__main__":
    sys.exit(main())
