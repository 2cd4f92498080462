"""Conversion of jobs between kinds: what is carried over, what is named as lost, what is refused."""

from __future__ import annotations

import copy
import itertools
import json
from typing import Any

import pytest

from windlass.api import defaults
from windlass.api.resources import (
    BATCH_JOBS,
    JOB_SETS,
    PYTORCH_JOBS,
    TF_JOBS,
    TRAIN_JOBS,
    VOLCANO_JOBS,
    Resource,
)
from windlass.api.validation import validate
from windlass.jobs.convert.read import Unconvertible, read
from windlass.jobs.convert.write import TARGETS, write

Json = dict[str, Any]
POD: Json = {
    "containers": [
        {
            "name": "pytorch",
            "image": "i",
            "command": ["torchrun", "train.py"],
            "resources": {"limits": {"nvidia.com/gpu": "2"}},
            "volumeMounts": [{"name": "data", "mountPath": "/data"}],
        }
    ],
    "nodeSelector": {"pool": "gpu"},
    "volumes": [{"name": "data", "emptyDir": {}}],
}


def pytorch(**more: Any) -> Json:
    role = {"replicas": 1, "restartPolicy": "Never", "template": {"spec": POD}}
    spec = {"pytorchReplicaSpecs": {"Master": role, "Worker": {**role, "replicas": 3}}, **more}
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": {"name": "train", "namespace": "team", "labels": {"a": "b"}},
        "spec": json.loads(json.dumps(spec)),
    }


def converted(obj: Json, target: str, source: Resource = PYTORCH_JOBS) -> tuple[Json, list[str]]:
    job = read(source, copy.deepcopy(obj))
    return write(job, target), job.lost


def errors(obj: Json, target: str) -> list[str]:
    resource, _ = TARGETS[target]
    stored = copy.deepcopy(obj)
    stored["metadata"].setdefault("namespace", "default")
    defaults.apply(resource, stored)
    return [f"{error.field}: {error.message}" for error in validate(resource, stored)]


@pytest.mark.parametrize("target", TARGETS)
def test_what_is_written_is_valid_and_loses_nothing_that_every_kind_has(target: str) -> None:
    run = {"schedulingPolicy": {"queue": "research", "priorityClass": "high"}, "suspend": False}
    found, lost = converted(pytorch(runPolicy=run), target)
    assert errors(found, target) == []
    success = "success: all pods have to succeed instead of those of role master"
    named = {"trainjob": ["restartPolicy Never: the runtime has OnFailure", success], "jobset": [success]}
    assert lost == named.get(target, [])
    assert found["metadata"]["labels"] == {"a": "b"}
    text = str(found)
    for word in ("torchrun", "nvidia.com/gpu", "/data", "'pool': 'gpu'", "research", "high"):
        assert word in text, word


@pytest.mark.parametrize(("one", "other"), list(itertools.permutations(TARGETS, 2)))
def test_a_job_stays_the_same_on_its_way_over_two_kinds(one: str, other: str) -> None:
    there, _ = converted(pytorch(runPolicy={"schedulingPolicy": {"queue": "research"}}), one)
    back, _ = converted(there, other, TARGETS[one][0])
    again, _ = converted(back, "pytorchjob", TARGETS[other][0])
    assert errors(again, "pytorchjob") == []
    job = read(PYTORCH_JOBS, again)
    assert (job.pods, job.queue, job.name, job.namespace) == (4, "research", "train", "team")
    for role in job.roles:
        (container,) = role.pod["containers"]
        assert container["command"] == ["torchrun", "train.py"]
        assert container["resources"] == {"limits": {"nvidia.com/gpu": "2"}}
        assert role.pod["nodeSelector"] == {"pool": "gpu"}


def test_ranks_meet_in_every_kind() -> None:
    volcano, _ = converted(pytorch(), "vcjob")
    assert volcano["spec"]["plugins"]["pytorch"] == ["--master=master", "--worker=worker", "--port=29500"]
    assert [task["replicas"] for task in volcano["spec"]["tasks"]] == [1, 3]
    assert volcano["spec"]["tasks"][0]["policies"] == [{"event": "TaskCompleted", "action": "CompleteJob"}]
    job_set, _ = converted(pytorch(), "jobset")
    (group,) = job_set["spec"]["replicatedJobs"]
    env = {
        entry["name"]: entry
        for entry in group["template"]["spec"]["template"]["spec"]["containers"][0]["env"]
    }
    assert env["MASTER_ADDR"]["value"] == "train-node-0-0.train"
    assert env["WORLD_SIZE"]["value"] == "4"
    assert "job-completion-index" in str(env["RANK"])
    train, _ = converted(pytorch(), "trainjob")
    assert train["spec"]["trainer"]["numNodes"] == 4


