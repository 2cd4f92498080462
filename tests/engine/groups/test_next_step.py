"""``engine.groups.next_step``: the arithmetic of gangs."""

from __future__ import annotations

import pytest
from cluster_dsl import GPU, Cluster, needs

from windlass.engine.groups.entries import NextTasks
from windlass.engine.groups.next_step import Shortage, next_step
from windlass.spi.objects import TaskState


def cluster(**gang) -> Cluster:
    c = Cluster().queues("default")
    n, request = gang.pop("n", 3), gang.pop("request", "cpu=1")
    return c.gang("g", n, request, **gang)


def step(c: Cluster) -> NextTasks | Shortage | None:
    return next_step(c.engine.state.groups["ns/g"])


def shape(found: NextTasks | Shortage | None) -> tuple[int, bool, list[tuple[str, int]]]:
    assert isinstance(found, NextTasks)
    return found.members, found.extra, [(batch.role, len(batch.entries)) for batch in found.batches]


def test_a_gang_asks_for_its_minimum() -> None:
    assert shape(step(cluster(n=3))) == (3, False, [("", 3)])
    assert shape(step(cluster(n=5, min=2))) == (2, False, [("", 5)])
    assert shape(step(cluster(n=1))) == (1, False, [("", 1)])


def test_beyond_its_minimum_it_asks_for_one_more() -> None:
    assert shape(step(cluster(n=3, min=0))) == (1, True, [("", 1)])
    c = cluster(n=1, min=0)
    assert shape(step(c)) == (1, True, [("", 1)])


def test_nothing_pending_asks_for_nothing() -> None:
    c = cluster(n=1)
    c.nodes("n1")
    c.cycle()
    assert step(c) is None
    empty = Cluster().queues("default").gang("g", 0, min=0)
    assert step(empty) is None


@pytest.mark.parametrize(("n", "gated", "minimum"), [(2, 0, 3), (1, 2, 3), (0, 3, 3)])
def test_too_few_members_are_a_shortage(n: int, gated: int, minimum: int) -> None:
    c = cluster(n=n, min=minimum)
    c.add_tasks("g", gated, "cpu=1", gated=True)
    assert step(c) == Shortage("", minimum, n, gated)


def test_running_and_succeeded_members_count_and_failed_ones_do_not() -> None:
    c = cluster(n=4, min=4)
    c.nodes("n1")
    c.cycle()
    c.change_task("g-0", state=TaskState.SUCCEEDED)
    c.change_task("g-3", state=TaskState.FAILED)
    c.remove_task("g-3")
    c.add_tasks("g", 1, "cpu=1")
    group = c.engine.state.groups["ns/g"]
    assert (group.active, group.succeeded, group.held_members) == (2, 1, 3)
    assert not group.ready()
    assert shape(step(c)) == (1, False, [("", 1)])


def test_what_a_group_holds_and_asks_for_in_sum() -> None:
    """What terminates is held no more, what is promised already is; gated tasks ask for nothing yet."""
    c = Cluster().queues("default").nodes("n1 gpu=4").gang("g", 3, "gpu=1", min=0)
    group = c.engine.state.groups["ns/g"]
    c.settle()
    c.add_tasks("g", 1, "gpu=2").add_tasks("g", 1, "gpu=9", role="late", gated=True)
    assert (group.holding, group.requested) == ({GPU: 3000, "pods": 3}, {GPU: 5000, "pods": 4})
    c.change_task("g-0", state=TaskState.RELEASING)
    assert (group.holding, group.requested) == ({GPU: 2000, "pods": 2}, {GPU: 4000, "pods": 3})
    c.cycle()
    assert group.nominations == 1
    assert group.holding == group.requested == {GPU: 4000, "pods": 3}


def test_terminating_members_do_not_count() -> None:
    c = cluster(n=2, min=2)
    c.nodes("n1")
    c.cycle()
    c.change_task("g-0", state=TaskState.RELEASING)
    group = c.engine.state.groups["ns/g"]
    assert (group.active, group.releasing, group.ready()) == (1, 1, False)
    assert step(c) == Shortage("", 2, 1, 0)


def roles(minimum: int, role_minima: dict[str, int], have: dict[str, int]) -> Cluster:
    c = Cluster().queues("default").gang("g", 0, min=minimum, roles=role_minima)
    for role, n in have.items():
        c.add_tasks("g", n, f"cpu={1 if role == 'w' else 2}", role=role)
    return c


def test_role_minima_are_asked_for_when_the_minimum_covers_them() -> None:
    found = step(roles(4, {"m": 1, "w": 2}, {"m": 2, "w": 5}))
    assert shape(found) == (4, False, [("m", 2), ("w", 5)])
    assert isinstance(found, NextTasks)
    assert found.roles == {"m": 1, "w": 2}


def test_role_minima_are_ignored_when_the_minimum_is_below_their_sum() -> None:
    found = step(roles(2, {"m": 1, "w": 2}, {"m": 0, "w": 5}))
    assert shape(found) == (2, False, [("", 5)])


def test_a_role_that_lacks_members_is_named() -> None:
    assert step(roles(3, {"m": 1, "w": 2}, {"m": 0, "w": 5})) == Shortage("m", 1, 0, 0)
    c = roles(3, {"m": 1, "w": 2}, {"m": 0, "w": 5})
    c.add_tasks("g", 1, "cpu=1", role="m", gated=True)
    assert step(c) == Shortage("m", 1, 0, 1)


def test_a_group_that_lost_a_role_is_not_ready_though_it_has_enough_members() -> None:
    c = roles(3, {"m": 1, "w": 2}, {"m": 1, "w": 3})
    c.nodes("n1")
    c.settle()
    c.change_task("g-m-0", state=TaskState.FAILED)
    group = c.engine.state.groups["ns/g"]
    assert group.held_members == 3
    assert not group.ready()
    c.add_tasks("g", 1, "cpu=2", role="m")
    found = step(c)
    assert isinstance(found, NextTasks)
    assert (found.members, found.roles) == (0, {"m": 1})
    c.cycle()
    assert c.placed("g") == 4


def test_tasks_wait_in_order_of_priority_role_index() -> None:
    c = cluster(n=3)
    c.change_task("g-2", priority=5)
    group = c.engine.state.groups["ns/g"]
    assert [entry.key for entry in group.waiting()] == ["ns/g-2", "ns/g-0", "ns/g-1"]


def test_an_elastic_group_offers_the_first_task_of_each_class() -> None:
    c = cluster(n=2, min=0)
    c.add_tasks("g", 2, "cpu=2", role="big")
    found = step(c)
    assert isinstance(found, NextTasks)
    assert [[e.key for e in batch.entries] for batch in found.batches] == [["ns/g-0"], ["ns/g-big-0"]]


def test_a_group_that_is_only_named_has_no_spec() -> None:
    c = Cluster().queues("default").gang("g", 1)
    c.remove_group("g")
    with pytest.raises(ValueError, match="only named"):
        _ = c.engine.state.groups["ns/g"].spec
    assert c.cycle().binds == ()


def test_needs_of_the_language_of_these_tests() -> None:
    assert needs("gpu=1").namespace == "ns"


def test_a_group_that_nobody_has_defined_has_no_minimum() -> None:
    c = Cluster().queues("default").add_tasks("x", 1, "gpu=1")
    c.cycle()
    assert c.engine.state.groups["ns/x"].minimum == 0
