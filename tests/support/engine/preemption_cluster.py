"""Small clusters in which groups take room from one another, and a world that follows the engine.

::

    a = Arena("preempt")
    a.node("n1", 4).queue("q", deserved=4)
    a.runs("low", "q", "n1:1", "n1:1", priority=40)
    a.waits("high", "q", 2, priority=60)
    a.cycle()
    assert a.evicted == {"low-0", "low-1"}

Queues are KAI's unless ``dialect`` says otherwise. After a cycle, evicted tasks are gone and back as pending
tasks of the same name, and bound ones run.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from cluster_dsl import GIB, GPU, NAMESPACE, Cluster, may_claim
from msgspec.structs import replace as altered

from windlass.engine.config import EngineConfig
from windlass.engine.decision import Decision
from windlass.engine.deltas import QueueUpserted
from windlass.plugins.defaults import default_plugins
from windlass.spi.objects import Dialect, Group, Needs, Node, Queue, Task, TaskState

ALL = ("allocate", "consolidation", "reclaim", "preempt")


class Arena:
    def __init__(self, *actions: str, dialect: Dialect = Dialect.KAI, backfill: str = "easy") -> None:
        self.dialect = dialect
        self.world = Cluster(EngineConfig(actions=actions or ALL, backfill=backfill), default_plugins())
        self.decision = Decision(0)
        self._age = 0

    # ------------------------------------------------------------------ building

    def node(self, name: str, gpus: int) -> Arena:
        amounts = {"cpu": 64_000, "memory": 64 * GIB, "pods": 110, GPU: gpus * 1000}
        self.world.nodes(Node(name, amounts, {"kubernetes.io/hostname": name}))
        return self

    def queue(
        self,
        name: str,
        *,
        deserved: int | None = 0,
        limit: int | None = None,
        weight: float = 0.0,
        parent: str = "",
        **rest: object,
    ) -> Arena:
        """``deserved`` None: unlimited."""
        self._age += 1
        kai = self.dialect is Dialect.KAI
        unlimited = ("cpu", "memory") if deserved is not None else ("cpu", "memory", GPU)
        spec = Queue(
            self.key(name),
            parent=self.key(parent) if parent else "",
            priority=100 if kai else 0,
            deserved={} if deserved is None else {GPU: deserved * 1000},
            capability={} if limit is None else {GPU: limit * 1000},
            unlimited=unlimited if kai else (),
            surplus_weights={GPU: weight} if kai else {},
            created=float(self._age),
            dialect=self.dialect,
        )
        self.world.engine.apply([QueueUpserted(replace(spec, **rest))])
        return self

    def key(self, queue: str) -> str:
        return f"kai/{queue}" if self.dialect is Dialect.KAI else queue

    def runs(
        self, name: str, queue: str, *places: str, min: int = 1, priority: int = 50, **rest: object
    ) -> Arena:
        """A group that runs; a place is ``NODE:GPUS``."""
        wanted = [(int(gpus), node) for node, gpus in (place.split(":") for place in places)]
        return self._add(name, queue, wanted, min, priority, rest)

    def waits(
        self, name: str, queue: str, *gpus: int, min: int = 1, priority: int = 50, **rest: object
    ) -> Arena:
        """A group with one waiting task for each amount."""
        return self._add(name, queue, [(n, "") for n in gpus], min, priority, rest)

    def _add(
        self,
        name: str,
        queue: str,
        wanted: list[tuple[int, str]],
        min: int,
        priority: int,
        rest: dict[str, object],
    ) -> Arena:
        self._age += 1
        key = f"{NAMESPACE}/{name}"
        group = Group(
            key,
            queue=self.key(queue),
            priority=priority,
            min_member=min,
            created=float(self._age),
            uid=f"uid-{name}",
            dialect=self.dialect,
        )
        group = altered(group, **rest)
        self.world.group(group)
        for at, (gpus, node) in enumerate(wanted):
            request = (("cpu", 1000), ("memory", GIB), (GPU, gpus * 1000))
            needs = Needs(tuple(pair for pair in request if pair[1]), dialect=self.dialect)
            task = Task(
                f"{key}-{at}", f"uid-{name}-{at}", key, needs, index=at, preemptible=group.preemptible
            )
            if node:
                task = altered(task, state=TaskState.RUNNING, node=node, started=float(self._age))
            self.world.task(task)
        return self

    # ------------------------------------------------------------------ running

    def cycle(self, seconds: float = 1.0, *, follow: bool = True) -> Decision:
        """One cycle, after which the world does what was decided."""
        self.decision = self.world.cycle(seconds)
        if follow:
            self.follow()
        return self.decision

    def follow(self) -> None:
        for eviction in self.decision.evictions:
            old = self.world.tasks[eviction.task]
            fresh = altered(
                old, uid=f"{old.uid}'", node="", devices=(), state=TaskState.PENDING, started=None
            )
            self.world.task(fresh)
        for bind in self.decision.binds:
            task = self.world.tasks[bind.task]
            if task.state is TaskState.BOUND:
                self.world.task(altered(task, state=TaskState.RUNNING, started=self.world.now))

    def rest(self, most: int = 40) -> int:
        """Cycle until nothing is decided any more, then five cycles in which nothing may be. How many it
        took. Raises ``AssertionError`` if it never ends."""
        taken = 0
        while taken < most:
            decision = self.cycle()
            if decision.binds or decision.evictions:
                taken += 1
            elif not may_claim(decision, self.world.now):
                break
        else:
            raise AssertionError(f"no rest after {most} cycles")
        for _ in range(5):
            decision = self.cycle()
            assert (decision.binds, decision.evictions) == ((), ()), decision
        return taken

    # ------------------------------------------------------------------ questions

    @property
    def evicted(self) -> set[str]:
        return {eviction.task.removeprefix(f"{NAMESPACE}/") for eviction in self.decision.evictions}

    @property
    def promised(self) -> dict[str, str]:
        return {n.task.removeprefix(f"{NAMESPACE}/"): n.node for n in self.decision.nominations}

    @property
    def bound(self) -> dict[str, str]:
        return {bind.task.removeprefix(f"{NAMESPACE}/"): bind.node for bind in self.decision.binds}

    def running(self) -> dict[str, int]:
        """Group → how many of its tasks hold something."""
        return dict(
            Counter(
                task.group.removeprefix(f"{NAMESPACE}/") for task in self.world.tasks.values() if task.node
            )
        )
