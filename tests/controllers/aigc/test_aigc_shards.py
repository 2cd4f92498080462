"""Workers of several pods (``spec.shards``): their gang, their ranks, their losses, their figures."""

from __future__ import annotations

from typing import Any

from aigc_world import AigcWorld, aigc_job

from windlass.api import annotations as names
from windlass.api.fields import aigc
from windlass.api.resources import PODS, SERVICES
from windlass.jobs.aigc.status import read_state
from windlass.jobs.members import LossCause

FIRST, SECOND = ["train-worker-0", "train-worker-0-1"], ["train-worker-1", "train-worker-1-1"]
DRIVER = "train-driver"


def begun(**spec: Any) -> AigcWorld:
    world = AigcWorld(aigc_job(shards=2, **{"parallelism": {"min": 1, "max": 3}, **spec}))
    world.begin()
    return world


def uids(world: AigcWorld, names: list[str]) -> set[str]:
    return {world.pod(name)["metadata"]["uid"] for name in names}


def test_each_worker_is_a_subgroup_with_ranks_and_addresses():
    world = begun()
    assert world.pods() == [DRIVER, *FIRST, *SECOND]
    assert world.group["spec"]["minMember"] == 2
    assert world.group["spec"]["minResources"]["nvidia.com/gpu"] == "2"
    assert world.group["spec"]["subGroupPolicy"] == [
        {
            "name": "worker",
            "labelSelector": {"matchLabels": {aigc.JOB_NAME: "train", aigc.ROLE: "worker"}},
            "matchLabelKeys": [aigc.INDEX],
            "subGroupSize": 2,
            "minSubGroups": 1,
        }
    ]
    assert {one["metadata"]["name"] for one in world.api.objects(SERVICES)} == {DRIVER, "train-shards"}
    for name, worker, rank in ((SECOND[0], "1", "0"), (SECOND[1], "1", "1")):
        pod = world.pod(name)
        labels = pod["metadata"]["labels"]
        assert (labels[aigc.INDEX], labels[aigc.SHARD]) == (worker, rank)
        assert (pod["spec"]["hostname"], pod["spec"]["subdomain"]) == (name, "train-shards")
        env = {one["name"]: one.get("value") for one in pod["spec"]["containers"][0]["env"]}
        assert (env["RANK"], env["WORLD_SIZE"], env["LWS_WORKER_INDEX"]) == (rank, "2", rank)
        assert env["MASTER_ADDR"] == env["LWS_LEADER_ADDRESS"] == "train-worker-1.train-shards.default.svc"
        assert env["WINDLASS_BATCH_SHARD"] == rank


def test_killed_rank_starts_its_worker_again_as_a_whole_and_counts_no_retry():
    for code in (137, None):  # killed, or deleted with its node
        world = begun(policy={"backoffLimit": 0})
        first, second = uids(world, FIRST), uids(world, SECOND)
        if code:
            world.end(SECOND[1], code)
        else:
            world.take_away(SECOND[1])
        world.settle()
        world.run()
        world.settle()
        assert uids(world, FIRST) == first
        assert not uids(world, SECOND) & second
        assert (world.phase, world.status["attempts"]) == ("Running", 1)
        assert not code or read_state(world.job).restarts.by_cause == {LossCause.SIGNAL: 1}


def test_job_waits_for_no_gpu_while_the_pods_of_its_only_worker_start_again():
    world = begun(replicas=1, parallelism={"min": 1, "max": 1})
    before = uids(world, FIRST)
    world.end(FIRST[1], 137)
    world.settle()
    assert not uids(world, FIRST) & before
    assert (world.phase, world.status["gpus"]) == ("WaitingForGPU", 0)  # the new pods have no node yet
    for name in FIRST:
        world.api.change(PODS, f"default/{name}", spec={"nodeName": "node-1"})
    world.settle()
    assert (world.phase, world.status["gpus"], world.status["workers"]["running"]) == ("Running", 2, 0)
    conditions = {one["type"]: (one["status"], one["message"]) for one in world.status["conditions"]}
    assert conditions["GPUBound"] == ("True", "2 GPUs for 1 workers")
    assert conditions["PodsReady"] == ("False", "0 of at least 1 workers are ready")


