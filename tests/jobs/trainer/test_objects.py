"""JobSets of TrainJobs: environment of each framework, patches, initializers, elastic bounds."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from windlass.api import annotations as names
from windlass.api.resources import COSCHEDULING_POD_GROUPS, POD_GROUPS
from windlass.jobs.trainer.builtin import BUILT_IN
from windlass.jobs.trainer.objects import TrainObjects, build_objects, build_snapshot, is_from, read_snapshot

Json = dict[str, Any]
INDEX = "metadata.annotations['batch.kubernetes.io/job-completion-index']"


def train_job(runtime: str = "torch-distributed", trainer: Json | None = None, **spec: Any) -> Json:
    return {
        "metadata": {"name": "t", "namespace": "default", "uid": "u"},
        "spec": {"runtimeRef": {"name": runtime}, "trainer": trainer or {}, **spec},
    }


def built(job: Json, runtime: Json | None = None) -> TrainObjects:
    return build_objects(job, runtime or BUILT_IN[job["spec"]["runtimeRef"]["name"]], {})


def replicated(objects: TrainObjects, name: str = "node") -> Json:
    return next(job for job in objects.job_set["spec"]["replicatedJobs"] if job["name"] == name)


def container(objects: TrainObjects, name: str = "node") -> Json:
    return replicated(objects, name)["template"]["spec"]["template"]["spec"]["containers"][0]


def environment(objects: TrainObjects, name: str = "node") -> dict[str, str]:
    return {
        entry["name"]: entry.get("value", INDEX if "valueFrom" in entry else "")
        for entry in container(objects, name).get("env") or ()
    }


GPUS = {"limits": {"nvidia.com/gpu": "4"}}


@pytest.mark.parametrize(
    ("runtime", "trainer", "wanted"),
    [
        (
            "torch-distributed",
            {"numNodes": 3},
            {
                "PET_NNODES": "3",
                "PET_NPROC_PER_NODE": "1",
                "PET_NODE_RANK": INDEX,
                "PET_MASTER_ADDR": "t-node-0-0.t",
                "PET_MASTER_PORT": "29500",
            },
        ),
        ("torch-distributed", {"resourcesPerNode": GPUS}, {"PET_NPROC_PER_NODE": "auto"}),
        (
            "torch-distributed",
            {"resourcesPerNode": {"requests": {"cpu": "2500m"}}},
            {"PET_NPROC_PER_NODE": "3"},
        ),
        (
            "torch-distributed",
            {"numProcPerNode": "cpu", "resourcesPerNode": {**GPUS, "requests": {"cpu": 2}}},
            {"PET_NPROC_PER_NODE": "2"},
        ),
        ("torch-distributed", {"numProcPerNode": "gpu"}, {"PET_NPROC_PER_NODE": "gpu"}),
        ("torch-distributed", {"numProcPerNode": 8}, {"PET_NPROC_PER_NODE": "8"}),
        (
            "jax-distributed",
            {"numNodes": 2},
            {
                "JAX_NUM_PROCESSES": "2",
                "JAX_PROCESS_ID": INDEX,
                "JAX_COORDINATOR_ADDRESS": "t-node-0-0.t:29500",
            },
        ),
        (
            "xgboost-distributed",
            {"numNodes": 2, "resourcesPerNode": GPUS},
            {
                "DMLC_TRACKER_URI": "t-node-0-0.t",
                "DMLC_TRACKER_PORT": "29500",
                "DMLC_TASK_ID": INDEX,
                "DMLC_NUM_WORKER": "8",
            },
        ),
        ("plain", {"numNodes": 2, "env": [{"name": "A", "value": "b"}]}, {"A": "b"}),
    ],
)
def test_environment_of_each_framework(runtime: str, trainer: Json, wanted: dict[str, str]):
    found = built(train_job(runtime, trainer))
    assert wanted.items() <= environment(found).items()
    spec = replicated(found)["template"]["spec"]
    nodes = trainer.get("numNodes", 1)
    assert (spec["parallelism"], spec["completions"]) == (nodes, nodes)


def test_trainer_changes_image_command_and_resources_of_the_main_container():
    trainer = {
        "image": "mine",
        "command": ["python"],
        "args": ["train.py"],
        "resourcesPerNode": {"limits": {"cpu": "2"}},
    }
    found = container(built(train_job(trainer=trainer)))
    assert (found["image"], found["command"], found["args"]) == ("mine", ["python"], ["train.py"])
    assert found["resources"] == {"limits": {"cpu": "2"}}


def test_mpi_job_gets_keys_host_file_and_a_launcher_that_is_a_node():
    found = built(train_job("deepspeed-distributed", {"numNodes": 3, "resourcesPerNode": GPUS}))
    assert found.ssh_secret == "t-mpi-ssh-auth"
    assert found.host_file is not None
    assert found.host_file["data"]["hostfile"] == (
        "t-node-0-0.t slots=4\nt-node-0-1.t slots=4\nt-launcher-0-0.t slots=4\n"
    )
    assert replicated(found, "launcher")["template"]["spec"]["parallelism"] == 1
    assert environment(found, "launcher")["OMPI_MCA_orte_default_hostfile"] == "/etc/mpi/hostfile"
    assert environment(found, "launcher")["PRTE_MCA_prte_set_default_slots"] == "4"
    mounts = {mount["name"] for mount in container(found)["volumeMounts"]}
    assert mounts == {"mpi-ssh-auth"}
    assert container(found)["command"] == ["/usr/sbin/sshd"]
    template = replicated(found, "launcher")["template"]["spec"]["template"]
    assert template["metadata"]["annotations"][names.REMOTE_SHELL] == "exec"


def test_patches_of_all_managers_are_merged_in_their_order():
    def patch(manager: str, pod: Json) -> Json:
        jobs = [{"name": "node", "template": {"spec": {"template": {"spec": pod}}}}]
        metadata = {"labels": {"by": manager}}
        spec = {"template": {"metadata": metadata, "spec": {"replicatedJobs": jobs}}}
        return {"manager": manager, "trainingRuntimeSpec": spec}

    mount = {"name": "data", "mountPath": "/data"}
    job = train_job(
        runtimePatches=[
            patch("a.io/a", {"nodeSelector": {"pool": "slow", "zone": "1"}}),
            patch(
                "b.io/b",
                {
                    "nodeSelector": {"pool": "fast"},
                    "containers": [{"name": "node", "volumeMounts": [mount]}],
                    "volumes": [{"name": "data", "emptyDir": {}}],
                },
            ),
        ],
        podTemplateOverrides=[{"targetJobs": [{"name": "node"}], "spec": {"serviceAccountName": "sa"}}],
    )
    found = built(job)
    pod = replicated(found)["template"]["spec"]["template"]["spec"]
    assert pod["nodeSelector"] == {"pool": "fast", "zone": "1"}
    assert pod["serviceAccountName"] == "sa"
    assert pod["containers"][0]["volumeMounts"] == [mount]
    assert pod["containers"][0]["image"].startswith("pytorch/")
    assert found.job_set["metadata"]["labels"]["by"] == "b.io/b"


def with_initializer() -> Json:
    runtime = copy.deepcopy(BUILT_IN["torch-distributed"])
    jobs = runtime["spec"]["template"]["spec"]["replicatedJobs"]
    jobs[0]["dependsOn"] = [{"name": "load", "status": "Complete"}]
    step = {"metadata": {"labels": {"trainer.kubeflow.org/trainjob-ancestor-step": "dataset-initializer"}}}
    pod = {"containers": [{"name": "dataset-initializer", "image": "i"}]}
    jobs.insert(0, {"name": "load", "template": {**step, "spec": {"template": {"spec": pod}}}})
    return runtime


def test_initializer_gets_its_uri_and_secret_and_is_not_in_the_gang():
    runtime = with_initializer()
    runtime["spec"]["podGroupPolicy"] = {"volcano": {"networkTopology": {"mode": "hard"}}}
    dataset = {"storageUri": "hf://a/b", "secretRef": {"name": "s"}}
    found = built(train_job(trainer={"numNodes": 4}, initializer={"dataset": dataset}), runtime)
    assert environment(found, "load") == {"STORAGE_URI": "hf://a/b"}
    assert container(found, "load")["envFrom"] == [{"secretRef": {"name": "s"}}]
    assert found.group is not None
    resource, group = found.group
    assert resource is POD_GROUPS
    assert group["spec"]["minMember"] == 4
    assert group["spec"]["networkTopology"] == {"mode": "hard"}
    template = replicated(found)["template"]["spec"]["template"]
    assert template["metadata"]["annotations"][names.GROUP_NAME] == "t"
    assert "metadata" not in replicated(found, "load")["template"]["spec"]["template"]


def test_coscheduling_group_has_the_form_of_that_plugin():
    runtime = copy.deepcopy(BUILT_IN["torch-distributed"])
    runtime["spec"]["podGroupPolicy"] = {"coscheduling": {"scheduleTimeoutSeconds": 120}}
    found = built(train_job(trainer={"numNodes": 2}), runtime)
    assert found.group is not None
    resource, group = found.group
    assert resource is COSCHEDULING_POD_GROUPS
    assert (group["spec"]["minMember"], group["spec"]["scheduleTimeoutSeconds"]) == (2, 120)
    labels = replicated(found)["template"]["spec"]["template"]["metadata"]["labels"]
    assert labels[names.GROUP_NAME_COSCHEDULING] == "t"


def test_elastic_job_starts_with_its_minimum_and_has_pods_for_its_maximum():
    runtime = copy.deepcopy(BUILT_IN["torch-distributed"])
    runtime["spec"]["mlPolicy"]["torch"] = {"elasticPolicy": {"minNodes": 2, "maxNodes": 4, "maxRestarts": 5}}
    found = built(train_job(), runtime)
    assert environment(found)["PET_NNODES"] == "2:4"
    assert environment(found)["PET_RDZV_BACKEND"] == "c10d"
    assert environment(found)["PET_RDZV_ENDPOINT"] == "t-node-0-0.t.default.svc.cluster.local:29500"
    assert environment(found)["PET_MAX_RESTARTS"] == "5"
    spec = replicated(found)["template"]["spec"]
    assert (spec["parallelism"], spec["completions"]) == (4, 4)
    assert spec["successPolicy"] == {"rules": [{"succeededCount": 2}]}
    assert found.group is not None
    assert found.group[1]["spec"]["minMember"] == 2


def test_snapshot_is_read_back():
    job, runtime = train_job(), BUILT_IN["torch-distributed"]
    found = read_snapshot(build_snapshot(job, runtime))
    assert found is not None
    assert found["spec"] == runtime["spec"]
    assert is_from(found, job["spec"]["runtimeRef"])
    assert not is_from(found, {"name": "another"})
