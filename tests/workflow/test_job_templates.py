"""``job`` templates: kinds, their ends, and parallel layouts against the GPUs of the job."""

from __future__ import annotations

from typing import Any

import pytest

from windlass.workflow.checks.parallel import PodGroupSize, groups_of
from windlass.workflow.checks.validation import check_spec
from windlass.workflow.jobs import job_resource
from windlass.workflow.language.errors import EvaluationError
from windlass.workflow.language.selectors import holds

Json = dict[str, Any]


def pod(gpus: int) -> Json:
    return {"spec": {"containers": [{"name": "c", "resources": {"limits": {"nvidia.com/gpu": gpus}}}]}}


def training(workers: int, gpus: int) -> Json:
    replicas = {
        "Master": {"replicas": 1, "template": pod(gpus)},
        "Worker": {"replicas": workers, "template": pod(gpus)},
    }
    return {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "spec": {"pytorchReplicaSpecs": replicas}}


def problems(job: Json) -> list[tuple[str, str]]:
    found = check_spec({"entrypoint": "m", "templates": [{"name": "m", "job": job}]})
    return [(one.path.removeprefix("spec.templates[0].job"), one.message) for one in found]


def test_groups_of_pods_of_several_kinds() -> None:
    jobset = {
        "spec": {
            "replicatedJobs": [{"replicas": 2, "template": {"spec": {"parallelism": 4, "template": pod(1)}}}]
        }
    }
    assert groups_of(training(3, 8)) == [PodGroupSize(1, 8), PodGroupSize(3, 8)]
    assert groups_of(jobset) == [PodGroupSize(8, 1)]
    assert groups_of({"spec": {"tasks": [{"replicas": 2, "template": pod(4)}]}}) == [PodGroupSize(2, 4)]


def test_layout_is_compared_with_the_gpus_of_the_job() -> None:
    fits = {"strategy": "hybrid", "degree": {"data": 2, "tensor": 8, "pipeline": 2}, "gpusPerReplica": 16}
    assert problems({"manifest": training(3, 8), "parallel": fits}) == []
    ((path, message),) = problems({"manifest": training(1, 8), "parallel": fits})
    assert path == ".parallel.degree"
    assert message.startswith("data 2 x tensor 8 x pipeline 2 needs 32 GPUs, and the pods of the job have 16")
    found = problems({"manifest": training(3, 4), "parallel": {"degree": {"tensor": 8, "pipeline": 2}}})
    assert found == [
        (
            ".parallel.degree.tensor",
            "a tensor group of 8 GPUs does not fit pods with 4: it has to be on one node",
        )
    ]
    table = {
        ".parallel.strategy": {"parallel": {"strategy": "magic"}},
        ".parallel.degree.data": {"parallel": {"degree": {"data": 0}}},
        ".parallel.degree": {"parallel": {"degree": {"width": 2}}},
        ".parallel.gpusPerReplica": {"parallel": {"degree": {"data": 32}, "gpusPerReplica": 2}},
        ".scheduling.gang": {"scheduling": {"gang": "Sometimes"}},
    }
    for path, extra in table.items():
        assert path in {found for found, _ in problems({"manifest": training(3, 8), **extra})}, path


def test_job_knows_how_its_kind_ends() -> None:
    resource = job_resource({"manifest": training(1, 0)})
    assert resource["manifest"]["metadata"]["generateName"] == "pytorchjob-"
    done = {"status": {"conditions": [{"type": "Succeeded", "status": "True"}]}}
    assert holds(resource["successCondition"], done)
    assert not holds(resource["failureCondition"], done)
    with pytest.raises(EvaluationError, match="write successCondition"):
        job_resource({"manifest": {"apiVersion": "example.org/v1", "kind": "Thing"}})
    assert "a job with apiVersion and kind is needed" in problems({"manifest": {}})[0][1]


def test_conditions_are_label_selectors_over_fields() -> None:
    found = {"status": {"succeeded": 3, "phase": "Done", "items": [{"a": "x"}]}}
    table = {
        "status.succeeded > 2, status.phase == Done": True,
        "status.succeeded < 3": False,
        "status.phase in (Done, Failed)": True,
        "status.phase notin (Done)": False,
        "status.phase != Done": False,
        "status.items.0.a = x": True,
        "status.missing": False,
        "!status.missing": True,
        "status.missing > 0": False,
    }
    for text, expected in table.items():
        assert holds(text, found) is expected, text
    with pytest.raises(EvaluationError, match="not understood"):
        holds("status.phase ~ x", found)
