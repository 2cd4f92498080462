"""Pods that come one after the other and never leave, through the engine: how much of a cluster a policy fills.

The protocol is that of the published table of FGD (Weng et al., "Beware of Fragmentation", USENIX ATC 2023):

1. Pods are sorted by name and shuffled by the seed.
2. *Tuning*: pods are drawn again, with replacement, until the next one would make the demand exceed ``tune``
   times the capacity; where they ask for more than that, random ones are taken out.
3. Nodes are in one random order, which decides between equal scores.
4. Pods come one at a time; what fits nowhere is dropped.
5. After each one the demand so far is rounded (half to even) to whole percent of the capacity. A cell at x
   percent is the mean over all moments with that percentage. The amount that is fragmented is ``F`` of
   :mod:`windlass.plugins.fragmentation` over the typical pods of the list.

Figures are shares of the cluster's cards. Equal inputs and seeds give equal placements.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from windlass.engine.config import EngineConfig
from windlass.engine.deltas import Delta, GroupUpserted, NodeUpserted, QueueUpserted, TaskUpserted
from windlass.engine.engine import Engine
from windlass.kits.clock import Clock
from windlass.kits.rng import Random, seeded
from windlass.plugins.resources import ResourcesFit
from windlass.sim.cluster import GPU, PODS
from windlass.sim.jobs import WHOLE
from windlass.sim.packbook import PackBook
from windlass.sim.packpolicies import PackPolicy, mix_of
from windlass.sim.traces.openb import MIB, OpenbNode, OpenbPod
from windlass.spi.devices import DeviceNeed
from windlass.spi.objects import Device, Group, Needs, Node, Queue, Task

POINTS = (80, 95, 100, 130)
"""Percent arrived at which a run is reported."""
TUNE = 1.3
"""How much is asked for in the end, as part of the capacity."""
BATCH = 64
"""Pods that are told to the engine at once, where that makes no difference."""
QUEUE = "default"
Progress = Callable[[int], None]


@dataclass(frozen=True, slots=True)
class Packed:
    """One run. ``placed``: number of the pod → node. Shares are in percent of the capacity, by percent arrived."""

    policy: str
    seed: int
    nodes: int
    arrived_pods: int
    placed: Mapping[int, str] = field(repr=False)
    allocation_percent: Mapping[int, float]
    fragmented_percent: Mapping[int, float]
    migrated_percent: float = 0.0
    seconds: float = 0.0

    @property
    def figures(self) -> dict[str, object]:
        """As ``windlass sim pack -o json`` prints them."""
        return {
            "policy": self.policy,
            "seed": self.seed,
            "nodes": self.nodes,
            "arrived_pods": self.arrived_pods,
            "allocation_percent": {str(at): round(v, 3) for at, v in self.allocation_percent.items()},
            "fragmented_percent": {str(at): round(v, 3) for at, v in self.fragmented_percent.items()},
            "migrated_percent": round(self.migrated_percent, 3),
            "seconds": round(self.seconds, 3),
        }


@dataclass(frozen=True, slots=True)
class Cluster:
    """What is packed, the same for all runs."""

    nodes: Sequence[OpenbNode]
    pods: Sequence[OpenbPod]
    tune: float = TUNE

    @property
    def capacity(self) -> int:
        """Thousandths of cards."""
        return WHOLE * sum(node.gpus for node in self.nodes)


def sequence(pods: Sequence[OpenbPod], capacity: int, chance: Random, tune: float = TUNE) -> list[OpenbPod]:
    """The pods as they come: steps 1 and 2 of the protocol."""
    order = sorted(pods, key=lambda pod: pod.name)
    chance.shuffle(order)
    demand = sum(pod.demand for pod in order)
    goal = tune * capacity
    coming = list(order)
    while coming and demand > goal:
        demand -= coming.pop(chance.randrange(len(coming))).demand
    if not any(pod.demand for pod in order):
        return coming
    while True:
        pod = chance.choice(order)
        if demand + pod.gpu_milli * (pod.gpus > 0) > goal:
            return coming
        demand += pod.demand
        coming.append(pod)


def pack(
    cluster: Cluster, policy: PackPolicy, seed: int, clock: Clock, progress: Progress | None = None
) -> Packed:
    """One run of one policy. ``clock`` measures ``seconds``, those of the engine alone."""
    chance = seeded(seed)
    coming = sequence(cluster.pods, cluster.capacity, chance, cluster.tune)
    plugins = policy.make(cluster.pods, chance)
    order = list(cluster.nodes)
    chance.shuffle(order)
    run = PackRun(order, plugins, 1 if policy.learns else BATCH)
    begun = clock.monotonic()
    run.play(coming, progress)
    seconds = clock.monotonic() - begun
    book = PackBook(order, mix_of(cluster.pods), POINTS)
    for number, pod in enumerate(coming):
        book.enter(pod, run.placed.get(number))
    return Packed(
        policy.name,
        seed,
        len(order),
        len(coming),
        {number: order[at].name for number, (at, _) in run.placed.items()},
        book.allocated(),
        book.fragmented(),
        0.0,
        seconds,
    )


class PackRun:
    """An engine with nodes, to which pods are told. ``placed``: number of the pod → number of the node, and the
    cards of a part of one or of whole ones where the engine names them."""

    def __init__(self, nodes: Sequence[OpenbNode], plugins: Sequence[object], batch: int = BATCH) -> None:
        self._batch = batch
        self.placed: dict[int, tuple[int, tuple[int, ...]]] = {}
        config = EngineConfig(actions=("allocate",), backfill="none", explanations=False)
        self.engine = Engine(config, [ResourcesFit(), *plugins])
        self.engine.apply([QueueUpserted(Queue(QUEUE))])
        self.engine.apply([NodeUpserted(node_of(at, node)) for at, node in enumerate(nodes)])
        self._needs: dict[tuple[int, int, int, int, tuple[str, ...]], Needs] = {}

    def play(self, coming: Sequence[OpenbPod], progress: Progress | None = None) -> None:
        """Pod after pod; each is a second later than the one before."""
        for start in range(0, len(coming), self._batch):
            deltas: list[Delta] = []
            for number, pod in enumerate(coming[start : start + self._batch], start):
                key = f"d/{number:07d}"
                deltas.append(GroupUpserted(Group(key, QUEUE, created=float(number), uid=key, admitted=True)))
                deltas.append(TaskUpserted(Task(f"{key}-0", key, key, self._needs_of(pod))))
            self.engine.apply(deltas)
            for bind in self.engine.cycle(float(start + 1)).binds:
                node = int(bind.node.split("-", 1)[0])
                self.placed[int(bind.group[2:])] = (node, tuple(share.index for share in bind.devices))
            if progress is not None:
                progress(start)

    def _needs_of(self, pod: OpenbPod) -> Needs:
        key = (pod.cpu_milli, pod.memory_mib, pod.gpus, pod.gpu_milli, pod.gpu_models)
        if key not in self._needs:
            self._needs[key] = needs_of(pod)
        return self._needs[key]


def needs_of(pod: OpenbPod) -> Needs:
    """What the engine is told that a pod asks for."""
    request = {"cpu": pod.cpu_milli, "memory": pod.memory_mib * MIB}
    devices: tuple[DeviceNeed, ...] = ()
    if pod.gpus:
        request[GPU] = pod.demand
        if pod.gpu_milli < WHOLE or pod.gpu_models:
            devices = (DeviceNeed(GPU, pod.gpus, pod.gpu_milli, models=pod.gpu_models),)
    return Needs(tuple(sorted((name, units) for name, units in request.items() if units)), devices=devices)


def node_of(at: int, node: OpenbNode) -> Node:
    """A node as the engine is told of it; its place in the order is the beginning of its name."""
    allocatable = {
        "cpu": node.cpu_milli,
        "memory": node.memory_mib * MIB,
        GPU: node.gpus * WHOLE,
        "pods": PODS,
    }
    cards = tuple(Device(index, GPU, node.model) for index in range(node.gpus))
    return Node(f"{at:07d}-{node.name}", allocatable, devices=cards)
