"""Room that is being vacated: promised to those who wait, kept for them over cycles, given up in time."""

from __future__ import annotations

from dataclasses import replace

import pytest
from cluster_dsl import Cluster, needs

from windlass.engine import invariants
from windlass.engine.decision import Decision
from windlass.engine.engine import Engine
from windlass.plugins.defaults import default_plugins
from windlass.spi.objects import Expression, PodTerm, TaskState


def leaving(c: Cluster, name: str, where: str, request: str, **more: str) -> None:
    c.running(name, where, request, **more)
    c.change_task(f"{name}-0", state=TaskState.RELEASING)


def nominated(decision: Decision) -> dict[str, str]:
    return {n.task.removeprefix("ns/"): n.node for n in decision.nominations}


def full_node(*extra: str) -> Cluster:
    """n1 with 4 GPUs, all of them held by a pod that terminates."""
    c = Cluster().queues("default").nodes("n1 gpu=4", *extra)
    leaving(c, "old", "n1", "gpu=4")
    return c


def test_a_gang_is_promised_what_is_being_vacated_and_starts_once_it_is_free() -> None:
    c = full_node().gang("g", 2, "gpu=2")
    first = c.cycle()
    assert first.binds == ()
    assert nominated(first) == {"g-0": "n1", "g-1": "n1"}
    assert c.code("g") == "WaitingForVictims"
    assert "2 on n1" in c.explain("g").message
    again = c.cycle()
    assert (again.binds, again.nominations) == ((), ())
    c.remove("old")
    assert {b.task for b in c.cycle().binds} == {"ns/g-0", "ns/g-1"}
    assert c.code("g") == ""


def test_who_waits_for_room_in_the_queue_is_not_told_that_somebody_leaves_its_node() -> None:
    c = Cluster().queues("q limit.cpu=4").nodes("n1 cpu=4", "n2 cpu=4")
    leaving(c, "old", "n1", "cpu=3", queue="q")
    c.gang("g", 2, "cpu=2", queue="q")
    c.cycle()
    assert nominated(c.cycle()) == {}
    assert c.code("g") == "WaitingForVictims"
    said = c.explain("g")
    assert {b.detail for b in said.blockers} == {"n2"}
    assert "pods elsewhere are still terminating" in said.message
    assert "leaving it" not in said.message
    c.remove("old")
    c.cycle()
    assert c.placed("g") == 2


def test_room_that_is_free_now_goes_first_and_then_nothing_is_promised() -> None:
    c = full_node("n2 gpu=2").gang("g", 2, "gpu=1")
    decision = c.cycle()
    assert c.where("g") == {"n2": 2}
    assert decision.nominations == ()


def test_room_that_is_free_is_given_also_to_those_who_would_wait() -> None:
    c = full_node("n2 gpu=2").gang("g", 2, "gpu=1")
    c.engine.update_groups(c.now)
    group, context = c.engine.state.groups["ns/g"], c.engine._context
    assert group.step is not None
    attempt = context.gang_allocator.try_group(context.statement, group, group.step, future=True)
    assert (attempt.done, attempt.pipelined) == (True, False)
    assert (c.placed("g"), group.nominations) == (2, 0)
    context.statement.rollback()


def test_a_gang_that_needs_room_being_vacated_for_one_member_binds_none() -> None:
    c = full_node("n2 gpu=2").gang("g", 3, "gpu=1")
    decision = c.cycle()
    assert decision.binds == ()
    assert nominated(decision) == {"g-0": "n2", "g-1": "n2", "g-2": "n1"}
    # What is free on n2 is kept for it: nobody else takes it meanwhile.
    c.gang("late", 1, "gpu=1")
    later = c.cycle()
    assert later.binds == ()
    assert nominated(later) == {"late-0": "n1"}
    c.remove("old")
    assert {b.task for b in c.cycle().binds} == {"ns/g-0", "ns/g-1", "ns/g-2", "ns/late-0"}


def test_what_does_not_fit_even_then_is_promised_nothing() -> None:
    c = full_node("n2 gpu=2").gang("g", 4, "gpu=2")
    decision = c.cycle()
    assert (decision.binds, decision.nominations) == ((), ())
    assert c.code("g") == "ExceedsCluster"


def test_the_room_of_one_who_is_stuck_is_no_promise() -> None:
    c = Cluster().queues("default").nodes("n1 gpu=4").running("old", "n1", "gpu=4")
    c.change_task("old-0", state=TaskState.STUCK)
    c.gang("g", 1, "gpu=1")
    assert c.cycle().nominations == ()
    assert c.code("g") == "InsufficientResources"


