"""The actions of a tiered configuration: preempt, reclaim, the gang actions, backfill."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from random import Random
from typing import Any

import pytest
from cluster_dsl import may_claim
from example_counts import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace as altered
from tier_configurations import BINPACK, SHIPPED, config, evicted, quiet

from windlass.api.reasons import Reason
from windlass.engine.deltas import (
    GroupUpserted,
    NodeUpserted,
    QueueUpserted,
    TaskUpserted,
)
from windlass.engine.engine import Engine
from windlass.plugins import registry
from windlass.spi.configuration import PluginOption, PluginTier, SchedulerConfig
from windlass.spi.nodes import NodeView
from windlass.spi.objects import (
    Dialect,
    Group,
    Needs,
    Node,
    Queue,
    SubGroup,
    Task,
    TaskState,
)
from windlass.spi.plugins import QueueView, Rejection, StepView
from windlass.spi.tiers import Tiers
from windlass.testing import Scene
from windlass.testing.scene import GPU, NAMESPACE

# ---------------------------------------------------------------------- preempt


def crowded(actions: str = "allocate preempt", tiers: str = SHIPPED, **rest: Any) -> Scene:
    """Four one-GPU nodes, all used by pods of two groups of low priority that need one each."""
    scene = Scene(config=config(actions, tiers, **rest))
    for n in range(4):
        scene.node(f"n{n}", gpu=1)
    scene.gang("a", pods=2, min_member=1, gpu=1)
    scene.gang("b", pods=2, min_member=1, gpu=1)
    scene.cycle()
    assert sum(scene.where("a").values()) + sum(scene.where("b").values()) == 4
    return scene


def test_a_gang_of_higher_priority_gets_its_room_and_keeps_it() -> None:
    scene = crowded()
    scene.gang("high", pods=2, gpu=1, priority=10)
    decision = scene.cycle()
    assert len(decision.evictions) == 2
    assert {e.action for e in decision.evictions} == {"preempt"}
    assert {e.preemptor for e in decision.evictions} == {"default/high"}
    assert len(decision.nominations) == 2
    assert scene.where("high") == {}
    scene.cycle()
    assert sum(scene.where("high").values()) == 2
    quiet(scene)


def test_nothing_is_evicted_for_a_gang_that_still_would_not_fit() -> None:
    scene = crowded()
    scene.gang("equal", pods=3, gpu=1)
    scene.gang("high", pods=5, gpu=1, priority=10)
    assert scene.cycle().evictions == ()
    quiet(scene)


def test_equal_priority_is_not_evicted() -> None:
    scene = crowded()
    scene.gang("equal", gpu=1)
    quiet(scene)


def test_gang_spares_what_a_minimum_needs() -> None:
    scene = crowded(tiers=SHIPPED.replace("gang-", "gang"))
    scene.gang("high", pods=2, gpu=1, priority=10)
    decision = scene.cycle()
    assert evicted(decision) == ["a-1", "b-1"] or len({name[0] for name in evicted(decision)}) == 2
    scene.gang("more", pods=1, gpu=1, priority=20)
    scene.cycle()
    assert sum(scene.where("a").values()) == sum(scene.where("b").values()) == 1


def test_without_conformance_and_with_it() -> None:
    for tiers, expected in ((SHIPPED, 0), (SHIPPED.replace("conformance", ""), 1)):
        scene = Scene(config=config("allocate preempt", tiers))
        scene.node("n0", gpu=1)
        key = f"{NAMESPACE}/system"
        needs = Needs(request=((GPU, 1000),), namespace=NAMESPACE, dialect=Dialect.VOLCANO)
        scene.engine.apply(
            [
                GroupUpserted(Group(key, uid=key, admitted=True)),
                TaskUpserted(Task(f"{key}-0", f"{key}-0", key, needs, critical=True)),
            ]
        )
        scene._tasks[f"{key}-0"] = Task(f"{key}-0", f"{key}-0", key, needs, critical=True)
        scene.cycle()
        scene.gang("high", gpu=1, priority=10)
        assert len(scene.cycle().evictions) == expected


def test_who_turns_out_not_to_be_needed_stays() -> None:
    """The youngest goes first, but the big one alone makes room."""
    scene = Scene(config=config("allocate preempt"))
    scene.node("n0", gpu=8)
    scene.gang("small", gpu=2, priority=1)
    scene.cycle()
    scene.gang("big", gpu=6, priority=2)
    scene.cycle()
    scene.gang("high", gpu=6, priority=10)
    assert evicted(scene.cycle()) == ["big-0"]


def test_who_went_for_one_pod_stays_if_what_another_pod_was_given_holds_both() -> None:
    """For the small pod ``near`` goes, then ``far`` for the large one, whose node has room for both."""
    scene = Scene(config=config("allocate preempt", "priority gang- | predicates"))
    scene.node("n0", gpu=1)
    scene.cycle()
    scene.gang("near", gpu=1)
    scene.cycle()
    scene.node("n1", gpu=4)
    scene.gang("far", gpu=4)
    scene.cycle()
    key = f"{NAMESPACE}/high"
    scene.engine.apply([GroupUpserted(Group(key, priority=9, min_member=2, uid=key, admitted=True))])
    for n, gpus in enumerate((1, 3)):
        needs = Needs(request=((GPU, 1000 * gpus),), namespace=NAMESPACE, dialect=Dialect.VOLCANO)
        scene._enter(Task(f"{key}-{n}", f"{key}-{n}", key, needs, index=n))
    assert evicted(scene.cycle()) == ["far-0"]
    scene.cycle()
    assert scene.where("high") == {"n1": 2}


def test_room_that_needs_nobody_to_go_is_taken_first() -> None:
    scene = Scene(config=config("preempt allocate"))
    scene.node("n0", gpu=1)
    scene.gang("low", gpu=1)
    scene.cycle()
    scene.node("n1", gpu=1)
    scene.gang("high", gpu=1, priority=10)
    decision = scene.cycle()
    assert decision.evictions == ()
    assert scene.where("high") == {"n1": 1}


def test_a_pod_of_the_same_group_goes_for_one_of_higher_priority() -> None:
    """Phase 2: with gang silent on starving, any missing replica starves."""
    tiers = (
        PluginTier(
            (
                PluginOption("priority"),
                PluginOption("gang", {"enableJobStarving": False, "enablePreemptable": False}),
            )
        ),
        PluginTier((PluginOption("predicates"), PluginOption("proportion"))),
    )
    scene = Scene(config=SchedulerConfig(("allocate", "preempt"), tiers))
    scene.node("n0", gpu=1)
    scene.gang("job", pods=1, min_member=1, gpu=1)
    scene.cycle()
    key = f"{NAMESPACE}/job"
    needs = Needs(request=((GPU, 1000),), namespace=NAMESPACE, dialect=Dialect.VOLCANO)
    chief = Task(f"{key}-chief", f"{key}-chief", key, needs, priority=5)
    scene._tasks[chief.key] = chief
    scene.engine.apply([TaskUpserted(chief)])
    assert evicted(scene.cycle()) == ["job-0"]
    scene.cycle()
    assert scene._tasks[chief.key].node == "n0"


def test_the_configuration_may_ask_for_volcanos_way_with_gangs() -> None:
    """Without the gang's pipelined vote Volcano evicts for a part of a gang."""
    tiers = "priority conformance | predicates proportion"
    for compatibility, expected in (("", 0), ("volcano", 4)):
        scene = crowded(tiers=tiers, compatibility=compatibility)
        scene.gang("high", pods=5, gpu=1, priority=10)
        assert len(scene.cycle().evictions) == expected


