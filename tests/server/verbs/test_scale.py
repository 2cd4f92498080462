"""Subresource ``scale``: one form for built-in kinds and for those of definitions."""

from __future__ import annotations

import json
from typing import Any

from server_in_process import TABLE, Api

from windlass.api.resources import DEPLOYMENTS, PYTORCH_JOBS

Json = dict[str, Any]
WEB = DEPLOYMENTS.path("default", "web")
SCALE = f"{WEB}/scale"


def deployment(**spec: Any) -> Json:
    template = {
        "metadata": {"labels": {"app": "web"}},
        "spec": {"containers": [{"name": "c", "image": "python:3"}]},
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "web"},
        "spec": {"selector": {"matchLabels": {"app": "web"}}, "template": template, **spec},
    }


def pytorch(**roles: int) -> Json:
    containers = [{"name": "pytorch", "image": "i"}]
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": {"name": "train"},
        "spec": {
            "pytorchReplicaSpecs": {
                role: {"replicas": count, "template": {"spec": {"containers": containers}}}
                for role, count in roles.items()
            }
        },
    }


async def test_scale_of_a_deployment_is_read_and_written(api: Api) -> None:
    (await api.post(DEPLOYMENTS.path("default"), deployment(replicas=2))).ok(201)
    scale = (await api.get(SCALE)).ok()
    assert (scale["kind"], scale["apiVersion"]) == ("Scale", "autoscaling/v1")
    assert scale["spec"] == {"replicas": 2}
    assert scale["status"] == {"replicas": 0, "selector": "app=web"}
    scale["spec"]["replicas"] = 5
    assert (await api.put(SCALE, scale)).ok()["spec"] == {"replicas": 5}
    stored = (await api.get(WEB)).ok()
    assert stored["spec"]["replicas"] == 5
    assert stored["metadata"]["generation"] == 2
    assert (await api.put(SCALE, scale)).status == 409  # the version is the old one
    changed = await api.patch(SCALE, {"spec": {"replicas": 1}})
    assert changed.ok()["spec"] == {"replicas": 1}
    table = (await api.get(SCALE, accept=TABLE)).ok()
    assert [column["name"] for column in table["columnDefinitions"]] == [
        "Name",
        "Desired",
        "Available",
        "Age",
    ]
    assert table["rows"][0]["cells"][:3] == ["web", 1, 0]


async def test_scale_is_checked(api: Api) -> None:
    assert (await api.get(SCALE)).status == 404
    (await api.post(DEPLOYMENTS.path("default"), deployment())).ok(201)
    answer = await api.patch(SCALE, {"spec": {"replicas": -1}})
    assert answer.status == 422
    assert answer.message == (
        'Scale.autoscaling "web" is invalid: spec.replicas: Invalid value: -1: '
        "must be greater than or equal to 0"
    )
    other = {"metadata": {"name": "other"}, "spec": {"replicas": 1}}
    assert (await api.put(SCALE, other)).status == 400
    foreign = {"metadata": {"name": "web", "uid": "0"}, "spec": {"replicas": 1}}
    assert (await api.put(SCALE, foreign)).status == 409
    trial = await api.patch(SCALE, {"spec": {"replicas": 7}}, dryRun="All")
    assert trial.ok()["spec"] == {"replicas": 7}
    assert (await api.get(WEB)).ok()["spec"]["replicas"] == 1


async def test_scale_of_a_definition_uses_its_paths(api: Api) -> None:
    (await api.post(PYTORCH_JOBS.path("default"), pytorch(Master=1, Worker=2))).ok(201)
    path = PYTORCH_JOBS.path("default", "train", "scale")
    assert (await api.get(path)).ok()["spec"] == {"replicas": 2}
    (await api.patch(path, {"spec": {"replicas": 4}})).ok()
    stored = (await api.get(PYTORCH_JOBS.path("default", "train"))).ok()
    assert stored["spec"]["pytorchReplicaSpecs"]["Worker"]["replicas"] == 4
    status = {"replicaStatuses": {"Worker": {"active": 3, "selector": "job=train"}}}
    stored["status"] = status
    (await api.put(PYTORCH_JOBS.path("default", "train", "status"), stored)).ok()
    assert (await api.get(path)).ok()["status"] == {"replicas": 3, "selector": "job=train"}


async def test_scale_of_a_definition_without_the_field_is_an_error(api: Api) -> None:
    (await api.post(PYTORCH_JOBS.path("default"), pytorch(Master=1))).ok(201)
    path = PYTORCH_JOBS.path("default", "train", "scale")
    answer = await api.get(path)
    assert answer.status == 500
    assert ".spec.pytorchReplicaSpecs.Worker.replicas" in answer.message
    # Without its template, a role cannot be created by its size.
    refused = await api.patch(path, {"spec": {"replicas": 4}})
    assert refused.status == 422


async def test_discovery_names_the_scale(api: Api) -> None:
    found = (await api.get("/apis/apps/v1")).ok()["resources"]
    scale = next(one for one in found if one["name"] == "deployments/scale")
    assert (scale["group"], scale["version"], scale["kind"]) == ("autoscaling", "v1", "Scale")
    assert scale["verbs"] == ["get", "patch", "update"]


async def test_generation_counts_what_a_rollout_follows(api: Api) -> None:
    made = (await api.post(DEPLOYMENTS.path("default"), deployment())).ok(201)
    assert made["status"] == {}
    patch = {"metadata": {"annotations": {"note": "x"}}}
    noted = (await api.patch(WEB, patch)).ok()
    assert noted["metadata"]["generation"] == 2
    labelled = await api.patch(WEB, {"metadata": {"labels": {"a": "b"}}})
    assert labelled.ok()["metadata"]["generation"] == 2
    daemons = "/apis/apps/v1/namespaces/default/daemonsets"
    daemon = json.loads(json.dumps(deployment()).replace('"Deployment"', '"DaemonSet"'))
    counter = "deprecated.daemonset.template.generation"
    assert (await api.post(daemons, daemon)).ok(201)["metadata"]["annotations"] == {counter: "1"}
    image = {"spec": {"template": {"spec": {"containers": [{"name": "c", "image": "python:4"}]}}}}
    changed = await api.patch(f"{daemons}/web", image, "strategic")
    assert changed.ok()["metadata"]["annotations"] == {counter: "2"}


async def test_advice_about_pods_is_given_for_a_template(api: Api) -> None:
    """The pods of a workload are created by a controller, which shows no warnings."""
    web = deployment()
    spec = web["spec"]["template"]["spec"]
    spec["containers"][0]["resources"] = {"limits": {"nvidia.com/gpu": "1"}}
    required = "requiredDuringSchedulingIgnoredDuringExecution"
    term = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "web"}}}
    spec["affinity"] = {"podAntiAffinity": {required: [term]}}
    made = await api.post(DEPLOYMENTS.path("default"), web)
    assert "advice: required anti-affinity on kubernetes.io/hostname" in made.warnings
    scaled = await api.patch(WEB, {"spec": {"replicas": 2}})
    assert scaled.warnings == ""
