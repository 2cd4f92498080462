"""PodDisruptionBudgets hold for the claims of Windlass' and KAI's queues, and the search goes round them."""

from __future__ import annotations

import random

import pytest
from cluster_dsl import NAMESPACE
from example_counts import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace as altered
from preemption_cluster import ALL, Arena

from windlass.api.reasons import Reason
from windlass.engine.actions.preempt import PreemptAction
from windlass.engine.deltas import BudgetUpserted
from windlass.engine.engine import Engine
from windlass.engine.victims.budget_blockers import merge_blockers
from windlass.plugins.defaults import default_plugins
from windlass.spi.objects import Dialect, TaskState

BUDGET = f"{NAMESPACE}/calm"


def guard(a: Arena, allowed: int, *names: str) -> Arena:
    a.world.engine.apply([BudgetUpserted(BUDGET, allowed)])
    for key, task in list(a.world.tasks.items()):
        if key.removeprefix(f"{NAMESPACE}/") in names:
            a.world.task(altered(task, budgets=(BUDGET,)))
    return a


def preempting(*gpus: int, dialect: Dialect = Dialect.KAI) -> Arena:
    a = Arena("allocate", "preempt", dialect=dialect).queue("q", deserved=64)
    for at, n in enumerate(gpus):
        a.node(f"n{at}", n)
    return a


@pytest.mark.parametrize("dialect", [Dialect.KAI, Dialect.VOLCANO])
def test_what_a_budget_protects_stays_and_another_goes(dialect: Dialect) -> None:
    a = preempting(1, 1, dialect=dialect)
    a.runs("calm", "q", "n0:1", priority=20).runs("other", "q", "n1:1", priority=40)
    guard(a, 0, "calm-0").waits("high", "q", 1, priority=60).cycle()
    assert a.evicted == {"other-0"}


def test_a_core_goes_only_if_all_of_it_may() -> None:
    for allowed, gone in ((1, set()), (2, {"gang-0", "gang-1"})):
        a = preempting(2).runs("gang", "q", "n0:1", "n0:1", min=2, priority=20)
        guard(a, allowed, "gang-0", "gang-1").waits("high", "q", 1, priority=60).cycle()
        assert a.evicted == gone


def test_a_set_within_the_budget_is_found_on_another_node() -> None:
    a = preempting(2, 2).runs("a", "q", "n0:1", priority=10).runs("b", "q", "n0:1", priority=10)
    a.runs("c", "q", "n1:2", priority=40)
    guard(a, 1, "a-0", "b-0", "c-0").waits("high", "q", 2, priority=60).cycle()
    assert a.evicted == {"c-0"}


def test_a_core_does_not_go_before_an_extra_that_is_kept() -> None:
    a = preempting(2, 1).runs("gang", "q", "n0:1", "n0:1", "n1:1", min=2, priority=20)
    guard(a, 0, "gang-2").waits("high", "q", 2, priority=60).cycle()
    assert a.evicted == set()
    b = preempting(3, 2).runs("gang", "q", "n0:1", "n0:1", "n0:1", min=2, priority=20)
    b.runs("x", "q", "n1:1", priority=10).runs("y", "q", "n1:1", priority=10)
    guard(b, 1, "gang-2", "x-0", "y-0").waits("high", "q", 2, priority=60).cycle()
    assert b.evicted == {"gang-0", "gang-1", "gang-2"}


def test_claims_of_one_cycle_share_a_budget() -> None:
    a = preempting(1, 1, 1)
    for at in range(3):
        a.runs(f"low{at}", "q", f"n{at}:1", priority=20).waits(f"high{at}", "q", 1, priority=60)
    guard(a, 2, "low0-0", "low1-0", "low2-0").cycle()
    assert len(a.evicted) == 2


def test_work_that_is_moved_counts() -> None:
    for allowed, gone in ((0, set()), (1, {"low-0"})):
        a = Arena("allocate", "consolidation").queue("q", deserved=64)
        a.node("n0", 2).node("n1", 2).runs("low", "q", "n0:1").runs("firm", "q", "n1:1", preemptible=False)
        guard(a, allowed, "low-0").waits("big", "q", 2).cycle()
        assert a.evicted == gone


@settings(max_examples=examples(40), deadline=None)
@given(st.integers(0, 10**9), st.sampled_from((Dialect.KAI, Dialect.VOLCANO)))
def test_no_decision_exceeds_a_budget(seed: int, dialect: Dialect) -> None:
    rng = random.Random(seed)
    a = Arena(*ALL, dialect=dialect).queue("q", deserved=4).queue("r", deserved=4)
    for n in range(3):
        a.node(f"n{n}", 3)
        for m in range(rng.randint(1, 3)):
            a.runs(f"low{n}{m}", rng.choice("qr"), f"n{n}:1", priority=rng.choice((20, 40)))
    running = [key.removeprefix(f"{NAMESPACE}/") for key, t in a.world.tasks.items() if t.node]
    guarded = set(rng.sample(running, rng.randint(1, len(running))))
    allowed = rng.randint(0, 3)
    guard(a, allowed, *guarded)
    gone: set[str] = set()
    for n in range(3):
        sizes = [rng.randint(1, 3) for _ in range(rng.randint(1, 3))]
        a.waits(f"high{n}", rng.choice("qr"), *sizes, min=rng.randint(1, len(sizes)), priority=60 + n)
        decision = a.cycle(follow=False)
        gone |= {e.task.removeprefix(f"{NAMESPACE}/") for e in decision.evictions}
        assert len(gone & guarded) <= allowed
        for eviction in decision.evictions:
            task = a.world.tasks[eviction.task]
            a.world.task(altered(task, state=TaskState.RELEASING))


# ---------------------------------------------------------------------- who is told


