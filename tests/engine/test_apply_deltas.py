"""``engine.apply_deltas``: reports may lag behind decisions, repeat and come in any order."""

from __future__ import annotations

from typing import Any

import pytest
from cluster_dsl import Cluster, needs, node, queue
from msgspec.structs import replace as altered
from preemption_cluster import Arena

from windlass.engine import invariants
from windlass.engine.deltas import (
    BindFailed,
    EvictionFailed,
    GroupUpserted,
    NodeUpserted,
    QueueUpserted,
    TaskRemoved,
    TaskUpserted,
)
from windlass.engine.engine import Engine
from windlass.plugins.defaults import default_plugins
from windlass.spi.objects import Group, Task, TaskState


def one_bound(confirm: bool = True) -> Cluster:
    c = Cluster().queues("default").nodes("n1 gpu=4", "n2 gpu=4").gang("g", 1, "gpu=1")
    c.cycle(confirm=confirm)
    return c


def state(c: Cluster, name: str = "g-0") -> TaskState:
    return c.engine.state.tasks[f"ns/{name}"].state


def test_what_is_no_delta_is_refused() -> None:
    with pytest.raises(TypeError, match="not a delta"):
        Engine().apply(["nonsense"])  # type: ignore[list-item]


def test_objects_may_arrive_in_any_order() -> None:
    task = Task("ns/t", "u", "ns/g", needs("gpu=1"), state=TaskState.RUNNING, node="n1", devices=(3,))
    waits = Task("ns/w", "v", "ns/g", needs("gpu=1"))
    deltas = [
        NodeUpserted(node("n1 gpu=4")),
        QueueUpserted(queue("q parent=top")),
        QueueUpserted(queue("top")),
        GroupUpserted(Group("ns/g", queue="q", min_member=2)),
        TaskUpserted(task),
        TaskUpserted(waits),
    ]
    outcomes = []
    for turn in range(len(deltas)):
        for order in (deltas[turn:] + deltas[:turn], (deltas[turn:] + deltas[:turn])[::-1]):
            engine = Engine(plugins=default_plugins())
            engine.apply(order)
            invariants.check(engine)
            decision = engine.cycle(1.0)
            invariants.check(engine)
            outcomes.append((decision.binds, engine.state.queues.get("top").allocated))
    assert all(outcome == outcomes[0] for outcome in outcomes)
    assert [(b.task, b.node, b.devices[0].index) for b in outcomes[0][0]] == [("ns/w", "n1", 0)]


def test_a_stale_pending_report_does_not_undo_an_assumed_bind() -> None:
    c = one_bound(confirm=False)
    c.task(c.tasks["ns/g-0"])
    assert state(c) is TaskState.ASSUMED
    assert c.cycle().binds == ()


def test_a_change_of_needs_keeps_an_assumed_bind_with_its_devices() -> None:
    c = one_bound(confirm=False)
    c.change_task("g-0", needs=needs("gpu=1", labels={"app": "new"}))
    assert state(c) is TaskState.ASSUMED
    assert c.devices_of("g-0") == [0]
    c.cycle()


def test_confirmation_changes_nothing_that_is_reported() -> None:
    c = one_bound()
    assert state(c) is TaskState.BOUND
    c.cycle()
    c.change_task("g-0", state=TaskState.RUNNING)
    assert c.engine.state.dirty == {}, "nothing to look at"
    decision = c.cycle()
    assert (decision.groups, decision.queues) == ((), ())


def test_the_world_may_bind_elsewhere_than_decided() -> None:
    c = one_bound(confirm=False)
    c.change_task("g-0", node="n2", state=TaskState.BOUND, devices=(2,))
    assert c.where("g") == {"n2": 1}
    assert c.devices_of("g-0") == [2]
    c.cycle()


def test_the_devices_that_the_world_reports_count() -> None:
    c = one_bound(confirm=False)
    c.change_task("g-0", node="n1", state=TaskState.BOUND, devices=(3,))
    assert c.devices_of("g-0") == [3]
    c.gang("h", 1, "gpu=3")
    c.cycle()
    assert c.devices_of("h-0") == [0, 1, 2]


def test_tasks_bound_by_others_without_device_information_count_by_number() -> None:
    c = Cluster().queues("default").nodes("n1 gpu=4").running("x", "n1", "gpu=3")
    c.gang("g", 2, "gpu=1", min=1)
    c.cycle()
    assert c.placed("g") == 1


def test_more_indices_than_asked_for_are_not_all_believed() -> None:
    c = Cluster().queues("default").nodes("n1 gpu=2").running("x", "n1", "gpu=1", devices=(0, 1))
    c.gang("g", 1, "gpu=1")
    c.cycle()
    assert c.devices_of("g-0") == [1]


