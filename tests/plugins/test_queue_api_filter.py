"""Policies kept to the work of one API, or to the claims of one action."""

from __future__ import annotations

from typing import Any

import pytest
from cluster_dsl import needs
from queue_views import claim, queue, unit

from windlass.plugins.queue_api_filter import (
    ApiGroupOrder,
    ApiQueueOrder,
    ApiTaskOrder,
    PreemptionPolicyFor,
    VictimsFor,
    limited_to_api,
)
from windlass.spi.objects import Dialect, Group, Task
from windlass.spi.victims import FreedResources, PreemptionTerms, VictimScope


class Rules:
    """Has an opinion on everything."""

    name = "rules"

    def preemption_terms(self, claim: Any) -> PreemptionTerms:
        return PreemptionTerms(VictimScope.ALL_QUEUES)

    def protects_queue(self, claim: Any, path: Any) -> bool:
        return True

    def protects_victim(self, claim: Any, unit: Any) -> bool:
        return True

    def victim_queue_key(self, claim: Any, queue: Any, taken: Any) -> str:
        return "queue"

    def victim_key(self, claim: Any, unit: Any) -> str:
        return "unit"

    def may_take(self, claim: Any, unit: Any, taken: Any) -> bool:
        return False

    def validates(self, claim: Any, loot: Any) -> bool:
        return False


@pytest.mark.parametrize(
    ("action", "expected"),
    [
        ("reclaim", (PreemptionTerms(VictimScope.ALL_QUEUES), True, True, "queue", "unit", False, False)),
        ("preempt", (None, False, False, None, None, True, True)),
    ],
)
def test_rules_for_one_action_say_nothing_about_others(action: str, expected: tuple[object, ...]) -> None:
    leaf = queue("q")
    asks, one = claim(action, leaf), unit(leaf)
    who, whom = PreemptionPolicyFor(Rules(), "reclaim"), VictimsFor(Rules(), "reclaim")
    assert who.name == whom.name == "rules"
    assert expected == (
        who.preemption_terms(asks),
        whom.protects_queue(asks, leaf.path),
        whom.protects_victim(asks, one),
        whom.victim_queue_key(asks, leaf, {}),
        whom.victim_key(asks, one),
        whom.may_take(asks, one, {}),
        whom.validates(asks, FreedResources()),
    )


class Orders:
    """Orders queues, groups and tasks alike."""

    name = "orders"

    def queue_key(self, queue: Any, step: Any) -> int:
        return 7

    def group_key(self, group: Any) -> int:
        return 8

    def task_key(self, task: Any) -> int:
        return 9


class OfGroup:
    """A group as orders see it."""

    def __init__(self, dialect: Dialect) -> None:
        self.spec = Group("g", dialect=dialect)


class OfQueue:
    """A queue as orders see it."""

    def __init__(self, dialect: Dialect, *, mixed: bool = False) -> None:
        self.spec = queue("q", dialect=dialect).spec
        self.mixed = mixed


@pytest.mark.parametrize("inside", [True, False])
@pytest.mark.parametrize("dialect", [Dialect.KAI, Dialect.VOLCANO])
def test_an_order_is_kept_to_one_api_or_from_it(dialect: Dialect, inside: bool) -> None:
    queues, groups, tasks = limited_to_api(Orders(), Dialect.KAI, inside=inside)
    assert isinstance(queues, ApiQueueOrder)
    assert isinstance(groups, ApiGroupOrder)
    assert isinstance(tasks, ApiTaskOrder)
    speaks = (dialect is Dialect.KAI) is inside
    task = Task("t", "t", "g", needs(dialect=dialect))
    keys = [
        queues.queue_key(OfQueue(dialect), None),  # type: ignore[arg-type]
        groups.group_key(OfGroup(dialect)),  # type: ignore[arg-type]
        tasks.task_key(task),
    ]
    assert keys == ([(0, 7), (0, 8), (0, 9)] if speaks else [(1, 0)] * 3)
    assert (queues.name, queues.entangled) == ("orders", False)


@pytest.mark.parametrize("compares", [True, False])
def test_roots_of_both_apis_are_left_to_an_order_that_compares_them(compares: bool) -> None:
    inner = Orders()
    inner.compares_roots = compares  # type: ignore[attr-defined]
    for dialect in Dialect:
        root = OfQueue(dialect, mixed=True)
        (order, *_) = limited_to_api(inner, Dialect.KAI, inside=True)
        assert isinstance(order, ApiQueueOrder)
        assert order.queue_key(root, None) == ((0, 7) if compares else (1, 0))  # type: ignore[arg-type]


def test_what_orders_nothing_stays_as_it_is() -> None:
    rules = Rules()
    assert limited_to_api(rules, Dialect.KAI, inside=True) == [rules]