def told(a: Arena, name: str) -> str:
    """What a group is told by itself, not on asking."""
    group = a.world.engine.state.groups[f"{NAMESPACE}/{name}"]
    assert group.reported is not None
    assert group.reported.explanation is not None
    return group.reported.explanation.message


@pytest.mark.parametrize("dialect", [Dialect.KAI, Dialect.VOLCANO])
def test_a_claimer_is_told_that_a_budget_alone_stopped_it(dialect: Dialect) -> None:
    a = preempting(1, 1, dialect=dialect)
    a.runs("calm", "q", "n0:1", priority=20).runs("firm", "q", "n1:1", priority=80)
    guard(a, 0, "calm-0").waits("high", "q", 1, priority=60).cycle()
    assert a.evicted == set()
    sentence = f"PodDisruptionBudget {BUDGET} allows 0 of the 1 evictions that are needed."
    assert sentence in told(a, "high")
    explanation = a.world.explain("high")
    assert sentence in explanation.message
    (blocker,) = [b for b in explanation.blockers if b.code is Reason.DISRUPTION_BUDGETS]
    assert (blocker.needed, blocker.available, blocker.detail) == ("1", "0", BUDGET)
    (remedy,) = [text for text in explanation.remedies if "PodDisruptionBudget" in text]
    assert f"Let PodDisruptionBudget {BUDGET} allow 1 disruptions" in remedy
    loaded = Engine.load(a.world.engine.dump(), default_plugins())
    assert loaded.explain(f"{NAMESPACE}/high", a.world.now) == explanation
    a.world.engine.apply([BudgetUpserted(BUDGET, 1)])
    a.cycle()
    assert a.evicted == {"calm-0"}


def test_a_claimer_that_others_stop_too_is_not_told_of_budgets() -> None:
    a = preempting(1, 1)
    a.runs("calm", "q", "n0:1", priority=20).runs("firm", "q", "n1:1", priority=80)
    guard(a, 0, "calm-0").waits("high", "q", 1, 1, min=2, priority=60).cycle()
    assert a.evicted == set()
    assert "Budget" not in told(a, "high")
    assert "Budget" not in a.world.explain("high").message


def test_what_was_said_of_a_budget_is_taken_back_when_something_else_stops_it() -> None:
    a = preempting(1)
    a.runs("calm", "q", "n0:1", priority=20)
    guard(a, 0, "calm-0").waits("high", "q", 1, priority=60).cycle()
    assert BUDGET in told(a, "high")
    task = a.world.tasks[f"{NAMESPACE}/calm-0"]
    a.world.task(altered(task, preemptible=False))
    a.cycle()
    assert BUDGET not in told(a, "high")


def test_several_budgets_are_told_with_what_each_lets_go() -> None:
    a = preempting(2).runs("one", "q", "n0:1", priority=20).runs("two", "q", "n0:1", priority=20)
    a.world.engine.apply([BudgetUpserted(BUDGET, 0), BudgetUpserted(f"{NAMESPACE}/other", 1)])
    for name, budgets in (("one-0", (BUDGET, f"{NAMESPACE}/other")), ("two-0", (f"{NAMESPACE}/other",))):
        a.world.task(altered(a.world.tasks[f"{NAMESPACE}/{name}"], budgets=budgets))
    a.waits("high", "q", 2, priority=60).cycle()
    assert a.evicted == set()
    message = told(a, "high")
    assert f"{BUDGET} allows 0 of the 1 evictions" in message
    assert f"{NAMESPACE}/other allows 1 of the 2 evictions" in message


def test_nobody_is_asked_twice_where_there_are_no_budgets(monkeypatch: pytest.MonkeyPatch) -> None:
    a = preempting(1).runs("firm", "q", "n0:1", priority=80)
    a.world.engine.apply([BudgetUpserted(BUDGET, 0)])  # of nobody here
    monkeypatch.setattr(PreemptAction, "_victims_if_granted", None)
    a.waits("high", "q", 1, priority=60).cycle()
    assert a.evicted == set()


def stopped_scene(seed: int, dialect: Dialect) -> Arena:
    rng = random.Random(seed)
    a = Arena(*ALL, dialect=dialect).queue("q", deserved=4).queue("r", deserved=4)
    for n in range(3):
        a.node(f"n{n}", 3)
        for m in range(rng.randint(1, 3)):
            a.runs(f"low{n}{m}", rng.choice("qr"), f"n{n}:1", priority=rng.choice((20, 40)))
    running = [key.removeprefix(f"{NAMESPACE}/") for key, t in a.world.tasks.items() if t.node]
    guard(a, rng.randint(0, 1), *rng.sample(running, rng.randint(len(running) // 2, len(running))))
    a.waits("high", rng.choice("qr"), *([rng.randint(2, 3)] * rng.randint(1, 3)), priority=60)
    a.cycle()
    return a


@pytest.mark.parametrize("dialect", [Dialect.KAI, Dialect.VOLCANO])
def test_who_is_told_of_a_budget_gets_room_when_it_allows_as_much(dialect: Dialect) -> None:
    judged = 0
    for seed in range(80):
        a = stopped_scene(seed, dialect)
        group = a.world.engine.state.groups[f"{NAMESPACE}/high"]
        if a.evicted or group.pending_class is None:
            continue
        stops = merge_blockers(group.pending_class.budget_blockers)
        assert bool(stops) is ("PodDisruptionBudget" in told(a, "high"))
        if not stops or not stops[0].needed:
            continue
        judged += 1
        assert stops[0].allowed < stops[0].needed
        a.world.engine.apply([BudgetUpserted(BUDGET, stops[0].needed)])
        a.cycle()
        assert a.evicted
    assert judged >= 10