def test_a_promise_is_given_up_when_the_one_who_leaves_gets_stuck() -> None:
    c = full_node().gang("g", 1, "gpu=1")
    assert nominated(c.cycle()) == {"g-0": "n1"}
    c.change_task("old-0", state=TaskState.STUCK)
    c.cycle()
    assert c.engine.state.groups["ns/g"].nominations == 0
    assert c.code("g") == "InsufficientResources"


def test_a_promise_is_given_up_when_the_node_goes_and_another_is_found() -> None:
    c = full_node("n2 gpu=1 cordoned").gang("g", 1, "gpu=1")
    assert nominated(c.cycle()) == {"g-0": "n1"}
    c.running("other", "n2", "gpu=1")
    c.change_task("other-0", state=TaskState.RELEASING)
    c.nodes(replace(c.node_specs["n2"], unschedulable=False))
    c.remove_node("n1")
    c.overcommitted = True
    assert nominated(c.cycle()) == {"g-0": "n2"}


def test_a_promise_does_not_outlive_its_group_nor_a_hold() -> None:
    c = full_node().gang("g", 1, "gpu=4")
    c.cycle()
    c.gang("next", 1, "gpu=4")
    assert c.cycle().nominations == ()
    c.change_group("g", held=True)
    c.cycle()
    assert nominated(c.cycle()) == {"next-0": "n1"} or c.engine.state.groups["ns/next"].nominations == 1
    c.remove("next")
    c.gang("last", 1, "gpu=4")
    assert nominated(c.cycle()) == {"last-0": "n1"}


def test_room_that_is_no_longer_promised_is_offered_to_others_at_once() -> None:
    c = full_node().gang("g", 1, "gpu=4")
    c.cycle()
    c.gang("next", 1, "gpu=4")
    c.cycle()
    c.change_group("g", held=True)
    decision = c.cycle()
    if not decision.nominations:
        assert decision.wake_at == c.now
        decision = c.cycle(0.0)
    assert nominated(decision) == {"next-0": "n1"}
    assert decision.wake_at is None


def test_other_room_is_taken_as_soon_as_it_is_free() -> None:
    c = full_node("n2 gpu=4").running("busy", "n2", "gpu=4").gang("g", 1, "gpu=2")
    assert nominated(c.cycle()) == {"g-0": "n1"}
    c.remove("busy")
    assert [(b.task, b.node) for b in c.cycle().binds] == [("ns/g-0", "n2")]
    assert c.engine.state.groups["ns/g"].nominations == 0


def test_those_who_wait_are_woken_when_somebody_begins_to_leave() -> None:
    c = Cluster().queues("default").nodes("n1 gpu=4").running("old", "n1", "gpu=4").gang("g", 2, "gpu=2")
    assert c.cycle().nominations == ()
    c.change_task("old-0", state=TaskState.RELEASING)
    assert nominated(c.cycle()) == {"g-0": "n1", "g-1": "n1"}


def test_elastic_tasks_are_promised_room_one_by_one_beside_those_that_run() -> None:
    c = full_node("n2 gpu=2").gang("g", 6, "gpu=1", min=2)
    decision = c.cycle()
    assert c.where("g") == {"n2": 2}
    assert nominated(decision) == {"g-2": "n1", "g-3": "n1", "g-4": "n1", "g-5": "n1"}
    c.nodes("n3 gpu=1")
    assert len(c.cycle().binds) == 1
    assert c.engine.state.groups["ns/g"].nominations == 3
    c.remove("old")
    assert len(c.cycle().binds) == 3
    assert c.where("g") == {"n1": 3, "n2": 2, "n3": 1}


def test_the_others_keep_their_promises_when_one_elastic_task_gets_a_place() -> None:
    c = full_node("n2 gpu=2").gang("g", 6, "gpu=1", min=2)
    c.cycle()
    c.nodes("n3 gpu=1")
    group = c.engine.state.groups["ns/g"]
    context = c.engine._context
    assert group.step is not None
    assert context.gang_allocator.try_group(context.statement, group, group.step).done
    assert (c.placed("g"), group.nominations) == (3, 3), "nobody else may come between"
    context.statement.rollback()
    assert (c.placed("g"), group.nominations) == (2, 4)
    invariants.check(c.engine)


