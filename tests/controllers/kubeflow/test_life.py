"""Life of a Kubeflow job: objects, conditions, restarts, suspension, clean-up."""

from __future__ import annotations

import pytest
from kubeflow_cluster import KubeflowWorld, kubeflow_job, replica

from windlass.api.annotations import JOB_RECORD
from windlass.api.resources import POD_GROUPS, PODS, SERVICES, TF_JOBS


def started(**more) -> KubeflowWorld:
    world = KubeflowWorld(kubeflow_job(Master=replica(), Worker=replica(2), **more))
    world.start()
    assert world.phase == "Running"
    return world


def conditions(world: KubeflowWorld) -> dict[str, str]:
    return {condition["type"]: condition["status"] for condition in world.status["conditions"]}


def test_no_pod_exists_before_the_gang_is_admitted():
    world = KubeflowWorld(kubeflow_job(Master=replica(), Worker=replica(2)))
    world.settle()
    assert world.pods() == []
    assert world.group is not None
    assert world.group["spec"] == {
        "minMember": 3,
        "minTaskMember": {"master": 1, "worker": 2},
        "queue": "default",
        "minResources": {"nvidia.com/gpu": "3"},
    }
    world.admit()
    world.settle()
    assert world.pods() == ["train-master-0", "train-worker-0", "train-worker-1"]


def test_each_pod_has_a_service_and_the_labels_of_its_place():
    world = started()
    pod = world.pod("train-worker-1")
    assert pod["metadata"]["labels"] == {
        "training.kubeflow.org/operator-name": "pytorchjob-controller",
        "training.kubeflow.org/job-name": "train",
        "training.kubeflow.org/replica-type": "worker",
        "training.kubeflow.org/replica-index": "1",
    }
    assert world.pod("train-master-0")["metadata"]["labels"]["training.kubeflow.org/job-role"] == "master"
    services = {found["metadata"]["name"]: found["spec"] for found in world.api.objects(SERVICES)}
    assert sorted(services) == world.pods()
    assert services["train-worker-1"]["selector"] == pod["metadata"]["labels"]
    assert services["train-worker-1"]["clusterIP"] == "None"


def test_conditions_of_a_success():
    world = started()
    world.end("train-master-0")
    world.settle()
    assert conditions(world) == {"Created": "True", "Running": "False", "Succeeded": "True"}
    assert world.status["replicaStatuses"]["Worker"]["succeeded"] == 2
    assert world.status["completionTime"]
    assert len(world.pods()) == 3


def test_failed_pod_is_replaced_and_the_group_stays():
    world = started()
    group = world.group
    world.end("train-worker-0", 1)
    world.reconcile()
    world.reconcile()
    assert world.phase == "Restarting"
    world.converge()
    world.run()
    world.settle()
    assert conditions(world) == {"Created": "True", "Running": "True"}
    assert world.job["metadata"]["annotations"][JOB_RECORD] == '{"restarts":{"program":1}}'
    assert group is not None
    assert world.group is not None
    assert world.group["metadata"]["uid"] == group["metadata"]["uid"]


def test_pod_that_was_deleted_comes_back():
    world = started()
    world.take_away("train-worker-1")
    world.settle()
    assert "train-worker-1" in world.pods()


def test_spent_restarts_fail_the_job_and_delete_all_pods():
    world = started(run={"backoffLimit": 0})
    world.end("train-worker-0", 1)
    world.converge()
    assert world.phase == "Failed"
    assert "backoffLimit" in world.status["conditions"][-1]["message"]
    assert world.pods() == []
    assert world.api.objects(SERVICES) == []
    assert world.api.objects(POD_GROUPS) == []


def test_deadline_is_reconciled_without_a_change():
    world = started(run={"activeDeadlineSeconds": 60})
    world.reconcile()
    assert world.last.requeue_after == pytest.approx(60, abs=1)
    world.pass_time(61)
    world.converge()
    assert world.phase == "Failed"
    assert "activeDeadlineSeconds" in world.status["conditions"][-1]["message"]
    assert world.pods() == []


def test_suspended_job_gives_everything_back_and_shows_its_state_after_the_resume():
    world = started()
    world.change_run_policy(suspend=True)
    world.converge()
    assert (world.phase, world.pods(), world.group) == ("Suspended", [], None)
    assert conditions(world)["Running"] == "False"
    world.change_run_policy(suspend=False)
    world.settle()
    assert world.status["conditions"][-1]["reason"] == "PyTorchJobResumed"
    world.admit()
    world.settle()
    world.run()
    world.settle()
    assert world.phase == "Running"
    assert len(world.pods()) == 3


def test_finished_job_is_deleted_after_its_time_to_live():
    world = started(run={"ttlSecondsAfterFinished": 30, "cleanPodPolicy": "All"})
    world.end("train-master-0")
    world.converge()
    assert world.pods() == []
    world.pass_time(31)
    world.reconcile()
    assert world.api.object(world.resource, "default/train") is None


def test_parameter_servers_end_with_the_workers_only_if_the_policy_says_so():
    roles = {"PS": replica(1, "tensorflow"), "Worker": replica(1, "tensorflow")}
    world = KubeflowWorld(kubeflow_job(TF_JOBS, {"cleanPodPolicy": "Running"}, **roles), TF_JOBS)
    world.start()
    world.end("train-worker-0")
    world.converge()
    assert world.phase == "Succeeded"
    assert world.pods() == ["train-worker-0"]


def test_group_of_another_owner_is_reported():
    world = KubeflowWorld(kubeflow_job(Worker=replica()))
    world.api.put(POD_GROUPS, {"metadata": {"name": "train"}, "spec": {"minMember": 1}})
    world.settle()
    assert world.api.objects(PODS) == []
    assert any("does not belong to the job" in text for *_, text in world.words.said)
