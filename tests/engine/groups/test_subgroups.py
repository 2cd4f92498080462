"""Gangs of parts: minima of sub-groups, trees of them, and what comes next."""

from __future__ import annotations

from collections import Counter

import pytest
from cluster_dsl import Cluster, needs

from windlass.engine.config import EngineConfig
from windlass.engine.groups.entries import NextTasks
from windlass.engine.groups.next_step import Shortage, next_step, whole_step_view
from windlass.engine.groups.subgroups import SubGroupTree
from windlass.spi.objects import Dialect, Group, SubGroup, TaskState


def by_part(c: Cluster, name: str = "g") -> dict[str, int]:
    """Part → placed tasks."""
    group = c.engine.state.groups[f"ns/{name}"]
    return dict(Counter(entry.task.subgroup for entry in group if entry.row >= 0))


def cluster(gpus: int) -> Cluster:
    return Cluster().queues("default").nodes(f"n1 gpu={gpus}")


SCENES = [
    ("each part reaches its minimum", 2, "a:1=2 b:1=2", None, {"a": 1, "b": 1}),
    ("extras come after all minima", 3, "a:1=3 b:1=1", None, {"a": 2, "b": 1}),
    ("one part short of room starts nothing", 2, "a:2=2 b:1=1", None, {}),
    ("parts of parts", 5, "ab:0 a:2>ab=2 b:2>ab=2 c:1=1", None, {"a": 2, "b": 2, "c": 1}),
    ("one of two parts may do", 2, "a:2=2 b:2=2", 1, {"a": 2}),
    ("the part that fits is found", 2, "a:3=3 b:2=2", 1, {"b": 2}),
    ("what can be done without comes as a whole", 3, "a:2=2 b:2=2", 1, {"a": 2}),
    ("and comes if there is room", 4, "a:2=2 b:2=2", 1, {"a": 2, "b": 2}),
    ("a part below its minimum goes before extras", 3, "a:1=3 b:1=1", 1, {"a": 2, "b": 1}),
    ("no part is needed: each comes whole", 3, "a:2=2 b:2=2", 0, {"a": 2}),
    ("extras go round", 4, "a:1=4 b:1=4", None, {"a": 2, "b": 2}),
    ("fullness is measured against the minimum", 6, "a:1=6 b:2=6", None, {"a": 2, "b": 4}),
]


@pytest.mark.parametrize(
    ("gpus", "parts", "needed", "placed"), [s[1:] for s in SCENES], ids=[s[0] for s in SCENES]
)
def test_scenes(gpus: int, parts: str, needed: int | None, placed: dict[str, int]) -> None:
    c = cluster(gpus).parted("g", parts, needed=needed)
    c.settle()
    assert by_part(c) == placed


def test_what_runs_counts_and_what_is_missing_comes_first() -> None:
    """One of two parts of a pair runs; the other pair needs both of its own."""
    c = cluster(4).parted("g", "ab:0/1 a:1>ab=1 b:1>ab=2 cd:0 c:1>cd=2 d:1>cd=2")
    c.change_task("g-a-0", state=TaskState.RUNNING, node="n1")
    c.cycle()
    assert by_part(c) == {"a": 1, "b": 1, "c": 1, "d": 1}


def test_the_branch_that_holds_least_beyond_its_needs_grows_first() -> None:
    c = cluster(7).parted("g", "ab:0/1 a:1>ab=4 b:1>ab=1 cd:0 c:1>cd=3 d:1>cd=1")
    for task in ("a-0", "a-1", "b-0", "c-0", "d-0"):
        c.change_task(f"g-{task}", state=TaskState.RUNNING, node="n1")
    c.cycle()
    assert by_part(c) == {"a": 2, "b": 1, "c": 3, "d": 1}


def test_who_waits_for_the_larger_part_is_woken_by_room_for_the_smaller() -> None:
    """And is not told that it can never have more, though the larger one never fits."""
    c = cluster(4).running("busy", "n1", "gpu=2").parted("g", "a:3=3 b:0=2 c:1=1", needed=1)
    for at in range(3):
        c.change_task(f"g-a-{at}", needs=needs("gpu=2"))
    for at in range(2):
        c.change_task(f"g-b-{at}", needs=needs("gpu=2"))
    c.settle()
    assert by_part(c) == {"c": 1}
    said = c.explain("g")
    assert said.code == "InsufficientResources"
    assert said.waiting_helps != "no"
    assert "must run together" not in said.message
    c.remove("busy")
    c.settle()
    assert by_part(c) == {"b": 1, "c": 1}