@pytest.mark.parametrize(
    ("target", "spec", "lost"),
    [
        ("vcjob", {"runPolicy": {"suspend": True}}, "suspend: the job starts at once"),
        (
            "vcjob",
            {"runPolicy": {"activeDeadlineSeconds": 60}},
            "activeDeadlineSeconds: it counts from",
        ),
        (
            "trainjob",
            {"runPolicy": {"ttlSecondsAfterFinished": 60}},
            "ttlSecondsAfterFinished: a TrainJob is kept",
        ),
        (
            "jobset",
            {"elasticPolicy": {"minReplicas": 1}},
            "spec.elasticPolicy: the number of pods does not change",
        ),
        (
            "jobset",
            {"runPolicy": {"managedBy": "x"}},
            "spec.runPolicy.managedBy: the target kind has no such field",
        ),
        ("jobset", {"unknown": 1}, "spec.unknown: the target kind has no such field"),
    ],
)
def test_what_is_lost_is_named(target: str, spec: Json, lost: str) -> None:
    found, missing = converted(pytorch(**spec), target)
    assert errors(found, target) == []
    assert any(text.startswith(lost) for text in missing), missing


def test_variables_that_a_command_uses_are_named() -> None:
    manifest = pytorch()
    for role in manifest["spec"]["pytorchReplicaSpecs"].values():
        role["template"]["spec"]["containers"][0]["command"] = ["sh", "-c", "train --rank $RANK"]
    _, missing = converted(manifest, "trainjob")
    assert missing[:2] == [
        "role master: its command uses RANK, which a TrainJob does not set",
        "role worker: its command uses RANK, which a TrainJob does not set",
    ]
    assert not any("RANK" in text for text in converted(manifest, "jobset")[1])


def test_roles_that_differ_stay_apart_or_are_refused() -> None:
    manifest = pytorch()
    manifest["spec"]["pytorchReplicaSpecs"]["Master"]["template"]["spec"]["containers"][0]["image"] = "other"
    found, missing = converted(manifest, "jobset")
    assert [job["name"] for job in found["spec"]["replicatedJobs"]] == ["master", "worker"]
    assert found["spec"]["successPolicy"]["targetReplicatedJobs"] == ["master"]
    assert missing == [
        "MASTER_ADDR, RANK, WORLD_SIZE: the roles differ, so ranks do not follow from one index"
    ]
    with pytest.raises(
        Unconvertible, match="a TrainJob has equal pods, and those of master and worker differ"
    ):
        converted(manifest, "trainjob")


def test_parameter_servers_have_no_place_in_other_kinds_of_kubeflow() -> None:
    role = {"replicas": 2, "template": {"spec": {"containers": [{"name": "tensorflow", "image": "i"}]}}}
    manifest = {
        "apiVersion": "kubeflow.org/v1",
        "kind": "TFJob",
        "metadata": {"name": "t"},
        "spec": {"tfReplicaSpecs": {"PS": role, "Worker": role}},
    }
    with pytest.raises(Unconvertible, match="neither of the roles"):
        converted(manifest, "pytorchjob", TF_JOBS)
    with pytest.raises(Unconvertible, match="those of ps and worker differ"):
        converted(manifest, "trainjob", TF_JOBS)
    found, missing = converted(manifest, "vcjob", TF_JOBS)
    assert found["spec"]["plugins"]["tensorflow"] == ["--ps=ps", "--worker=worker"]
    assert missing == []


