"""Life of a TrainJob: snapshot of its runtime, suspension, end, refused objects."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
from fakeapi import Crash
from hypothesis import given, settings
from hypothesis import strategies as st
from trainer_cluster import KEY, TrainWorld, train_job

from windlass.api import annotations as names
from windlass.api import errors
from windlass.api.resources import (
    CLUSTER_TRAINING_RUNTIMES,
    CONFIG_MAPS,
    JOB_SETS,
    PODS,
    SECRETS,
    TRAIN_JOBS,
)

Json = dict[str, Any]


def started(**spec: Any) -> TrainWorld:
    world = TrainWorld(train_job(**spec))
    world.settle()
    return world


def nodes(world: TrainWorld) -> int:
    assert world.job_set is not None
    return world.job_set["spec"]["replicatedJobs"][0]["template"]["spec"]["parallelism"]


def test_job_runs_and_completes_as_its_job_set_does():
    world = started()
    assert world.job_set is not None
    assert world.job_set["metadata"]["ownerReferences"][0]["kind"] == "TrainJob"
    world.progress(active=1)
    world.settle()
    assert world.state == "Running"
    assert world.status["jobsStatus"][0]["active"] == 1
    world.end("Completed", "AllJobsCompleted")
    world.settle()
    assert world.state == "Complete"
    assert world.status["conditions"][-1]["reason"] == "AllJobsCompleted"


def test_change_of_the_runtime_does_not_reach_a_job_that_has_started():
    world = started()
    runtime = world.api.object(CLUSTER_TRAINING_RUNTIMES, "torch-distributed")
    assert runtime is not None
    world.api.remove(CLUSTER_TRAINING_RUNTIMES, "torch-distributed")
    world.api.remove(JOB_SETS, KEY)
    world.settle()
    assert nodes(world) == 2
    assert world.api.object(CONFIG_MAPS, "default/t-runtime-snapshot") is not None


def test_deleted_job_set_of_a_failed_job_is_not_created_again():
    world = started()
    world.end("Failed", "FailedJobs")
    world.settle()
    assert world.state == "Failed"
    world.api.remove(JOB_SETS, KEY)
    world.settle()
    assert world.job_set is None
    assert world.state == "Failed"


def test_resumed_job_is_shown_as_running():
    world = started(suspend=True)
    assert world.state == "Suspended"
    assert world.job_set is not None
    assert world.job_set["spec"]["suspend"] is True
    world.change(suspend=False)
    world.settle()
    assert world.job_set["spec"]["suspend"] is False
    world.progress(active=1)
    world.settle()
    assert world.state == "Running"
    world.change(suspend=True)
    world.settle()
    assert world.state == "Suspended"
    world.change(suspend=False)
    world.progress(active=1)
    world.settle()
    assert world.state == "Running"


def test_number_of_nodes_changed_while_suspended_takes_effect():
    world = started(suspend=True)
    world.change(trainer={"numNodes": 5})
    world.settle()
    assert nodes(world) == 5
    assert world.job_set is not None
    assert world.job_set["spec"]["suspend"] is True


def test_refused_job_set_is_told_with_its_remedy_until_it_is_accepted():
    world = TrainWorld(train_job())
    message = 'jobsets "t" is forbidden: exceeded quota: small, requested: count/jobsets=1'
    world.api.reject = lambda verb, resource, _: (
        errors.failure(403, "Forbidden", message) if verb == "create" and resource is JOB_SETS else None
    )
    world.reconcile()
    world.reconcile()
    assert world.state == "CreationFailed"
    text = world.status["conditions"][-1]["message"]
    assert "exceeded quota: small" in text
    assert "kubectl edit resourcequota small -n default" in text
    assert "TrainJobResourcesCreationFailed" in world.words.reasons()
    world.api.reject = lambda *_: None
    world.settle()
    assert world.job_set is not None
    world.progress(active=1)
    world.settle()
    assert world.state == "Running"


def test_refused_job_of_the_job_set_is_told_in_the_train_job():
    world = started()
    refused = {"type": "CreationFailed", "status": "True", "message": "exceeded quota: small, requested"}
    world.api.change(JOB_SETS, KEY, status={"conditions": [refused]})
    world.settle()
    assert world.state == "CreationFailed"
    assert "kubectl edit resourcequota small" in world.status["conditions"][-1]["message"]
    world.api.change(JOB_SETS, KEY, status={"conditions": [{**refused, "status": "False"}]})
    world.progress(active=1)
    world.settle()
    assert world.state == "Running"


def test_missing_runtime_is_told_and_found_when_it_is_created():
    world = TrainWorld(train_job(), runtimes=False)
    world.reconcile()
    assert world.state == "CreationFailed"
    assert "torch-distributed does not exist" in world.status["conditions"][-1]["message"]
    assert world.last.requeue_after == 2.0


def test_deadline_is_counted_from_the_last_resume():
    world = started(activeDeadlineSeconds=60, suspend=True)
    world.api.clock.jump(100)
    world.settle()
    assert world.state == "Suspended"
    world.change(suspend=False)
    world.settle()
    world.api.clock.jump(59)
    world.settle()
    assert world.state != "Failed"
    world.api.clock.jump(2)
    world.settle()
    assert world.status["conditions"][-1]["reason"] == "DeadlineExceeded"
    assert world.job_set is None


def test_mpi_job_gets_its_keys_once():
    world = started(runtime="deepspeed-distributed")
    secret = world.api.object(SECRETS, "default/t-mpi-ssh-auth")
    assert secret is not None
    assert secret["stringData"]["ssh-publickey"].startswith("ssh-")
    world.api.remove(JOB_SETS, KEY)
    world.settle()
    assert world.api.object(SECRETS, "default/t-mpi-ssh-auth") == secret


def test_foreign_job_set_of_the_same_name_is_left_alone():
    world = TrainWorld(train_job())
    world.api.put(JOB_SETS, {"metadata": {"name": "t", "namespace": "default"}, "spec": {}})
    world.reconcile()
    assert world.state == "CreationFailed"
    assert "does not belong to the TrainJob" in world.status["conditions"][-1]["message"]


def test_world_of_an_elastic_job_is_written_on_the_pod_of_its_rendezvous():
    world = started()

    def node(index: int, machine: str = "n") -> None:
        labels = {
            "jobset.sigs.k8s.io/jobset-name": "t",
            "batch.kubernetes.io/job-completion-index": str(index),
        }
        metadata = {
            "name": f"t-node-0-{index}-x",
            "labels": labels,
            "annotations": {names.RENDEZVOUS: "29500/t"},
        }
        spec = {"nodeName": machine, "containers": [{"name": "node", "image": "i"}]}
        world.api.put(PODS, {"metadata": metadata, "spec": spec, "status": {"phase": "Running"}})

    def told() -> str:
        pod = world.api.object(PODS, "default/t-node-0-0-x")
        assert pod is not None
        return pod["metadata"]["annotations"].get(names.WORLD, "")

    node(1)
    world.settle()
    node(0)
    node(2, machine="")
    world.settle()
    assert told() == "0-1"
    world.api.change(PODS, "default/t-node-0-2-x", spec={"nodeName": "n"})
    world.settle()
    assert told() == "0-2"
    world.api.remove(PODS, "default/t-node-0-1-x")
    world.settle()
    assert told() == "0,2"


EVENTS = st.sampled_from(["run", "complete", "fail", "suspend", "resume", "drop", "late"])


def play(world: TrainWorld, event: str) -> None:
    present = world.job_set is not None
    match event:
        case "run" if present:
            world.progress(active=1)
        case "complete" if present:
            world.end("Completed", "AllJobsCompleted")
        case "fail" if present:
            world.end("Failed", "FailedJobs")
        case "suspend" | "resume":
            world.change(suspend=event == "suspend")
        case "drop" if present:
            world.api.remove(JOB_SETS, KEY)
        case "late":
            world.api.clock.jump(700)


def picture(world: TrainWorld) -> Any:
    kinds = (TRAIN_JOBS, JOB_SETS, CONFIG_MAPS)
    return {
        kind.plural: {
            obj["metadata"]["name"]: (obj.get("spec"), obj.get("status"), obj.get("data"))
            for obj in world.api.objects(kind)
        }
        for kind in kinds
    }


@settings(max_examples=60, deadline=None)
@given(history=st.lists(st.tuples(EVENTS, st.lists(st.integers(0, 4), max_size=2)), max_size=8))
def test_crashes_change_nothing(history):
    manifest: Json = {"activeDeadlineSeconds": 1000}
    calm, stormy = TrainWorld(train_job(**manifest)), TrainWorld(train_job(**manifest))
    for world in (calm, stormy):
        world.settle()
    for event, crashes in history:
        for world in (calm, stormy):
            play(world, event)
        calm.settle()
        for writes in crashes:
            stormy.api.crash_after = writes
            with contextlib.suppress(Crash):
                stormy.reconcile()
            stormy.restart()
        stormy.settle()
        assert picture(stormy) == picture(calm), event


@pytest.mark.parametrize("manager", ["kueue.x-k8s.io/multikueue"])
def test_job_of_another_controller_is_left_alone(manager: str):
    world = started(managedBy=manager)
    assert world.job_set is None
    assert world.status == {}