def test_a_new_incarnation_replaces_the_old() -> None:
    c = one_bound()
    c.task(Task("ns/g-0", "another", "ns/g", needs("gpu=2")))
    assert state(c) is TaskState.PENDING
    assert [b.uid for b in c.cycle().binds] == ["another"]
    c.engine.apply([TaskRemoved("ns/g-0", "uid-ns/g-0")])  # the old one's late removal
    assert "ns/g-0" in c.engine.state.tasks
    c.engine.apply([TaskRemoved("ns/g-0")])
    assert "ns/g-0" not in c.engine.state.tasks
    c.cycle()


def test_a_pending_task_that_is_being_deleted_is_not_placed() -> None:
    c = Cluster().queues("default").gang("g", 1)
    c.change_task("g-0", state=TaskState.RELEASING)
    c.nodes("n1")
    assert c.cycle().binds == ()
    assert c.code("g") == ""


@pytest.mark.parametrize("end", [TaskState.SUCCEEDED, TaskState.FAILED])
def test_an_ended_task_frees_its_node(end: TaskState) -> None:
    c = one_bound()
    c.change_task("g-0", state=end)
    c.gang("h", 8, "gpu=1")
    c.cycle()
    assert c.placed("h") == 8


def test_a_task_that_ends_before_it_was_ever_bound() -> None:
    c = Cluster().queues("default").gang("g", 1)
    c.change_task("g-0", state=TaskState.FAILED)
    c.nodes("n1")
    assert c.cycle().binds == ()
    c.remove_task("g-0")
    c.cycle()


def test_tasks_of_others_only_take_room() -> None:
    c = Cluster().queues("default").nodes("n1 gpu=2")
    c.task(Task("kube-system/x", "u", "", needs("gpu=1"), state=TaskState.RUNNING, node="n1"))
    c.gang("g", 2, "gpu=1", min=1)
    decision = c.cycle()
    assert len(decision.binds) == 1
    assert [q.queue for q in decision.queues] == ["default"]
    assert decision.queues[0].allocated["nvidia.com/gpu"] == 1000


def test_a_group_changes_its_queue_with_everything_it_holds() -> None:
    c = Cluster().queues("a", "b").nodes("n1 gpu=4").gang("g", 2, "gpu=1", queue="a", min=1)
    c.cycle()
    c.change_group("g", queue="b")
    c.cycle()
    state = c.engine.state
    assert state.queues.get("b").allocated["nvidia.com/gpu"] == 2000
    assert {n: u for n, u in state.queues.get("a").allocated.items() if u} == {}


def test_a_failure_report_that_does_not_fit_is_ignored() -> None:
    c = one_bound()
    c.engine.apply([BindFailed("ns/g-0", "uid-ns/g-0", "late")])  # already bound
    c.engine.apply([BindFailed("ns/none", "u", "unknown"), EvictionFailed("ns/none", "u", "unknown")])
    assert state(c) is TaskState.BOUND
    other = one_bound(confirm=False)
    for uid in ("a wrong uid", "wrong uid"):
        other.engine.apply([BindFailed("ns/g-0", uid, "no")])
    assert state(other) is TaskState.ASSUMED


def test_a_failed_eviction_of_another_incarnation_is_ignored() -> None:
    a = Arena("allocate", "preempt").node("n0", 1).queue("q", deserved=1)
    a.runs("low", "q", "n0:1", priority=40).waits("high", "q", 1, priority=60).cycle(follow=False)
    assert a.evicted == {"low-0"}
    for uid in ("a wrong uid", "wrong uid"):
        a.world.engine.apply([EvictionFailed("ns/low-0", uid, "no")])
        assert state(a.world, "low-0") is TaskState.RELEASING
    a.world.engine.apply([EvictionFailed("ns/low-0", a.world.tasks["ns/low-0"].uid, "no")])
    assert state(a.world, "low-0") is TaskState.RUNNING


@pytest.mark.parametrize("other", ["f", "h"])
def test_a_task_moves_to_another_group(other: str) -> None:
    c = one_bound()
    c.gang(other, 0, min=0)
    c.change_task("g-0", group=f"ns/{other}")
    c.cycle()
    assert (c.placed("g"), c.placed(other)) == (0, 1)


@pytest.mark.parametrize(
    ("change", "place"),
    [
        ({"priority": 1}, 0),
        ({"priority": -1}, 2),
        ({"role": "a"}, 0),
        ({"role": "z"}, 2),
        ({"index": -1}, 0),
        ({"index": 9}, 2),
    ],
)
def test_a_task_changes_its_place_in_the_group(change: dict[str, Any], place: int) -> None:
    c = Cluster().queues("default").gang("g", 3, "gpu=1", role="m")
    group = c.engine.state.groups["ns/g"]
    assert [entry.key for entry in group.waiting()].index("ns/g-m-1") == 1
    c.change_task("g-m-1", **change)
    assert [entry.key for entry in group.waiting()].index("ns/g-m-1") == place


