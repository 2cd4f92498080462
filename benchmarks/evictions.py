"""Preemption: duration of one decision, and of the conclusion that there is none.

``python -m benchmarks.evictions --nodes 500 -o json``

Each scene is a full cluster into which one gang comes. The time runs from the delivery
of the gang's deltas to the end of the cycle that decides it, including explanations.
Afterwards a replay that is independent of the engine checks the decision. Victims were
running and evictable, nominated pods fit after the evictions, and the gang has its
minimum or nothing happened.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass, field

from windlass.engine.config import EngineConfig
from windlass.engine.decision import Decision
from windlass.engine.deltas import Delta, GroupUpserted, NodeUpserted, QueueUpserted, TaskUpserted
from windlass.engine.engine import Engine
from windlass.kits import gc_tuning
from windlass.plugins.defaults import default_plugins
from windlass.spi.objects import Dialect, Group, Needs, Node, Queue, Task, TaskState
from windlass.spi.topology import Level, TopologyNeed

GPU = "nvidia.com/gpu"
GIB = 1 << 30
NOW = 1_000_000.0
ACTIONS = ("allocate", "consolidation", "reclaim", "preempt")


@dataclass(slots=True)
class Scene:
    """Running pods, the incoming gang, and the expected result.

    ``evictions``: maximum number of victims. ``fits``: whether the gang gets placed.
    """

    name: str
    about: str
    nodes: list[Node]
    queues: list[Queue]
    groups: list[Group] = field(default_factory=list)
    tasks: list[Task] = field(default_factory=list)
    gang: list[Delta] = field(default_factory=list)
    members: int = 0
    request: int = 0
    fits: bool = True
    evictions: int = 0
    goal_seconds: float = 0.0
    near: bool = False


RACK = "bench/rack"
NEAR = TopologyNeed("racks", (Level(RACK),), required=0)


def make_nodes(n: int, gpus: int, racks: int = 0) -> list[Node]:
    return [
        Node(
            f"node-{i:05d}",
            {"cpu": 128_000, "memory": 1024 * GIB, "pods": 250, GPU: gpus * 1000},
            {
                "kubernetes.io/hostname": f"node-{i:05d}",
                **({RACK: f"rack-{i * racks // n:03d}"} if racks else {}),
            },
        )
        for i in range(n)
    ]


def kai_queue(name: str, deserved: int, parent: str = "kai/top") -> Queue:
    return Queue(
        f"kai/{name}",
        parent=parent,
        priority=100,
        deserved={GPU: deserved * 1000},
        unlimited=("cpu", "memory") if parent else ("cpu", "memory", GPU),
        surplus_weights={GPU: 0.0},
        dialect=Dialect.KAI,
    )


def needs(gpus: int) -> Needs:
    return Needs(
        request=(("cpu", 1000 * gpus), ("memory", GIB * gpus), (GPU, 1000 * gpus)), dialect=Dialect.KAI
    )


def run(
    scene: Scene, queue: str, node: int, gpus: int, *, preemptible: bool = True, priority: int = 50
) -> None:
    """A group of one that runs on a node."""
    number = len(scene.groups)
    key = f"bench/run{number}"
    scene.groups.append(
        Group(
            key,
            queue=f"kai/{queue}",
            priority=priority,
            preemptible=preemptible,
            created=float(number),
            uid=key,
            dialect=Dialect.KAI,
        )
    )
    task = Task(
        f"{key}-0",
        key,
        key,
        needs(gpus),
        state=TaskState.RUNNING,
        node=f"node-{node:05d}",
        preemptible=preemptible,
        started=float(number),
    )
    scene.tasks.append(task)


def come(
    scene: Scene, queue: str, members: int, gpus: int, *, priority: int = 50, near: bool = False
) -> None:
    """The gang for which room is to be made. ``near``: all of it in one rack."""
    key = "bench/gang"
    group = Group(
        key,
        queue=f"kai/{queue}",
        priority=priority,
        min_member=members,
        created=NOW,
        uid=key,
        dialect=Dialect.KAI,
        topology=NEAR if near else None,
    )
    scene.near = near
    scene.gang = [GroupUpserted(group)]
    scene.gang += [
        TaskUpserted(Task(f"{key}-{i}", f"{key}-{i}", key, needs(gpus), index=i)) for i in range(members)
    ]
    scene.members, scene.request = members, gpus


def reclaim_gang(n: int, size: int) -> Scene:
    """Full of small jobs of a queue that deserves half of it; the other half is taken back at once."""
    queues = [kai_queue("top", 0, ""), kai_queue("busy", 4 * n), kai_queue("claims", 4 * n)]
    scene = Scene(
        "reclaim",
        f"{n} full nodes, a gang of {n // 2} × 8 takes back its queue's half",
        make_nodes(n, 8),
        queues,
    )
    for node in range(n):
        for _ in range(8 // size):
            run(scene, "busy", node, size)
    come(scene, "claims", n // 2, 8)
    scene.evictions = n // 2 * (8 // size)
    scene.goal_seconds = 0.5
    return scene


def hopeless_gang(n: int) -> Scene:
    """On every node one job that may not go: thousands of victims, and no room for a gang of whole nodes."""
    queues = [kai_queue("top", 0, ""), kai_queue("busy", 4 * n), kai_queue("claims", 4 * n)]
    scene = Scene(
        "hopeless",
        f"{n} full nodes, a gang of 10 × 8 fits nowhere, whatever is evicted",
        make_nodes(n, 8),
        queues,
    )
    for node in range(n):
        run(scene, "busy", node, 1, preemptible=False)
        for _ in range(7):
            run(scene, "busy", node, 1)
    come(scene, "claims", 10, 8)
    scene.fits = False
    scene.goal_seconds = 0.1
    return scene


def reclaiming_crowd(n: int, claims: int) -> Scene:
    """Full of small jobs of a queue that deserves half of it; many small jobs come, each for itself."""
    queues = [kai_queue("top", 0, ""), kai_queue("busy", 4 * n), kai_queue("claims", 4 * n)]
    scene = Scene("crowd", f"{n} full nodes, {claims} jobs of 1 take back", make_nodes(n, 8), queues)
    for node in range(n):
        for _ in range(8):
            run(scene, "busy", node, 1)
    for number in range(claims):
        key = f"bench/gang{number}"
        group = Group(key, queue="kai/claims", priority=50, created=NOW, uid=key, dialect=Dialect.KAI)
        scene.gang += [GroupUpserted(group), TaskUpserted(Task(f"{key}-0", key, key, needs(1)))]
    scene.members, scene.request, scene.evictions = claims, 1, claims
    return scene


def preempting_gang(n: int, victims: int) -> Scene:
    """Full nodes; some jobs of the gang's own queue have a lower priority."""
    queues = [kai_queue("top", 0, ""), kai_queue("busy", 8 * n)]
    scene = Scene(
        "preempt", f"{n} full nodes, a gang of 64 × 2 preempts among {victims}", make_nodes(n, 8), queues
    )
    every = n * 4 // victims
    left = victims
    for slot in range(n * 4):
        low = slot % every == 0 and left > 0
        left -= low
        run(scene, "busy", slot // 4, 2, priority=40 if low else 60)
    come(scene, "busy", 64, 2, priority=50)
    scene.evictions = 64
    scene.goal_seconds = 0.2
    return scene


def preempting_near(n: int, victims: int, racks: int) -> Scene:
    """The same, and the gang has to be in one rack."""
    queues = [kai_queue("top", 0, ""), kai_queue("busy", 8 * n)]
    members = victims // racks - 1
    about = f"{n} full nodes in {racks} racks, a gang of {members} × 2 preempts among {victims} in one rack"
    scene = Scene("preempt-near", about, make_nodes(n, 8, racks), queues)
    every = n * 4 // victims
    left = victims
    for slot in range(n * 4):
        low = slot % every == 0 and left > 0
        left -= low
        run(scene, "busy", slot // 4, 2, priority=40 if low else 60)
    come(scene, "busy", members, 2, priority=50, near=True)
    scene.evictions = members
    scene.goal_seconds = 0.2
    return scene


SCENES: dict[str, Callable[[int], Scene]] = {
    "reclaim-small": lambda n: reclaim_gang(n, 1),
    "reclaim-whole": lambda n: reclaim_gang(n, 8),
    "hopeless": hopeless_gang,
    "preempt": lambda n: preempting_gang(4 * n, 700),
    "preempt-near": lambda n: preempting_near(4 * n, 700, 20),
    "crowd": lambda n: reclaiming_crowd(n, 256),
}


@dataclass(frozen=True, slots=True)
class Figures:
    scene: str
    about: str
    seconds: float
    cpu_seconds: float
    setup_seconds: float
    evictions: int
    promised: int
    goal_seconds: float
    again_ms: float
    """A further cycle in which something else has changed and nothing is to be done."""


def measure(name: str, nodes: int) -> Figures:
    scene = SCENES[name](nodes)
    engine = Engine(EngineConfig(actions=ACTIONS), default_plugins())
    began = time.perf_counter()
    engine.apply([QueueUpserted(queue) for queue in scene.queues])
    engine.apply([NodeUpserted(node) for node in scene.nodes])
    engine.apply([GroupUpserted(group) for group in scene.groups])
    engine.apply([TaskUpserted(task) for task in scene.tasks])
    engine.cycle(NOW)
    setup = time.perf_counter() - began
    gc_tuning.tune_for_long_lived_objects()
    began, cpu = time.perf_counter(), time.process_time()
    engine.apply(scene.gang)
    decision = engine.cycle(NOW + 1)
    seconds, cpu = time.perf_counter() - began, time.process_time() - cpu
    check(scene, decision)
    began = time.perf_counter()
    engine.apply([NodeUpserted(make_nodes(1, 8)[0])])
    engine.apply(
        [GroupUpserted(Group("bench/other", queue="kai/busy", created=NOW, uid="o", dialect=Dialect.KAI))]
    )
    engine.cycle(NOW + 2)
    again = time.perf_counter() - began
    return Figures(
        name,
        scene.about,
        seconds,
        cpu,
        setup,
        len(decision.evictions),
        len(decision.nominations),
        scene.goal_seconds,
        again * 1000,
    )


def check(scene: Scene, decision: Decision) -> None:
    """Replay the decision on plain numbers. Raises ``AssertionError``."""
    tasks = {task.key: task for task in scene.tasks}
    free = Counter({node.name: node.allocatable[GPU] for node in scene.nodes})
    for task in scene.tasks:
        free[task.node] -= dict(task.needs.request)[GPU]
    assert min(free.values()) >= 0
    evicted = [eviction.task for eviction in decision.evictions]
    assert len(set(evicted)) == len(evicted)
    for eviction in decision.evictions:
        task = tasks[eviction.task]
        assert task.preemptible
        assert eviction.node == task.node
        assert eviction.preemptor.startswith("bench/gang")
        free[task.node] += dict(task.needs.request)[GPU]
    assert not decision.binds
    for nomination in decision.nominations:
        moved = tasks.get(nomination.task)
        free[nomination.node] -= dict(moved.needs.request)[GPU] if moved else scene.request * 1000
    assert min(free.values()) >= 0
    if scene.near:
        racks = {node.name: node.labels[RACK] for node in scene.nodes}
        assert len({racks[n.node] for n in decision.nominations}) == 1
    promised = sum(n.task.startswith("bench/gang") for n in decision.nominations)
    assert promised == (scene.members if scene.fits else 0), promised
    assert len(evicted) == (scene.evictions if scene.fits else 0), len(evicted)


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="benchmarks.evictions", description="Making room by evicting")
    parser.add_argument("--nodes", type=int, default=500, help="nodes of the smaller scenes")
    parser.add_argument("--scene", choices=[*SCENES, "all"], default="all")
    parser.add_argument("-o", "--output", choices=("text", "json"), default="text")
    args = parser.parse_args(argv)
    figures = [measure(name, args.nodes) for name in (SCENES if args.scene == "all" else [args.scene])]
    if args.output == "json":
        print(json.dumps([asdict(figure) for figure in figures]))
        return 0
    for f in figures:
        print(
            f"{f.scene:14} {f.seconds:7.3f} s ({f.cpu_seconds:.3f} s CPU; goal {f.goal_seconds} s)"
            f"  {f.evictions} evicted, {f.promised} promised; a later cycle {f.again_ms:.1f} ms  | {f.about}"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
