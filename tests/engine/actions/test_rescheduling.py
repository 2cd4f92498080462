"""``rescheduling``: who leaves loaded nodes, for which others, and who stays."""

from __future__ import annotations

from typing import Any

import pytest
from example_counts import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from rescheduling_cluster import (
    FIVE_MINUTES,
    arguments,
    measure,
    pass_interval,
    policy_of,
    relief_scene,
    run_on,
)
from tier_configurations import evicted

from windlass.engine.deltas import BudgetUpserted
from windlass.model.scheduler_config import parse
from windlass.plugins import registry
from windlass.spi.configuration import SchedulerConfig
from windlass.spi.objects import Dialect, Needs, SubGroup, Task, TaskState
from windlass.testing import Scene
from windlass.testing.scene import NAMESPACE


def two_nodes(given: dict[str, Any] | None = None) -> Scene:
    """Ten processors each; ``hot`` and ``cold``."""
    scene = relief_scene(given)
    for name in ("hot", "cold"):
        scene.node(name, cpu=10, memory_gib=10)
    return scene


LOADS = {"hot": (80.0, 30.0), "cold": (5.0, 5.0)}


def test_pods_leave_a_loaded_node_until_it_is_at_its_target_and_their_place_is_kept() -> None:
    scene = two_nodes()
    run_on(scene, "job", ["hot"] * 5, cpu=2, memory_gib=1)
    assert scene.cycle(FIVE_MINUTES - 2).evictions == ()
    decision = pass_interval(scene, 2, **LOADS)
    assert evicted(decision) == ["job-3", "job-4"]  # 80 - 2 * 20 is 40, and 5 + 2 * 20 is 45
    assert {n.node for n in decision.nominations} == {"cold"}
    (why,) = {eviction.reason for eviction in decision.evictions}
    assert why == (
        "node hot has a measured cpu load of 80 %, above its target of 50 % (plug-in rescheduling), and a node with "
        "little load takes the pod"
    )
    assert {(e.action, e.preemptor) for e in decision.evictions} == {("shuffle", "")}
    scene.cycle()
    assert scene.where("job") == {"cold": 2, "hot": 3}


def test_nobody_is_moved_before_an_interval_has_passed_nor_twice_in_one() -> None:
    scene = two_nodes()
    run_on(scene, "job", ["hot"] * 8)
    measure(scene, **LOADS)
    for _ in range(4):
        assert scene.cycle(60).evictions == ()
    assert pass_interval(scene, 60, **LOADS).evictions
    assert pass_interval(scene, 299, **LOADS).evictions == ()


@pytest.mark.parametrize(
    "loads",
    [
        pytest.param({"hot": (50.0, 50.0), "cold": (5.0, 5.0)}, id="nobody is above the targets"),
        pytest.param({"hot": (80.0, 30.0), "cold": (20.0, 5.0)}, id="nobody is below the thresholds"),
        pytest.param({"hot": (80.0, 30.0), "cold": (5.0, 45.0)}, id="one of the two is above the thresholds"),
        pytest.param({"hot": (80.0, 30.0)}, id="nothing is known of the other node"),
        pytest.param({"cold": (5.0, 5.0)}, id="nothing is known of the loaded node"),
        pytest.param({}, id="nothing is known"),
    ],
)
def test_nobody_leaves(loads: dict[str, tuple[float, float]]) -> None:
    scene = two_nodes()
    run_on(scene, "job", ["hot"] * 5, cpu=2)
    assert pass_interval(scene, **loads).evictions == ()


def test_figures_that_are_too_old_count_for_nothing() -> None:
    scene = two_nodes()
    run_on(scene, "job", ["hot"] * 5, cpu=2)
    measure(scene, scene.now - 1, **LOADS)
    assert scene.cycle(FIVE_MINUTES).evictions == ()
    assert pass_interval(scene, **LOADS).evictions


def test_a_node_that_is_closed_takes_nobody_and_still_gives() -> None:
    scene = two_nodes()
    run_on(scene, "job", ["hot"] * 5, cpu=2)
    scene.node("cold", cpu=10, memory_gib=10, schedulable=False)
    assert pass_interval(scene, **LOADS).evictions == ()
    scene.node("cold", cpu=10, memory_gib=10)
    scene.node("hot", cpu=10, memory_gib=10, schedulable=False)
    assert len(pass_interval(scene, **LOADS).evictions) == 2


