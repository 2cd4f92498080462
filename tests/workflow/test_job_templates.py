"""``job`` templates: kinds, their ends, and parallel layouts against the GPUs of the job."""

from __future__ import annotations

from typing import Any

import pytest

from windlass.workflow.checks.jobs import job_problems
from windlass.workflow.checks.parallel import NodeSize, node_advice, node_problems, rack_label
from windlass.workflow.checks.validation import check_spec
from windlass.workflow.jobs.groups import PodGroupSize, groups_of
from windlass.workflow.jobs.resource import job_resource, manifest_of
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
            "a tensor group of 8 GPUs does not fit pods with 4: it has to be in one pod, "
            "unless the job has pods of one numbered role alone",
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


def test_layout_is_written_into_the_pods() -> None:
    """A tensor group of two pods is a slice on one node; the stages of a pipeline share a rack if possible."""
    degree = {"data": 2, "tensor": 2, "pipeline": 2}
    placement = {"tensor": "sameNode", "pipeline": "sameRack", "rackLabel": "example.com/rack"}
    job = {"template": pod(1), "parallel": {"strategy": "hybrid", "degree": degree, "placement": placement}}
    assert problems(job) == []
    body = job_resource(job, {"queue": "q"})["manifest"]
    (task,) = body["spec"]["tasks"]
    assert (task["replicas"], body["spec"]["minAvailable"], body["spec"]["queue"]) == (8, 8, "q")
    assert task["template"]["metadata"]["annotations"] == {
        "kueue.x-k8s.io/podset-slice-size": "2",
        "kueue.x-k8s.io/podset-slice-required-topology": "kubernetes.io/hostname",
        "kueue.x-k8s.io/podset-preferred-topology": "example.com/rack",
    }
    (container,) = task["template"]["spec"]["containers"]
    assert {one["name"]: one["value"] for one in container["env"]}["TENSOR_PARALLEL_SIZE"] == "2"
    whole = {"template": pod(2), "parallel": {"degree": {"data": 2, "tensor": 2}}}
    (task,) = job_resource(whole)["manifest"]["spec"]["tasks"]
    assert (task["replicas"], task["template"].get("metadata")) == (2, None)


def test_layout_without_gpus_counts_processes() -> None:
    worker = {"replicas": 2, "template": pod(0)}
    manifest = {**training(0, 0), "spec": {"nprocPerNode": "2", "pytorchReplicaSpecs": {"Worker": worker}}}
    assert problems({"manifest": manifest, "parallel": {"degree": {"data": 2, "tensor": 2}}}) == []
    ((_, message),) = problems({"manifest": manifest, "parallel": {"degree": {"data": 8}}})
    assert message == "data 8 needs 8 processes, and the pods of the job have 4: change replicas or a degree"


def test_layout_is_compared_with_the_nodes() -> None:
    nodes = [NodeSize("a", 4, {"example.com/rack": "r1"}), NodeSize("b", 2, {"example.com/rack": "r1"})]
    assert rack_label(nodes) == "example.com/rack"

    def found(gpus: int, **degree: int) -> tuple[list[str], list[str]]:
        placement = {"pipeline": "sameRack", "rackLabel": "example.com/rack"}
        job = {"template": pod(gpus), "parallel": {"degree": degree, "placement": placement}}
        manifest = manifest_of(job)
        return [text for *_, text in node_problems(job, manifest, nodes)], list(
            node_advice(job, manifest, nodes)
        )

    assert found(2, data=2, tensor=2) == ([], [])
    assert found(8, tensor=8)[0] == ["a pod of 8 GPUs fits no node: the largest, a, has 4"]
    assert found(1, tensor=8)[0] == ["a tensor group of 8 GPUs fits no node: the largest has 4"]
    waits, spread = found(4, tensor=4, pipeline=2)[1]
    assert (
        waits == "parallel: tensor 4 x pipeline 2 needs 8 GPUs, all nodes together have 6: it waits for more"
    )
    assert spread.endswith("a pipeline of 8 GPUs fits no group of nodes with one example.com/rack, "
                           "the largest has 6: it is spread")  # fmt: skip


def test_sizes_that_refer_to_parameters_are_checked_when_they_are_known() -> None:
    text = "apiVersion: batch.volcano.sh/v1alpha1\nkind: Job\nspec: {tasks: [{replicas: '{{inputs.parameters.n}}'}]}"
    job = {"manifest": text, "parallel": {"degree": {"data": 3}}}
    assert job_problems(job) == []
    known = {
        **job,
        "manifest": text.replace("'{{inputs.parameters.n}}'", "2, template: {spec: {containers: [{}]}}"),
    }
    assert job_problems(known)[0][2].startswith("data 3 needs 3 processes, and the pods of the job have 2")


def test_gang_can_be_left_out_where_the_kind_allows_it() -> None:
    none = {"scheduling": {"gang": "None", "queue": "q"}}
    policy = job_resource({"manifest": training(3, 1), **none})["manifest"]["spec"]["runPolicy"]
    assert policy == {"schedulingPolicy": {"queue": "q", "minAvailable": 1}}
    jobset = {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "spec": {}}
    assert problems({"manifest": jobset, **none})[0][0] == ".scheduling.gang"
    labelled = job_resource({"manifest": jobset, "scheduling": {"queue": "q"}})["manifest"]["metadata"]
    assert labelled["annotations"] == {"scheduling.volcano.sh/queue-name": "q"}


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
        "status.phase = Failed || status.succeeded > 2": True,
    }
    for text, expected in table.items():
        assert holds(text, found) is expected, text
    with pytest.raises(EvaluationError, match="not understood"):
        holds("status.phase ~ x", found)
