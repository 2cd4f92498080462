"""``engine.core``: what a cycle says, when it is to be called again, and pauses after failures."""

from __future__ import annotations

import pytest
from cluster_dsl import Cluster

from windlass.engine.config import EngineConfig
from windlass.engine.decision import Decision


def test_an_engine_without_a_world_has_nothing_to_say() -> None:
    assert Cluster().cycle() == Decision(cycle=1)


def test_a_group_is_reported_when_its_standing_changes_and_only_then() -> None:
    c = Cluster().queues("default").nodes("n1 gpu=2").gang("g", 3, "gpu=1", min=2)
    (first,) = c.cycle().groups
    assert (first.group, first.admitted, first.scheduled, first.pending) == ("ns/g", True, 2, 1)
    assert first.explanation is not None
    assert c.cycle().groups == ()
    c.nodes("n1 gpu=3")
    (second,) = c.cycle().groups
    assert (second.scheduled, second.pending, second.explanation) == (3, 0, None)


def test_a_group_without_pods_is_admitted_where_its_queue_takes_work() -> None:
    c = Cluster().queues("open", "shut closed").gang("a", 0, min=2, queue="open")
    c.gang("b", 0, min=2, queue="shut").gang("c", 0, min=2, queue="none").gang(
        "d", 0, min=2, queue="open", held=True
    )
    statuses = {s.group: s for s in c.cycle().groups}
    assert {key: s.admitted for key, s in statuses.items()} == {
        "ns/a": True,
        "ns/b": False,
        "ns/c": False,
        "ns/d": False,
    }
    codes = {key: s.explanation.code for key, s in statuses.items() if s.explanation}
    assert codes == {
        "ns/a": "WaitingForMembers",
        "ns/b": "QueueClosed",
        "ns/c": "QueueNotFound",
        "ns/d": "OnHold",
    }


def test_admission_stands_while_something_runs() -> None:
    c = Cluster().queues("q").nodes("n1").gang("g", 2, min=1, queue="q")
    c.cycle()
    c.queues("q closed")
    c.add_tasks("g", 1)
    (status,) = c.cycle().groups
    assert status.admitted
    assert status.explanation is not None
    assert status.explanation.code == "QueueClosed"


def test_a_group_that_only_its_pods_name_is_told_so() -> None:
    c = Cluster().queues("default").nodes("n1").gang("g", 1)
    c.remove_group("g")
    (status,) = c.cycle().groups
    assert (status.admitted, status.scheduled, status.pending) == (False, 0, 1)
    assert status.explanation is not None
    assert "does not exist yet" in status.explanation.message


def test_queue_figures_are_reported_when_they_move() -> None:
    c = Cluster().queues("top", "a parent=top weight=3", "b parent=top").nodes("n1 gpu=8 cpu=8")
    c.gang("g", 3, "gpu=1 cpu=1", queue="a", min=1)
    usages = {u.queue: u for u in c.cycle().queues}
    assert usages["a"].allocated == {"nvidia.com/gpu": 3000, "cpu": 3000, "pods": 3}
    assert usages["a"].fair_share["nvidia.com/gpu"] == 3000
    assert usages["b"].fair_share == {}
    assert usages["top"].allocated == usages["a"].allocated
    assert usages["b"].allocated == {}
    assert c.cycle().queues == ()
    c.gang("h", 1, "gpu=9", queue="b")
    usages = {u.queue: u for u in c.cycle().queues}
    assert usages["b"].requested == {"nvidia.com/gpu": 9000, "pods": 1}
    assert usages["b"].fair_share["nvidia.com/gpu"] == 5000
    assert usages["top"].requested["nvidia.com/gpu"] == 12_000
    assert "a" not in usages


# ---------------------------------------------------------------------- bounds


def test_a_bounded_cycle_asks_to_be_called_again_at_once() -> None:
    c = Cluster(EngineConfig(binds_per_cycle=3)).queues("default").nodes("n1 gpu=8")
    for i in range(8):
        c.gang(f"g{i}", 1, "gpu=1")
    c.gang("last", 1, "gpu=9")
    sizes = []
    while True:
        decision = c.cycle()
        sizes.append(len(decision.binds))
        if decision.wake_at is None:
            break
        assert decision.wake_at == c.now
    assert sizes == [3, 3, 2]
    assert c.status["ns/last"].explanation is not None
    assert all(c.status[f"ns/g{i}"].scheduled == 1 for i in range(8))


