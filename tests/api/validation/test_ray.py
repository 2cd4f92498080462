"""Validation of RayClusters and RayJobs."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from ray_world import cluster_spec, ray_cluster, ray_job

from windlass.api.resources import RAY_CLUSTERS, RAY_JOBS
from windlass.api.validation import validate


def errors(obj: dict[str, Any]) -> list[tuple[str, str]]:
    kind = RAY_CLUSTERS if obj["kind"] == "RayCluster" else RAY_JOBS
    return [(error.field, error.message) for error in validate(kind, copy.deepcopy(obj))]


def test_what_users_write_is_valid() -> None:
    assert errors(ray_cluster()) == []
    assert errors(ray_job()) == []
    assert errors(ray_job(rayClusterSpec=None, clusterSelector={"ray.io/cluster": "c"})) == []


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


def test_names_leave_room_for_those_of_pods() -> None:
    manifest = ray_job()
    manifest["metadata"]["name"] = "a" * 51
    ((path, message),) = errors(manifest)
    assert path == "metadata.name"
    assert "at most 50 characters" in message
