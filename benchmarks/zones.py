"""NUMA zones through the engine alone: gangs of pods that need one zone each.

``python -m benchmarks.zones --nodes 1000 --zones 2 --pods 5000 --gang 8 -o json``

Every node has eight devices. CPUs, memory and devices are divided evenly among its
zones, and the policy is ``single-numa-node``. Gangs arrive in batches, each followed by
one cycle, as in ``benchmarks.engine``. Afterwards a replay that is independent of the
engine checks every decision: each pod is in one zone, with its devices, and no zone is
overallocated.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from benchmarks.engine import GIB, GPU
from benchmarks.report import add_output, show
from benchmarks.timing import batched, drive, memory_mib
from windlass.engine.decision import Decision
from windlass.engine.deltas import Delta, GroupUpserted, NodeUpserted, QueueUpserted, TaskUpserted
from windlass.model.cluster.engine_factory import default_engine
from windlass.spi.numa import AlignmentPolicy, ContainerNeed, NumaNeed, NumaTopology, NumaZone
from windlass.spi.objects import Group, Needs, Node, Queue, Task

CARDS, CPU_MILLI, MEMORY = 8, 128_000, 1024 * GIB


def make_nodes(nodes: int, zones: int) -> list[Node]:
    each = CARDS // zones
    amounts = tuple(sorted({"cpu": CPU_MILLI // zones, "memory": MEMORY // zones, GPU: each * 1000}.items()))
    layout = NumaTopology(
        tuple(NumaZone(number, amounts, amounts) for number in range(zones)),
        AlignmentPolicy.SINGLE_NUMA_NODE,
        cards=tuple((GPU, index, index // each) for index in range(CARDS)),
    )
    return [
        Node(
            name,
            {"cpu": CPU_MILLI, "memory": MEMORY, "pods": 250, GPU: CARDS * 1000},
            {"kubernetes.io/hostname": name},
            zones=layout,
        )
        for name in (f"node-{i:05d}" for i in range(nodes))
    ]


def make_units(pods: int, gang: int, zones: int, rng: random.Random) -> list[list[Delta]]:
    """The deltas of one gang after the other: of one device, or of as many as a zone has or half of them."""
    wants = []
    for cards in sorted({1, max(1, CARDS // zones // 2), CARDS // zones}):
        request = (("cpu", 4000 * cards), ("memory", 16 * GIB * cards), (GPU, 1000 * cards))
        wants.append(Needs(request=request, zones=NumaNeed((ContainerNeed(request),), guaranteed=True)))
    units: list[list[Delta]] = []
    for number in range(pods // gang):
        key, needs = f"bench/g{number}", rng.choice(wants)
        group = Group(key, queue="q", min_member=gang, created=float(number), uid=key)
        tasks = [TaskUpserted(Task(f"{key}-{i}", f"u{number}-{i}", key, needs, index=i)) for i in range(gang)]
        units.append([GroupUpserted(group), *tasks])
    return units


@dataclass(slots=True)
class Figures:
    decisions_per_second: float
    p50_ms: float
    p99_ms: float
    rss_mib: float
    placed: int
    waiting: int
    seconds: float


def run(nodes: Sequence[Node], units: Sequence[list[Delta]], batch: int) -> tuple[Figures, list[Decision]]:
    """``batch``: pods that arrive together."""
    engine = default_engine()
    engine.apply([QueueUpserted(Queue("q"))])
    engine.apply([NodeUpserted(node) for node in nodes])
    engine.cycle(0.0)
    gang = len(units[0]) - 1
    step = max(1, batch // gang)
    timed = drive(engine, batched(units, step), lambda deltas: len(deltas) // (gang + 1))
    pods = gang * len(units)
    figures = Figures(
        decisions_per_second=round(pods / timed.seconds, 1),
        p50_ms=timed.milliseconds(0.5),
        p99_ms=timed.milliseconds(0.99),
        rss_mib=memory_mib(),
        placed=timed.placed,
        waiting=pods - timed.placed,
        seconds=round(timed.seconds, 3),
    )
    return figures, timed.decisions


def check(nodes: Sequence[Node], units: Sequence[list[Delta]], decisions: Sequence[Decision]) -> None:
    """Replay the decisions without the engine. Raises ``AssertionError`` with what is wrong."""
    left: Counter[tuple[str, int, str]] = Counter()
    card_zone: dict[tuple[str, int], int] = {}
    for node in nodes:
        assert node.zones is not None
        for zone in node.zones.zones:
            left.update({(node.name, zone.number, name): amount for name, amount in zone.allocatable})
        card_zone |= {(node.name, index): zone for _, index, zone in node.zones.cards}
    asked = {d.task.key: d.task.needs for unit in units for d in unit if isinstance(d, TaskUpserted)}
    given: set[tuple[str, int]] = set()
    for bind in (bind for decision in decisions for bind in decision.binds):
        needs = asked.pop(bind.task)
        assert bind.zones is not None, f"{bind.task} is in no zone"
        assert len(bind.zones.zones) == 1, f"{bind.task} is in {bind.zones}"
        number = bind.zones.zones[0][0]
        for name, amount in needs.request:
            left[bind.node, number, name] -= amount
            assert left[bind.node, number, name] >= 0, f"zone {number} of {bind.node} has no {name} left"
        cards = {(bind.node, share.index) for share in bind.devices}
        assert len(cards) == dict(needs.request)[GPU] // 1000, f"{bind.task} got {bind.devices}"
        assert not cards & given, f"{bind.task} got a GPU twice"
        assert all(card_zone[card] == number for card in cards), f"{bind.task}: GPUs of another zone"
        given |= cards


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.zones", description=__doc__)
    parser.add_argument("--nodes", type=int, default=1000)
    parser.add_argument("--zones", type=int, default=2, choices=(1, 2, 4, 8))
    parser.add_argument("--pods", type=int, default=3200)
    parser.add_argument("--gang", type=int, default=8)
    parser.add_argument("--batch", type=int, default=48)
    parser.add_argument("--seed", type=int, default=1)
    add_output(parser)
    options = parser.parse_args(arguments)
    nodes = make_nodes(options.nodes, options.zones)
    units = make_units(options.pods, options.gang, options.zones, random.Random(options.seed))
    figures, decisions = run(nodes, units, options.batch)
    check(nodes, units, decisions)
    show(asdict(figures), options.output)
    return 0


if __name__ == "__main__":
    sys.exit(main())