@pytest.mark.parametrize(("aware", "gone"), [(False, "bad-0"), (True, "good-0")])
def test_the_cheapest_of_several_nodes_on_request(aware: bool, gone: str) -> None:
    """The fuller node scores higher; on request the one whose victim counts less is taken."""
    arguments = {"enableTopologyAwarePreemption": aware, "minCandidateNodesPercentage": "100"}
    scene = Scene(
        config=config(
            "allocate preempt", "priority gang- | predicates binpack", preempt=arguments, binpack=BINPACK
        )
    )
    scene.node("n0", gpu=2)
    scene.gang("bad", gpu=2, priority=5)
    scene.cycle()
    scene.node("n1", gpu=3)
    scene.gang("good", gpu=2, priority=1)
    scene.cycle()
    assert scene.where("bad") == {"n0": 1}
    assert scene.where("good") == {"n1": 1}
    scene.gang("high", gpu=2, priority=10)
    assert evicted(scene.cycle()) == [gone]
    scene.cycle()
    assert sum(scene.where("high").values()) == 1


def test_a_gang_of_parts_gets_room_for_whole_parts() -> None:
    """Two parts of two pods each; room can be made for three pods only, so for none."""
    for lows, expected in ((3, 0), (4, 4)):
        scene = Scene(config=config("allocate preempt", "priority gang- | predicates capacity"))
        for n in range(4):
            scene.node(f"n{n}", gpu=1)
        scene.gang("low", pods=lows, min_member=1, gpu=1)
        scene.gang("firm", pods=4 - lows, min_member=0, gpu=1, priority=99)
        scene.cycle()
        key = f"{NAMESPACE}/high"
        parts = (SubGroup("a", min_members=2), SubGroup("b", min_members=2))
        scene.engine.apply(
            [GroupUpserted(Group(key, priority=9, min_member=3, subgroups=parts, uid=key, admitted=True))]
        )
        needs = Needs(request=((GPU, 1000),), namespace=NAMESPACE, dialect=Dialect.VOLCANO)
        for n in range(4):
            scene._enter(Task(f"{key}-{n}", f"{key}-{n}", key, needs, index=n, subgroup="ab"[n % 2]))
        assert len(scene.cycle().evictions) == expected
        scene.cycle()
        assert sum(scene.where("high").values()) == expected


