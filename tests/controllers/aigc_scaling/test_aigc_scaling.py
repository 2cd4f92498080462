"""Number of workers of an AIGCJob: by rows, utilisation and classes, within bounds, quota and cool-down."""

from __future__ import annotations

import contextlib
import json
from typing import Any

import pytest
from aigc_world import aigc_job
from fakeapi import Crash
from scaling_world import PENDING, UTILISATION, ScalingWorld, scaled

from windlass.api.resources import AIGC_JOBS, NODES
from windlass.kits.timestamps import rfc3339


def figures(done: int = 0, total: int = 1000) -> dict[str, Any]:
    return {"items": {"total": total, "done": done, "perSecond": 5.0}}


def begun(world: ScalingWorld, done: int = 0, total: int = 1000) -> ScalingWorld:
    world.driver.status = figures(done, total)
    world.begin()
    world.run()
    world.settle()
    return world


def test_workers_follow_the_rows_that_wait():
    world = scaled(min=1, max=3)
    world.driver.status = figures(0, 100)
    world.begin()
    assert (world.workers, world.status["workers"]["desired"]) == (3, 3)
    assert world.group["spec"]["minMember"] == 1
    (event,) = world.told("AIGCJobScaled")
    assert event == ("100 items not done ÷ 10 items in a batch, rounded up, = 10; at most 3 (maximum): 1 → 3")
    world.driver.status = figures(95, 100)
    world.pass_time(100)
    world.settle()
    assert world.status["workers"]["desired"] == 3  # a change was less than 300 s ago
    assert world.record["overrides"] == ["not fewer for another 200 s (cool-down)"]
    world.pass_time(250)
    world.settle()
    world.settle()
    assert world.status["workers"]["desired"] == 1
    assert world.workers == 1


@pytest.mark.parametrize(
    ("load", "pending", "replicas", "least", "most", "after"),
    [
        (0.81, 1, 4, 1, 200, 8),
        (0.81, 1, 4, 1, 6, 6),
        (0.81, 0, 4, 1, 200, 4),
        (0.8, 1, 4, 1, 200, 4),
        (0.29, 0, 5, 2, 200, 2),
        (0.3, 0, 5, 2, 200, 5),
    ],
)
def test_fed_utilisation_changes_the_workers_once(load, pending, replicas, least, most, after):
    world = begun(scaled(replicas=replicas, metric="gpuUtil", min=least, max=most))
    assert world.record["desired"] == replicas
    world.feed(**{UTILISATION: load, PENDING: pending})
    world.settle()
    world.run()
    for _ in range(3):
        world.pass_time(400)
        world.settle()
    assert world.status["workers"]["desired"] == after == world.workers
    events = world.told("AIGCJobScaled")
    assert len(events) == (after != replicas)
    if events:
        assert f"{replicas} → {after}" in events[0]
        assert f"{UTILISATION} {load:g}" in events[0]
        assert world.record["changes"][0]["inputs"][0]["value"] == load


def test_class_of_a_user_is_asked_with_metrics_and_bounds():
    world = scaled(replicas=4, min=1, max=6, plugin={"inline": "text"})
    words = "Mine (nvidia_gpu_utilization 0.81) of 4 replicas = 8"
    world.driver.answer = {"source": "Mine", "replicas": 8, "arithmetic": words, "reads": [UTILISATION]}
    world.driver.status = figures()
    world.feed(**{UTILISATION: 0.81, PENDING: 1})
    world.begin()
    assert world.driver.calls[0]["plugin"] == {"name": "spec.autoscale.plugin.inline", "source": "text"}
    assert world.driver.calls[0]["replicas"] == {"current": 4, "minimum": 1, "maximum": 6}
    metrics = world.driver.calls[0]["metrics"]
    assert metrics.items() >= {UTILISATION: 0.81, PENDING: 1, "pendingItems": 1000, "workers": 4}.items()
    assert world.told("AIGCJobScaled") == [f"{words}; at most 6 (maximum): 4 → 6"]
    calls = len(world.driver.calls)
    world.pass_time(10)
    world.settle()
    assert len(world.driver.calls) == calls
    world.pass_time(5)
    world.settle()
    assert len(world.driver.calls) == calls + 1


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (
            {"source": "Mine", "replicas": 4, "arithmetic": "Mine failed, E: x", "error": "E: x"},
            "Mine failed, E: x",
        ),
        ({"error": "the class did not answer within 3 s"}, "the class did not answer within 3 s"),
        (None, "the driver did not answer: timed out"),
    ],
)
def test_failing_class_keeps_the_workers_and_is_told(answer, words):
    world = scaled(replicas=4, min=1, max=6, plugin="module:Mine")
    world.driver.answer = answer
    begun(world)
    assert bool(world.told("AIGCScalerFailed")) == (answer is not None)  # a silent driver may have ended
    world.pass_time(16)
    world.settle()
    assert world.record["desired"] == 4
    assert any(words in text for text in world.told("AIGCScalerFailed"))
    assert words in world.record["arithmetic"]


