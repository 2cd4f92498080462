"""One gang comes to a large cluster that is busy: how long until it is placed.

``python -m benchmarks.arrival --nodes 4000 --running 140000 --members 6 --gpus-each 4 -o json``

Gangs come one at a time, each into the same cluster; the time runs from the moment the gang's deltas are
handed over to the end of the cycle that binds it. Explanations are on. Each gang is replayed: whole, and
nothing over-committed.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence

from benchmarks.engine import GIB, GPU
from benchmarks.report import add_output, percentile, show
from benchmarks.timing import memory_mib
from windlass.engine.deltas import Delta, GroupUpserted, NodeUpserted, QueueUpserted, TaskUpserted
from windlass.kits import gc_tuning
from windlass.model.cluster.engine_factory import default_engine
from windlass.spi.objects import Group, Needs, Node, Queue, Task, TaskState


def world(nodes: int, gpus: int, running: int) -> tuple[list[Delta], dict[str, int]]:
    """The deltas of the cluster, and the GPUs that are free by node."""
    deltas: list[Delta] = [QueueUpserted(Queue("q"))]
    for i in range(nodes):
        amounts = {"cpu": 256_000, "memory": 2048 * GIB, "pods": 250, GPU: gpus * 1000}
        labels = {"kubernetes.io/hostname": f"node-{i:05d}"}
        deltas.append(NodeUpserted(Node(f"node-{i:05d}", amounts, labels)))
    free = {f"node-{i:05d}": gpus for i in range(nodes)}
    plain = Needs(request=(("cpu", 500), ("memory", GIB)))
    with_gpu = Needs(request=(("cpu", 500), ("memory", GIB), (GPU, 1000)))
    for i in range(running):
        node, key = f"node-{i % nodes:05d}", f"bench/r{i}"
        takes = i // nodes < gpus // 2
        free[node] -= takes
        deltas.append(GroupUpserted(Group(key, queue="q", uid=key)))
        needs = with_gpu if takes else plain
        deltas.append(TaskUpserted(Task(f"{key}-0", key, key, needs, state=TaskState.RUNNING, node=node)))
    return deltas, free


def run(options: argparse.Namespace) -> dict[str, float]:
    deltas, free = world(options.nodes, options.gpus, options.running)
    engine = default_engine()
    engine.apply(deltas)
    engine.cycle(0.0)
    gc_tuning.tune_for_long_lived_objects()  # as the scheduler's process does
    needs = Needs(request=(("cpu", 4000), ("memory", 32 * GIB), (GPU, options.gpus_each * 1000)))
    times = []
    for number in range(options.gangs):
        key = f"bench/g{number}"
        gang: list[Delta] = [
            GroupUpserted(Group(key, queue="q", min_member=options.members, created=1.0 + number, uid=key))
        ]
        gang += [
            TaskUpserted(Task(f"{key}-{i}", f"{key}-{i}", key, needs, index=i))
            for i in range(options.members)
        ]
        at = time.perf_counter()
        engine.apply(gang)
        decision = engine.cycle(1.0 + number)
        times.append(time.perf_counter() - at)
        assert [b.group for b in decision.binds] == [key] * options.members, "not the gang, or not all of it"
        for bind in decision.binds:
            free[bind.node] -= options.gpus_each
            assert free[bind.node] >= 0, f"{bind.node} is over-committed"
    return {
        "p50_ms": round(1000 * percentile(times, 0.5), 3),
        "p99_ms": round(1000 * percentile(times, 0.99), 3),
        "first_ms": round(1000 * times[0], 3),
        "gangs": len(times),
        "rss_mib": memory_mib(),
    }


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.arrival", description=__doc__)
    parser.add_argument("--nodes", type=int, default=4000)
    parser.add_argument("--gpus", type=int, default=8)
    parser.add_argument("--running", type=int, default=140_000)
    parser.add_argument("--members", type=int, default=6)
    parser.add_argument("--gpus-each", type=int, default=4)
    parser.add_argument("--gangs", type=int, default=100)
    add_output(parser)
    options = parser.parse_args(arguments)
    record = run(options)
    show(record, options.output)
    return 0


if __name__ == "__main__":
    sys.exit(main())