def test_the_group_may_ask_for_more_than_its_parts_and_starts_no_part_below_its_minimum() -> None:
    c = cluster(4).parted("g", "a:1=1 b:2=2", min=2, needed=1)
    c.cycle()
    assert by_part(c) == {"a": 1, "b": 2}
    c = cluster(2).parted("g", "a:1=1 b:2=2", min=2, needed=1)
    c.cycle()
    assert by_part(c) == {}, "one of b's two would not do, and a alone is too few"
    c = cluster(2).parted("g", "a:1=2 b:2=2", min=2, needed=1)
    c.cycle()
    assert by_part(c) == {"a": 2}


def test_gangs_that_lack_the_same_in_other_parts_do_not_stand_for_one_another() -> None:
    """The first cannot start one of two in its part; the one behind it, asking for as much, can."""
    c = cluster(2).parted("g", "a:3=3", min=2, needed=0).parted("h", "a:1=3", min=2, needed=0)
    c.cycle()
    assert (c.placed("g"), c.placed("h")) == (0, 2)


def test_tasks_of_no_part_belong_to_the_group() -> None:
    c = cluster(3).parted("g", "a:1=1", min=2).add_tasks("g", 2, "gpu=1")
    c.cycle()
    assert by_part(c) == {"a": 1, "": 2}


def test_members_that_ended_well_count_for_their_part() -> None:
    c = cluster(1).parted("g", "a:2=2 b:1=1")
    c.change_task("g-a-0", state=TaskState.SUCCEEDED)
    c.nodes("n1 gpu=2")
    c.cycle()
    assert by_part(c) == {"a": 1, "b": 1}


def test_a_part_is_promised_room_as_a_whole() -> None:
    c = cluster(4).running("old", "n1", "gpu=3")
    c.change_task("old-0", state=TaskState.RELEASING)
    c.parted("g", "a:2=2 b:1=1")
    decision = c.cycle()
    assert decision.binds == ()
    assert len(decision.nominations) == 3
    c.remove("old")
    assert len(c.cycle().binds) == 3


def test_extras_of_parts_are_promised_room_once_each() -> None:
    c = Cluster().queues("default").nodes("n1 gpu=4", "n2 gpu=2").running("old", "n1", "gpu=4")
    c.change_task("old-0", state=TaskState.RELEASING)
    c.parted("g", "a:1=3 b:1=4")
    decision = c.cycle()
    assert by_part(c) == {"a": 1, "b": 1}
    assert len({nomination.task for nomination in decision.nominations}) == len(decision.nominations) == 4
    assert c.engine.state.groups["ns/g"].nominations == 4
    c.remove("old")
    assert len(c.cycle().binds) == 4


def test_parts_on_different_nodes() -> None:
    c = Cluster().queues("default").nodes("n1 gpu=2 kind=x", "n2 gpu=2 kind=y")
    c.parted("g", "a:2 b:2")
    for part, kind in (("a", "x"), ("b", "y")):
        c.add_tasks("g", 2, needs("gpu=1", node_selector={"kind": kind}), role=part)
        for i in range(2):
            c.change_task(f"g-{part}-{i}", subgroup=part, role="")
    c.cycle()
    assert c.where("g") == {"n1": 2, "n2": 2}


def test_a_part_without_enough_tasks_is_named() -> None:
    c = cluster(4).parted("g", "a:2=1 b:1=1")
    c.cycle()
    assert c.code("g") == "WaitingForMembers"
    assert "1 of the 2 pods of sub-group a" in c.explain("g").message
    assert "lower the minimum of sub-group a to 1" in c.explain("g").remedies[0]
    c = cluster(4).parted("g", "a:1=1 b:1=0 c:2=0", needed=2)
    assert next_step(c.engine.state.groups["ns/g"]) == Shortage("", 2, 1, 0, counts_subgroups=True)
    c = cluster(4).parted("g", "a:0=1", needed=3)
    assert next_step(c.engine.state.groups["ns/g"]) == Shortage("", 3, 1, 0, counts_subgroups=True)


