"""A cluster of a few lines, scheduled by the engine with the policies under test."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from msgspec.structs import replace as altered

from windlass.engine import invariants
from windlass.engine.actions.registry import ACTIONS
from windlass.engine.config import EngineConfig
from windlass.engine.decision import Decision
from windlass.engine.deltas import GroupUpserted, NodeUpserted, QueueUpserted, TaskRemoved, TaskUpserted
from windlass.engine.engine import Engine
from windlass.plugins import registry
from windlass.spi import renamed
from windlass.spi.configuration import SchedulerConfig
from windlass.spi.objects import Dialect, Group, Needs, Node, Queue, Taint, Task, TaskState, Toleration
from windlass.spi.topology import TopologyNeed

GPU = "nvidia.com/gpu"
GIB = 1 << 30
NAMESPACE = "default"
START = 1_000_000.0
"""Start of a scene, in Unix seconds."""


class Scene:
    """``policies`` come on top of the configuration's, which by default is Windlass' own.

    Queues and groups are made as they are named; a group without a queue is in ``default``. What the
    engine decides is done at once: bound pods run, evicted ones are gone at the next cycle. After every
    cycle the engine's invariants are checked.
    """

    def __init__(self, *policies: object, config: SchedulerConfig | None = None) -> None:
        built, actions = registry.build(config or SchedulerConfig())
        known = tuple(action for action in actions if action in ACTIONS)
        settings = EngineConfig(actions=known, best_effort_apart="volcano-backfill" in known)
        for policy in policies:
            renamed.accept_old_hooks(policy)
        self.engine = Engine(settings, [*built, *policies])
        tiers = config is not None and config.tiers
        self._dialect = Dialect.VOLCANO if tiers else Dialect.WINDLASS
        self.now = START
        self._tasks: dict[str, Task] = {}
        self._leaving: list[Task] = []
        self._made = 0.0
        self.queue("default")

    # ------------------------------------------------------------------ the world

    def node(
        self,
        name: str,
        *,
        gpu: int = 0,
        cpu: float = 64,
        memory_gib: float = 256,
        labels: Mapping[str, str] | None = None,
        taints: Sequence[str] = (),
        ready: bool = True,
        schedulable: bool = True,
    ) -> None:
        """A node, or what has become of it. A taint is ``KEY=VALUE:EFFECT``."""
        found = []
        for text in taints:
            label, _, effect = text.rpartition(":")
            key, _, value = label.partition("=")
            found.append(Taint(key, value, effect))
        node = Node(
            name,
            _amounts(gpu, cpu, memory_gib) | {"pods": 110},
            {"kubernetes.io/hostname": name, **(labels or {})},
            tuple(found),
            unschedulable=not schedulable,
            ready=ready,
        )
        self.engine.apply([NodeUpserted(node)])

    def queue(
        self,
        name: str,
        *,
        parent: str = "",
        weight: int = 1,
        priority: int = 0,
        guarantee_gpu: int = 0,
        deserved_gpu: int = 0,
        limit_gpu: int | None = None,
    ) -> None:
        queue = Queue(
            name,
            parent=parent,
            weight=weight,
            priority=priority,
            guarantee=_amounts(guarantee_gpu, 0, 0),
            deserved=_amounts(deserved_gpu, 0, 0),
            capability={} if limit_gpu is None else {GPU: limit_gpu * 1000},
        )
        self.engine.apply([QueueUpserted(queue)])

    def gang(
        self,
        name: str,
        *,
        pods: int = 1,
        gpu: int = 0,
        cpu: float = 0,
        memory_gib: float = 0,
        min_member: int | None = None,
        queue: str = "default",
        priority: int = 0,
        labels: Mapping[str, str] | None = None,
        tolerations: Sequence[Toleration] = (),
        topology: TopologyNeed | None = None,
    ) -> None:
        """A group of ``pods`` equal pods ``NAME-0`` …, all of which start together, or ``min_member`` of them.
        ``topology``: how near to one another they have to be.

        Calling it again with more pods adds those to the group.
        """
        self._made += 1
        key = f"{NAMESPACE}/{name}"
        group = Group(
            key,
            queue=queue,
            priority=priority,
            min_member=pods if min_member is None else min_member,
            created=self._made,
            uid=key,
            admitted=True,
            topology=topology,
        )
        needs = Needs(
            request=tuple(sorted(_amounts(gpu, cpu, memory_gib).items())),
            labels=tuple(sorted((labels or {}).items())),
            namespace=NAMESPACE,
            tolerations=tuple(tolerations),
            dialect=self._dialect,
        )
        self.engine.apply([GroupUpserted(group)])
        for index in range(pods):
            task = Task(f"{key}-{index}", f"{key}-{index}", key, needs, index=index, priority=priority)
            if task.key not in self._tasks:
                self._enter(task)

    def finish(self, name: str) -> None:
        """All pods of a group end well."""
        for task in self._of(name):
            self._enter(altered(task, state=TaskState.SUCCEEDED))

    # ------------------------------------------------------------------ time

    def cycle(self, seconds: float = 1.0) -> Decision:
        """One pass of all actions, ``seconds`` after the last one, and what follows from it."""
        for task in self._leaving:
            self.engine.apply([TaskRemoved(task.key, task.uid)])
            self._enter(altered(task, state=TaskState.PENDING, node="", devices=()))
        self._leaving.clear()
        self.now += seconds
        decision = self.engine.cycle(self.now)
        invariants.check_decision(self.engine, decision)
        for bind in decision.binds:
            devices = tuple(share.index for share in bind.devices)
            task = self._tasks[bind.task]
            self._enter(altered(task, node=bind.node, state=TaskState.RUNNING, devices=devices))
        for eviction in decision.evictions:
            self._leaving.append(self._tasks[eviction.task])
        invariants.check(self.engine)
        return decision

    # ------------------------------------------------------------------ questions

    def where(self, name: str) -> dict[str, int]:
        """Node → pods of the group on it."""
        return dict(sorted(Counter(task.node for task in self._of(name) if task.node).items()))

    def code(self, name: str) -> str:
        """Return the reason code of the waiting group; empty if no task of it waits."""
        explanation = self.engine.explain(f"{NAMESPACE}/{name}", self.now)
        return "" if explanation is None else str(explanation.code)

    def message(self, name: str) -> str:
        """Return the message of the waiting group; empty if no task of it waits."""
        explanation = self.engine.explain(f"{NAMESPACE}/{name}", self.now)
        return "" if explanation is None else explanation.message

    # ------------------------------------------------------------------ parts

    def _of(self, name: str) -> list[Task]:
        return [task for task in self._tasks.values() if task.group == f"{NAMESPACE}/{name}"]

    def _enter(self, task: Task) -> None:
        self._tasks[task.key] = task
        self.engine.apply([TaskUpserted(task)])


def _amounts(gpu: float, cpu: float, memory_gib: float) -> dict[str, int]:
    found = {GPU: round(gpu * 1000), "cpu": round(cpu * 1000), "memory": round(memory_gib * GIB)}
    return {name: units for name, units in found.items() if units}