def test_a_pod_that_would_load_the_other_node_above_the_target_stays_and_a_smaller_one_goes() -> None:
    scene = two_nodes()
    run_on(scene, "big", ["hot"], cpu=5, priority=1)
    run_on(scene, "small", ["hot"], cpu=4, priority=2)
    assert evicted(pass_interval(scene, **LOADS)) == ["small-0"]


def test_a_pod_stays_that_finds_no_room_on_the_other_node() -> None:
    """By what is asked for it is full, though little of that is used."""
    scene = two_nodes()
    run_on(scene, "idle", ["cold"], cpu=9)
    run_on(scene, "job", ["hot"] * 5, cpu=2)
    assert pass_interval(scene, **LOADS).evictions == ()


def test_a_pod_stays_that_does_not_ask_for_what_its_node_has_too_much_load_of() -> None:
    scene = two_nodes()
    run_on(scene, "cpu", ["hot"], cpu=3)
    run_on(scene, "memory", ["hot"], cpu=0, memory_gib=3, priority=9)
    assert evicted(pass_interval(scene, hot=(10.0, 80.0), cold=(5.0, 5.0))) == ["memory-0"]


def test_who_goes_first() -> None:
    """By priority, then quality of service; of equals who began last. The most loaded node comes first."""
    scene = two_nodes()
    scene.node("warm", cpu=10, memory_gib=10)
    run_on(scene, "lasting", ["hot"], cpu=1, started=10.0)
    run_on(scene, "young", ["hot"], cpu=1, started=20.0)
    run_on(scene, "guaranteed", ["hot"], cpu=1, started=30.0, guaranteed=True)
    run_on(scene, "nothing", ["hot"], cpu=0, started=1.0)
    run_on(scene, "dear", ["hot"], cpu=1, priority=5, started=40.0)
    run_on(scene, "there", ["warm"], cpu=1)
    decision = pass_interval(scene, hot=(95.0, 0.0), warm=(51.0, 0.0), cold=(0.0, 0.0))
    order = [eviction.task.rpartition("/")[2] for eviction in decision.evictions]
    assert order == ["nothing-0", "young-0", "lasting-0", "guaranteed-0", "dear-0"]
    # all of the loaded node; 2.5 + 4 * 10 is what the other has then, and 42.5 + 10 would be too much


def stays(scene: Scene) -> bool:
    return pass_interval(scene, **LOADS).evictions == ()


@pytest.mark.parametrize(
    "task_is",
    [{"owned": False}, {"preemptible": False}, {"critical": True}, {"group_is": {"preemptible": False}}],
    ids=["made anew by nobody", "not preemptible", "critical", "of a group that is not preemptible"],
)
def test_who_never_goes(task_is: dict[str, Any]) -> None:
    scene = two_nodes()
    run_on(scene, "job", ["hot"] * 5, cpu=2, **task_is)
    assert stays(scene)


def test_a_pod_stays_that_belongs_to_its_node() -> None:
    """A DaemonSet's: it would come back to where it was."""
    scene = two_nodes()
    needs = Needs((("cpu", 2000),), (("kubernetes.io/hostname", "hot"),), dialect=Dialect.VOLCANO)
    run_on(scene, "job", ["hot"] * 5, needs=needs)
    assert stays(scene)


def test_no_more_go_than_disruption_budgets_allow() -> None:
    scene = two_nodes()
    run_on(scene, "job", ["hot"] * 5, cpu=2, budgets=(f"{NAMESPACE}/pdb",))
    scene.engine.apply([BudgetUpserted(f"{NAMESPACE}/pdb", 1)])
    assert evicted(pass_interval(scene, **LOADS)) == ["job-4"]


def test_a_gang_keeps_its_minimum() -> None:
    scene = two_nodes()
    run_on(scene, "gang", ["hot"] * 4 + ["cold"], cpu=2, least=4)
    assert evicted(pass_interval(scene, hot=(95.0, 30.0), cold=(5.0, 5.0))) == ["gang-3"]


def test_a_gang_goes_whole_if_all_of_it_is_to_leave_and_finds_room() -> None:
    scene = two_nodes()
    run_on(scene, "gang", ["hot"] * 2, cpu=2, least=2)
    assert evicted(pass_interval(scene, **LOADS)) == ["gang-0", "gang-1"]
    scene.cycle()
    assert scene.where("gang") == {"cold": 2}