def test_every_member_of_a_bucket_is_told_even_if_its_turn_never_came() -> None:
    c = Cluster(EngineConfig(binds_per_cycle=1)).queues("default").nodes("n1 gpu=2")
    for i in range(6):
        c.gang(f"g{i}", 1, "gpu=1")
    decision = c.cycle()
    while decision.wake_at is not None:
        decision = c.cycle()
    told = {key: s.explanation.code if s.explanation else None for key, s in c.status.items()}
    assert [told[f"ns/g{i}"] for i in range(6)] == [None, None, *["InsufficientResources"] * 4]


def test_a_gang_is_never_cut_by_the_bound() -> None:
    c = Cluster(EngineConfig(binds_per_cycle=1)).queues("default").nodes("n1 gpu=8")
    c.gang("g", 5, "gpu=1")
    assert len(c.cycle().binds) == 5


# ---------------------------------------------------------------------- pauses


def test_a_group_whose_binds_fail_pauses_longer_each_time() -> None:
    config = EngineConfig(backoff_seconds=2.0, backoff_cap_seconds=7.0)
    c = Cluster(config).queues("default").nodes("n1 gpu=1").gang("g", 1, "gpu=1")
    pauses = []
    for _ in range(4):
        decision = c.cycle(confirm=False)
        assert len(decision.binds) == 1
        c.fail_bind("g-0", "webhook said no")
        decision = c.cycle()
        assert decision.binds == ()
        assert decision.wake_at is not None
        pauses.append(decision.wake_at - c.now)
        assert c.code("g") == "BindFailed"
        assert c.cycle(seconds=pauses[-1] - 0.5).binds == ()
        c.now += 0.5 - 1.0
    assert pauses == [2.0, 4.0, 7.0, 7.0]


def test_others_use_the_room_while_a_group_pauses() -> None:
    c = Cluster().queues("default").nodes("n1 gpu=1").gang("g", 1, "gpu=1")
    c.cycle(confirm=False)
    c.fail_bind("g-0")
    c.gang("h", 1, "gpu=1")
    assert [b.group for b in c.cycle().binds] == ["ns/h"]


def test_success_forgets_the_failures() -> None:
    c = Cluster(EngineConfig(backoff_seconds=2.0)).queues("default").nodes("n1 gpu=1").gang("g", 1, "gpu=1")
    c.cycle(confirm=False)
    c.fail_bind("g-0")
    c.cycle()
    c.cycle(seconds=2.0)
    assert c.placed("g") == 1
    c.cycle()
    assert c.engine.state.groups["ns/g"].failures == 0


def test_a_pause_says_why_and_how_long() -> None:
    c = Cluster(EngineConfig(backoff_seconds=30.0)).queues("default").nodes("n1 gpu=1").gang("g", 1, "gpu=1")
    c.cycle(confirm=False)
    c.fail_bind("g-0", "admission webhook denied the request.")
    c.cycle()
    explanation = c.explain("g")
    assert explanation.waiting_helps == "yes"
    assert explanation.message == (
        "Starting it has failed 1 time (admission webhook denied the request); it is tried again in 30 s."
    )


def test_explain_of_an_unknown_group_is_an_error() -> None:
    with pytest.raises(KeyError):
        Cluster().engine.explain("ns/none", 0.0)


def test_explain_of_what_runs_is_nothing() -> None:
    c = Cluster().queues("default").nodes("n1").gang("g", 1)
    c.cycle()
    assert c.engine.explain("ns/g", c.now) is None


def test_the_actions_of_a_cycle_are_timed_where_somebody_wants_to_know() -> None:
    c = Cluster(EngineConfig(actions=("allocate", "preempt"))).queues("default").nodes("n1 gpu=2")
    c.gang("g", 2, "gpu=1")
    c.engine.stopwatch = iter(range(10)).__next__
    decision = c.cycle()
    assert c.engine.passes == (("allocate", 1, range(2)), ("preempt", 1, range(2, 2)))
    assert [decision.binds[at].group for at in c.engine.passes[0].binds] == ["ns/g"] * 2
