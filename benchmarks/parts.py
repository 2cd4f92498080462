"""Device shares through the engine alone: MIG instances and fractions of GPUs, mixed or
fractions alone.

``python -m benchmarks.parts --nodes 500 --cards 8 --pods 28000 -o json``, ``…
--shares`` for devices that are shared and never in MIG mode

Every device may be shared or in MIG mode, depending on its first pod. Pods arrive in
batches, each followed by one cycle, as in ``benchmarks.engine``. Afterwards a replay
that is independent of the engine checks every decision. No device is allocated above
one in compute or memory, none is both shared and in MIG mode, and instances overlap
neither each other nor the hardware's limits.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field

from benchmarks.engine import GIB, GPU
from benchmarks.report import add_output, show
from benchmarks.timing import batched, drive, memory_mib
from windlass.engine.decision import Decision
from windlass.engine.deltas import Delta, GroupUpserted, NodeUpserted, QueueUpserted, TaskUpserted
from windlass.model.cluster.engine_factory import default_engine
from windlass.spi.devices import DeviceMode, DeviceNeed
from windlass.spi.objects import Device, Group, Needs, Node, Queue, Task

MODEL, MEMORY_MIB = "NVIDIA-H100-80GB-HBM3", 81_559
PLACES = {
    "1g.10gb": (1, 1, range(7)),
    "1g.20gb": (1, 2, (0, 2, 4, 6)),
    "2g.20gb": (2, 2, (0, 2, 4)),
    "3g.40gb": (3, 4, (0, 4)),
}
"""Profile → compute slices, memory slices, where it may start: from NVIDIA's listing of an H100."""
MIX = (
    (40, DeviceNeed(GPU, profile="1g.10gb")),
    (35, DeviceNeed(GPU, milli=100, memory_milli=100)),
    (15, DeviceNeed(GPU, milli=125, memory_milli=125)),
    (6, DeviceNeed(GPU, milli=50, memory_mib=4_000)),
    (2, DeviceNeed(GPU, profile="1g.20gb")),
    (1, DeviceNeed(GPU, profile="2g.20gb")),
    (1, DeviceNeed(GPU, profile="3g.40gb")),
)
"""Percent of the pods, and what each asks for: together seven pods to a device fit."""


SHARES = tuple((weight, need) for weight, need in MIX if not need.profile)


def make_nodes(nodes: int, cards: int, mode: DeviceMode = DeviceMode.EITHER) -> list[Node]:
    devices = tuple(Device(i, GPU, MODEL, MEMORY_MIB, mode=mode) for i in range(cards))
    amounts = {"cpu": 256_000, "memory": 2048 * GIB, "pods": 250, GPU: cards * 1000}
    return [
        Node(name, amounts, {"kubernetes.io/hostname": name}, devices=devices)
        for name in (f"node-{i:05d}" for i in range(nodes))
    ]


def make_units(
    pods: int, rng: random.Random, mix: Sequence[tuple[int, DeviceNeed]] = MIX
) -> list[list[Delta]]:
    """The deltas of one pod after the other."""
    wants = [
        (weight, Needs(request=(("cpu", 1000), ("memory", GIB), (GPU, need.milli or 143)), devices=(need,)))
        for weight, need in mix
    ]
    drawn = rng.choices([needs for _, needs in wants], [weight for weight, _ in wants], k=pods)
    return [
        [
            GroupUpserted(Group(f"bench/g{i}", queue="q", created=float(i), uid=f"g{i}")),
            TaskUpserted(Task(f"bench/g{i}-0", f"u{i}", f"bench/g{i}", needs)),
        ]
        for i, needs in enumerate(drawn)
    ]


@dataclass(slots=True)
class Figures:
    decisions_per_second: float
    cpu_decisions_per_second: float
    p50_ms: float
    p99_ms: float
    rss_mib: float
    placed: int
    waiting: int
    cards_opened: int
    seconds: float


def run(nodes: Sequence[Node], units: Sequence[list[Delta]], batch: int) -> tuple[Figures, list[Decision]]:
    engine = default_engine()
    engine.apply([QueueUpserted(Queue("q"))])
    engine.apply([NodeUpserted(node) for node in nodes])
    engine.cycle(0.0)
    timed = drive(engine, batched(units, batch), lambda deltas: len(deltas) // 2)
    binds = [bind for decision in timed.decisions for bind in decision.binds]
    figures = Figures(
        decisions_per_second=round(len(units) / timed.seconds, 1),
        cpu_decisions_per_second=round(len(units) / timed.cpu, 1),
        p50_ms=timed.milliseconds(0.5),
        p99_ms=timed.milliseconds(0.99),
        rss_mib=memory_mib(),
        placed=len(binds),
        waiting=len(units) - len(binds),
        cards_opened=len({(bind.node, share.index) for bind in binds for share in bind.devices}),
        seconds=round(timed.seconds, 3),
    )
    return figures, timed.decisions


@dataclass(slots=True)
class Used:
    """Allocated part of one device."""

    milli: int = 0
    mib: int = 0
    compute: int = 0
    places: set[int] = field(default_factory=set)


def check(nodes: Sequence[Node], units: Sequence[list[Delta]], decisions: Sequence[Decision]) -> None:
    """Replay the decisions without the engine. Raises ``AssertionError`` with what is wrong."""
    cards = {(node.name, device.index): Used() for node in nodes for device in node.devices}
    asked = {d.task.key: d.task.needs.devices[0] for _, d in units if isinstance(d, TaskUpserted)}
    for bind in (bind for decision in decisions for bind in decision.binds):
        need = asked.pop(bind.task)
        assert len(bind.devices) == 1, f"{bind.task} got {bind.devices}"
        share = bind.devices[0]
        used, what = cards[bind.node, share.index], f"GPU {share.index} of {bind.node}, {bind.task}"
        assert not need.profile or share.profile == need.profile, f"{what}: not {need.profile}: {share}"
        if share.profile:
            compute, size, starts = PLACES[share.profile]
            asked_mib = need.memory_mib or MEMORY_MIB * need.memory_milli // 1000
            assert share.memory_mib >= asked_mib, f"{what}: {share} has less than was asked for"
            taken = set(range(share.start, share.start + size))
            assert not used.milli, f"{what}: shared and sliced"
            assert share.start in starts, f"{what}: no place for {share}"
            assert not taken & used.places, f"{what}: a slice on top of another"
            used.places |= taken
            used.compute += compute
            assert used.compute <= 7, f"{what}: more than seven compute slices"
        else:
            mib = need.memory_mib or MEMORY_MIB * need.memory_milli // 1000
            used.milli, used.mib = used.milli + need.milli, used.mib + mib
            assert not used.places, f"{what}: shared and sliced"
            assert used.milli <= 1000, f"{what}: more than its compute"
            assert used.mib <= MEMORY_MIB, f"{what}: more than its memory"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--nodes", type=int, default=500)
    parser.add_argument("--cards", type=int, default=8, help="on each node")
    parser.add_argument("--pods", type=int, default=28_000)
    parser.add_argument("--batch", type=int, default=50)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--shares", action="store_true", help="plain GPUs that are shared, no slices")
    add_output(parser)
    options = parser.parse_args()
    mode, mix = (DeviceMode.PLAIN, SHARES) if options.shares else (DeviceMode.EITHER, MIX)
    nodes = make_nodes(options.nodes, options.cards, mode)
    units = make_units(options.pods, random.Random(options.seed), mix)
    figures, decisions = run(nodes, units, options.batch)
    check(nodes, units, decisions)
    show(asdict(figures), options.output)
    return 0


if __name__ == "__main__":
    sys.exit(main())