def test_driver_that_has_ended_is_no_failure_of_the_class():
    world = scaled(replicas=4, min=1, max=6, plugin="module:Mine")
    world.driver.answer = {"source": "Mine", "replicas": 4, "arithmetic": "Mine = 4"}
    begun(world)
    world.driver.answer = world.driver.status = None
    world.pass_time(16)
    world.settle()
    world.end("train-driver")
    world.scale()
    world.pass_time(16)
    world.scale()
    assert world.told("AIGCScalerFailed") == []


def test_measured_utilisation_needs_fresh_values_of_workers_that_run():
    world = scaled(replicas=2, metric="gpuUtil", min=1, max=8)
    world.driver.status = figures()
    world.begin()
    world.run()
    world.pass_time(1)
    world.settle()
    assert "no node reports it" in world.record["arithmetic"]  # an empty series is not zero
    note = {"pods": {"default/train-worker-0": 90, "default/train-worker-1": 80}}

    def report(age: float) -> None:
        text = json.dumps({**note, "at": rfc3339(world.api.clock.now() - age)})
        world.node(notes={"windlass.dev/device-utilization": text})

    other = {"metadata": {"name": "other"}, "spec": {}, "status": {"phase": "Queued"}}
    world.api.put(AIGC_JOBS, other)
    report(130)
    world.pass_time(2)
    world.settle()
    assert "the last value (0.85) is 132 s old, and 120 s are allowed" in world.record["arithmetic"]
    report(0)
    world.pass_time(2)
    world.settle()
    assert world.record["desired"] == 4  # 0.85 > 0.8, and one job waits
    world.pass_time(20)
    report(0)
    world.settle()
    assert "not more while 2 of 4 workers do not run" in world.record["arithmetic"]
    world.run()
    note["pods"] |= {"default/train-worker-2": 90, "default/train-worker-3": 80}
    world.pass_time(20)
    report(0)
    world.settle()
    assert world.record["desired"] == 8
    world.api.change(NODES, "node-1", metadata={"labels": {"windlass.dev/simulated": "true"}})
    world.mark_pods({"windlass.dev/simulated-gpu-utilization": "20"})
    world.run()
    world.pass_time(400)
    world.settle()
    assert (world.record["desired"], world.record["inputs"][0]["value"]) == (4, 0.2)


def test_no_worker_is_asked_for_beyond_the_quota_of_queue_and_parents():
    world = scaled(min=1, max=100)
    world.queue("default", {"nvidia.com/gpu": "8"}, {"nvidia.com/gpu": "3"}, parent="team")
    world.queue("team", {"nvidia.com/gpu": "6"}, {"nvidia.com/gpu": "2"})
    begun(world)
    assert world.record["desired"] == world.record["quota"] == 5
    assert "at most 5 (quota: queue" in world.record["arithmetic"]
    assert "100 but for this" in world.record["alternatives"][0]


def test_workers_of_several_pods_are_scaled_as_a_whole_within_the_quota():
    manifest = scaled(min=1, max=100).job
    world = ScalingWorld({"metadata": {"name": "train"}, "spec": {**manifest["spec"], "shards": 2}})
    world.queue("default", {"nvidia.com/gpu": "7"}, {"nvidia.com/gpu": "2"})
    begun(world)
    assert (world.record["desired"], world.record["quota"], world.workers) == (3, 3, 6)
    inputs = {one["name"]: one.get("value") for one in world.record["inputs"]}
    assert (inputs["workers"], inputs["workersRunning"]) == (1, 1)