def test_never_preempts() -> None:
    scene = crowded()
    key = f"{NAMESPACE}/high"
    scene.engine.apply([GroupUpserted(Group(key, priority=10, uid=key, admitted=True))])
    needs = Needs(request=((GPU, 1000),), namespace=NAMESPACE, dialect=Dialect.VOLCANO)
    task = Task(f"{key}-0", f"{key}-0", key, needs, priority=10, never_preempts=True)
    scene.engine.apply([TaskUpserted(task)])
    assert scene.cycle().evictions == ()


def test_drf_spares_groups_with_less_than_the_claimer() -> None:
    scene = Scene(config=config("allocate preempt", "gang- conformance | drf predicates nodeorder"))
    for n in range(4):
        scene.node(f"n{n}", gpu=1, cpu=0, memory_gib=0)
    scene.gang("lot", pods=3, min_member=1, gpu=1)
    scene.gang("little", pods=1, min_member=1, gpu=1)
    scene.cycle()
    scene.gang("new", pods=1, gpu=1)
    assert {name.partition("-")[0] for name in evicted(scene.cycle())} == {"lot"}
    scene.cycle()
    assert scene.where("new")
    assert scene.where("little")
    quiet(scene)


# ---------------------------------------------------------------------- reclaim


def shared(actions: str = "allocate reclaim", tiers: str | None = None, **rest: Any) -> Scene:
    """Two queues that deserve two GPUs each; the first uses all four."""
    tiers = tiers or "gang- conformance priority | predicates capacity nodeorder"
    scene = Scene(config=config(actions, tiers, **rest))
    scene.queue("rich", deserved_gpu=2)
    scene.queue("poor", deserved_gpu=2)
    for n in range(4):
        scene.node(f"n{n}", gpu=1)
    scene.gang("r", pods=4, min_member=1, gpu=1, queue="rich")
    scene.cycle()
    assert sum(scene.where("r").values()) == 4
    return scene