def test_an_elastic_gang_that_has_not_started_is_promised_its_minimum() -> None:
    c = full_node().gang("g", 9, "gpu=1", min=2)
    assert len(c.cycle().nominations) == 2
    c.remove("old")
    assert len(c.cycle().binds) == 4


def test_a_limit_counts_what_terminates_until_it_is_gone() -> None:
    c = Cluster().queues("default limit.gpu=4").nodes("n1 gpu=4", "n2 gpu=4")
    leaving(c, "old", "n1", "gpu=4")
    c.gang("g", 2, "gpu=2")
    decision = c.cycle()
    assert decision.binds == ()
    assert len(decision.nominations) == 2, "the queue is being vacated, though nodes have room"
    c.gang("late", 1, "gpu=1")
    assert c.cycle().nominations == (), "the limit is promised away"
    c.remove("old")
    assert len(c.cycle().binds) == 2


def test_a_limit_is_not_promised_twice() -> None:
    c = Cluster().queues("default limit.gpu=4").nodes("n1 gpu=4", "n2 gpu=4")
    leaving(c, "old", "n1", "gpu=2")
    c.gang("g", 2, "gpu=2").gang("late", 1, "gpu=2")
    decision = c.cycle()
    assert {n.task for n in decision.nominations} == {"ns/g-0", "ns/g-1"}
    assert decision.binds == ()


def test_pods_that_exclude_one_another_are_promised_different_nodes() -> None:
    apart = needs(
        "gpu=1",
        anti_affinity=(PodTerm((Expression("app", "In", ("x",)),), "kubernetes.io/hostname"),),
        labels={"app": "x"},
    )
    c = full_node("n2 gpu=4")
    leaving(c, "old2", "n2", "gpu=4")
    c.gang("g", 2, apart)
    assert sorted(nominated(c.cycle()).values()) == ["n1", "n2"]
    c.gang("three", 3, apart)
    assert c.cycle().nominations == ()


def test_whoever_leaves_keeps_nobody_away_from_what_he_leaves() -> None:
    apart = needs(
        "gpu=1", anti_affinity=(PodTerm((Expression("app", "In", ("x",)),), "zone"),), labels={"app": "x"}
    )
    c = Cluster().queues("default").nodes("n1 gpu=4 zone=a", "n2 gpu=4 zone=a")
    c.gang("old", 1, apart)
    c.cycle()
    c.change_task("old-0", state=TaskState.RELEASING)
    c.gang("g", 1, apart)
    assert nominated(c.cycle()) == {"g-0": "n1"}
    c.remove("old")
    assert len(c.cycle().binds) == 1


def test_the_fullest_of_the_nodes_being_vacated_is_taken() -> None:
    c = full_node("n2 gpu=4").running("stays", "n2", "gpu=2")
    leaving(c, "half", "n2", "gpu=2")
    c.gang("g", 1, "gpu=1")
    assert nominated(c.cycle()) == {"g-0": "n2"}


def test_a_score_that_outranks_vacancy_goes_before_free_room() -> None:
    class Wish:
        name, footprint, weight, outranks_vacancy = "wish", "static", 1.0, True

        def trend(self, needs):
            from windlass.spi.plugins import Trend

            return Trend.RISES

        def score(self, needs, nodes):
            import numpy as np

            return np.array([100.0 if name == "n1" else 0.0 for name in nodes.names()])

    c = Cluster(plugins=[*default_plugins(), Wish()]).queues("default").nodes("n1 gpu=4", "n2 gpu=4")
    leaving(c, "old", "n1", "gpu=4")
    c.gang("g", 1, "gpu=1")
    group = c.engine.state.groups["ns/g"]
    c.engine.update_groups(c.now)
    context = c.engine._context
    assert group.step is not None
    attempt = context.gang_allocator.try_group(context.statement, group, group.step, future=True)
    assert (attempt.done, attempt.pipelined) == (True, True)
    assert context.statement.placements()[0][1] == c.engine.state.table.rows["n1"]
    context.statement.rollback()
    invariants.check(c.engine)


@pytest.mark.parametrize("confirmed", [False, True])
def test_promises_are_kept_in_a_dump(confirmed: bool) -> None:
    c = full_node("n2 gpu=2").gang("g", 3, "gpu=1")
    c.cycle(confirm=confirmed)
    loaded = Engine.load(c.engine.dump(), default_plugins())
    invariants.check(loaded)
    assert loaded.dump() == c.engine.dump()
    group = loaded.state.groups["ns/g"]
    assert group.nominations == 3
