"""Histories that are rougher than those of :mod:`engine_fuzz`: what is known changes under way.

Gangs get other minima, roles and parts, pods other needs, priorities and groups; run times become known and are
forgotten; groups are forgotten while their pods run; evictions fail; pods come anew under the same name, or turn out to
be on another node than was decided; budgets move; resources appear that nobody has named before; the clock stands still
or jumps.
"""

from __future__ import annotations

import random
from dataclasses import replace

from cluster_dsl import NAMESPACE, Cluster
from engine_fuzz import KINDS, LEAVES, PLAIN, RELATED, Op, Player, start
from hypothesis import strategies as st
from msgspec.structs import replace as altered

from windlass.engine.config import EngineConfig
from windlass.engine.deltas import BudgetRemoved, BudgetUpserted, EvictionFailed
from windlass.engine.groups.entries import TaskEntry
from windlass.spi.objects import Needs, SubGroup, Task, TaskState

TURMOIL = (
    "minimum",
    "minimum",
    "parts",
    "resize",
    "resize",
    "weigh",
    "regroup",
    "anew",
    "forget",
    "remember",
    "refuse",
    "estimate",
    "estimate",
    "limit",
    "late",
    "budget",
    "jump",
    "jump",
    "elsewhere",
    "firm",
    "begin",
    "begin",
    "evicted",
    "evicted",
)
DRAWN = KINDS + TURMOIL + ("gang",) * 16 + ("cycle",) * 12
"""A crowd that waits, and cycles between what happens to it."""
ACTIONS = (
    ("allocate",),
    ("allocate", "consolidation", "reclaim", "preempt", "stalegangeviction"),
    ("allocate", "preempt", "reclaim", "timeshare"),
    ("volcano-enqueue", "allocate", "volcano-preempt", "volcano-reclaim", "volcano-backfill"),
    ("volcano-enqueue", "allocate", "volcano-backfill", "gangpreempt-surplus", "gangpreempt", "gangreclaim"),
)
BACKFILLS = ("easy", "conservative", "none", "strict")
JUMPS = (0.0, 0.0, 0.04, 30.0, 61.0, 3600.0)
OCCUPYING = (TaskState.BOUND, TaskState.RUNNING, TaskState.RELEASING, TaskState.STUCK)


def turmoil(seed: int, length: int) -> list[Op]:
    """A history drawn by chance."""
    rng = random.Random(seed)
    return [Op(rng.choice(DRAWN), *(rng.randrange(51) for _ in range(3))) for _ in range(length)]


def turmoils(most: int = 90) -> st.SearchStrategy[list[Op]]:
    numbers = st.integers(0, 50)
    listed = st.lists(
        st.builds(Op, st.sampled_from(KINDS + TURMOIL), numbers, numbers, numbers), min_size=5, max_size=30
    )
    return st.one_of(listed, st.builds(turmoil, st.integers(0, 10**6), st.integers(20, most)))