@pytest.mark.parametrize(("old", "new"), [("a", "b"), ("b", "a")])
def test_a_running_task_changes_its_part(old: str, new: str) -> None:
    c = Cluster().queues("default").nodes("n1 gpu=4").parted("g", f"{old}:0=1 {new}:0")
    c.change_task(f"g-{old}-0", node="n1", state=TaskState.RUNNING)
    c.change_task(f"g-{old}-0", subgroup=new)
    parts = c.engine.state.groups["ns/g"].subgroups
    assert parts is not None
    assert (parts.of(old).held, parts.of(new).held) == (0, 1)


def test_groups_and_tasks_that_are_gone_leave_nothing_behind() -> None:
    c = Cluster().queues("default").nodes("n1 gpu=1").gang("g", 3, "gpu=1", queue="other", min=1)
    c.cycle()
    c.remove("g")
    c.cycle()
    state = c.engine.state
    assert (state.groups, state.tasks, c.engine.scheduling_queue.pending_classes) == ({}, {}, {})
    assert [q.name for q in state.queues] == ["default"]


def test_a_repeated_report_makes_no_work() -> None:
    c = one_bound()
    c.cycle()
    for _ in range(3):
        c.task(c.tasks["ns/g-0"])
        c.group(c.groups["ns/g"])
        c.nodes(c.node_specs["n1"])
        c.queues("default")
    assert c.engine.state.dirty == {}
    assert altered(c.cycle(), cycle=0) == altered(c.cycle(), cycle=0)


def test_pods_that_come_together_are_entered_as_if_one_by_one() -> None:
    small, large = needs("gpu=1"), needs("gpu=2")
    first = [Task(f"ns/a-{i}", f"a{i}", "ns/a", small, index=i) for i in range(4)]
    mixed = [
        Task("ns/b-0", "b0", "ns/b", small, index=3),
        Task("ns/b-1", "b1", "ns/b", small, index=1),
        Task("ns/b-0", "again", "ns/b", small),  # another incarnation of one that has just come
        Task("ns/b-2", "b2", "ns/b", large),
        Task("ns/b-3", "b3", "ns/b", large, gated=True),
        Task("ns/b-4", "b4", "ns/b", large, run_limit=60.0),
        Task("ns/b-5", "b5", "ns/b", large, state=TaskState.RUNNING, node="n1", devices=(0, 1)),
        Task("ns/b-1", "b1", "ns/b", small, index=0),  # told again, at another place
        Task("ns/c-0", "c0", "", small),
    ]
    deltas = [
        QueueUpserted(queue("default")),
        NodeUpserted(node("n1 gpu=8")),
        GroupUpserted(Group("ns/a", "default", min_member=4, created=1.0, uid="a")),
        *map(TaskUpserted, first),
        *map(TaskUpserted, mixed),
        GroupUpserted(Group("ns/b", "default", min_member=2, created=2.0, uid="b")),
        TaskUpserted(Task("ns/a-4", "a4", "ns/a", small, index=4)),
        TaskRemoved("ns/a-4"),
    ]
    together, single = Engine(plugins=default_plugins()), Engine(plugins=default_plugins())
    together.apply(deltas)
    for delta in deltas:
        single.apply([delta])
    for engine in (together, single):
        invariants.check(engine)
    assert list(together.state.tasks) == list(single.state.tasks)
    mine, other = together.cycle(1.0), single.cycle(1.0)
    assert mine.binds
    assert (mine.binds, mine.groups) == (other.binds, other.groups)
    for engine in (together, single):
        invariants.check(engine)


def test_a_policy_that_does_not_mind_a_class_does_not_constrain_it() -> None:
    c = Cluster().queues("default").nodes("n1 gpu=4", "n2 gpu=4").gang("g", 2, "gpu=1").gang("h", 1, "gpu=1")
    c.cycle()
    plugins = c.engine.state.plugins
    for cls in c.engine.state.classes:
        assert cls.domains == ()  # these pods are nothing to any of them
        assert not any(plugin.constrains(cls.number) for plugin in plugins.domains)


def test_that_a_group_is_let_in_as_is_known_is_no_news() -> None:
    c = Cluster().nodes("n1 gpu=1").gang("a", 1, "gpu=2")
    c.cycle()
    group = c.groups["ns/a"]
    c.change_group("a", admitted=True)
    assert not c.engine.state.dirty
    assert c.engine.state.groups["ns/a"].spec.admitted
    c.group(group)  # as it was, and something else beside
    assert not c.engine.state.dirty
    c.change_group("a", admitted=True, priority=1)
    assert list(c.engine.state.dirty) == ["ns/a"]


def test_where_an_action_lets_groups_in_that_one_is_let_in_is_news() -> None:
    c = Cluster().nodes("n1 gpu=4").gang("a", 1, "gpu=1")
    c.engine.state.gate.applies_to = lambda queue: True
    c.engine.state.ledger.dirty.clear()
    c.change_group("a", admitted=True)
    assert list(c.engine.state.dirty) == ["ns/a"]