@pytest.mark.parametrize("share", ["capacity", "proportion"])
def test_a_queue_gets_back_what_it_deserves_and_no_more(share: str) -> None:
    scene = shared(tiers=f"gang- conformance priority | predicates {share} nodeorder")
    scene.gang("p", pods=3, min_member=1, gpu=1, queue="poor")
    for _ in range(6):
        scene.cycle()
    assert sum(scene.where("p").values()) in (1, 2)  # a minimum is reclaimed for; growth needs room
    quiet(scene)


def test_the_top_is_told_what_a_flat_division_gives_to_those_below_it() -> None:
    scene = Scene(config=config("allocate", "gang- priority | predicates proportion nodeorder"))
    for name, parent in (("root", ""), ("rich", "root"), ("poor", "root")):
        scene.queue(name, parent=parent)
    scene.node("n0", gpu=4)
    scene.gang("r", pods=4, min_member=1, gpu=1, queue="rich")
    scene.gang("p", pods=1, gpu=1, queue="poor")
    told = {usage.queue: usage.fair_share.get(GPU, 0) for usage in scene.cycle().queues}
    assert told == {"default": 0, "rich": 3000, "poor": 1000, "root": 4000}


def test_reclaim_needs_the_whole_gang_within_what_is_deserved() -> None:
    scene = shared()
    scene.gang("p", pods=3, gpu=1, queue="poor")
    assert scene.cycle().evictions == ()
    scene.gang("q", pods=2, gpu=1, queue="poor")
    decision = scene.cycle()
    assert len(decision.evictions) == 2
    assert {e.action for e in decision.evictions} == {"reclaim"}
    scene.cycle()
    assert sum(scene.where("q").values()) == 2
    quiet(scene)


def test_a_queue_that_is_not_reclaimable_keeps_what_it_has() -> None:
    scene = shared()
    rich = scene.engine.state.queues.get("rich").spec
    scene.engine.apply([QueueUpserted(replace(rich, reclaimable=False))])
    scene.gang("p", gpu=1, queue="poor")
    assert scene.cycle().evictions == ()


def test_two_queues_do_not_take_the_same_room_in_turns() -> None:
    scene = shared()
    scene.gang("p", pods=2, gpu=1, queue="poor")
    for _ in range(4):
        scene.cycle()
    assert sum(scene.where("p").values()) == 2
    assert sum(scene.where("r").values()) == 2
    quiet(scene)


def test_who_is_at_the_limit_of_the_queue_goes_though_there_is_room_on_nodes() -> None:
    scene = Scene(config=config("allocate preempt", "priority conformance | predicates capacity nodeorder"))
    scene.queue("q", limit_gpu=2)
    scene.node("n0", gpu=8)
    scene.gang("low", pods=2, min_member=1, gpu=1, queue="q")
    scene.cycle()
    scene.gang("high", gpu=1, queue="q", priority=10)
    assert len(scene.cycle().evictions) == 1
    scene.cycle()
    assert (scene.where("low"), scene.where("high")) == ({"n0": 1}, {"n0": 1})


class TwoAtMost:
    """A queue may hold two GPUs."""

    name = "two-at-most"

    def admits(self, step: StepView, path: Sequence[QueueView], nodes: NodeView) -> Rejection | None:
        held = path[0].committed.get(GPU, 0) + step.request.get(GPU, 0)
        return None if held <= 2000 else Rejection(Reason.WAITING_FOR_QUOTA)