def test_gated_tasks_of_a_part_are_counted() -> None:
    c = cluster(4).parted("g", "a:2=2")
    c.change_task("g-a-1", gated=True)
    assert next_step(c.engine.state.groups["ns/g"]) == Shortage("", 2, 1, 1, "a")


def test_what_a_step_asks_for_in_sum() -> None:
    c = cluster(9).parted("g", "a:2=3 b:1/0=2", min=4)
    group = c.engine.state.groups["ns/g"]
    step = next_step(group)
    assert isinstance(step, NextTasks)
    assert step.members == 4
    view = whole_step_view(group, step)
    assert (view.tasks, view.request["nvidia.com/gpu"], view.elastic) == (4, 4000, False)
    c.cycle()
    c.nodes("n1 gpu=0")
    c.add_tasks("g", 1, "gpu=2")
    step = next_step(group)
    assert isinstance(step, NextTasks)
    assert whole_step_view(group, step).elastic


def test_members_of_a_part_count_for_their_roles_too() -> None:
    """The part's worker is the one worker that the group asks for: the other three may be anything."""
    c = cluster(9).parted("g", "a:1", min=4)
    c.change_group("g", min_task_member={"w": 1})
    c.add_tasks("g", 1, "gpu=1", role="w").add_tasks("g", 3, "gpu=1", role="x")
    c.change_task("g-w-0", subgroup="a")
    group = c.engine.state.groups["ns/g"]
    step = next_step(group)
    assert isinstance(step, NextTasks)
    assert whole_step_view(group, step).tasks == 4


def test_a_tree_that_bites_its_tail_hangs_from_the_group() -> None:
    parts = (SubGroup("a", "b", 1), SubGroup("b", "a", 1), SubGroup("c", "nowhere", 1))
    tree = SubGroupTree(Group("ns/g", subgroups=parts))
    assert sorted(part.name for part in tree.root.walk()) == ["", "a", "b", "c"]
    assert tree.of("nobody") is tree.root


def test_the_parts_may_change() -> None:
    c = cluster(3).parted("g", "a:2=2 b:2=1")
    c.cycle()
    assert by_part(c) == {}
    c.change_group("g", subgroups=(SubGroup("a", "", 2), SubGroup("b", "", 1)))
    c.cycle()
    assert by_part(c) == {"a": 2, "b": 1}
    assert c.engine.state.groups["ns/g"].ready()
    c.change_group("g", subgroups=())
    assert c.engine.state.groups["ns/g"].subgroups is None


def test_kai_gangs_of_parts_grow_in_turns() -> None:
    """Both have their minimum before either has more."""
    c = Cluster().queues("default").nodes("n1 gpu=6")
    for name in ("g", "h"):
        c.parted(name, "a:1=2 b:1=2")
        c.change_group(name, dialect=Dialect.KAI)
    c.cycle()
    assert (c.placed("g"), c.placed("h")) == (3, 3)


# ---------------------------------------------------------------------- pods that ask for nothing


def apart() -> Cluster:
    return Cluster(EngineConfig(best_effort_apart=True)).queues("default").nodes("n1 gpu=2")


def test_pods_that_ask_for_nothing_stand_for_members_where_they_are_placed_apart() -> None:
    c = apart().gang("g", 2, "gpu=1", min=3).add_tasks("g", 1, "", role="light")
    c.cycle()
    assert c.placed("g") == 2, "allocate leaves the pod that asks for nothing alone"
    assert next_step(c.engine.state.groups["ns/g"]) is None


def test_they_stand_for_their_role() -> None:
    c = apart().gang("g", 1, "gpu=1", min=2, roles={"w": 1, "light": 1}, role="w")
    c.cycle()
    assert c.placed("g") == 0
    c.add_tasks("g", 1, "", role="light")
    c.cycle()
    assert c.where("g") == {"n1": 1}


def test_elsewhere_they_are_members_like_any_other() -> None:
    c = Cluster().queues("default").nodes("n1 gpu=2").gang("g", 2, "gpu=1", min=3)
    c.add_tasks("g", 1, "", role="light")
    c.cycle()
    assert c.placed("g") == 3
    c = apart()
    c.gang("g", 1, "", min=1)
    c.change_group("g", dialect=Dialect.KAI)
    c.cycle()
    assert c.placed("g") == 1
