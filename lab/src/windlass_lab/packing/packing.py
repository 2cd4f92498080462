"""Pods that come one after the other and never leave, through the engine: how much of a cluster a policy fills.

The protocol is that of the published table of FGD (Weng et al., "Beware of Fragmentation", USENIX ATC 2023):

1. Pods are sorted by name and shuffled by the seed.
2. *Tuning*: pods are drawn again, with replacement, until the next one would make the demand exceed ``tune``
   times the capacity; where they ask for more than that, random ones are taken out.
3. Nodes are in one random order, which decides between equal scores.
4. Pods come one at a time; what fits nowhere is dropped.
5. After each one the demand so far is rounded (half to even) to whole percent of the capacity. A cell at x
   percent is the mean over all moments with that percentage. The amount that is fragmented is ``F`` of
   :mod:`windlass.plugins.devices.fragmentation` over the typical pods of the list.

Figures are shares of the cluster's devices. Equal inputs and seeds give equal placements.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from msgspec.structs import replace as altered

from windlass.engine.config import EngineConfig
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
from windlass.engine.engine import Engine
from windlass.kits.clock import Clock
from windlass.kits.rng import Random, seeded
from windlass.plugins.nodes.resources import ResourcesFit
from windlass.sim.cluster import GPU, PODS
from windlass.sim.defragmentation.defragment import Defrag
from windlass.sim.jobs import WHOLE
from windlass.sim.traces.openb import MIB, OpenbNode, OpenbPod
from windlass.spi.devices import DeviceNeed
from windlass.spi.objects import Device, Group, Needs, Node, Queue, Task, TaskState
from windlass_lab.packing.packing_metrics import Moved, PackingMetrics, Placed
from windlass_lab.packing.packing_policies import PackingPolicy, mix_of

POINTS = (80, 95, 100, 130)
"""Percent arrived at which a run is reported."""
TUNE = 1.3
"""Total demand at the end, as a multiple of the capacity."""
BATCH = 64
"""Pods that are told to the engine at once, where that makes no difference."""
QUEUE = "default"
WITH_MOVES = "+defrag"
"""Suffix of the name of a policy with moves."""
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
    """Part (percent) of the running GPUs at the end that was moved."""
    seconds: float = 0.0
    migrated_by: Mapping[int, float] = field(default_factory=dict[int, float])
    """Percent arrived → percent of what runs then that was moved by then."""

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
            "migrated_percent_by": {str(at): round(v, 3) for at, v in self.migrated_by.items()},
            "seconds": round(self.seconds, 3),
        }


@dataclass(frozen=True, slots=True)
class Cluster:
    """Nodes and pods of a packing, the same for all runs."""

    nodes: Sequence[OpenbNode]
    pods: Sequence[OpenbPod]
    tune: float = TUNE

    @property
    def capacity(self) -> int:
        """Thousandths of devices."""
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
    cluster: Cluster,
    policy: PackingPolicy,
    seed: int,
    clock: Clock,
    progress: Progress | None = None,
    *,
    defrag_percent: float = 0.0,
) -> Packed:
    """One run of one policy. ``clock`` measures ``seconds``, those of the engine alone. ``defrag_percent``: how
    much of the GPUs that run may be moved in all, so that pods find room that fit nowhere."""
    chance = seeded(seed)
    coming = sequence(cluster.pods, cluster.capacity, chance, cluster.tune)
    plugins = policy.make(cluster.pods, chance)
    order = list(cluster.nodes)
    chance.shuffle(order)
    if defrag_percent:
        run: PackRun = DefragRun(order, plugins, Defrag(defrag_percent / 100.0))
    else:
        run = PackRun(order, plugins, 1 if policy.learns else BATCH)
    begun = clock.monotonic()
    run.play(coming, progress)
    seconds = clock.monotonic() - begun
    book = PackingMetrics(order, mix_of(cluster.pods), POINTS)
    for number, pod in enumerate(coming):
        book.enter(pod, run.placed.get(number), run.moved.get(number, ()))
    book.close(round(100 * cluster.tune))
    return Packed(
        policy.name if not defrag_percent else policy.name + WITH_MOVES,
        seed,
        len(order),
        len(coming),
        {number: order[at].name for number, (at, _) in run.placed.items()},
        book.allocated(),
        book.fragmented(),
        100.0 * book.moved / max(book.taken, 1),
        seconds,
        book.migrated(),
    )


class PackRun:
    """Packing run: an engine with nodes, to which pods are submitted one by one.

    ``placed``: number of the pod → first node, with the devices if the engine names them. ``moved``: number of the
    arriving pod → pods that were moved for it.
    """

    actions: tuple[str, ...] = ("allocate",)

    def __init__(self, nodes: Sequence[OpenbNode], plugins: Sequence[object], batch: int = BATCH) -> None:
        self._batch = batch
        self.placed: dict[int, Placed] = {}
        self.moved: dict[int, list[Moved]] = {}
        config = EngineConfig(actions=self.actions, backfill="none", reports=False)
        self.engine = Engine(config, [ResourcesFit(), *plugins])
        self.engine.apply([QueueUpserted(Queue(QUEUE))])
        self.engine.apply([NodeUpserted(node_of(at, node)) for at, node in enumerate(nodes)])
        self._needs: dict[tuple[int, int, int, int, tuple[str, ...]], Needs] = {}

    def play(self, coming: Sequence[OpenbPod], progress: Progress | None = None) -> None:
        """Pod after pod; each is a second later than the one before."""
        for start in range(0, len(coming), self._batch):
            deltas: list[Delta] = []
            for number, pod in enumerate(coming[start : start + self._batch], start):
                deltas += self._told(number, pod)
            self.engine.apply(deltas)
            for bind in self.engine.cycle(float(start + 1)).binds:
                self.placed[number_of(bind.group)] = place_of(bind)
            if progress is not None:
                progress(start)

    def _told(self, number: int, pod: OpenbPod) -> tuple[Delta, Delta]:
        key = f"d/{number:07d}"
        group = Group(key, QUEUE, created=float(number), uid=key, admitted=True)
        return GroupUpserted(group), TaskUpserted(self._task(number, pod))

    def _task(self, number: int, pod: OpenbPod, tries: int = 0) -> Task:
        key = f"d/{number:07d}"
        return Task(f"{key}-0", f"{key}#{tries}", key, self._needs_of(pod))

    def _needs_of(self, pod: OpenbPod) -> Needs:
        key = (pod.cpu_milli, pod.memory_mib, pod.gpus, pod.gpu_milli, pod.gpu_models)
        if key not in self._needs:
            self._needs[key] = needs_of(pod)
        return self._needs[key]


class DefragRun(PackRun):
    """The same with moves: a pod that fits nowhere is brought in by moving others, if that is cheap enough. What
    moves is gone and back at the same moment. A pod for which there is no way is dropped at once."""

    actions = ("allocate", "consolidation")

    def __init__(self, nodes: Sequence[OpenbNode], plugins: Sequence[object], defrag: Defrag) -> None:
        super().__init__(nodes, [*plugins, defrag], 1)
        self._defrag = defrag
        self._tries: dict[int, int] = {}
        defrag.serve(self.engine)

    def play(self, coming: Sequence[OpenbPod], progress: Progress | None = None) -> None:
        """See :meth:`PackRun.play`."""
        for number, pod in enumerate(coming):
            told = self._told(number, pod)
            self._defrag.claimer = f"d/{number:07d}"
            self.engine.apply(told)
            self._settle(number, coming)
            if number in self.placed:
                self._defrag.running += pod.demand
            else:
                self.engine.apply([TaskRemoved(f"d/{number:07d}-0"), GroupRemoved(f"d/{number:07d}")])
            if progress is not None:
                progress(number)

    def _settle(self, number: int, coming: Sequence[OpenbPod]) -> None:
        """Cycles of one moment, until nothing more is decided."""
        away: set[int] = set()
        while True:
            decision = self.engine.cycle(float(number + 1))
            deltas: list[Delta] = []
            for eviction in decision.evictions:
                mover = number_of(eviction.group)
                away.add(mover)
                tries = self._tries[mover] = self._tries.get(mover, 0) + 1
                task = self._task(mover, coming[mover], tries)
                deltas += [TaskRemoved(task.key), TaskUpserted(task)]
            for bind in decision.binds:
                deltas.append(self._running(bind, coming))
                if (who := number_of(bind.group)) == number:
                    self.placed[who] = place_of(bind)
                else:
                    away.discard(who)
                    self.moved.setdefault(number, []).append((who, place_of(bind)))
                    self._defrag.moved += coming[who].demand
            self.engine.apply(deltas)
            if not decision.evictions and not (decision.binds and away):
                break
        if away:
            raise RuntimeError(f"pods {sorted(away)} were moved and found no place")

    def _running(self, bind: Bind, coming: Sequence[OpenbPod]) -> TaskUpserted:
        """Return the delta of a pod that runs on the node it was bound to."""
        number = number_of(bind.group)
        task = self._task(number, coming[number], self._tries.get(number, 0))
        cards = tuple(share.index for share in bind.devices)
        return TaskUpserted(altered(task, state=TaskState.RUNNING, node=bind.node, devices=cards))


def number_of(group: str) -> int:
    """The pod that a group stands for."""
    return int(group[2:])


def place_of(bind: Bind) -> Placed:
    return int(bind.node.split("-", 1)[0]), tuple(share.index for share in bind.devices)


def needs_of(pod: OpenbPod) -> Needs:
    """Return the needs of a pod for the engine."""
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
