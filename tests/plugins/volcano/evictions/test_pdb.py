"""Volcano's ``pdb``: victims are counted down against PodDisruptionBudgets, as Volcano's actions ask it."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

from example_counts import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace as altered

from windlass.engine import dump
from windlass.engine.decision import Decision
from windlass.engine.deltas import BudgetRemoved, BudgetUpserted, EvictionFailed, TaskRemoved, TaskUpserted
from windlass.engine.engine import Engine
from windlass.engine.victims.disruption_budgets import LAG
from windlass.plugins import registry
from windlass.plugins.volcano.evictions.pdb import Pdb
from windlass.spi.configuration import PluginOption, PluginTier, SchedulerConfig
from windlass.spi.objects import Needs, Task, TaskState
from windlass.spi.tiers import Purpose
from windlass.testing import Scene

TIERS = (("priority", "conformance", "pdb"), ("drf", "predicates", "proportion", "nodeorder"))
BUDGET = "default/calm"


def config(*actions: str) -> SchedulerConfig:
    options = [
        tuple(PluginOption(name, {"enablePreemptable": name != "drf"}, {}) for name in tier) for tier in TIERS
    ]
    return SchedulerConfig(actions, tuple(PluginTier(tier) for tier in options))


class Guarded(Scene):
    """Scene with some or all running pods protected by :data:`BUDGET`."""

    def guard(self, allowed: int, *names: str) -> None:
        self.engine.apply([BudgetUpserted(BUDGET, allowed)])
        for key, task in list(self._tasks.items()):
            if task.node and (not names or key.removeprefix("default/") in names):
                self._tasks[key] = altered(task, budgets=(BUDGET,))
                self.engine.apply([TaskUpserted(self._tasks[key])])


def crowded(*actions: str) -> Guarded:
    """Four one-GPU nodes, used by pods of low priority."""
    scene = Guarded(config=config(*(actions or ("allocate", "preempt"))))
    for n in range(4):
        scene.node(f"n{n}", gpu=1)
    scene.gang("low", pods=4, min_member=1, gpu=1)
    scene.cycle()
    assert sum(scene.where("low").values()) == 4
    return scene


def evicted(decision: Decision) -> int:
    return len(decision.evictions)


def test_no_more_go_than_the_budget_allows_over_all_claims_of_a_cycle() -> None:
    scene = crowded()
    scene.guard(2)
    for name in ("x", "y", "z"):
        scene.gang(name, gpu=1, priority=10)
    assert evicted(scene.cycle()) == 2


def test_nothing_goes_for_a_gang_that_needs_more_than_the_budget_allows() -> None:
    scene = crowded()
    scene.guard(1)
    scene.gang("high", pods=2, gpu=1, priority=10)
    assert evicted(scene.cycle()) == 0


def test_who_is_not_protected_goes_instead() -> None:
    scene = crowded()
    scene.guard(0, "low-1", "low-2", "low-3")
    scene.gang("high", gpu=1, priority=10)
    assert [e.task for e in scene.cycle().evictions] == ["default/low-0"]


def test_a_claimer_is_told_how_many_the_budget_lets_go() -> None:
    scene = crowded()
    scene.guard(1)
    scene.gang("high", pods=2, gpu=1, priority=10)
    status = next(status for status in scene.cycle().groups if status.group == "default/high")
    assert status.explanation is not None
    assert (
        f"PodDisruptionBudget {BUDGET} allows 1 of the 2 evictions that are needed"
        in status.explanation.message
    )
    assert any(f"Let PodDisruptionBudget {BUDGET} allow 2" in text for text in status.explanation.remedies)
    scene.gang("more", pods=5, gpu=1, priority=20)
    scene.cycle()
    assert "Budget" not in scene.message("more")  # five would not fit anyway


def test_news_of_the_budget_has_claims_tried_again() -> None:
    scene = crowded()
    scene.guard(0)
    scene.gang("high", gpu=1, priority=10)
    assert [evicted(scene.cycle()) for _ in range(3)] == [0, 0, 0]
    scene.engine.apply([BudgetUpserted(BUDGET, 1)])
    assert evicted(scene.cycle()) == 1


def test_a_budget_that_is_gone_protects_nobody() -> None:
    scene = crowded()
    scene.guard(0)
    scene.gang("high", gpu=1, priority=10)
    assert evicted(scene.cycle()) == 0
    scene.engine.apply([BudgetRemoved(BUDGET)])
    assert evicted(scene.cycle()) == 1


def test_an_eviction_counts_until_the_status_can_know_of_it() -> None:
    scene = crowded()
    scene.guard(1)
    left = scene.engine.state.budgets.left
    scene.gang("high", gpu=1, priority=10)
    (eviction,) = scene.engine.cycle(100.0).evictions
    task = scene._tasks[eviction.task]
    scene.engine.apply([BudgetUpserted(BUDGET, 1)])  # of something else: the pod still runs
    assert left(BUDGET) == 0
    scene.engine.apply([TaskUpserted(altered(task, state=TaskState.RELEASING))])
    assert left(BUDGET) == 0  # the status has not followed
    scene.engine.apply([BudgetUpserted(BUDGET, 0)])
    assert left(BUDGET) == 0  # once, not twice
    scene.engine.apply([BudgetUpserted(BUDGET, 1)])
    assert left(BUDGET) == 1


def test_who_is_gone_counts_until_the_status_can_show_it() -> None:
    scene = crowded()
    scene.guard(1)
    left = scene.engine.state.budgets.left
    scene.gang("high", gpu=1, priority=10)
    scene.gang("higher", gpu=1, priority=20)
    (eviction,) = scene.engine.cycle(100.0).evictions
    scene.engine.apply([TaskRemoved(eviction.task, eviction.uid)])
    assert left(BUDGET) == 0
    assert scene.engine.cycle(101.0).evictions == ()
    decision = scene.engine.cycle(102.0)
    assert (decision.evictions, decision.wake_at) == ((), 101.0 + LAG)
    copy = restored(scene.engine)
    for engine in (scene.engine, copy):
        assert len(engine.cycle(101.0 + LAG).evictions) == 1


def test_news_after_a_pod_is_gone_is_all_there_is_to_know() -> None:
    scene = crowded()
    scene.guard(1)
    scene.gang("high", gpu=1, priority=10)
    (eviction,) = scene.engine.cycle(100.0).evictions
    scene.engine.apply([TaskRemoved(eviction.task, eviction.uid), BudgetUpserted(BUDGET, 1)])
    assert scene.engine.state.budgets.left(BUDGET) == 1


def test_an_eviction_that_failed_does_not_count() -> None:
    scene = crowded()
    scene.guard(1)
    scene.gang("high", gpu=1, priority=10)
    (eviction,) = scene.engine.cycle(100.0).evictions
    assert scene.engine.state.budgets.left(BUDGET) == 0
    scene.engine.apply([EvictionFailed(eviction.task, eviction.uid, "refused")])
    assert scene.engine.state.budgets.left(BUDGET) == 1


def restored(engine: Engine) -> Engine:
    """Return a copy made from a dump, and check that its own dump is equal."""
    data = dump.dump(engine)
    document = dump.read(data)
    copy = Engine(document.config, registry.build(config("allocate", "preempt"))[0])
    dump.load_into(copy, document)
    assert dump.dump(copy) == data
    return copy


def test_a_dump_keeps_what_counts_and_what_was_not_looked_at() -> None:
    scene = crowded()
    scene.guard(2)
    scene.gang("high", gpu=1, priority=10)
    scene.engine.cycle(100.0)
    scene.engine.apply([BudgetUpserted(BUDGET, 3)])
    copy = restored(scene.engine)
    assert (copy.state.budgets.left(BUDGET), copy.budgets_unseen) == (2, True)


@dataclass(frozen=True)
class Look:
    task: Task


class Fixed:
    def __init__(self, **left: int) -> None:
        self._left = left

    def left(self, key: str) -> int | None:
        return self._left.get(key)


def look(name: str, *budgets: str) -> Any:
    return Look(Task(name, name, "g", Needs(), budgets=budgets))


def named(voter: Pdb, *looks: Any) -> list[str] | None:
    found = voter.victims(Purpose.RECLAIM, look("claimer"), looks)
    return None if found is None else [each.task.key for each in found]


def test_candidates_are_counted_down_in_their_order() -> None:
    voter = Pdb()
    offered = (look("a", "x"), look("b", "x", "y"), look("c"), look("d", "x"), look("e", "gone"))
    assert named(voter, *offered) is None
    voter.take_budgets(Fixed(x=2, y=0))
    assert named(voter, *offered) == ["a", "c", "d", "e"]


@settings(max_examples=examples(25), deadline=None)
@given(st.integers(0, 10**9))
def test_no_decision_exceeds_a_budget(seed: int) -> None:
    rng = random.Random(seed)
    scene = Guarded(config=config("allocate", "preempt", "reclaim"))
    for n in range(3):
        scene.node(f"n{n}", gpu=rng.randint(1, 3))
    for n in range(rng.randint(1, 4)):
        scene.gang(f"low{n}", pods=rng.randint(1, 3), min_member=1, gpu=1)
    scene.cycle()
    running = [key.removeprefix("default/") for key, task in scene._tasks.items() if task.node]
    guarded = rng.sample(running, rng.randint(1, len(running)))
    allowed = rng.randint(0, 3)
    scene.guard(allowed, *guarded)
    gone: set[str] = set()
    for n in range(3):
        scene.gang(f"high{n}", pods=rng.randint(1, 3), gpu=rng.randint(1, 2), priority=10 + n)
        decision = scene.engine.cycle(100.0 + n)
        gone |= {e.task.removeprefix("default/") for e in decision.evictions}
        assert len(gone & set(guarded)) <= allowed
