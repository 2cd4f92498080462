"""Manifests of ``windlass submit --kind``: valid for the server, with the flags in the fields of each kind."""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml
from fakecluster import FakeCluster

from windlass.api import defaults
from windlass.api.errors import WindlassError
from windlass.api.fields.kubeflow import FIELDS
from windlass.api.resources import JOB_SETS, MPI_JOBS, PYTORCH_JOBS
from windlass.api.validation import validate
from windlass.api.wire import field_review
from windlass.cli.jobs.kinds.kind_manifests import KINDS, build_manifest, resource_of
from windlass.cli.jobs.requests.job_builder import JobRequest

Json = dict[str, Any]


def request_of(kind: str, **flags: Any) -> JobRequest:
    return JobRequest(command=("python", "train.py", "$HOME"), kind=kind, **{"time_seconds": 0, **flags})


def manifest(kind: str, embedded: bool = True, **flags: Any) -> Json:
    return build_manifest(
        request_of(kind, **flags), "train", namespace="team", embedded=embedded, environ={"HF_HOME": "/hf"}
    )


def template_of(job: Json) -> Json:
    spec = job["spec"]
    for field in ("template", "tasks", "replicatedJobs"):
        if field in spec:
            inner = spec[field][0] if field != "template" else spec
            return inner["template"]["spec"]["template"] if field == "replicatedJobs" else inner["template"]
    replicas = next(value for field, value in spec.items() if field.endswith("ReplicaSpecs"))
    return next(iter(replicas.values()))["template"]


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind not in ("mpijob", "trainjob")])
def test_manifests_are_valid(kind: str) -> None:
    job = manifest(kind, nodes=1 if kind == "job" else 3, gpus=2, cpus="4", queue="gold", priority="high")
    resource = resource_of(request_of(kind))
    assert (job["apiVersion"], job["kind"]) == (resource.api_version, resource.kind)
    assert job["metadata"]["namespace"] == "team"
    report = field_review.review(resource, job)
    assert (report.unknown, report.errors, report.invalid) == ([], [], [])
    job = report.object
    defaults.apply(resource, job)
    filled = {"spec.selector", "spec.template.metadata.labels"} if kind == "job" else set()  # by admission
    assert {error.field for error in validate(resource, job)} == filled
    pod = template_of(job)["spec"]
    container = pod["containers"][0]
    assert container["command"] == ["python", "train.py", "$$HOME"]
    assert container["resources"]["limits"] == {"cpu": "4", "nvidia.com/gpu": "2"}
    assert {"name": "HF_HOME", "value": "/hf"} in container["env"]
    assert "high" in json.dumps(job)
    assert "gold" in json.dumps(job)


def test_kubeflow_jobs_have_one_master_and_the_other_ranks_as_workers() -> None:
    for resource, fields in FIELDS.items():
        if resource == MPI_JOBS:
            continue
        roles = manifest(resource.singular, nodes=3)["spec"][fields.field]
        counts = {role: body["replicas"] for role, body in roles.items()}
        assert counts in ({"Master": 1, "Worker": 2}, {"Worker": 3})
        names = {body["template"]["spec"]["containers"][0]["name"] for body in roles.values()}
        assert names == {fields.container}
        assert "MASTER_ADDR" not in json.dumps(roles)  # its operator sets it
    alone = manifest("pytorchjob")["spec"][FIELDS[PYTORCH_JOBS].field]
    assert list(alone) == ["Master"]


def test_a_job_set_has_the_rendezvous_of_its_own_names() -> None:
    pods = manifest("jobset", nodes=2)["spec"]["replicatedJobs"][0]["template"]["spec"]
    assert (pods["completions"], pods["parallelism"], pods["completionMode"]) == (2, 2, "Indexed")
    env = {entry["name"]: entry for entry in pods["template"]["spec"]["containers"][0]["env"]}
    assert env["MASTER_ADDR"]["value"] == env["PET_MASTER_ADDR"]["value"] == "train-main-0-0.train"
    index = "metadata.annotations['batch.kubernetes.io/job-completion-index']"
    assert env["RANK"]["valueFrom"] == {"fieldRef": {"fieldPath": index}}
    given = manifest("jobset", nodes=2, environment=("MASTER_ADDR=other",))
    own = given["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]["containers"][0]["env"]
    assert [entry["value"] for entry in own if entry["name"].endswith("MASTER_ADDR")] == ["other", "other"]


def test_mpi_and_train_jobs() -> None:
    mpi = manifest("mpijob", nodes=2, gpus=4)["spec"]
    assert resource_of(request_of("mpijob")).api_version == "kubeflow.org/v2beta1"
    launcher, worker = (mpi["mpiReplicaSpecs"][role] for role in ("Launcher", "Worker"))
    assert (mpi["slotsPerWorker"], worker["replicas"]) == (4, 2)
    assert "resources" not in launcher["template"]["spec"]["containers"][0]
    assert "command" not in worker["template"]["spec"]["containers"][0]
    train = manifest(
        "trainjob", embedded=False, nodes=2, gpus=1, image="i", time_seconds=60, workdir="/data"
    )["spec"]
    assert train["runtimeRef"] == {"name": "torch-distributed"}
    trainer = train["trainer"]
    assert (trainer["numNodes"], trainer["image"], train["activeDeadlineSeconds"]) == (2, "i", 60)
    assert trainer["resourcesPerNode"]["limits"] == {"nvidia.com/gpu": "1"}
    assert trainer["command"][2:] == ['cd /data && exec "$$0" "$$@"', "python", "train.py", "$$HOME"]


def test_flags_that_a_kind_cannot_express_are_refused() -> None:
    for kind, flags, words in (
        ("job", {"nodes": 2}, "the pods of a Job do not know each other's addresses"),
        ("trainjob", {"gpu_memory": "10Gi"}, "its pods come from a runtime"),
        ("trainjob", {"host_network": True}, "its pods come from a runtime"),
    ):
        with pytest.raises(WindlassError, match=f"--kind {kind} cannot express these flags") as refused:
            manifest(kind, **flags)
        assert words in refused.value.evidence


def test_elastic_jobs_are_pytorch_jobs() -> None:
    for kind in ("vcjob", "pytorchjob"):
        job = manifest(kind, nodes=2, elastic=(2, 4))
        assert (job["kind"], resource_of(request_of(kind, elastic=(2, 4)))) == ("PyTorchJob", PYTORCH_JOBS)
    with pytest.raises(WindlassError, match="--kind jobset cannot express these flags"):
        resource_of(request_of("jobset", elastic=(2, 4)))


def test_dry_run_prints_the_manifest_and_creates_nothing(windlass: Any, cluster: FakeCluster) -> None:
    before = len(cluster.objects)
    done = windlass("submit", "--dry-run", "--kind", "JobSet", "-n", "2", "--", "python", "train.py")
    assert done.code == 0
    assert yaml.safe_load(done.out)["apiVersion"] == JOB_SETS.api_version
    shown = json.loads(windlass("submit", "--dry-run", "-o", "json", "--", "true").out)
    assert (shown["kind"], shown["metadata"]["name"]) == ("Job", "true")
    assert len(cluster.objects) == before
    wrong = windlass("submit", "--kind", "slurm", "--", "true")
    assert (wrong.code, "slurm" in wrong.err) == (2, True)
