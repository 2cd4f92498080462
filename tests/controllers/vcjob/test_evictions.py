"""Volcano Jobs whose pods were taken away, or that wait or fail for longer than they may."""

from __future__ import annotations

import asyncio

from vcjob_cluster import KEY, gang, started

from windlass.api.resources import POD_GROUPS, PODS, VOLCANO_JOBS


def test_a_pod_that_was_taken_away_is_an_eviction() -> None:
    world = started(policies=[{"event": "PodEvicted", "action": "RestartJob"}])
    world.take_away("train-worker-1")
    world.reconcile()
    assert world.phase == "Restarting"
    assert world.status["state"]["reason"] == "PodEvicted"


ATTAINED = {
    "windlass.dev/attained": "11m40s",
    "windlass.dev/attained-at": "2026-01-01T12:30:00Z",
    "windlass.dev/suspensions": "1",
}


def test_what_a_suspended_job_attained_stands_on_its_next_group() -> None:
    world = started(policies=[{"event": "PodEvicted", "action": "RestartJob"}])
    assert world.group is not None
    first = world.group["metadata"]
    world.api.change(POD_GROUPS, world.group_key, metadata={"annotations": ATTAINED})
    for _ in range(2):
        world.take_away("train-worker-1")
        world.converge()
        notes = world.group["metadata"]["annotations"]
        assert world.group["metadata"]["uid"] != first["uid"]
        assert {name: notes.get(name) for name in ATTAINED} == ATTAINED
        assert notes["windlass.dev/attained-since"] == first["creationTimestamp"]
    assert notes["volcano.sh/job-version"] == "2"


def test_what_is_written_on_a_group_as_it_goes_is_seen_before_it_goes() -> None:
    world = started(policies=[{"event": "PodEvicted", "action": "RestartJob"}])
    world.take_away("train-worker-1")
    decided = asyncio.run(world.controller.reconcile(KEY))
    world.api.change(POD_GROUPS, world.group_key, metadata={"annotations": ATTAINED})
    outcome = asyncio.run(world.executor.perform(decided))
    assert [failure.conflict for failure in outcome.failures] == [True]
    assert (world.phase, "windlass.dev/attained" in world.status["controlledResources"]) == (
        "Restarting",
        False,
    )
    world.converge()
    assert world.group is not None
    assert world.group["metadata"]["annotations"]["windlass.dev/attained"] == "11m40s"


def test_a_job_that_attained_nothing_hands_nothing_on() -> None:
    world = started(policies=[{"event": "PodEvicted", "action": "RestartJob"}])
    world.take_away("train-worker-1")
    world.converge()
    assert world.group is not None
    assert not [name for name in world.group["metadata"]["annotations"] if "attained" in name]


def test_without_a_policy_it_is_only_replaced() -> None:
    world = started()
    world.take_away("train-worker-1")
    world.settle()
    assert "train-worker-1" in world.pods()
    assert world.status.get("retryCount", 0) == 0


def test_an_eviction_in_grace_counts_when_the_pod_is_gone() -> None:
    world = started(policies=[{"event": "PodEvicted", "action": "RestartJob"}])
    world.api.change(PODS, "default/train-worker-1", metadata={"deletionTimestamp": "2026-01-01T12:00:30Z"})
    world.settle()
    assert (world.phase, world.status["terminating"]) == ("Running", 1)
    world.take_away("train-worker-1")
    world.reconcile()
    assert world.phase == "Restarting"


def test_pods_removed_by_scaling_down_were_not_evicted() -> None:
    world = started(workers=4, policies=[{"event": "PodEvicted", "action": "RestartJob"}])
    tasks = world.job["spec"]["tasks"]
    world.api.change(VOLCANO_JOBS, "default/train", spec={"tasks": [{**tasks[0], "replicas": 2}]})
    world.converge()
    assert world.phase == "Running"
    assert world.pods() == ["train-worker-0", "train-worker-1"]


def test_an_eviction_can_be_answered_later() -> None:
    policies = [{"event": "PodEvicted", "action": "RestartJob", "timeout": "10m"}]
    world = started(policies=policies)
    world.take_away("train-worker-1")
    world.settle()
    assert "train-worker-1" in world.pods()  # replaced meanwhile
    assert world.status["controlledResources"]["timer/train-worker-1"] == "PodEvicted@2026-01-01T12:00:00Z"
    assert world.last.requeue_after == 600
    world.pass_time(599)
    world.settle()
    assert world.phase == "Pending"
    world.pass_time(1)
    world.reconcile()
    assert world.phase == "Restarting"
    assert "timer/train-worker-1" not in world.status["controlledResources"]


def test_the_later_answer_is_off_when_the_pod_runs_again() -> None:
    policies = [{"event": "PodEvicted", "action": "RestartJob", "timeout": "10m"}]
    world = started(policies=policies)
    world.take_away("train-worker-1")
    world.settle()
    world.run("train-worker-1")
    world.settle()
    assert world.phase == "Running"
    assert "timer/train-worker-1" not in world.status["controlledResources"]
    world.pass_time(1000)
    world.settle()
    assert world.phase == "Running"


def test_pending_for_too_long() -> None:
    world = gang(policies=[{"event": "PodPending", "action": "TerminateJob", "timeout": "5m"}])
    world.settle()
    world.admit()
    world.settle()
    assert world.last.requeue_after == 300
    world.pass_time(299)
    world.settle()
    assert world.phase == "Pending"
    world.pass_time(1)
    world.reconcile()
    assert world.phase == "Terminating"


def test_pending_without_a_timeout_matches_nothing() -> None:
    world = gang(
        policies=[{"event": "PodPending", "action": "AbortJob"}, {"event": "*", "action": "AbortJob"}]
    )
    world.settle()
    world.admit()
    world.settle()
    world.pass_time(10_000)
    world.settle()
    assert world.phase == "Pending"


def test_a_failure_can_be_answered_later() -> None:
    world = started(policies=[{"event": "PodFailed", "action": "AbortJob", "timeout": "30s"}])
    world.end("train-worker-0", 1)
    world.settle()
    assert (world.phase, world.last.requeue_after) == ("Running", 30)
    world.pass_time(30)
    world.reconcile()
    assert world.phase == "Aborting"
