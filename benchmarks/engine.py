"""The engine alone: from the first delta in to the last decision out.

``python -m benchmarks.engine --nodes 5000 --gpus 8 --pods 40000 --gang 20 -o json``

Gangs arrive in batches (``--batch`` pods), each batch followed by one cycle: what the scheduler service
does, with the default policy and all its actions. The time of a unit (a gang) runs from the moment its
batch is handed over to the end of the cycle that decided it; preparing the deltas is not counted.
Explanations are on; afterwards every decision is checked by a replay that knows nothing of the engine:
nothing over-committed, no device twice, no gang in part.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from benchmarks.report import add_output, show
from benchmarks.timing import batched, drive, memory_mib
from windlass.engine.decision import Bind, Decision
from windlass.engine.deltas import Delta, GroupUpserted, NodeUpserted, QueueUpserted, TaskUpserted
from windlass.model.cluster.engine_factory import default_engine
from windlass.spi.objects import (
    Expression,
    Group,
    Needs,
    Node,
    NodeTerm,
    PodTerm,
    Queue,
    SpreadTerm,
    Task,
    TaskState,
)
from windlass.spi.topology import Level, TopologyNeed

GPU = "nvidia.com/gpu"
GIB = 1 << 30


@dataclass(frozen=True, slots=True)
class Shape:
    """The scenario. ``running``: pods that run from the start; ``parked``: groups no node can take.

    ``anti_affinity`` and ``spread``: the pods of a gang keep to different hosts (or zones), and are spread
    over the zones (or hosts) at most one apart, both required. ``topology``: so many racks; the pods of a gang
    have to be in one of them.
    """

    nodes: int
    gpus: int
    pods: int
    gang: int
    classes: int = 4
    queues: int = 1
    running: int = 0
    parked: int = 0
    batch: int = 50
    seed: int = 1
    anti_affinity: str = ""
    spread: str = ""
    topology: int = 0


RACK = "bench/rack"
NEAR = TopologyNeed("racks", (Level(RACK),), required=0)


def make_nodes(shape: Shape) -> list[Node]:
    return [
        Node(
            f"node-{i:05d}",
            {"cpu": 128_000, "memory": 1024 * GIB, "pods": 250, GPU: shape.gpus * 1000},
            {
                "kubernetes.io/hostname": f"node-{i:05d}",
                "topology.kubernetes.io/zone": f"z{i % 10}",
                **({RACK: f"rack-{i % shape.topology}"} if shape.topology else {}),
            },
        )
        for i in range(shape.nodes)
    ]


def make_needs(shape: Shape) -> list[Needs]:
    """Classes of one GPU that differ in CPU and memory."""
    return [
        Needs(request=(("cpu", 1000 + 10 * i), ("memory", (4 + i % 7) * GIB), (GPU, 1000)))
        for i in range(shape.classes)
    ]


KEYS = {"host": "kubernetes.io/hostname", "zone": "topology.kubernetes.io/zone"}


def related(shape: Shape, needs: Needs, gang: str) -> Needs:
    """Return the needs of one gang's pods, which are related to one another only."""
    if not shape.anti_affinity and not shape.spread:
        return needs
    kin = (Expression("gang", "In", (gang,)),)
    apart = (PodTerm(kin, KEYS[shape.anti_affinity]),) if shape.anti_affinity else ()
    spread = (SpreadTerm(KEYS[shape.spread], 1, True, kin),) if shape.spread else ()
    return replace(needs, anti_affinity=apart, spread=spread, labels=(("gang", gang),), namespace="bench")


