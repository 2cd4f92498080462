"""Failures that users of Volcano and Grove reported, by the numbers of the plan."""

from __future__ import annotations

from typing import Any

import pytest
from vcjob_cluster import KEY, World, job, started, task, with_fresh_controller

from windlass.api.resources import VOLCANO_JOBS

Json = dict[str, Any]


def uids(world: World) -> dict[str, str]:
    return {name: world.pod(name)["metadata"]["uid"] for name in world.pods()}


@pytest.mark.parametrize("timeout", [None, "30s"])
def test_w3_policy_is_executed_once_if_the_controller_stops_after_the_failure(timeout: str | None) -> None:
    """volcano#3967: the event of a pod was lost with the controller."""
    policy: Json = {"event": "PodFailed", "action": "RestartJob", **({"timeout": timeout} if timeout else {})}
    world = started(workers=2, policies=[policy])
    world.end("train-worker-1", 3)
    with_fresh_controller(world)
    if timeout:
        world.settle()
        assert world.phase == "Running"
        world.pass_time(29)
        with_fresh_controller(world)
        world.settle()
        assert (world.phase, world.last.requeue_after) == ("Running", pytest.approx(1.0))
        world.pass_time(1)
        with_fresh_controller(world)
    world.converge()
    assert (world.status["retryCount"], world.status["version"]) == (1, 1)
    with_fresh_controller(world)
    world.converge()
    assert world.status["retryCount"] == 1


def scale(world: World, front: int, workers: int) -> None:
    tasks = [task("front", front), task("worker", workers)]
    world.api.change(VOLCANO_JOBS, KEY, spec={**world.job["spec"], "tasks": tasks})
    world.converge()
    world.run()
    world.settle()


def test_w16_workers_go_to_zero_and_the_front_end_stays() -> None:
    """grove#676, #677: without workers the gang counted as broken, and its front end was evicted."""
    world = World(job(task("front", 1), task("worker", 2), minAvailable=1))
    world.start()
    front = uids(world)["train-front-0"]
    for workers in (0, 2, 0):
        scale(world, 1, workers)
        assert len(world.pods()) == 1 + workers
        assert uids(world)["train-front-0"] == front
        assert (world.phase, world.status["running"]) == ("Running", 1 + workers)
        assert world.status.get("retryCount") is None
        assert world.group is not None
        assert world.group["spec"]["minMember"] == 1


def test_w17_many_changes_of_the_size_recreate_no_pod() -> None:
    """grove#565: six patches within 20 s restarted the whole gang."""
    world = World(job(task("front", 1), task("worker", 3), minAvailable=2))
    world.start()
    before = uids(world)
    group = world.group["metadata"]["uid"] if world.group else ""
    for workers in (4, 2, 5, 1, 6, 3):
        world.pass_time(3.3)
        scale(world, 1, workers)
    after = uids(world)
    assert sorted(after) == sorted(before)
    kept = [name for name in before if after[name] == before[name]]
    assert kept == ["train-front-0", "train-worker-0"]  # the others were scaled away in between
    assert world.group is not None
    assert world.group["metadata"]["uid"] == group
    assert (world.phase, world.status.get("retryCount")) == ("Running", None)


def test_w4_scaling_a_task_leaves_other_pods_alone() -> None:
    """volcano#4072, #1169: 2 pods, 1 pod, 2 pods again."""
    world = World(job(task("ps", 1), task("worker", 2), minAvailable=2, plugins={"svc": [], "ssh": []}))
    world.start()
    before = uids(world)

    def scale(replicas: int) -> None:
        tasks = [task("ps", 1), task("worker", replicas)]
        world.api.change(VOLCANO_JOBS, KEY, spec={**world.job["spec"], "tasks": tasks})
        world.converge()

    scale(1)
    assert uids(world) == {name: uid for name, uid in before.items() if name != "train-worker-1"}
    assert (world.phase, world.status.get("retryCount")) == ("Running", None)
    scale(2)
    world.run()
    world.settle()
    after = uids(world)
    assert {**after, "train-worker-1": ""} == {**before, "train-worker-1": ""}
    assert (world.phase, world.status["running"], world.status.get("retryCount")) == ("Running", 3, None)