def test_policies_of_the_sites_own_are_asked_before_anybody_goes() -> None:
    scene = Scene(
        TwoAtMost(), config=config("allocate preempt", "priority conformance | predicates nodeorder")
    )
    scene.node("n0", gpu=8)
    scene.gang("low", pods=2, min_member=1, gpu=1)
    scene.cycle()
    scene.gang("high", gpu=1, priority=10)
    assert len(scene.cycle().evictions) == 1
    scene.cycle()
    assert (scene.where("low"), scene.where("high")) == ({"n0": 1}, {"n0": 1})


# ---------------------------------------------------------------------- gang actions


def test_surplus_goes_before_whole_gangs() -> None:
    scene = Scene(config=config("allocate gangpreempt", "priority gang- conformance | predicates capacity"))
    for n in range(6):
        scene.node(f"n{n}", gpu=1)
    scene.gang("tight", pods=2, gpu=1)
    scene.gang("loose", pods=4, min_member=2, gpu=1)
    scene.cycle()
    scene.gang("high", pods=2, gpu=1, priority=5)
    assert {name.partition("-")[0] for name in evicted(scene.cycle())} == {"loose"}
    scene.cycle()
    scene.gang("higher", pods=2, gpu=1, priority=9)
    decision = scene.cycle()
    assert len(decision.evictions) == 2  # one of the whole gangs, nothing beside
    assert len({e.group for e in decision.evictions}) == 1


def test_whole_gangs_may_be_ruled_out() -> None:
    scene = Scene(
        config=config(
            "allocate gangpreempt",
            "priority gang- conformance | predicates capacity",
            gangpreempt={"allowWholeBundle": "false"},
        )
    )
    scene.node("n0", gpu=2)
    scene.gang("tight", pods=2, gpu=1)
    scene.cycle()
    scene.gang("high", pods=1, gpu=1, priority=5)
    assert scene.cycle().evictions == ()


# ---------------------------------------------------------------------- backfill


def test_pods_that_ask_for_nothing_start_no_part_of_their_gang() -> None:
    scene = Scene(config=config("enqueue allocate backfill"))
    scene.node("n0", gpu=1)
    scene.gang("mixed", pods=2, min_member=3, gpu=1)
    key = f"{NAMESPACE}/mixed"
    light = Task(f"{key}-light", f"{key}-light", key, Needs(namespace=NAMESPACE, dialect=Dialect.VOLCANO))
    scene._enter(light)
    scene.cycle()
    assert scene.where("mixed") == {}
    scene.node("n1", gpu=1)
    scene.cycle()
    assert sum(scene.where("mixed").values()) == 3


@pytest.mark.parametrize(("places", "started"), [(2, 0), (3, 3)])
def test_a_gang_that_asks_for_nothing_starts_whole_or_not_at_all(places: int, started: int) -> None:
    scene = Scene(config=config("enqueue allocate backfill"))
    scene.engine.apply([NodeUpserted(Node("n0", {"cpu": 8000, "pods": places}))])
    scene.gang("light", pods=3, min_member=3)
    scene.cycle()
    assert sum(scene.where("light").values()) == started
    quiet(scene)


def test_only_limits_hold_pods_that_ask_for_nothing_back() -> None:
    scene = Scene(config=config("enqueue allocate backfill"))
    scene.queue("default", limit_gpu=0)
    scene.node("n0", gpu=1)
    scene.gang("light", pods=3)
    scene.cycle()
    assert scene.where("light") == {"n0": 3}
    quiet(scene)


# ---------------------------------------------------------------------- shuffle