def test_changed_number_and_bounds_are_taken_at_once():
    world = begun(scaled(replicas=4, metric="gpuUtil", min=1, max=8))
    world.change_spec(replicas=2)
    world.settle()
    assert world.status["workers"]["desired"] == 2
    world.change_spec(autoscale={"min": 3})
    world.settle()
    assert world.status["workers"]["desired"] == 3


def test_spot_workers_are_a_fraction_of_any_number():
    world = begun(scaled(replicas=4, min=4, max=4, spot={"allowed": True, "maxFraction": 0.5}))
    required = "requiredDuringSchedulingIgnoredDuringExecution"
    kept_off = [
        required in world.pod(f"train-worker-{n}")["spec"]["affinity"]["nodeAffinity"] for n in range(4)
    ]
    assert kept_off == [True, False, True, False]
    world.node(labels={"karpenter.sh/capacity-type": "spot"})
    world.pass_time(20)
    world.settle()
    assert world.status["cost"] == {"spotFraction": 1.0}


def test_metrics_of_prometheus_are_never_zero_without_a_series():
    queries = {UTILISATION: "avg(DCGM_FI_DEV_GPU_UTIL) / 100", PENDING: "jobs"}
    source = {"serverAddress": "http://prometheus:9090", "queries": queries}
    world = scaled(replicas=4, metric="gpuUtil", min=1, max=20, prometheus=source)
    world.driver.series["jobs"] = {"value": 2.0, "at": world.api.clock.now()}
    begun(world)
    assert "nvidia_gpu_utilization: no value reported (no series)" in world.record["arithmetic"]
    world.driver.series[queries[UTILISATION]] = {"value": 0.95, "at": world.api.clock.now() - 300}
    world.pass_time(20)
    world.settle()
    assert "the last value (0.95) is 3" in world.record["arithmetic"]
    assert world.record["desired"] == 4
    world.driver.series[queries[UTILISATION]] = {"value": 0.95, "at": world.api.clock.now() + 19}
    world.pass_time(20)
    world.settle()
    assert world.record["desired"] == 8
    assert world.record["inputs"][0]["source"] == "http://prometheus:9090"


def test_crashes_lead_to_the_same_number():
    """Both controllers are killed after any number of writes, and go on from what is stored."""
    calm = scaled(replicas=2, metric="gpuUtil", min=1, max=9)
    stormy = scaled(replicas=2, metric="gpuUtil", min=1, max=9)
    for world in (calm, stormy):
        begun(world)
    for load, crashes in ((0.9, [0]), (0.1, [1, 0]), (0.85, [0, 1, 2])):
        for world in (calm, stormy):
            world.pass_time(301)
            world.feed(**{UTILISATION: load, PENDING: 1})
        for writes in crashes:
            stormy.api.crash_after = writes
            with contextlib.suppress(Crash):
                stormy.scale()
                stormy.reconcile()
            stormy.restart()
        for world in (calm, stormy):
            world.settle()
            world.run()
            world.settle()
        assert stormy.pods() == calm.pods()
        assert stormy.record == calm.record


def test_stages_share_the_workers_that_are_decided():
    stages = [{"name": "prepare", "kind": "cpu"}, {"name": "infer", "kind": "cpu"}]
    world = ScalingWorld(
        aigc_job(gpus=0, stages=stages, autoscale={"min": 2, "max": 8}, batching={"size": 10}, replicas=None)
    )

    def shown(done: int) -> dict[str, Any]:
        stage = {
            "done": done,
            "waiting": 0,
            "held": 0,
            "inFlight": 0,
            "secondsPerItem": 1.0,
            "finished": False,
        }
        both = [{"name": "prepare", **stage, "waiting": 30}, {"name": "infer", **stage, "waiting": 30}]
        return {"items": {"total": 100, "done": done, "perSecond": 5.0}, "stages": both}

    def workers() -> dict[str, int]:
        return {one["name"]: one["desired"] for one in world.status["stages"]}

    world.driver.status = shown(0)
    world.begin(workers=False)
    for _ in range(3):
        world.pass_time(16)
        world.settle()
    assert world.record["desired"] == 8  # 100 rows in batches of 10
    assert sum(workers().values()) == 8, workers()
    world.driver.status = shown(70)
    for _ in range(4):
        world.pass_time(200)
        world.settle()
    assert world.record["desired"] == 3
    assert sum(workers().values()) == 3, workers()
