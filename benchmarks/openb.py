"""The OpenB trace through the engine, by the protocol of the published table of FGD (Weng et al., ATC 2023).

``python -m benchmarks.openb FOLDER --workload default --policy FGD --seeds 42,43,44``

``FOLDER`` holds ``openb_nodes.csv.gz``, ``pods_WORKLOAD.csv.gz`` (columns of the trace as Alibaba publishes it)
and, to compare with, ``published_table.csv``.

Pods are shuffled, then drawn again with replacement until they ask for 1.3 times what there is (or taken out at
random where they ask for more). They come one at a time and never leave; what fits nowhere is dropped. After
each one the demand so far is noted as whole percent of the capacity; a figure at x percent is the mean over all
moments with that percentage.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import random
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.report import add_output, show
from windlass.engine.config import EngineConfig
from windlass.engine.deltas import GroupUpserted, NodeUpserted, QueueUpserted, TaskUpserted
from windlass.engine.engine import Engine
from windlass.plugins.fgd import Fgd
from windlass.plugins.fragmentation import Demand, Mix, typical
from windlass.plugins.node_policies import packing
from windlass.plugins.research.published import (
    BestFit,
    DotProd,
    GpuClustering,
    GpuPacking,
    Random,
    TightestCard,
)
from windlass.plugins.resources import ResourcesFit
from windlass.spi.devices import DeviceNeed
from windlass.spi.objects import Device, Dialect, Group, Needs, Node, Queue, Task

GPU = "nvidia.com/gpu"
MIB = 1 << 20
POINTS = (80, 95, 100, 130)
"""Percent arrived at which the figure is shown."""
GOAL = 1.3
"""How much is asked for in the end, as part of the capacity."""


@dataclass(frozen=True, slots=True)
class Host:
    name: str
    cpu: int
    memory_mib: int
    gpus: int
    model: str


@dataclass(frozen=True, slots=True)
class Pod:
    """``milli`` of each of ``gpus`` cards; ``spec``: models that it takes, none for any."""

    name: str
    cpu: int
    memory_mib: int
    gpus: int
    milli: int
    spec: tuple[str, ...] = ()

    @property
    def demand(self) -> int:
        return self.gpus * self.milli


def hosts(folder: Path) -> list[Host]:
    return [
        Host(row["sn"], int(row["cpu_milli"]), int(row["memory_mib"]), int(row["gpu"]), row["model"])
        for row in _rows(folder, "openb_nodes")
    ]


def pods(folder: Path, workload: str = "default") -> list[Pod]:
    return [
        Pod(
            row["name"],
            int(row["cpu_milli"]),
            int(row["memory_mib"]),
            int(row["num_gpu"]),
            int(row["gpu_milli"]),
            tuple(filter(None, (row.get("gpu_spec") or "").split("|"))),
        )
        for row in _rows(folder, f"pods_{workload}")
    ]


def published(folder: Path) -> dict[tuple[str, str, int], float]:
    """(workload, policy, arrived percent) → allocated percent of the capacity."""
    with (folder / "published_table.csv").open() as lines:
        return {
            (row["workload"], row["policy"], int(row["arrived_pct"])): float(row["alloc_mean"])
            for row in csv.DictReader(lines)
        }


def _rows(folder: Path, name: str) -> list[dict[str, str]]:
    with gzip.open(folder / f"{name}.csv.gz", "rt") as lines:
        return list(csv.DictReader(lines))


def sequence(found: Sequence[Pod], capacity: int, chance: random.Random) -> list[Pod]:
    """The pods as they come: steps 1 and 2 of the protocol."""
    order = sorted(found, key=lambda pod: pod.name)
    chance.shuffle(order)
    demand = sum(pod.demand for pod in order)
    goal = GOAL * capacity
    coming = list(order)
    while demand > goal:
        demand -= coming.pop(chance.randrange(len(coming))).demand
    while True:
        pod = chance.choice(order)
        if demand + pod.milli > goal:
            return coming
        demand += pod.demand
        coming.append(pod)


def mix_of(found: Sequence[Pod]) -> Mix:
    kinds: dict[Demand, int] = {}
    for pod in found:
        kind = Demand(pod.cpu, pod.milli if pod.gpus else 0, pod.gpus, pod.spec)
        kinds[kind] = kinds.get(kind, 0) + 1
    return Mix(typical(kinds))


@dataclass(slots=True)
class Outcome:
    """``placed``: pod number → node; ``cells``: arrived percent → allocated percent."""

    placed: dict[int, str] = field(default_factory=dict)
    cells: dict[int, float] = field(default_factory=dict)


class Replay:
    """One run. ``policies``: what scores nodes and cards; ``batch``: pods that are told to the engine at once."""

    def __init__(self, hosts: Sequence[Host], policies: Sequence[object], chance: random.Random) -> None:
        order = list(hosts)
        chance.shuffle(order)
        self.capacity = 1000 * sum(host.gpus for host in hosts)
        self.engine = Engine(EngineConfig(actions=("allocate",)), [ResourcesFit(), *policies])
        self.engine.apply([QueueUpserted(Queue("default"))])
        self.engine.apply([NodeUpserted(_node(at, host)) for at, host in enumerate(order)])
        self._needs: dict[tuple[int, int, int, int, tuple[str, ...]], Needs] = {}

    def run(self, coming: Sequence[Pod], batch: int = 1) -> Outcome:
        found = Outcome()
        for start in range(0, len(coming), batch):
            deltas = []
            for number, pod in enumerate(coming[start : start + batch], start):
                key = f"d/{number:06d}"
                deltas.append(GroupUpserted(Group(key, created=float(number), uid=key, admitted=True)))
                deltas.append(TaskUpserted(Task(f"{key}-0", key, key, self._needs_of(pod))))
            self.engine.apply(deltas)
            for bind in self.engine.cycle(float(start + 1)).binds:
                found.placed[int(bind.group[2:])] = bind.node
        found.cells = cells(coming, found.placed, self.capacity)
        return found

    def _needs_of(self, pod: Pod) -> Needs:
        key = (pod.cpu, pod.memory_mib, pod.gpus, pod.milli, pod.spec)
        if key not in self._needs:
            self._needs[key] = needs_of(pod)
        return self._needs[key]


def needs_of(pod: Pod) -> Needs:
    request = {"cpu": pod.cpu, "memory": pod.memory_mib * MIB}
    devices: tuple[DeviceNeed, ...] = ()
    if pod.gpus:
        request[GPU] = pod.demand
        if pod.milli < 1000 or pod.spec:
            devices = (DeviceNeed(GPU, pod.gpus, pod.milli, models=pod.spec),)
    return Needs(tuple(sorted((n, u) for n, u in request.items() if u)), devices=devices)


def _node(at: int, host: Host) -> Node:
    allocatable = {"cpu": host.cpu, "memory": host.memory_mib * MIB, GPU: host.gpus * 1000, "pods": 1 << 20}
    cards = tuple(Device(index, GPU, host.model) for index in range(host.gpus))
    return Node(f"{at:04d}-{host.name}", allocatable, devices=cards)


def cells(coming: Sequence[Pod], placed: dict[int, str], capacity: int) -> dict[int, float]:
    """Step 5: the figures of the table. Percentages are rounded half to even."""
    arrived = allocated = 0
    found: dict[int, list[float]] = {}
    for number, pod in enumerate(coming):
        arrived += pod.demand
        allocated += pod.demand if number in placed else 0
        found.setdefault(round(100 * arrived / capacity), []).append(100 * allocated / capacity)
    return {percent: sum(values) / len(values) for percent, values in found.items()}


POLICIES: dict[str, Callable[[Sequence[Pod], random.Random], list[object]]] = {
    "FGD": lambda found, _: [Fgd(mix=mix_of(found))],
    "Random": lambda _, chance: [Random(chance)],
    "DotProd": lambda *_: [DotProd(), TightestCard()],
    "GpuClustering": lambda *_: [GpuClustering(), TightestCard()],
    "GpuPacking": lambda *_: [GpuPacking(), TightestCard()],
    "BestFit": lambda *_: [BestFit(), TightestCard()],
    "windlass": lambda *_: packing(tuple(Dialect)),
}
"""Name in the published table → the scores; ``windlass``: those of the default policy, which learn the mix."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--workload", default="default")
    parser.add_argument("--policy", choices=sorted(POLICIES), default="FGD")
    parser.add_argument("--seeds", default="42,43,44")
    parser.add_argument("--batch", type=int, default=64, help="pods that are told at once")
    add_output(parser)
    given = parser.parse_args()
    machines, work = hosts(given.folder), pods(given.folder, given.workload)
    table = published(given.folder) if (given.folder / "published_table.csv").exists() else {}
    sums: dict[int, float] = {}
    seeds = [int(seed) for seed in given.seeds.split(",")]
    decisions, seconds = 0, 0.0
    for seed in seeds:
        chance = random.Random(seed)
        coming = sequence(work, 1000 * sum(host.gpus for host in machines), chance)
        replay = Replay(machines, POLICIES[given.policy](work, chance), chance)
        begun = time.perf_counter()
        found = replay.run(coming, given.batch)
        seconds += time.perf_counter() - begun
        decisions += len(coming)
        for percent in POINTS:
            sums[percent] = sums.get(percent, 0.0) + found.cells[percent] / len(seeds)
    record: dict[str, object] = {f"allocated_at_{p}": round(value, 2) for p, value in sums.items()}
    for percent in POINTS:
        cell = table.get((given.workload, given.policy, percent))
        if cell is not None:
            record[f"published_at_{percent}"] = cell
    record["seconds_per_run"] = round(seconds / len(seeds), 2)
    record["decisions_per_second"] = round(decisions / seconds)
    show(record, given.output)
    return 0


if __name__ == "__main__":
    sys.exit(main())