def test_pods_leave_revocable_nodes_when_their_hours_are_over() -> None:
    """The scene begins at 13:46:40 UTC."""
    arguments = {"tdm.revocable-zone.rz": "10:00-14:00"}
    scene = Scene(config=config("allocate shuffle", "priority gang | predicates tdm", tdm=arguments))
    scene.node("n0", gpu=2, labels={"volcano.sh/revocable-zone": "rz"})
    key = f"{NAMESPACE}/job"
    needs = Needs(request=((GPU, 1000),), namespace=NAMESPACE, dialect=Dialect.VOLCANO, revocable_zone="*")
    scene.engine.apply([GroupUpserted(Group(key, uid=key, min_member=1, admitted=True))])
    for n in range(2):
        scene._enter(Task(f"{key}-{n}", f"{key}-{n}", key, needs, index=n))
    scene.cycle()
    assert scene.where("job") == {"n0": 2}
    assert scene.cycle(60).evictions == ()
    (eviction,) = scene.cycle(20 * 60).evictions
    assert (eviction.action, eviction.preemptor) == ("shuffle", "")
    decision = scene.cycle(61)
    assert len(decision.evictions) == 1
    scene.cycle(61)
    assert scene.where("job") == {}


def test_no_more_leave_revocable_nodes_while_others_are_on_their_way_out() -> None:
    """A pod needs longer to terminate than the policy waits between two looks."""
    arguments = {"tdm.revocable-zone.rz": "10:00-11:00"}
    scene = Scene(config=config("allocate shuffle", "priority gang | predicates tdm", tdm=arguments))
    scene.node("n0", gpu=3, labels={"volcano.sh/revocable-zone": "rz"})
    key, notes = f"{NAMESPACE}/job", {"volcano.sh/jdb-max-unavailable": "1"}
    needs = Needs(request=((GPU, 1000),), namespace=NAMESPACE, dialect=Dialect.VOLCANO, revocable_zone="*")
    scene.engine.apply([GroupUpserted(Group(key, uid=key, min_member=1, admitted=True, annotations=notes))])
    pods = [Task(f"{key}-{n}", f"{key}-{n}", key, needs, index=n, node="n0") for n in range(3)]
    for task in pods:
        scene._enter(altered(task, state=TaskState.RUNNING))
    (eviction,) = scene.engine.cycle(scene.now).evictions
    leaving = next(task for task in pods if task.key == eviction.task)
    scene.engine.apply([TaskUpserted(altered(leaving, state=TaskState.RELEASING))])
    assert scene.engine.cycle(scene.now + 61).evictions == ()
    scene.engine.apply([TaskUpserted(altered(leaving, state=TaskState.SUCCEEDED))])
    assert len(scene.engine.cycle(scene.now + 122).evictions) == 1


# ---------------------------------------------------------------------- always


@settings(max_examples=examples(25), deadline=None)
@given(st.data())
def test_preempt_against_all_sets_of_victims(data: st.DataObject) -> None:
    """One-class claimers on tiny clusters: evicted is exactly where some set of lower pods makes room for the
    whole gang, nobody goes in vain, and the gang then starts."""
    scene = Scene(config=config("allocate preempt", "priority gang- conformance | predicates nodeorder"))
    sizes = [data.draw(st.integers(1, 4)) for _ in range(data.draw(st.integers(1, 3)))]
    for n, gpus in enumerate(sizes):
        scene.node(f"n{n}", gpu=gpus)
    for n in range(data.draw(st.integers(0, 6))):
        scene.gang(f"low{n}", gpu=data.draw(st.integers(1, 2)), priority=data.draw(st.integers(0, 2)))
        scene.cycle()
    waiting_still = [task for task in scene._tasks.values() if not task.node]
    for task in waiting_still:
        scene.finish(task.key.removeprefix(f"{NAMESPACE}/").rpartition("-")[0])
    scene.cycle()
    free = {f"n{n}": gpus for n, gpus in enumerate(sizes)}
    lower: dict[str, list[tuple[str, int]]] = {name: [] for name in free}
    priority, each, pods = (data.draw(st.integers(*bounds)) for bounds in ((1, 3), (1, 3), (1, 4)))
    for task in scene._tasks.values():
        if task.node:
            size = dict(task.needs.request)[GPU] // 1000
            free[task.node] -= size
            if task.priority < priority:
                lower[task.node].append((task.key, size))

    def holds(gone: set[str]) -> int:
        return sum(
            (room + sum(size for key, size in lower[name] if key in gone)) // each
            for name, room in free.items()
        )

    everybody = {key for tasks in lower.values() for key, _ in tasks}
    scene.gang("high", pods=pods, gpu=each, priority=priority)
    decision = scene.cycle()
    gone = {eviction.task for eviction in decision.evictions}
    assert bool(gone) == (holds(set()) < pods <= holds(everybody))
    assert gone <= everybody
    if gone:
        assert holds(gone) >= pods
        assert all(holds(gone - {one}) < pods for one in gone)
        scene.cycle()
        assert sum(scene.where("high").values()) == pods


