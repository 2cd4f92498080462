"""Validation of Ray's kinds."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from ray_world import cluster_spec, ray_cluster, ray_job, ray_service

from windlass.api.resources import RAY_CLUSTERS, RAY_CRON_JOBS, RAY_JOBS, RAY_SERVICES
from windlass.api.validation import validate


def errors(obj: dict[str, Any]) -> list[tuple[str, str]]:
    kinds = (RAY_CLUSTERS, RAY_JOBS, RAY_SERVICES, RAY_CRON_JOBS)
    kind = next(found for found in kinds if found.kind == obj["kind"])
    return [(error.field, error.message) for error in validate(kind, copy.deepcopy(obj))]


def test_what_users_write_is_valid() -> None:
    assert errors(ray_cluster()) == []
    assert errors(ray_job()) == []
    assert errors(ray_job(rayClusterSpec=None, clusterSelector={"ray.io/cluster": "c"})) == []
    assert errors(ray_service()) == []
    assert errors(ray_cron_job()) == []


def ray_cron_job(**spec: Any) -> dict[str, Any]:
    given = {"schedule": "*/5 * * * *", "jobTemplate": ray_job()["spec"], **spec}
    metadata = {"name": "c", "namespace": "default"}
    return {"apiVersion": "ray.io/v1", "kind": "RayCronJob", "metadata": metadata, "spec": given}


@pytest.mark.parametrize(
    ("spec", "path", "words"),
    [
        ({"schedule": "TZ=UTC * * * * *"}, "spec.schedule", "set spec.timeZone"),
        ({"schedule": "61 * * * *"}, "spec.schedule", "61"),
        ({"timeZone": "Mars/Olympus"}, "spec.timeZone", "Mars"),
        ({"jobTemplate": {"entrypoint": "a"}}, "spec.jobTemplate.rayClusterSpec", "must be set"),
    ],
)
def test_cron_jobs_that_cannot_run(spec: dict[str, Any], path: str, words: str) -> None:
    ((found, detail),) = errors(ray_cron_job(**spec))
    assert found == path
    assert words in detail


def test_services_that_cannot_run() -> None:
    for kind, words in (("NewClusterWithIncrementalUpgrade", "use NewCluster"), ("Recreate", "None")):
        ((path, detail),) = errors(ray_service(upgradeStrategy={"type": kind}))
        assert path == "spec.upgradeStrategy.type"
        assert words in detail
    manifest = ray_service()
    manifest["metadata"] |= {"name": "a" * 45, "annotations": {"ray.io/initializing-timeout": "-5m"}}
    assert [path for path, _ in errors(manifest)] == [
        "metadata.name",
        "metadata.annotations[ray.io/initializing-timeout]",
    ]
    manifest = ray_service()
    manifest["spec"]["rayClusterConfig"]["headGroupSpec"]["headService"] = {"metadata": {"name": "x"}}
    ((path, _),) = errors(manifest)
    assert path == "spec.rayClusterConfig.headGroupSpec.headService.metadata.name"


GROUP = cluster_spec()["workerGroupSpecs"][0]


@pytest.mark.parametrize(
    ("spec", "path", "words"),
    [
        ({"workerGroupSpecs": [GROUP, GROUP]}, "spec.workerGroupSpecs[1].groupName", ""),
        (
            {"workerGroupSpecs": [{**GROUP, "minReplicas": 6}]},
            "spec.workerGroupSpecs[0].minReplicas",
            "maxReplicas",
        ),
        ({"headGroupSpec": {"template": {}}}, "spec.headGroupSpec.template.spec.containers", "runs Ray"),
        (
            {"workerGroupSpecs": [{**GROUP, "suspend": True}], "enableInTreeAutoscaling": True},
            "spec.workerGroupSpecs[0].suspend",
            "disable enableInTreeAutoscaling",
        ),
    ],
)
def test_clusters_that_cannot_run(spec: dict[str, Any], path: str, words: str) -> None:
    manifest = ray_cluster()
    manifest["spec"] |= spec
    ((found, detail),) = errors(manifest)
    assert found == path
    assert words in detail


@pytest.mark.parametrize(
    ("spec", "path", "words"),
    [
        ({"rayClusterSpec": None}, "spec.rayClusterSpec", "one of rayClusterSpec and clusterSelector"),
        ({"entrypoint": ""}, "spec.entrypoint", "the command to run"),
        ({"submissionMode": "SidecarMode"}, "spec.submissionMode", "HTTPMode"),
        ({"ttlSecondsAfterFinished": 5}, "spec.ttlSecondsAfterFinished", "shutdownAfterJobFinishes: true"),
        ({"clusterSelector": {"a": "b"}}, "spec.clusterSelector", "ray.io/cluster: NAME"),
    ],
)
def test_jobs_that_cannot_run(spec: dict[str, Any], path: str, words: str) -> None:
    ((found, detail),) = errors(ray_job(**spec))
    assert found == path
    assert words in detail


def test_the_controller_of_an_object_is_known_and_stays() -> None:
    ((path, detail),) = errors(ray_job(managedBy="me"))
    assert (path, "multikueue" in detail) == ("spec.managedBy", True)
    manifest = ray_job(managedBy="kueue.x-k8s.io/multikueue")
    assert errors(manifest) == []
    (error,) = validate(RAY_JOBS, manifest, ray_job())
    assert "immutable" in error.message


def test_pods_of_the_autoscaler_v2_are_not_restarted() -> None:
    manifest = ray_cluster(enableInTreeAutoscaling=True, autoscalerOptions={"version": "v2"})
    assert errors(manifest) == []
    manifest["spec"]["headGroupSpec"]["template"]["spec"]["restartPolicy"] = "Always"
    ((path, _),) = errors(manifest)
    assert path == "spec.headGroupSpec.template.spec.restartPolicy"


def test_resources_are_stated_once() -> None:
    manifest = ray_cluster()
    group = {**GROUP, "resources": {"CPU": "1"}, "rayStartParams": {"num-cpus": "2", "labels": "a=b"}}
    manifest["spec"]["workerGroupSpecs"] = [group]
    assert [path for path, _ in errors(manifest)] == [
        "spec.workerGroupSpecs[0].resources",
        "spec.workerGroupSpecs[0].rayStartParams.labels",
    ]


def test_names_leave_room_for_those_of_pods() -> None:
    manifest = ray_job()
    manifest["metadata"]["name"] = "a" * 51
    ((path, message),) = errors(manifest)
    assert path == "metadata.name"
    assert "at most 50 characters" in message
