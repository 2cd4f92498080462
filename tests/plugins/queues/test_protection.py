"""``plugins.queues.protection``: protection of running work, and delays before preempting."""

from __future__ import annotations

import pytest
from msgspec.structs import replace as altered
from queue_views import GPU, claim, queue, unit

from windlass.plugins.queues.protection import (
    COOLDOWN,
    MAX_UNAVAILABLE,
    MIN_AVAILABLE,
    MOVABLE,
    Cooldown,
    JobDisruptionBudget,
    MinRuntime,
    OnlyMovable,
    PreemptionDelay,
    Reserved,
)
from windlass.spi.objects import Dialect, Group, Needs, Task
from windlass.spi.victims import FreedResources, PreemptionDenied, VictimSet


def test_minimum_run_times_of_the_nearest_queue_protect_from_preemption() -> None:
    top = queue("top", preempt_min_runtime=100.0)
    near, far = queue("a", preempt_min_runtime=10.0, parent=top), queue("b", parent=top)
    rule, asks = MinRuntime(), claim("preempt", queue("c"), now=1050.0)
    for leaf, until in ((near, 1010.0), (far, 1100.0)):
        one = running(unit(leaf))
        assert rule.protected_until(asks, one) == until
        assert rule.protects_victim(asks, one) is (until > 1050.0)
        assert rule.protected_until(claim("consolidation", leaf), one) is None
    assert not rule.protects_victim(asks, unit(far))  # its start is unknown
    assert rule.protected_until(asks, running(unit(queue("silent")))) is None


def running(one: VictimSet) -> VictimSet:
    """Its group has held its minimum since 1000."""
    return altered(one, group=altered(one.group, started=1000.0))


def test_for_reclaim_the_queue_counts_in_which_the_paths_part() -> None:
    root = queue("root", reclaim_min_runtime=1.0)
    d1, d2 = queue("d1", parent=root), queue("d2", reclaim_min_runtime=20.0, parent=root)
    ours, theirs = queue("a", parent=d1), queue("b", reclaim_min_runtime=300.0, parent=d2)
    rule = MinRuntime()
    one = running(unit(theirs))
    assert rule.protected_until(claim("reclaim", ours), one) == 1020.0
    cousin = queue("c", parent=d2)
    assert rule.protected_until(claim("reclaim", cousin), one) == 1300.0
    bare = running(unit(queue("e", parent=d1)))
    assert rule.protected_until(claim("reclaim", cousin), bare) == 1001.0
    assert rule.protected_until(claim("reclaim", ours), altered(one, is_minimum=False)) is None
    assert not rule.protects_queue(claim("reclaim", ours), theirs.path)
    assert not rule.protects_victim(claim("reclaim", ours, now=1020.0), one)
    assert rule.protects_victim(claim("reclaim", ours, now=1019.0), one)


def test_patience() -> None:
    leaf, rule = queue("q"), PreemptionDelay()
    assert rule.preemption_terms(claim("preempt", leaf)) is None
    never = rule.preemption_terms(claim("preempt", leaf, never_preempts=True))
    assert isinstance(never, PreemptionDenied)
    assert never.personal
    waiting = rule.preemption_terms(claim("preempt", leaf, now=1000.0, created=950.0, preemption_delay=60.0))
    assert isinstance(waiting, PreemptionDenied)
    assert waiting.until == 1010.0
    assert waiting.personal
    assert (
        rule.preemption_terms(claim("preempt", leaf, now=1010.0, created=950.0, preemption_delay=60.0))
        is None
    )
    again = claim("reclaim", leaf, now=1000.0, created=1.0, last_eviction=990.0, preemption_delay=60.0)
    assert isinstance(denied := rule.preemption_terms(again), PreemptionDenied)
    assert denied.until == 1050.0


def _task(name: str, started: float | None, *notes: tuple[str, str]) -> Task:
    return Task(name, name, "ns/victim", Needs(), started=started, annotations=notes)


def test_cooldown_counts_from_the_start_of_each_pod() -> None:
    leaf, rule = queue("q"), Cooldown()
    asks = claim("preempt", leaf, now=1000.0)
    young, old = _task("a", 990.0, (COOLDOWN, "1m")), _task("b", 100.0, (COOLDOWN, "1m"))
    assert rule.protected_until(asks, unit(leaf, tasks=(old, young))) == 1050.0
    assert rule.protects_victim(asks, unit(leaf, tasks=(old, young)))
    assert not rule.protects_victim(asks, unit(leaf, tasks=(old,)))
    assert not rule.protects_victim(asks, unit(leaf, tasks=(_task("c", 999.0),)))
    assert rule.protects_victim(asks, unit(leaf, tasks=(_task("c", 999.0),), annotations={COOLDOWN: "2s"}))
    assert not rule.protects_victim(asks, unit(leaf, tasks=(_task("d", None, (COOLDOWN, "1m")),)))
    assert not rule.protects_victim(asks, unit(leaf, tasks=(_task("d", 999.0, (COOLDOWN, "soon")),)))
    assert not rule.protects_queue(asks, leaf.path)