@settings(max_examples=examples(20), deadline=None)
@given(st.data())
def test_it_comes_to_rest_and_no_claimer_loses(data: st.DataObject) -> None:
    """Random queues and gangs under every evicting action: evictions are for someone who then has the
    room, and after at most a few cycles nothing moves any more."""
    actions = data.draw(st.sampled_from(["allocate preempt reclaim", "allocate gangpreempt gangreclaim"]))
    share = data.draw(st.sampled_from(["capacity", "proportion"]))
    scene = Scene(config=config(f"enqueue {actions} backfill", SHIPPED.replace("proportion", share)))
    for n in range(data.draw(st.integers(1, 4))):
        scene.node(f"n{n}", gpu=data.draw(st.integers(1, 4)))
    for name in ("qa", "qb"):
        scene.queue(name, deserved_gpu=data.draw(st.integers(0, 4)), weight=data.draw(st.integers(1, 3)))
    for n in range(data.draw(st.integers(1, 6))):
        pods = data.draw(st.integers(1, 4))
        scene.gang(
            f"g{n}",
            pods=pods,
            min_member=data.draw(st.integers(1, pods)),
            gpu=data.draw(st.integers(1, 2)),
            queue=data.draw(st.sampled_from(["qa", "qb"])),
            priority=data.draw(st.integers(0, 2)),
        )
        if data.draw(st.booleans()):
            scene.cycle()
    for _ in range(90):
        before = {key: group.held_members for key, group in scene.engine.state.groups.items()}
        decision = scene.cycle()
        served = {n.task.rpartition("-")[0] for n in (*decision.nominations, *decision.binds)}
        for eviction in decision.evictions:
            assert eviction.preemptor in served
            assert scene.engine.state.groups[eviction.preemptor].held_members >= before[eviction.preemptor]
        done = decision.binds or decision.evictions or decision.nominations
        if not done and not may_claim(decision, scene.now):
            break
    else:
        raise AssertionError("no rest after 90 cycles")
    quiet(scene, 3)


KAI_QUEUES = (("kai/top", ""), ("kai/x", "kai/top"))
ACTIONS = (
    "allocate preempt reclaim",
    "allocate gangpreempt gangreclaim",
    "preempt allocate reclaim backfill",
)


@settings(max_examples=examples(20), deadline=None)
@given(st.randoms(use_true_random=False))
def test_both_apis_in_one_cluster_come_to_rest(random: Random) -> None:
    """Volcano's queues by tiers, KAI's by KAI's rules, over the same nodes."""
    share = random.choice(["capacity", "proportion"])
    scene = Scene(config=config(f"enqueue {random.choice(ACTIONS)}", SHIPPED.replace("proportion", share)))
    for n in range(random.randint(1, 4)):
        scene.node(f"n{n}", gpu=random.randint(1, 4))
    scene.queue("root")
    scene.queue("va", parent="root", deserved_gpu=random.randint(0, 3))
    scene.queue("vb", parent="root", weight=2)
    for name, parent in KAI_QUEUES:
        due = {GPU: random.randint(0, 3) * 1000}
        scene.engine.apply([QueueUpserted(Queue(name, parent, deserved=due, dialect=Dialect.KAI))])
    for n in range(random.randint(1, 7)):
        queue = random.choice(["va", "vb", "kai/x"])
        dialect = Dialect.KAI if queue.startswith("kai/") else Dialect.VOLCANO
        pods, key = random.randint(1, 3), f"{NAMESPACE}/g{n}"
        group = Group(
            key,
            queue=queue,
            priority=random.randint(0, 2),
            min_member=random.randint(1, pods),
            created=float(n + 1),
            uid=key,
            admitted=True,
            dialect=dialect,
        )
        scene.engine.apply([GroupUpserted(group)])
        for i in range(pods):
            request = ((GPU, random.randint(1, 2) * 1000),)
            needs = Needs(request=request, namespace=NAMESPACE, dialect=dialect)
            scene._enter(Task(f"{key}-{i}", f"{key}-{i}", key, needs, index=i))
        if random.random() < 0.5:
            scene.cycle()
    for _ in range(90):
        decision = scene.cycle()
        done = decision.binds or decision.evictions or decision.nominations
        if not done and not may_claim(decision, scene.now):
            break
    else:
        raise AssertionError("no rest after 90 cycles")
    quiet(scene, 3)


