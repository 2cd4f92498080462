"""Random small clusters and random histories for property tests of the engine.

A history is a list of :class:`Op`; ``play`` applies it to a :class:`~cluster_dsl.Cluster`. Numbers in an
operation are taken modulo what there is, so that any list of operations is a legal history and shrinks
well.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, replace

from cluster_dsl import GPU, NAMESPACE, Cluster, needs, node
from hypothesis import strategies as st
from msgspec.structs import replace as altered

from windlass.engine.decision import Decision
from windlass.engine.engine import Engine
from windlass.spi.objects import (
    Device,
    Expression,
    HostPort,
    Needs,
    NodeTerm,
    PodTerm,
    SpreadTerm,
    SubGroup,
    TaskState,
    Toleration,
    VolumeNeed,
    WeightedPodTerm,
)
from windlass.spi.topology import Level, TopologyNeed

ZONES = ("a", "b", "c")


def self_anti(key: str, app: str) -> Needs:
    term = PodTerm((Expression("app", "In", (app,)),), key)
    return needs("gpu=1", anti_affinity=(term,), labels={"app": app})


def near(key: str, app: str, own: str) -> Needs:
    term = PodTerm((Expression("app", "In", (app,)),), key)
    return needs("cpu=1", affinity=(term,), labels={"app": own})


def spread_over(key: str, app: str) -> Needs:
    term = SpreadTerm(key, 1, True, (Expression("app", "In", (app,)),))
    return needs("cpu=1", spread=(term,), labels={"app": app})


PLAIN: tuple[Needs, ...] = (
    needs("gpu=1 cpu=1"),
    needs("gpu=2 cpu=4 mem=8"),
    needs("cpu=3 mem=4"),
    needs("gpu=4"),
    needs("gpu=1", node_selector={"zone": "a"}),
    needs("cpu=1", node_terms=(NodeTerm(labels=(Expression("zone", "NotIn", ("a",)),)),)),
    needs("gpu=1", tolerations=(Toleration("dedicated", "Exists"),)),
    needs(),
    needs("npu=1 gpu=1"),
)
RELATED: tuple[Needs, ...] = (
    self_anti("kubernetes.io/hostname", "x"),
    self_anti("zone", "y"),
    near("zone", "x", "z"),
    near("zone", "z", "z"),
    needs("cpu=1", labels={"app": "x"}),
    needs("cpu=1", host_ports=(HostPort("TCP", 80),)),
    needs("gpu=1", host_ports=(HostPort("TCP", 80), HostPort("TCP", 81))),
    spread_over("zone", "s"),
    needs("cpu=1", spread=(SpreadTerm("zone", 1, False, ()),), labels={"app": "s"}),
    needs("gpu=1", preferred_affinity=(WeightedPodTerm(9, PodTerm(None, "zone")),), labels={"app": "x"}),
    needs("cpu=1", volumes=(VolumeNeed("ns/one", exclusive=True),)),
    needs("cpu=1", volumes=(VolumeNeed("ns/far", (NodeTerm((Expression("zone", "In", ("a",)),)),)),)),
)
QUEUES = (
    ("top", "top limit.gpu=12"),
    ("a", "a parent=top weight=2"),
    ("b", "b parent=top limit.gpu=6 limit.cpu=20"),
    ("default", "default"),
    ("c", "c priority=1 deserved.gpu=2 deserved.cpu=8"),
)
NETWORK = (Level("zone"), Level("kubernetes.io/hostname"))
WISHES = (
    TopologyNeed("network", NETWORK, 0),
    TopologyNeed("network", NETWORK, 0, 1),
    TopologyNeed("network", NETWORK, 1),
    TopologyNeed("network", NETWORK, -1, 0),
    TopologyNeed("network", NETWORK, -1, 1, nested=False, anchor="n1"),
)
"""How near to one another a gang may ask to be."""
LEAVES = ("a", "b", "default", "c", "nowhere", "top")


@dataclass(frozen=True)
class Op:
    kind: str
    x: int = 0
    y: int = 0
    z: int = 0


KINDS = (
    "gang",
    "gang",
    "gang",
    "gang",
    "cycle",
    "cycle",
    "remove",
    "finish",
    "node",
    "node",
    "drop_node",
    "cordon",
    "delay",
    "fail_bind",
    "kill_task",
    "queue",
    "drop_queue",
    "grow",
    "gate",
    "hold",
    "priority",
    "release",
    "rename",
    "sick",
    "parted",
    "stick",
    "leave",
    "near",
    "near",
)


def drawn(seed: int, length: int) -> list[Op]:
    """A history drawn by chance: longer and more varied than what a list strategy tends to."""
    rng = random.Random(seed)
    return [Op(rng.choice(KINDS), *(rng.randrange(51) for _ in range(3))) for _ in range(length)]


def ops(min_size: int = 5, max_size: int = 30) -> st.SearchStrategy[list[Op]]:
    """Histories: short ones that shrink well, and long ones by chance."""
    numbers = st.integers(0, 50)
    listed = st.lists(
        st.builds(Op, st.sampled_from(KINDS), numbers, numbers, numbers), min_size=min_size, max_size=max_size
    )
    return st.one_of(listed, st.builds(drawn, st.integers(0, 10**6), st.integers(min_size, 2 * max_size)))


def start(cluster: Cluster) -> Cluster:
    """Where every history begins: five queues, four nodes."""
    cluster.queues(*(text for _, text in QUEUES))
    for i in range(4):
        cluster.nodes(_node(i, i))
    return cluster


def _node(i: int, y: int) -> str:
    words = [f"n{i % 7}", f"gpu={(2, 4, 8, 0)[y % 4]}", f"cpu={(8, 16, 32)[y % 3]}", f"zone={ZONES[y % 3]}"]
    if y % 5 == 4:
        words.append("taint=dedicated=ml:NoSchedule")
    if y % 6 == 5:
        words.append("npu=2")
    if y % 4 == 3:
        words.append("pods=4")
    return " ".join(words)


class Player:
    """Applies operations; ``classes`` are the needs to draw from. A decision is checked as it is made."""

    def __init__(self, cluster: Cluster, classes: tuple[Needs, ...]) -> None:
        self.cluster = cluster
        self.classes = classes
        self.decisions: list[Decision] = []
        self.number = 0

    def play(self, history: list[Op]) -> list[Decision]:
        for op in history:
            handler: Callable[[Op], None] = getattr(self, f"_{op.kind}")
            handler(op)
        return self.decisions

    # ------------------------------------------------------------------ helpers

    def _group(self, x: int) -> str | None:
        keys = list(self.cluster.groups)
        return keys[x % len(keys)].removeprefix(f"{NAMESPACE}/") if keys else None

    def _task(self, x: int, *states: TaskState) -> str | None:
        entries = self.cluster.engine.state.tasks
        keys = [key for key, entry in entries.items() if entry.state in states]
        return keys[x % len(keys)].removeprefix(f"{NAMESPACE}/") if keys else None

    # ------------------------------------------------------------------ operations

    def _gang(self, op: Op) -> None:
        self.number += 1
        name = f"g{self.number}"
        wants = self.classes[op.x % len(self.classes)]
        n = 1 + op.y % 5
        if op.z % 4 == 0:
            n = 1
        minimum = n if op.z % 3 else max(1, n // 2)
        queue = LEAVES[op.z % len(LEAVES)]
        if op.z % 7 == 6:
            second = self.classes[(op.x + 1) % len(self.classes)]
            self.cluster.gang(
                name, n, wants, min=minimum + 1, queue=queue, roles={"w": minimum, "m": 1}, role="w"
            )
            self.cluster.add_tasks(name, 1, second, role="m")
        else:
            self.cluster.gang(name, n, wants, min=minimum, queue=queue, priority=op.x % 3)

    def _parted(self, op: Op) -> None:
        """A gang of parts: two below a third, of which one may do, and one beside."""
        self.number += 1
        name = f"g{self.number}"
        least = (1 + op.x % 2, op.y % 3, op.z % 2)
        parts = (
            SubGroup("ab", min_subgroups=(None, 1, 0)[op.x % 3]),
            SubGroup("a", "ab", least[0]),
            SubGroup("b", "ab", least[1]),
            SubGroup("c", min_members=least[2]),
        )
        self.cluster.gang(name, 0, min=op.y % 4, queue=LEAVES[op.z % len(LEAVES)], priority=op.x % 3)
        self.cluster.change_group(name, subgroups=parts, min_subgroups=(None, 1)[op.z % 2])
        for at, part in enumerate("aabbc" + "c" * (op.y % 2)):
            wants = self.classes[(op.x + (at > 3)) % len(self.classes)]
            self.cluster.add_tasks(name, 1, wants, role=part)
            task = list(self.cluster.tasks.values())[-1]
            self.cluster.task(altered(task, subgroup=part, role=""))

    def _near(self, op: Op) -> None:
        """A group, and some of its parts, ask to be near; or no longer do."""
        name = self._group(op.x)
        if name is None:
            return
        group = self.cluster.groups[f"{NAMESPACE}/{name}"]
        wishes = (*WISHES, None)
        parts = tuple(
            replace(part, topology=wishes[(op.y + at) % len(wishes)] if op.z % 2 else None)
            for at, part in enumerate(group.subgroups)
        )
        self.cluster.change_group(name, topology=wishes[op.y % len(wishes)], subgroups=parts)

    def _stick(self, op: Op) -> None:
        """What terminates does not come to its end."""
        name = self._task(op.x, TaskState.RELEASING)
        if name is not None and self.cluster.tasks[f"{NAMESPACE}/{name}"].node:
            self.cluster.change_task(name, state=TaskState.STUCK)

    def _leave(self, op: Op) -> None:
        """Whatever runs on a node begins to terminate."""
        name = self._task(op.x, TaskState.BOUND, TaskState.RUNNING)
        if name is not None:
            where = self.cluster.tasks[f"{NAMESPACE}/{name}"].node
            for task in list(self.cluster.tasks.values()):
                if where and task.node == where and task.state in (TaskState.BOUND, TaskState.RUNNING):
                    self.cluster.task(altered(task, state=TaskState.RELEASING))

    def _cycle(self, op: Op) -> None:
        self.decisions.append(self.cluster.cycle(1.0 + op.x % 3))

    def _remove(self, op: Op) -> None:
        name = self._group(op.x)
        if name is not None:
            self.cluster.remove(name)

    def _finish(self, op: Op) -> None:
        name = self._group(op.x)
        if name is not None:
            self.cluster.finish(name, TaskState.FAILED if op.y % 3 == 0 else TaskState.SUCCEEDED)

    def _node(self, op: Op) -> None:
        spec = node(_node(op.x, op.y))
        old = self.cluster.node_specs.get(spec.name)
        if old is not None and any(spec.allocatable.get(r, 0) < u for r, u in old.allocatable.items()):
            self.cluster.overcommitted = True
        self.cluster.nodes(spec)

    def _drop_node(self, op: Op) -> None:
        names = sorted(self.cluster.node_specs)
        if names:
            self.cluster.remove_node(names[op.x % len(names)])
            # Its tasks are still on it: if it comes back smaller, it is over-committed.
            self.cluster.overcommitted = True

    def _cordon(self, op: Op) -> None:
        names = sorted(self.cluster.node_specs)
        if names:
            spec = self.cluster.node_specs[names[op.x % len(names)]]
            self.cluster.nodes(replace(spec, unschedulable=not spec.unschedulable, ready=op.y % 4 != 0))

    def _rename(self, op: Op) -> None:
        """A node moves to another zone."""
        names = sorted(self.cluster.node_specs)
        if names:
            spec = self.cluster.node_specs[names[op.x % len(names)]]
            self.cluster.nodes(replace(spec, labels={**spec.labels, "zone": ZONES[op.y % 3]}))

    def _sick(self, op: Op) -> None:
        """A node lists its devices; one of them falls ill or gets well."""
        names = sorted(self.cluster.node_specs)
        if not names:
            return
        spec = self.cluster.node_specs[names[op.x % len(names)]]
        number = spec.allocatable.get(GPU, 0) // 1000
        if number:
            listed = spec.devices or tuple(Device(i, GPU) for i in range(number))
            at = op.y % number
            changed = [replace(d, healthy=not d.healthy) if d.index == at else d for d in listed]
            self.cluster.overcommitted = True  # tasks of which nobody said where they are may be on it
            self.cluster.nodes(replace(spec, devices=tuple(changed)))

    def _delay(self, op: Op) -> None:
        """A cycle whose binds the world has not confirmed; a stale report arrives instead."""
        decision = self.cluster.cycle(confirm=False)
        self.decisions.append(decision)
        for at, bind in enumerate(decision.binds):
            if (at + op.x) % 3 == 0:
                self.cluster.task(self.cluster.tasks[bind.task])

    def _fail_bind(self, op: Op) -> None:
        name = self._task(op.x, TaskState.ASSUMED)
        if name is not None:
            self.cluster.fail_bind(name, f"failure {op.y}")

    def _kill_task(self, op: Op) -> None:
        name = self._task(op.x, TaskState.BOUND, TaskState.RUNNING, TaskState.PENDING, TaskState.RELEASING)
        if name is None:
            return
        if op.y % 2:
            self.cluster.remove_task(name)
        elif self.cluster.tasks[f"{NAMESPACE}/{name}"].node:
            self.cluster.change_task(name, state=TaskState.RELEASING)

    def _queue(self, op: Op) -> None:
        _, text = QUEUES[op.x % len(QUEUES)]
        more = ("", " closed", " limit.gpu=20", " limit.gpu=3", " weight=5")[op.y % 5]
        self.cluster.queues(text + more)
        if " limit" in more:
            self.cluster.overcommitted = True

    def _drop_queue(self, op: Op) -> None:
        self.cluster.remove_queue(QUEUES[op.x % len(QUEUES)][0])
        self.cluster.overcommitted = True

    def _grow(self, op: Op) -> None:
        name = self._group(op.x)
        if name is not None and not any(name in key and key.count("-") > 1 for key in self.cluster.tasks):
            self.cluster.add_tasks(name, 1 + op.y % 2, self.classes[op.z % len(self.classes)], role="extra")

    def _gate(self, op: Op) -> None:
        name = self._task(op.x, TaskState.PENDING)
        if name is not None:
            task = self.cluster.tasks[f"{NAMESPACE}/{name}"]
            self.cluster.change_task(name, gated=not task.gated)

    def _hold(self, op: Op) -> None:
        name = self._group(op.x)
        if name is not None:
            self.cluster.change_group(name, held=not self.cluster.groups[f"{NAMESPACE}/{name}"].held)

    def _priority(self, op: Op) -> None:
        name = self._group(op.x)
        if name is not None:
            queue = (
                LEAVES[op.z % len(LEAVES)] if op.y % 2 else self.cluster.groups[f"{NAMESPACE}/{name}"].queue
            )
            self.cluster.overcommitted |= op.y % 2 == 1
            self.cluster.change_group(name, priority=op.y % 4, queue=queue)

    def _release(self, op: Op) -> None:
        """What terminates is gone."""
        for key, entry in list(self.cluster.engine.state.tasks.items()):
            if entry.state is TaskState.RELEASING:
                self.cluster.remove_task(key.removeprefix(f"{NAMESPACE}/"))


def twin_world(cluster: Cluster, engine: Engine) -> Cluster:
    """The same world as seen from outside, with another engine in it."""
    twin = Cluster()
    twin.engine = engine
    twin.now, twin._created, twin.overcommitted = cluster.now, cluster._created, cluster.overcommitted
    twin.tasks, twin.groups = dict(cluster.tasks), dict(cluster.groups)
    twin.node_specs = dict(cluster.node_specs)
    return twin