@pytest.mark.parametrize(
    "places", [["hot", "cold"], ["hot", "hot", "hot"]], ids=["a part is elsewhere", "too big"]
)
def test_else_it_stays_whole(places: list[str]) -> None:
    scene = two_nodes()
    run_on(scene, "gang", places, cpu=2, least=len(places))
    assert stays(scene)


@pytest.mark.parametrize(("least", "gone"), [(1, ["gang-1"]), (2, [])])
def test_a_part_of_a_gang_keeps_its_own_minimum(least: int, gone: list[str]) -> None:
    scene = two_nodes()
    parts = (SubGroup("a", min_members=least), SubGroup("b", min_members=1))
    run_on(scene, "gang", ["hot", "hot"], cpu=2, least=1, group_is={"subgroups": parts}, subgroup="a")
    key = f"{NAMESPACE}/gang"
    other = Task(
        f"{key}-9",
        f"{key}-9",
        key,
        scene._tasks[f"{key}-0"].needs,
        subgroup="b",
        node="cold",
        state=TaskState.RUNNING,
    )
    scene._enter(other)
    assert evicted(pass_interval(scene, hot=(60.0, 0.0), cold=(5.0, 0.0))) == gone


def test_what_was_moved_too_late_for_the_figures_counts_as_moved() -> None:
    """They are means over five minutes: right after the move they show what was before."""
    scene = two_nodes()
    run_on(scene, "job", ["hot"] * 5, cpu=2)
    assert len(pass_interval(scene, **LOADS).evictions) == 2
    scene.cycle()
    measure(scene, scene.now + 150, **LOADS)
    assert scene.cycle(FIVE_MINUTES - 1).evictions == ()
    assert len(pass_interval(scene, hot=(80.0, 5.0), cold=(5.0, 5.0)).evictions) == 2  # it was not the pods


def test_who_comes_in_the_place_of_a_moved_pod_avoids_loaded_nodes() -> None:
    """Even where nothing is kept for him: he is of another group."""
    scene = two_nodes()
    run_on(scene, "job", ["hot"], cpu=2)
    assert evicted(pass_interval(scene, **LOADS)) == ["job-0"]
    scene._leaving.clear()
    scene.finish("job")
    run_on(scene, "full", ["cold"], cpu=1)  # nodeorder likes the other node better
    scene.gang("next", cpu=2)
    scene.gang("other", cpu=1)
    measure(scene, **LOADS)
    scene.cycle(40)
    assert scene.where("next") == {"cold": 1}
    assert scene.where("other") == {"hot": 1}
    scene.gang("late", cpu=8)
    scene.cycle()
    assert scene.where("late") == {"hot": 1}


def test_he_goes_to_a_loaded_node_where_no_other_takes_him() -> None:
    scene = two_nodes()
    run_on(scene, "job", ["hot"], cpu=2)
    pass_interval(scene, **LOADS)
    scene._leaving.clear()
    scene.finish("job")
    run_on(scene, "full", ["cold"], cpu=9)
    scene.gang("next", cpu=2)
    measure(scene, **LOADS)
    scene.cycle(40)
    assert scene.where("next") == {"hot": 1}


CONF = """\
actions: "enqueue, allocate, backfill, shuffle"
tiers:
- plugins:
  - name: priority
  - name: gang
  - name: conformance
  - name: rescheduling
    arguments:
      interval: 5m
      metricsPeriod: 5m
      strategies:
      - name: offlineOnly
      - name: lowNodeUtilization
        params:
          thresholds:
            "cpu": 20
            "memory": 20
            "pods": 20
          targetThresholds:
            "cpu": 50
            "memory": 50
            "pods": 50
      queueSelector:
      - default
- plugins:
  - name: overcommit
  - name: drf
  - name: predicates
  - name: proportion
  - name: nodeorder
  - name: binpack
"""


