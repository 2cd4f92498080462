"""Validation of ``kubeflow.org/v1`` jobs: the field that is named, and what to write instead."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from windlass.api.fields.kubeflow import FIELDS
from windlass.api.resources import JAX_JOBS, PYTORCH_JOBS, TF_JOBS, XGBOOST_JOBS, Resource
from windlass.api.validation import validate

Json = dict[str, Any]


def replica(name: str = "pytorch", **more: Any) -> Json:
    return {"template": {"spec": {"containers": [{"name": name, "image": "i"}]}}, **more}


def job(resource: Resource = PYTORCH_JOBS, spec: Json | None = None, **roles: Json) -> Json:
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": resource.kind,
        "metadata": {"name": "j", "namespace": "default"},
        "spec": {FIELDS[resource].field: roles, **(spec or {})},
    }


def problems(resource: Resource, obj: Json, old: Json | None = None) -> dict[str, str]:
    return {error.field: error.message for error in validate(resource, obj, old)}


@pytest.mark.parametrize("resource", list(FIELDS))
def test_smallest_job_of_each_kind_is_valid(resource):
    fields = FIELDS[resource]
    roles = {role: replica(fields.container) for role in fields.roles if role != "Chief"}
    assert problems(resource, job(resource, **roles)) == {}


@pytest.mark.parametrize(
    ("resource", "roles", "field", "words"),
    [
        (PYTORCH_JOBS, {}, "spec.pytorchReplicaSpecs", "Master, Worker"),
        (PYTORCH_JOBS, {"Worker": replica(), "Boss": replica()}, "spec.pytorchReplicaSpecs.Boss", "Master"),
        (
            PYTORCH_JOBS,
            {"Master": replica(replicas=2)},
            "spec.pytorchReplicaSpecs.Master.replicas",
            "exactly 1",
        ),
        (
            PYTORCH_JOBS,
            {"Worker": replica(replicas=0)},
            "spec.pytorchReplicaSpecs.Worker.replicas",
            "at least 1",
        ),
        (
            PYTORCH_JOBS,
            {"Worker": {"replicas": 1}},
            "spec.pytorchReplicaSpecs.Worker.template.spec",
            "pod template",
        ),
        (XGBOOST_JOBS, {"Worker": replica("xgboost")}, "spec.xgbReplicaSpecs.Master", "has one"),
        (
            TF_JOBS,
            {"Chief": replica("tensorflow"), "Master": replica("tensorflow")},
            "spec.tfReplicaSpecs.Master",
            "either Chief or Master",
        ),
        (
            JAX_JOBS,
            {"Worker": replica("jax"), "worker": replica("jax")},
            "spec.jaxReplicaSpecs.worker",
            "Duplicate",
        ),
    ],
)
def test_field_is_named(resource, roles, field, words):
    found = problems(resource, job(resource, **roles))
    assert list(found) == [field]
    assert words in found[field]


def test_two_containers_need_one_with_the_name_of_the_kind():
    two = replica("train")
    two["template"]["spec"]["containers"].append({"name": "side", "image": "i"})
    found = problems(PYTORCH_JOBS, job(Worker=two))
    assert list(found) == ["spec.pytorchReplicaSpecs.Worker.template.spec.containers"]
    assert "named pytorch" in found["spec.pytorchReplicaSpecs.Worker.template.spec.containers"]


def test_name_that_makes_pod_names_too_long():
    long = job(Worker=replica(replicas=100))
    long["metadata"]["name"] = "n" * 60
    assert "shorten the name by 7" in problems(PYTORCH_JOBS, long)["metadata.name"]


@pytest.mark.parametrize(
    ("policy", "replicas", "field"),
    [
        ({"minReplicas": 4, "maxReplicas": 2}, 3, "spec.elasticPolicy.minReplicas"),
        ({"minReplicas": 4, "maxReplicas": 8}, 3, "spec.pytorchReplicaSpecs.Worker.replicas"),
        ({"minReplicas": 1, "maxReplicas": 2}, 3, "spec.pytorchReplicaSpecs.Worker.replicas"),
        ({"minReplicas": 1, "maxReplicas": 3}, 3, None),
    ],
)
def test_bounds_of_elastic_jobs(policy, replicas, field):
    found = problems(PYTORCH_JOBS, job(spec={"elasticPolicy": policy}, Worker=replica(replicas=replicas)))
    assert list(found) == ([field] if field else [])


def test_managed_by_cannot_be_changed():
    old = job(spec={"runPolicy": {"managedBy": "kubeflow.org/training-operator"}}, Worker=replica())
    new = copy.deepcopy(old)
    new["spec"]["runPolicy"]["managedBy"] = "kueue.x-k8s.io/multikueue"
    old["metadata"]["resourceVersion"] = new["metadata"]["resourceVersion"] = "1"
    assert "spec.runPolicy.managedBy" in problems(PYTORCH_JOBS, new, old)


def test_volume_that_another_role_declares_is_no_error():
    mounted = replica()
    mounted["template"]["spec"]["containers"][0]["volumeMounts"] = [{"name": "data", "mountPath": "/d"}]
    lender = replica()
    lender["template"]["spec"]["volumes"] = [{"name": "data", "emptyDir": {}}]
    assert problems(PYTORCH_JOBS, job(Master=mounted, Worker=lender)) == {}
    found = problems(PYTORCH_JOBS, job(Master=mounted, Worker=replica()))
    assert list(found) == ["spec.pytorchReplicaSpecs.Master.template.spec.containers[0].volumeMounts[0].name"]