def test_program_that_fails_in_one_rank_counts_one_retry():
    world = begun(policy={"backoffLimit": 1})
    world.end(SECOND[1], 1, "no such model")
    world.settle()
    assert world.pods() == [DRIVER, *FIRST, SECOND[1]]  # rank 0 gives its rows back at once
    assert world.status["attempts"] == 2
    world.pass_time(11)
    world.settle()
    assert world.pods() == [DRIVER, *FIRST, *SECOND]
    world.run()
    for name in SECOND:  # both ranks of one failure
        world.end(name, 1, "no such model")
    world.settle()
    assert (world.phase, world.status["attempts"]) == ("Failed", 2)


def test_rank_that_fails_because_another_was_killed_counts_no_retry():
    world = begun(policy={"backoffLimit": 0})
    world.end(FIRST[0], 1, "connection reset")
    world.end(FIRST[1], 137)
    world.settle()
    world.run()
    world.settle()
    assert (world.phase, world.status["attempts"]) == ("Running", 1)
    assert world.pods() == [DRIVER, *FIRST, *SECOND]


def test_ends_of_other_ranks_do_not_matter_once_rank_0_has_succeeded():
    world = begun(policy={"backoffLimit": 0})
    world.driver.status = {"items": {"total": 10, "done": 10}, "finished": True}
    world.end(FIRST[0])
    world.end(FIRST[1], 1)
    world.pass_time(60)
    world.settle()
    assert world.phase == "Running"
    assert world.pods() == [DRIVER, *FIRST, *SECOND]


def test_whole_workers_come_and_go_and_are_counted():
    world = begun()
    assert world.status["workers"] == {"desired": 2, "running": 2, "shards": 2, "peakNodes": 1}
    assert world.status["gpus"] == 4
    world.end(SECOND[1], 1)
    world.settle()
    assert world.status["workers"]["running"] == 1
    conditions = {one["type"]: one["message"] for one in world.status["conditions"]}
    assert conditions["PodsReady"] == "1 of at least 1 workers are ready"
    world.change_spec(replicas=3)
    world.pass_time(30)
    world.settle()
    assert len(world.pods()) == 7
    world.change_spec(replicas=1)
    world.settle()
    assert world.pods() == [DRIVER, *FIRST]
    world.pass_time(10)
    world.driver.status = {"items": {"total": 10, "done": 10}, "finished": True, "busySeconds": 5.0}
    world.settle()
    world.end(DRIVER)
    world.settle()
    assert world.status["gpuBusySeconds"] == 10.0  # both ranks work on a row


def test_pod_that_was_never_created_joins_its_worker():
    world = AigcWorld(aigc_job(shards=2))
    world.settle()
    world.run(DRIVER)
    world.settle()
    kept = uids(world, [FIRST[0]])
    world.take_away(FIRST[1])
    world.settle()
    assert uids(world, [FIRST[0]]) == kept
    assert not any(
        pod["spec"].get("nodeName") for pod in world.api.objects(PODS) if pod["metadata"]["name"] in FIRST
    )
    assert world.pods() == [DRIVER, *FIRST, *SECOND]


def test_topology_constraint_holds_for_each_worker():
    required = {"metadata": {"annotations": {names.PODSET_REQUIRED: "rack"}}}
    for spec, level in (
        ({"placement": {"topology": "sameZone"}}, "topology.kubernetes.io/zone"),
        ({"placement": {"topology": "example.com/rack"}}, "example.com/rack"),
        ({"template": required, "runtimeRef": {"name": "noop"}}, "rack"),
    ):
        world = begun(**spec)
        notes = world.pod(SECOND[1])["metadata"]
        assert notes["annotations"][names.PODSET_SLICE_REQUIRED] == level
        assert notes["annotations"][names.PODSET_SLICE_SIZE] == "2"
        assert names.PODSET_REQUIRED not in notes["annotations"]
        assert notes["labels"][names.TASK_INDEX] == "3"
        assert "subGroupPolicy" not in world.group["spec"]  # slices are subgroups
    tiers = {"mode": "hard", "highestTierAllowed": 1}
    (policy,) = begun(placement={"topology": tiers}).group["spec"]["subGroupPolicy"]
    assert policy["networkTopology"] == tiers


def test_server_that_ends_in_one_rank_starts_its_worker_again():
    world = begun(policy={"backoffLimit": 0})
    first, second = uids(world, FIRST), uids(world, SECOND)
    ended = [{"name": "server", "state": {"terminated": {"exitCode": 137}}}]
    world.api.change(PODS, f"default/{SECOND[1]}", status={"containerStatuses": ended})
    world.settle()
    assert world.pods() == [DRIVER, *FIRST, *SECOND]
    assert uids(world, FIRST) == first
    assert not uids(world, SECOND) & second
    assert world.status["attempts"] == 1