def test_volcanos_roots_divide_what_kais_leave_over() -> None:
    """Also when nothing but the demand below one of several roots has moved."""
    scene = Scene(config=config("allocate", SHIPPED))
    scene.node("n0", gpu=4)
    scene.queue("root")
    scene.queue("va", parent="root")
    for name, parent in KAI_QUEUES:
        scene.engine.apply([QueueUpserted(Queue(name, parent, deserved={GPU: 3000}, dialect=Dialect.KAI))])
    key = f"{NAMESPACE}/kai"
    needs = Needs(request=((GPU, 3000),), namespace=NAMESPACE, dialect=Dialect.KAI)
    group = Group(key, queue="kai/x", uid=key, admitted=True, dialect=Dialect.KAI)
    scene.engine.apply([GroupUpserted(group)])
    scene._enter(Task(f"{key}-0", f"{key}-0", key, needs))
    for n in range(3):
        scene.gang(f"g{n}", gpu=1, queue="va")
        scene.cycle()
        assert scene.engine.state.queues.get("va").fair_share[GPU] == 1000


@pytest.mark.parametrize(
    ("arguments", "compared"),
    [
        ({}, 0),
        ({"enableTopologyAwarePreemption": "true"}, 10),
        ({"enableTopologyAwarePreemption": "true", "minCandidateNodesPercentage": 5}, 5),
        ({"enableTopologyAwarePreemption": "true", "minCandidateNodesAbsolute": 40}, 40),
        ({"enableTopologyAwarePreemption": "true", "maxCandidateNodesAbsolute": 3}, 3),
    ],
)
def test_among_how_many_nodes_the_cheapest_victims_are_looked_for(
    arguments: dict[str, object], compared: int
) -> None:
    scene = Scene(config=config("allocate preempt", preempt=arguments))
    for n in range(100):
        scene.node(f"n{n}", gpu=1)
    (action,) = [a for a in scene.engine._actions if a.name == "volcano-preempt"]
    (tiers,) = [p for p in scene.engine.state.plugins.plugins if isinstance(p, Tiers)]
    assert action._compared_nodes(tiers) == compared


def test_a_copy_pauses_as_long_as_the_original() -> None:
    """It knew nothing of who had claimed in vain, and claimed at once."""
    scene = crowded()
    scene.gang("equal", gpu=1)
    scene.cycle()
    original = scene.engine
    group = original.state.groups["default/a"].spec
    original.apply([GroupUpserted(altered(group, priority=-1))])  # now it is less than equal
    copy = Engine.load(original.dump(), registry.build(config("allocate preempt"), lambda _: None)[0])
    pausing = original.cycle(scene.now + 0.1)
    assert copy.cycle(scene.now + 0.1) == pausing
    assert pausing.evictions == ()
    for engine in (original, copy):
        assert evicted(engine.cycle(pausing.wake_at or 0.0)) == ["a-0"]