@pytest.mark.parametrize(
    ("notes", "spared"),
    [
        ({}, False),
        ({MIN_AVAILABLE: "2"}, False),
        ({MIN_AVAILABLE: "3"}, True),
        ({MIN_AVAILABLE: "50%"}, False),
        ({MIN_AVAILABLE: "51%"}, True),
        ({MAX_UNAVAILABLE: "2"}, False),
        ({MAX_UNAVAILABLE: "1"}, True),
        ({MAX_UNAVAILABLE: "50%"}, False),
        ({MAX_UNAVAILABLE: "some"}, False),
    ],
)
def test_budgets_of_a_group_of_four_of_which_three_run(notes: dict[str, str], spared: bool) -> None:
    leaf = queue("q")
    one = unit(leaf, tasks=(_task("a", 1.0),), members=3, size=4, annotations=notes)
    assert JobDisruptionBudget().protects_victim(claim("preempt", leaf), one) is spared
    assert not JobDisruptionBudget().protects_queue(claim("preempt", leaf), leaf.path)


def test_finished_pods_are_not_unavailable() -> None:
    """With two finished and two running pods of four, one more may be unavailable."""
    leaf, notes = queue("q"), {MAX_UNAVAILABLE: "1"}
    one = unit(leaf, tasks=(_task("a", 1.0),), members=2, size=4, finished=2, annotations=notes)
    assert not JobDisruptionBudget().protects_victim(claim("preempt", leaf), one)
    waits = unit(leaf, tasks=(_task("a", 1.0),), members=2, size=4, finished=1, annotations=notes)
    assert JobDisruptionBudget().protects_victim(claim("preempt", leaf), waits)


def test_only_what_agreed_is_moved() -> None:
    leaf, rule = queue("q", dialect=Dialect.VOLCANO), OnlyMovable()
    moving, tasks, yes = claim("consolidation", queue("k")), (_task("a", 1.0),), {MOVABLE: "true"}
    assert rule.protects_victim(moving, unit(leaf, tasks=tasks))
    assert rule.protects_victim(moving, unit(leaf, tasks=tasks, annotations={MOVABLE: "no"}))
    assert not rule.protects_victim(moving, unit(leaf, tasks=tasks, annotations=yes))
    assert not rule.protects_victim(moving, unit(queue("k"), tasks=tasks))
    assert not rule.protects_victim(claim("reclaim", leaf), unit(leaf, tasks=tasks))
    assert not rule.protects_queue(moving, leaf.path)


@pytest.mark.parametrize("dialect", [Dialect.KAI, Dialect.VOLCANO])
def test_a_pod_without_a_controller_is_not_relocated(dialect: Dialect) -> None:
    rule, group = OnlyMovable(), Group("ns/g", "q", dialect=dialect, annotations={MOVABLE: "true"})
    assert rule.may_relocate(group, _task("a", 1.0))
    assert not rule.may_relocate(group, altered(_task("a", 1.0), owned=False))


def test_a_pod_that_is_not_safe_to_evict_is_not_moved_and_may_be_claimed() -> None:
    rule, moving, leaf = (
        OnlyMovable(),
        claim("consolidation", queue("k")),
        queue("q", dialect=Dialect.VOLCANO),
    )
    for word, stays in (("false", True), ("true", False), ("False", False)):
        notes = (("cluster-autoscaler.kubernetes.io/safe-to-evict", word),)
        tasks = (_task("a", 1.0), altered(_task("b", 1.0), annotations=notes))
        assert (
            rule.protects_victim(
                moving, unit(leaf, tasks=tasks, annotations={"windlass.dev/movable": "true"})
            )
            is stays
        )
        assert (
            rule.protects_victim(moving, unit(queue("k"), tasks=tasks)) is stays
        )  # KAI's need not agree, and may object
        for right in ("reclaim", "preempt"):
            assert not rule.protects_victim(claim(right, leaf), unit(leaf, tasks=tasks))


def test_guarantees_and_queues_that_are_not_reclaimable() -> None:
    rule, ours = Reserved(), queue("a")
    asks = claim("reclaim", ours)
    shut = queue("b", reclaimable=False)
    assert rule.protects_queue(asks, shut.path)
    assert not rule.protects_queue(claim("preempt", ours), shut.path)
    top = queue("top", held=4, guarantee={GPU: 3})
    kept = queue("c", held=4, parent=top)
    assert rule.may_take(asks, unit(kept, 1), {})
    assert not rule.may_take(asks, unit(kept, 2), {})
    assert not rule.may_take(asks, unit(kept, 1), {"top": {GPU: 1}})
    assert rule.may_take(asks, unit(kept, request={"cpu": 9}), {"top": {GPU: 4}})
    assert rule.may_take(claim("preempt", ours), unit(kept, 4), {})
    cousin = queue("d", parent=top)
    assert rule.may_take(claim("reclaim", cousin), unit(kept, 4), {})
    assert rule.validates(asks, FreedResources())
    assert not rule.protects_victim(asks, unit(kept))
