"""A LeaderWorkerSet step by step: groups, restarts, updates, and crashes between any two writes."""

from __future__ import annotations

import contextlib
import copy
from typing import Any

from example_counts import examples
from fakeapi import Crash
from hypothesis import given, settings
from hypothesis import strategies as st
from leaderworkerset_cluster import LeaderWorkerSetWorld, group_template

from windlass.api.fields import leaderworkerset
from windlass.api.resources import CONTROLLER_REVISIONS, POD_GROUPS, PODS, SERVICES, STATEFUL_SETS


def test_groups_are_gangs_of_a_leader_and_its_workers() -> None:
    world = LeaderWorkerSetWorld()
    world.settle()
    names = ["llm-0", "llm-0-1", "llm-0-2", "llm-1", "llm-1-1", "llm-1-2"]
    assert sorted(world.uids()) == names
    groups = world.api.objects(POD_GROUPS)
    assert [one["spec"]["minMember"] for one in groups] == [3, 3]
    assert groups[0]["spec"]["minResources"] == {"cpu": "3"}
    used = {one["metadata"]["annotations"]["scheduling.k8s.io/group-name"] for one in world.api.objects(PODS)}
    assert used == {one["metadata"]["name"] for one in groups}
    assert {"replicas": 2, "readyReplicas": 2, "updatedReplicas": 2}.items() <= world.status.items()
    assert world.conditions() == {"Available"}
    assert world.status["hpaPodSelector"].endswith("worker-index=0")
    world.change(replicas=1)
    world.settle()
    assert sorted(world.uids()) == names[:3]
    assert len(world.api.objects(POD_GROUPS)) == 1


def test_w17_many_changes_of_the_number_of_groups_recreate_no_pod() -> None:
    """grove#565: six patches within 20 s restarted the gangs."""
    world = LeaderWorkerSetWorld()
    world.settle()
    before = world.uids()
    for replicas in (3, 2, 4, 2, 5, 2):
        world.change(replicas=replicas)
        world.settle()
    assert world.uids() == before


def test_a_restarted_container_recreates_its_group_only() -> None:
    world = LeaderWorkerSetWorld()
    world.settle()
    before = world.uids()
    world.restart_container("llm-1-2")
    world.settle()
    after = world.uids()
    assert {name for name in before if before[name] == after[name]} == {"llm-0", "llm-0-1", "llm-0-2"}
    assert world.conditions() == {"Available"}


def test_a_worker_that_was_replaced_between_two_looks_recreates_its_group() -> None:
    world = LeaderWorkerSetWorld()
    world.settle()
    before = world.uids()
    world.replace_unseen("llm-1-2")
    world.settle()
    after = world.uids()
    assert {name for name in before if before[name] == after[name]} == {"llm-0", "llm-0-1", "llm-0-2"}
    assert world.conditions() == {"Available"}
    assert set(before) == set(after)


def test_groups_stay_without_a_restart_policy_and_until_all_pods_have_started() -> None:
    for policy, pending, recreated in (
        ("None", False, False),
        (leaderworkerset.RECREATE_AFTER_START, True, False),
        (leaderworkerset.RECREATE_AFTER_START, False, True),
    ):
        world = LeaderWorkerSetWorld(restartPolicy=policy)
        world.settle()
        before = world.uids()
        if pending:
            world.api.change(PODS, "default/llm-0-2", status={"phase": "Pending"})
        world.restart_container("llm-0-1")
        world.settle()
        assert (before["llm-0"] != world.uids()["llm-0"]) is recreated, (policy, pending)


def test_an_update_replaces_groups_and_leaves_those_below_the_partition() -> None:
    world = LeaderWorkerSetWorld()
    world.settle()
    rolling = {"partition": 1, "maxUnavailable": 1, "maxSurge": 0}
    strategy = {"type": "RollingUpdate", "rollingUpdateConfiguration": rolling}
    world.change(leaderWorkerTemplate=group_template("v2"), rolloutStrategy=strategy)
    world.settle()
    assert world.images() == {name: "v2" if name.startswith("llm-1") else "v1" for name in world.uids()}
    world.restart_container("llm-0-2")
    world.settle()
    assert world.images()["llm-0-1"] == "v1"  # from the revision of its leader
    rolling["partition"] = 0
    world.change(rolloutStrategy=strategy)
    world.settle()
    assert set(world.images().values()) == {"v2"}
    assert world.conditions() == {"Available"}
    assert len(world.api.objects(CONTROLLER_REVISIONS)) == 1


def test_workers_may_wait_for_a_ready_leader_and_have_a_service_of_their_own() -> None:
    world = LeaderWorkerSetWorld()
    world.change(startupPolicy="LeaderReady", networkConfig={"subdomainPolicy": "UniquePerReplica"})
    world.settle()
    assert {one["metadata"]["name"] for one in world.api.objects(SERVICES)} == {"llm", "llm-0", "llm-1"}
    assert {one["spec"]["minMember"] for one in world.api.objects(POD_GROUPS)} == {1}
    pod = world.api.object(PODS, "default/llm-1-2")
    assert pod is not None
    assert pod["spec"]["containers"][0]["env"][0]["value"] == "llm-1.llm-1.default"
    assert len(world.uids()) == 6


EVENTS = st.one_of(
    st.tuples(st.just("scale"), st.integers(0, 3)),
    st.tuples(st.just("image"), st.sampled_from(["v1", "v2"])),
    st.tuples(st.just("restart"), st.sampled_from(["llm-0", "llm-0-1", "llm-1-2"])),
)


@settings(max_examples=examples(20), deadline=None)
@given(history=st.lists(st.tuples(EVENTS, st.lists(st.integers(0, 6), max_size=3)), max_size=4))
def test_crashes_change_nothing(history: Any) -> None:
    calm, stormy = LeaderWorkerSetWorld(), LeaderWorkerSetWorld()
    for (word, what), crashes in [(("scale", 2), [0, 1, 2]), *history]:
        for world in (calm, stormy):
            if word == "scale":
                world.change(replicas=what)
            elif word == "image":
                world.change(leaderWorkerTemplate=group_template(what))
            elif world.api.object(PODS, f"default/{what}") is not None:
                world.restart_container(what)
        calm.settle()
        for writes in crashes:
            stormy.api.crash_after = writes
            with contextlib.suppress(Crash):
                stormy.reconcile()
            stormy.restart()
        stormy.settle()
        assert picture(stormy) == picture(calm)


def picture(world: LeaderWorkerSetWorld) -> Any:
    found = []
    for resource in (PODS, STATEFUL_SETS, POD_GROUPS, SERVICES):
        for obj in world.api.objects(resource):
            spec = copy.deepcopy(obj["spec"])
            found.append((resource.kind, obj["metadata"]["name"], obj["metadata"].get("labels"), spec))
    status = {key: world.status[key] for key in ("readyReplicas", "replicas", "updatedReplicas")}
    return sorted(found, key=str), status, world.conditions()