def test_policies_of_a_volcano_job() -> None:
    task = {"name": "w", "replicas": 2, "template": {"spec": {"containers": [{"name": "c", "image": "i"}]}}}
    manifest = {
        "apiVersion": "batch.volcano.sh/v1alpha1",
        "kind": "Job",
        "metadata": {"name": "v"},
        "spec": {
            "minAvailable": 2,
            "maxRetry": 5,
            "policies": [
                {"event": "PodFailed", "action": "RestartJob"},
                {"event": "TaskCompleted", "action": "RestartTask"},
            ],
            "plugins": {"ssh": []},
            "tasks": [task],
        },
    }
    found, missing = converted(manifest, "jobset", VOLCANO_JOBS)
    assert found["spec"]["failurePolicy"] == {"maxRestarts": 5}
    assert missing == [
        "spec.policies: RestartTask on TaskCompleted has no counterpart",
        "spec.plugins.ssh: the target kind has no such plugin",
        "role w: restartPolicy OnFailure: it fails after 6 restarts",
    ]


def test_a_batch_job_that_works_through_completions() -> None:
    manifest = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "b"},
        "spec": {
            "parallelism": 2,
            "completions": 10,
            "template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}},
        },
    }
    found, missing = converted(manifest, "vcjob", BATCH_JOBS)
    assert found["spec"]["tasks"][0]["replicas"] == 2
    assert missing == ["spec.completions: 10 completions by 2 pods: the target kind runs 2 pods once"]


def test_a_train_job_with_another_runtime_is_refused() -> None:
    manifest = {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainJob",
        "metadata": {"name": "t"},
        "spec": {"runtimeRef": {"name": "mine"}},
    }
    with pytest.raises(Unconvertible, match="the pods of runtime mine are neither in the manifest nor known"):
        converted(manifest, "vcjob", TRAIN_JOBS)
    manifest["spec"]["runtimeRef"]["name"] = "deepspeed-distributed"
    with pytest.raises(Unconvertible, match="starts its ranks by mpirun"):
        converted(manifest, "vcjob", TRAIN_JOBS)
    with pytest.raises(Unconvertible, match="the job has no pods"):
        converted({"metadata": {"name": "j"}, "spec": {}}, "vcjob", JOB_SETS)


def test_a_train_job_has_the_pods_of_its_runtime() -> None:
    manifest = {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainJob",
        "metadata": {"name": "t"},
        "spec": {"runtimeRef": {"name": "torch-distributed"}, "trainer": {"numNodes": 3, "args": ["a"]}},
    }
    found, _ = converted(manifest, "jobset", TRAIN_JOBS)
    assert errors(found, "jobset") == []
    (job,) = found["spec"]["replicatedJobs"]
    assert job["template"]["spec"]["parallelism"] == 3
    (container,) = job["template"]["spec"]["template"]["spec"]["containers"]
    assert (container["image"].partition(":")[0], container["args"]) == ("pytorch/pytorch", ["a"])
    labels = {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}
    pod = {"containers": [{"name": "node", "image": "mine:1"}]}
    template = {"metadata": {"labels": labels}, "spec": {"template": {"spec": pod}}}
    runtime = {
        "metadata": {"name": "mine"},
        "spec": {
            "mlPolicy": {"numNodes": 2},
            "template": {"spec": {"replicatedJobs": [{"name": "node", "template": template}]}},
        },
    }
    manifest["spec"] = {"runtimeRef": {"name": "mine"}}
    job = read(TRAIN_JOBS, manifest, {"mine": runtime})
    assert (job.pods, job.roles[0].pod["containers"][0]["image"]) == (2, "mine:1")


def test_changes_of_restart_and_success_are_named() -> None:
    role = {"restartPolicy": "OnFailure", "template": {"spec": POD}}
    worker = {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": {"name": "w"},
        "spec": {"pytorchReplicaSpecs": {"Worker": {**role, "replicas": 3}}},
    }
    found, missing = converted(worker, "jobset")
    assert "backoffLimit" not in found["spec"]["replicatedJobs"][0]["template"]["spec"]
    assert missing == ["role node: restartPolicy OnFailure: it fails after 6 restarts"]
    parts = {
        "name": "a",
        "replicas": 2,
        "template": {"spec": {"parallelism": 3, "backoffLimit": 4, "template": role["template"]}},
    }
    several = {"metadata": {"name": "s"}, "spec": {"replicatedJobs": [parts]}}
    assert converted(several, "vcjob", JOB_SETS)[1] == [
        "spec.replicatedJobs[0].replicas: its 2 Jobs become one role of 6 pods",
        "backoffLimit: 4: a failed pod is not replaced",
    ]
    assert (
        "success: the job succeeds with its master; the other pods are not waited for"
        in converted(several, "pytorchjob", JOB_SETS)[1]
    )
