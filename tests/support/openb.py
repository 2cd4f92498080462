"""Replaying the OpenB trace through the engine, by the protocol of the published table of FGD (ATC 2023).

Pods are shuffled, then drawn again with replacement until they ask for 1.3 times what there is (or taken out at
random where they ask for more). They come one at a time and never leave; what fits nowhere is dropped. After
each one the demand so far is noted as whole percent of the capacity; a figure at x percent is the mean over all
moments with that percentage.
"""

from __future__ import annotations

import csv
import gzip
import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from windlass.engine.config import EngineConfig
from windlass.engine.deltas import GroupUpserted, NodeUpserted, QueueUpserted, TaskUpserted
from windlass.engine.engine import Engine
from windlass.plugins.fragmentation import Demand, Mix, typical
from windlass.plugins.resources import ResourcesFit
from windlass.spi.devices import DeviceNeed
from windlass.spi.objects import Device, Group, Needs, Node, Queue, Task

FOLDER = Path(__file__).resolve().parents[3] / "shared" / "traces" / "openb"
GPU = "nvidia.com/gpu"
MIB = 1 << 20
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


def hosts() -> list[Host]:
    return [
        Host(row["sn"], int(row["cpu_milli"]), int(row["memory_mib"]), int(row["gpu"]), row["model"])
        for row in _rows("openb_nodes")
    ]


def pods(workload: str = "default") -> list[Pod]:
    return [
        Pod(
            row["name"],
            int(row["cpu_milli"]),
            int(row["memory_mib"]),
            int(row["num_gpu"]),
            int(row["gpu_milli"]),
            tuple(filter(None, (row.get("gpu_spec") or "").split("|"))),
        )
        for row in _rows(f"pods_{workload}")
    ]


def published() -> dict[tuple[str, str, int], float]:
    """(workload, policy, arrived percent) → allocated percent of the capacity."""
    with (FOLDER / "published_table.csv").open() as lines:
        return {
            (row["workload"], row["policy"], int(row["arrived_pct"])): float(row["alloc_mean"])
            for row in csv.DictReader(lines)
        }


def _rows(name: str) -> list[dict[str, str]]:
    with gzip.open(FOLDER / f"{name}.csv.gz", "rt") as lines:
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