def test_a_configuration_of_volcanos_as_it_stands() -> None:
    parsed = parse(CONF)
    warned: list[str] = []
    registry.build(parsed.config, warned.append)
    assert warned == []
    place = "rescheduling: tiers[0].plugins[3].arguments"
    assert [note for note in parsed.notes if "rescheduling" in note] == [
        f"line 12: {place}.strategies[0].name is 'offlineOnly', not the supported strategy, lowNodeUtilization: "
        "it is ignored",
        f"line 18: {place}.strategies[1].params.thresholds.pods has an effect in Volcano only",
        f"line 22: {place}.strategies[1].params.targetThresholds.pods has an effect in Volcano only",
        f"line 23: {place}.queueSelector has an effect in Volcano only",
    ]
    scene = Scene(config=parsed.config)
    scene.cycle()
    for name in ("hot", "cold"):
        scene.node(name, cpu=10, memory_gib=10)
    run_on(scene, "job", ["hot"] * 5, cpu=2)
    assert len(pass_interval(scene, **LOADS).evictions) == 2


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('actions: "allocate, shuffle"', "targetThresholds of cpu and memory are at least 100"),
        (f'actions: "allocate"\n{CONF.partition(chr(10))[2]}', "the action shuffle is not configured"),
        (
            CONF.replace("lowNodeUtilization", "bigObjectFirst"),
            "no pods are moved: no strategy is lowNodeUtilization",
        ),
    ],
)
def test_configuration_that_moves_no_pods_is_reported(text: str, told: str) -> None:
    if "tiers" not in text:
        text += "\ntiers:\n- plugins:\n  - name: rescheduling\n"
    config: SchedulerConfig = parse(text).config
    warned: list[str] = []
    registry.build(config, warned.append)
    assert any(told in one for one in warned), warned


@settings(max_examples=examples(60), deadline=None)
@given(st.data())
def test_nobody_is_moved_in_vain(data: st.DataObject) -> None:
    """Whoever goes was on a node above the targets, asks for some of what that has too much of, and has a place on a
    node that was low and stays within the targets; nobody goes of a gang that would be left below its minimum."""
    low, target = data.draw(st.integers(10, 60)), data.draw(st.integers(20, 90))
    scene = relief_scene(arguments(low, target))
    names = [f"n{at}" for at in range(data.draw(st.integers(2, 5)))]
    for name in names:
        scene.node(name, cpu=10, memory_gib=10)
    free = dict.fromkeys(names, (10, 10))
    groups: dict[str, tuple[int, tuple[int, int], list[str]]] = {}
    for at in range(data.draw(st.integers(1, 6))):
        asks = (data.draw(st.integers(0, 4)), data.draw(st.integers(0, 4)))
        places = []
        for _ in range(data.draw(st.integers(1, 4))):
            node = data.draw(st.sampled_from(names))
            left = (free[node][0] - asks[0], free[node][1] - asks[1])
            if min(left) >= 0:
                free[node] = left
                places.append(node)
        least = data.draw(st.integers(1, max(1, len(places))))
        groups[f"g{at}"] = (least, asks, places)
        run_on(
            scene, f"g{at}", places, cpu=asks[0], memory_gib=asks[1], least=least,
            priority=data.draw(st.integers(0, 2)), owned=data.draw(st.booleans()),
        )  # fmt: skip
    loads = {
        name: (float(data.draw(st.integers(0, 100))), float(data.draw(st.integers(0, 100)))) for name in names
    }
    held = {task.key: task.node for task in scene._tasks.values()}
    decision = pass_interval(scene, **loads)
    kept = {nomination.task: nomination.node for nomination in decision.nominations}
    then = {name: list(load) for name, load in loads.items()}
    gone: dict[str, int] = {}
    for eviction in decision.evictions:
        task = scene._tasks[eviction.task]
        least, asks, places = groups[task.group.rpartition("/")[2]]
        source, goal = held[task.key], kept[task.key]
        percent = [10.0 * units for units in asks] if any(asks) else [2.5, 200 / 1024 * 10]
        assert task.owned
        assert eviction.reason
        assert any(loads[source][at] > target and percent[at] > 0 for at in (0, 1))
        assert max(loads[goal]) < low
        for at in (0, 1):
            then[goal][at] += percent[at]
        gone[task.group] = gone.get(task.group, 0) + 1
    for name in set(kept.values()):
        assert max(then[name]) <= target + 1e-9
    for group, n in gone.items():
        least, _, places = groups[group.rpartition("/")[2]]
        assert n == len(places) or len(places) - n >= least
    if not any(max(load) > target for load in loads.values()):
        assert not gone
    assert set(kept) == {eviction.task for eviction in decision.evictions}


def test_the_policy_forgets_what_the_figures_show() -> None:
    scene = two_nodes()
    run_on(scene, "job", ["hot"] * 5, cpu=2)
    pass_interval(scene, **LOADS)
    assert len(policy_of(scene)._moves) == 2
    pass_interval(scene, 700, hot=(40.0, 5.0), cold=(40.0, 5.0))
    assert policy_of(scene)._moves == []
