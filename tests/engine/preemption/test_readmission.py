"""``engine.preemption.readmission``: a pod is relocated only if it may start again."""

from __future__ import annotations

from dataclasses import replace

import pytest
from cluster_dsl import GPU, NAMESPACE
from msgspec.structs import replace as altered
from preemption_cluster import ALL, Arena

from windlass.engine.deltas import NamespaceQuotaUpserted, QueueRemoved, QueueUpserted
from windlass.plugins.queues.protection import MOVABLE, STAYS
from windlass.spi.objects import Dialect, NamespaceQuota, QueueState

MOVES = ("allocate", "consolidation")
BOTH_APIS = pytest.mark.parametrize("dialect", [Dialect.KAI, Dialect.VOLCANO])


def scene(*actions: str, dialect: Dialect = Dialect.KAI) -> Arena:
    """One GPU is free on each of two nodes, and a group needs two on one node."""
    a = Arena(*actions, dialect=dialect).node("n1", 2).node("n2", 2)
    a.queue("org", deserved=None).queue("team", deserved=2, parent="org").queue("ours", deserved=2)
    a.runs("gang", "team", "n1:1", "n2:1", min=2, annotations={MOVABLE: "true"})
    return a


def change_queue(a: Arena, name: str, **changes: object) -> None:
    a.world.overcommitted = True  # a limit may be below what the queue holds
    spec = a.world.engine.state.queues.get(a.key(name)).spec
    a.world.engine.apply([QueueUpserted(replace(spec, **changes))])


@BOTH_APIS
def test_a_member_of_a_gang_is_relocated(dialect: Dialect) -> None:
    a = scene(*MOVES, dialect=dialect).waits("claimer", "ours", 2)
    a.rest()
    assert a.running() == {"gang": 2, "claimer": 1}


@BOTH_APIS
@pytest.mark.parametrize("queue", ["team", "org"])
def test_no_pod_is_relocated_that_a_limit_would_keep_out(queue: str, dialect: Dialect) -> None:
    a = scene(*MOVES, dialect=dialect).waits("claimer", "ours", 2)
    change_queue(a, queue, capability={GPU: 1000})
    a.rest()
    assert a.running() == {"gang": 2}


@BOTH_APIS
@pytest.mark.parametrize("state", [QueueState.CLOSED, QueueState.CLOSING])
def test_no_pod_of_a_closed_queue_is_relocated(state: QueueState, dialect: Dialect) -> None:
    a = scene(*ALL, dialect=dialect).waits("claimer", "ours", 2)
    change_queue(a, "team", state=state)
    a.rest()
    assert a.running() == {"gang": 2}


@BOTH_APIS
def test_no_pod_of_a_missing_queue_is_relocated(dialect: Dialect) -> None:
    a = scene(*MOVES, dialect=dialect).waits("claimer", "ours", 2)
    a.world.engine.apply([QueueRemoved(a.key("team"))])
    a.rest()
    assert a.running() == {"gang": 2}


@BOTH_APIS
def test_no_pod_of_a_queue_with_children_is_relocated(dialect: Dialect) -> None:
    a = scene(*ALL, dialect=dialect).waits("claimer", "ours", 2).queue("child", parent="team")
    a.rest()
    assert a.running() == {"gang": 2}


@BOTH_APIS
def test_no_pod_is_relocated_that_the_quota_of_its_namespace_would_keep_out(dialect: Dialect) -> None:
    for most, held in ((3, {"gang": 2}), (4, {"gang": 2, "claimer": 1})):
        a = scene(*MOVES, dialect=dialect).waits("claimer", "ours", 2)
        quota = NamespaceQuota(f"{NAMESPACE}/quota", {GPU: most * 1000})
        a.world.engine.apply([NamespaceQuotaUpserted(quota)])
        a.rest()
        assert a.running() == held


def test_another_pod_is_relocated_instead() -> None:
    a = scene(*MOVES).node("n3", 2).queue("free", deserved=1)
    a.runs("alone", "free", "n3:1").waits("claimer", "ours", 2)
    change_queue(a, "team", capability={GPU: 1000})
    a.rest()
    assert a.running() == {"gang": 2, "alone": 1, "claimer": 1}


def test_a_gang_below_its_minimum_is_not_relocated_in_part() -> None:
    a = scene(*MOVES).waits("claimer", "ours", 2)
    a.world.change_group("gang", min_member=3)
    a.rest()
    assert a.running() == {"gang": 2}


@pytest.mark.parametrize("actions", [("allocate", "reclaim"), ("allocate", "reclaim", "preempt"), ALL])
@pytest.mark.parametrize("change", [{"owned": False}, {"annotations": (STAYS,)}])
def test_what_stays_is_relocated_by_no_action(actions: tuple[str, ...], change: dict[str, object]) -> None:
    for changed, held in (((), 3), ((0,), 3), ((0, 1), 2)):
        a = Arena(*actions).node("n1", 2).node("n2", 2).queue("team", deserved=2).queue("ours", deserved=2)
        a.runs("a", "team", "n1:1").runs("b", "team", "n2:1").waits("claimer", "ours", 2)
        for at in changed:
            task = a.world.tasks[f"{NAMESPACE}/{'ab'[at]}-0"]
            a.world.task(altered(task, **change))
        a.rest()
        assert sum(a.running().values()) == held


def test_what_stays_is_reclaimed_by_right() -> None:
    a = Arena("allocate", "reclaim").node("n1", 2).queue("team", deserved=0).queue("ours", deserved=2)
    a.runs("a", "team", "n1:1").waits("claimer", "ours", 2)
    a.world.task(altered(a.world.tasks[f"{NAMESPACE}/a-0"], owned=False, annotations=(STAYS,)))
    a.rest()
    assert a.running() == {"claimer": 1}