def config_of(number: int) -> EngineConfig:
    """One of the ways in which the engine may be told to work."""
    actions = ACTIONS[number % len(ACTIONS)]
    number //= len(ACTIONS)
    backfill = BACKFILLS[number % len(BACKFILLS)]
    number //= len(BACKFILLS)
    return EngineConfig(
        actions=actions,
        backfill=backfill,
        aging_seconds=(0.0, 20.0)[number % 2],
        best_effort_apart=actions[0] == "volcano-enqueue",
        move_hold_seconds=(60.0, 2.0)[number // 2 % 2],
    )


CONFIGS = len(ACTIONS) * len(BACKFILLS) * 4


class Rough(Player):
    """Applies operations of both kinds."""

    def __init__(self, cluster: Cluster, classes: tuple[Needs, ...] = PLAIN + RELATED) -> None:
        super().__init__(cluster, classes)
        self.forgotten: list[str] = []

    def _any(self, x: int, *states: TaskState) -> Task | None:
        name = self._task(x, *(states or tuple(TaskState)))
        return None if name is None else self.cluster.tasks.get(f"{NAMESPACE}/{name}")

    def _entry(self, task: Task) -> TaskEntry:
        return self.cluster.engine.state.tasks[task.key]

    def _group(self, x: int) -> str | None:
        known = [key for key in self.cluster.groups if key not in self.forgotten]
        return known[x % len(known)].removeprefix(f"{NAMESPACE}/") if known else None

    # ------------------------------------------------------------------ gangs

    def _gang(self, op: Op) -> None:
        """Of every other one it is known how long it runs."""
        super()._gang(op)
        if op.y % 2:
            self.cluster.change_group(f"g{self.number}", run_estimate=(3.0, 10.0, 100.0)[op.z % 3])

    def _begin(self, op: Op) -> None:
        """What was bound runs."""
        for task in list(self.cluster.tasks.values()):
            if task.state is TaskState.BOUND:
                running = altered(task, state=TaskState.RUNNING, started=self.cluster.now)
                self.cluster.task(running)

    def _minimum(self, op: Op) -> None:
        name = self._group(op.x)
        if name is not None:
            roles = ({}, {"w": op.y % 3, "m": 1}, {"extra": 1})[op.z % 3]
            self.cluster.change_group(name, min_member=op.y % 6, min_task_member=roles)

    def _parts(self, op: Op) -> None:
        """The parts of a gang are others, or it has none any more."""
        name = self._group(op.x)
        if name is not None:
            parts = (
                SubGroup("ab", min_subgroups=(None, 1, 0)[op.x % 3]),
                SubGroup("a", "ab", op.y % 3),
                SubGroup("c", ("", "a")[op.z % 2], op.z % 3),
            )
            few = (parts, parts[1:], ())[op.y % 3]
            self.cluster.change_group(name, subgroups=few, min_subgroups=(None, 1)[op.x % 2])

    def _firm(self, op: Op) -> None:
        name = self._group(op.x)
        if name is not None:
            known = self.cluster.groups[f"{NAMESPACE}/{name}"]
            self.cluster.overcommitted = True  # what is firm may exceed what is due
            self.cluster.change_group(name, preemptible=not known.preemptible)

    def _estimate(self, op: Op) -> None:
        name = self._group(op.x)
        if name is not None:
            seconds = (None, 2.0, 10.0, 100.0)[op.y % 4]
            learned = (
                {"learned": "of 2 runs", "runs": (seconds, 3 * seconds)} if seconds and op.z % 3 == 0 else {}
            )
            known = {"learned": "", "runs": (), **learned}
            if op.z % 4 == 1:  # it is needed later, for a while
                ahead = (None, 3.0, 20.0)[op.x % 3]
                start = None if ahead is None else self.cluster.now + ahead
                known |= {"earliest_start": start, "reserve_until": start and start + 4 * (op.y % 9)}
            self.cluster.change_group(name, run_estimate=seconds, stale_grace=(None, 5.0)[op.z % 2], **known)

    def _forget(self, op: Op) -> None:
        """A group is gone, its pods are not."""
        name = self._group(op.x)
        if name is not None:
            key = f"{NAMESPACE}/{name}"
            spec = self.cluster.groups[key]
            self.cluster.remove_group(name)
            self.cluster.groups[key] = spec
            self.forgotten.append(key)

    def _remember(self, op: Op) -> None:
        if self.forgotten:
            key = self.forgotten.pop(op.x % len(self.forgotten))
            spec = self.cluster.groups[key]
            self.cluster.group(altered(spec, queue=LEAVES[op.y % len(LEAVES)] if op.z % 2 else spec.queue))
            self.cluster.overcommitted = True  # it may count in another queue

    # ------------------------------------------------------------------ pods

    def _resize(self, op: Op) -> None:
        """A pod asks for something else than before, where it is."""
        task = self._any(op.x)
        if task is not None:
            self.cluster.overcommitted |= self._entry(task).row >= 0
            self.cluster.task(altered(task, needs=self.classes[op.y % len(self.classes)]))

    def _weigh(self, op: Op) -> None:
        task = self._any(op.x)
        if task is not None:
            changes = (
                {"priority": op.y % 4},
                {"index": op.y},
                {"role": ("w", "m", "")[op.y % 3]},
                {"subgroup": ("a", "b", "c", "")[op.y % 4]},
                {"preemptible": not task.preemptible},
                {"critical": not task.critical},
                {"budgets": (f"{NAMESPACE}/one",) if not task.budgets else ()},
            )
            self.cluster.task(altered(task, **changes[op.z % len(changes)]))

    def _regroup(self, op: Op) -> None:
        """A pod belongs to another group, or to none."""
        task, name = self._any(op.x), self._group(op.y)
        if task is not None and name is not None:
            self.cluster.overcommitted = True
            self.cluster.task(altered(task, group=f"{NAMESPACE}/{name}" if op.z % 5 else ""))

    def _anew(self, op: Op) -> None:
        """Another pod under the same name."""
        task = self._any(op.x)
        if task is not None:
            fresh = altered(task, uid=f"{task.uid}'", node="", devices=(), slices=(), started=None)
            self.cluster.task(altered(fresh, state=TaskState.PENDING, gated=op.y % 5 == 0))

    def _elsewhere(self, op: Op) -> None:
        """The world has a pod on another node than was decided, or on one that nobody knows."""
        task = self._any(op.x, TaskState.ASSUMED, TaskState.BOUND, TaskState.PENDING)
        if task is not None:
            names = [*sorted(self.cluster.node_specs), "unheard-of"]
            self.cluster.overcommitted = True
            state = OCCUPYING[op.z % len(OCCUPYING)]
            self.cluster.task(
                altered(task, node=names[op.y % len(names)], state=state, devices=(), slices=())
            )

    def _limit(self, op: Op) -> None:
        task = self._any(op.x)
        if task is not None:
            started = self.cluster.now - op.z if task.node else None
            self.cluster.task(altered(task, run_limit=(None, 3.0, 50.0)[op.y % 3], started=started))

    def _late(self, op: Op) -> None:
        """A resource that nobody has named before: asked for, or there."""
        name = f"example.com/late-{op.x % 5}"
        if op.y % 2:
            names = sorted(self.cluster.node_specs)
            if names:
                spec = self.cluster.node_specs[names[op.z % len(names)]]
                self.cluster.nodes(replace(spec, allocatable={**spec.allocatable, name: 2}))
        else:
            self.number += 1
            wants = Needs(request=(("cpu", 1000), (name, 1)), namespace=NAMESPACE)
            self.cluster.gang(f"g{self.number}", 1 + op.z % 2, wants)

    # ------------------------------------------------------------------ evictions

    def _evicted(self, op: Op) -> None:
        """Those who were asked to go are reported as going, are gone, or are back as others of the same name."""
        for key, entry in list(self.cluster.engine.state.tasks.items()):
            task = self.cluster.tasks.get(key)
            if entry.state is TaskState.RELEASING and task is not None and task.node and op.z % 3 != 2:
                name = key.removeprefix(f"{NAMESPACE}/")
                if op.y % 3 == 0:
                    self.cluster.change_task(name, state=TaskState.RELEASING)
                elif op.y % 3 == 1:
                    self.cluster.remove_task(name)
                else:
                    self._anew_of(task)

    def _anew_of(self, task: Task) -> None:
        fresh = altered(task, uid=f"{task.uid}'", node="", devices=(), slices=(), started=None)
        self.cluster.task(altered(fresh, state=TaskState.PENDING))

    def _refuse(self, op: Op) -> None:
        """An eviction fails."""
        task = self._any(op.x, TaskState.RELEASING)
        if task is not None:
            self.cluster.engine.apply([EvictionFailed(task.key, task.uid, "no")])

    def _budget(self, op: Op) -> None:
        delta = (
            BudgetUpserted(f"{NAMESPACE}/one", op.y % 3) if op.z % 3 else BudgetRemoved(f"{NAMESPACE}/one")
        )
        self.cluster.engine.apply([delta])

    def _jump(self, op: Op) -> None:
        """A cycle at the same moment as the one before, or long after it."""
        self.decisions.append(self.cluster.cycle(JUMPS[op.x % len(JUMPS)], confirm=op.y % 4 != 0))


def rough(history: list[Op], config: EngineConfig) -> Rough:
    player = Rough(start(Cluster(config)))
    player.play(history)
    return player