def make_units(shape: Shape, rng: random.Random) -> Iterator[list[Delta]]:
    """The deltas of one gang after the other."""
    needs = make_needs(shape)
    for number in range(shape.pods // shape.gang):
        key = f"bench/g{number}"
        wants = related(shape, needs[rng.randrange(len(needs))], f"g{number}")
        queue = f"q{number % shape.queues}"
        unit: list[Delta] = [
            GroupUpserted(
                Group(
                    key,
                    queue=queue,
                    min_member=shape.gang,
                    created=float(number),
                    uid=f"g{number}",
                    topology=NEAR if shape.topology else None,
                )
            )
        ]
        unit += [
            TaskUpserted(Task(f"{key}-{i}", f"{number}.{i}", key, wants, index=i)) for i in range(shape.gang)
        ]
        yield unit


def running_load(shape: Shape) -> list[Delta]:
    """Pods that run from the start, spread over the nodes, without GPUs."""
    needs = Needs(request=(("cpu", 500), ("memory", GIB)))
    deltas: list[Delta] = []
    for i in range(shape.running):
        key = f"bench/run{i}"
        node = f"node-{i % shape.nodes:05d}"
        deltas.append(GroupUpserted(Group(key, queue="q0", created=0.0, uid=key)))
        deltas.append(TaskUpserted(Task(f"{key}-0", key, key, needs, state=TaskState.RUNNING, node=node)))
    return deltas


def parked_load(shape: Shape) -> list[Delta]:
    """Groups that no node can take."""
    term = NodeTerm(labels=(Expression("bench/none", "Exists"),))
    needs = [
        Needs(request=((GPU, (shape.gpus + 1) * 1000),)),
        Needs(request=((GPU, 1000),), node_terms=(term,)),
    ]
    deltas: list[Delta] = []
    for i in range(shape.parked):
        key = f"bench/parked{i}"
        deltas.append(GroupUpserted(Group(key, queue="q0", created=0.0, uid=key)))
        deltas.append(TaskUpserted(Task(f"{key}-0", key, key, needs[i % 2])))
    return deltas


@dataclass(slots=True)
class Figures:
    decisions_per_second: float
    cpu_decisions_per_second: float
    p50_ms: float
    p99_ms: float
    rss_mib: float
    placed: int
    waiting: int
    seconds: float
    setup_seconds: float


def run(shape: Shape) -> tuple[Figures, list[Decision]]:
    rng = random.Random(shape.seed)
    units = list(make_units(shape, rng))
    nodes, running, parked = make_nodes(shape), running_load(shape), parked_load(shape)
    engine = default_engine()
    began = time.perf_counter()
    engine.apply([QueueUpserted(Queue(f"q{i}")) for i in range(shape.queues)])
    engine.apply([NodeUpserted(node) for node in nodes])
    engine.apply(running)
    engine.apply(parked)
    engine.cycle(0.0)
    setup = time.perf_counter() - began
    per_batch = max(1, shape.batch // shape.gang)
    timed = drive(engine, batched(units, per_batch), lambda batch: min(per_batch, len(batch)))
    figures = Figures(
        decisions_per_second=round(shape.pods / timed.seconds, 1),
        cpu_decisions_per_second=round(shape.pods / timed.cpu, 1),
        p50_ms=timed.milliseconds(0.5),
        p99_ms=timed.milliseconds(0.99),
        rss_mib=memory_mib(),
        placed=timed.placed,
        waiting=shape.pods - timed.placed,
        seconds=round(timed.seconds, 3),
        setup_seconds=round(setup, 3),
    )
    return figures, timed.decisions


def check(shape: Shape, decisions: Sequence[Decision]) -> None:
    """Replay the decisions without the engine. Raises ``AssertionError`` with what is wrong."""
    free = {node.name: dict(node.allocatable) for node in make_nodes(shape)}
    for delta in running_load(shape):
        if isinstance(delta, TaskUpserted):
            _take(free, delta.task.node, delta.task.needs)
    needs = {
        delta.task.key: delta.task.needs
        for unit in make_units(shape, random.Random(shape.seed))
        for delta in unit
        if isinstance(delta, TaskUpserted)
    }
    devices: set[tuple[str, int]] = set()
    members: dict[str, int] = {}
    places: dict[str, list[Node]] = {}
    nodes = {node.name: node for node in make_nodes(shape)}
    for decision in decisions:
        for bind in decision.binds:
            _take(free, bind.node, needs.pop(bind.task))
            _hand_out(devices, bind)
            members[bind.group] = members.get(bind.group, 0) + 1
            if shape.anti_affinity or shape.spread or shape.topology:
                places.setdefault(bind.group, []).append(nodes[bind.node])
    partial = {group: n for group, n in members.items() if n != shape.gang}
    assert not partial, f"gangs started in part: {partial}"
    for gang, where in places.items():
        _apart(shape, gang, where)


def _apart(shape: Shape, gang: str, where: Sequence[Node]) -> None:
    if shape.topology:
        racks = {node.labels[RACK] for node in where}
        assert len(racks) == 1, f"{gang}: in racks {sorted(racks)}"
    if shape.anti_affinity:
        domains = [node.labels[KEYS[shape.anti_affinity]] for node in where]
        assert len(set(domains)) == len(domains), f"{gang}: two in one {shape.anti_affinity}"
    if shape.spread:
        counts = Counter(node.labels[KEYS[shape.spread]] for node in where)
        total = min(shape.nodes, 10) if shape.spread == "zone" else shape.nodes
        least = min(counts.values()) if len(counts) == total else 0
        assert max(counts.values()) - least <= 1, f"{gang}: not spread: {counts}"


def _take(free: dict[str, dict[str, int]], node: str, needs: Needs) -> None:
    for name, units in (*needs.request, ("pods", 1)):
        free[node][name] -= units
        assert free[node][name] >= 0, f"{node} is over-committed in {name}"


def _hand_out(devices: set[tuple[str, int]], bind: Bind) -> None:
    for share in bind.devices:
        assert (bind.node, share.index) not in devices, f"device {share.index} of {bind.node} given twice"
        devices.add((bind.node, share.index))


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.engine", description=__doc__)
    parser.add_argument("--nodes", type=int, default=5000)
    parser.add_argument("--gpus", type=int, default=8)
    parser.add_argument("--pods", type=int, default=50_000)
    parser.add_argument("--gang", type=int, default=1)
    parser.add_argument("--classes", type=int, default=4)
    parser.add_argument("--queues", type=int, default=1)
    parser.add_argument("--running", type=int, default=0)
    parser.add_argument("--parked", type=int, default=0)
    parser.add_argument("--batch", type=int, default=50, help="pods handed over before each cycle")
    parser.add_argument(
        "--topology",
        type=int,
        default=0,
        metavar="RACKS",
        help="each gang in one of so many racks; 0: anywhere",
    )
    parser.add_argument("--anti-affinity", choices=list(KEYS), default="", help="of the pods of one gang")
    parser.add_argument("--spread", choices=list(KEYS), default="", help="of the pods of one gang, required")
    parser.add_argument("--seed", type=int, default=1)
    add_output(parser)
    options = parser.parse_args(arguments)
    shape = Shape(**{name: value for name, value in vars(options).items() if name != "output"})
    figures, decisions = run(shape)
    check(shape, decisions)
    record = {name: getattr(figures, name) for name in Figures.__slots__}
    show(record, options.output)
    return 0


if __name__ == "__main__":
    sys.exit(main())
