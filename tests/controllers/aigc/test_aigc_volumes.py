"""AIGCJobs of which a claim or ConfigMap is missing: no pod before it exists, and what is told."""

from __future__ import annotations

from typing import Any

import pytest
from aigc_world import AigcWorld, aigc_job

from windlass.api.resources import AIGC_JOBS, CONFIG_MAPS, PERSISTENT_VOLUME_CLAIMS, PODS
from windlass.cli.generation import progress
from windlass.cli.jobs.jobs import Job
from windlass.controllers.aigc.reconcile import MISSING_SECONDS
from windlass.jobs.aigc.volumes import CONDITION

OUTPUTS = {"outputs": {"pvc": {"claimName": "films"}}}
INPUT = {"input": {"source": "pvc", "pvc": {"claimName": "films", "path": "rows.jsonl"}}}
ROWS = {"input": {"source": "configMap", "configMap": {"name": "films", "key": "rows.jsonl"}}}
MODEL = {"model": {"name": "m", "source": "pvc://films/m"}}
CACHE = {"model": {"name": "m", "source": "hf", "preload": {"strategy": "PVC", "claimName": "films"}}}


def template(pod: dict[str, Any] | None = None, **container: Any) -> dict[str, Any]:
    return {"template": {"spec": {"containers": [{"name": "worker", **container}], **(pod or {})}}}


CLAIM_VOLUME = template({"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "films"}}]})
MAP_VOLUME = template(
    {"volumes": [{"name": "v", "projected": {"sources": [{"configMap": {"name": "films"}}]}}]}
)
MAP_ENV = template(envFrom=[{"configMapRef": {"name": "films"}}])
STAGES = [
    {"name": "prepare", "kind": "cpu"},
    {"name": "infer", "kind": "gpu", "resources": {"limits": {"nvidia.com/gpu": 1}}},
]
ALL = ["train-driver", "train-worker-0", "train-worker-1"]
EAGER = {"progressive": {"gpuBind": "Eager"}}


def claim(**metadata: Any) -> dict[str, Any]:
    return {"metadata": {"name": "films", **metadata}, "spec": {}, "status": {"phase": "Pending"}}


def ready(world: AigcWorld) -> dict[str, Any]:
    found = [one for one in world.status["conditions"] if one["type"] == CONDITION]
    assert len(found) == 1, found
    return found[0]


@pytest.mark.parametrize(
    ("spec", "field", "resource", "reason"),
    [
        (OUTPUTS, "spec.outputs.pvc.claimName", PERSISTENT_VOLUME_CLAIMS, "VolumeClaimUnavailable"),
        (INPUT, "spec.input.pvc.claimName", PERSISTENT_VOLUME_CLAIMS, "VolumeClaimUnavailable"),
        (ROWS, "spec.input.configMap.name", CONFIG_MAPS, "Misconfigured"),
        (MODEL, "spec.model.source", PERSISTENT_VOLUME_CLAIMS, "VolumeClaimUnavailable"),
        (CACHE, "spec.model.preload.claimName", PERSISTENT_VOLUME_CLAIMS, "VolumeClaimUnavailable"),
        (
            CLAIM_VOLUME,
            "spec.template.spec.volumes[0].persistentVolumeClaim.claimName",
            PERSISTENT_VOLUME_CLAIMS,
            "VolumeClaimUnavailable",
        ),
        (
            MAP_VOLUME,
            "spec.template.spec.volumes[0].projected.sources[0].configMap.name",
            CONFIG_MAPS,
            "Misconfigured",
        ),
        (
            MAP_ENV,
            "spec.template.spec.containers[0].envFrom[0].configMapRef.name",
            CONFIG_MAPS,
            "Misconfigured",
        ),
    ],
)
def test_no_pod_is_created_before_the_named_object_exists(spec, field, resource, reason):
    world = AigcWorld(aigc_job(**spec, **EAGER))
    world.settle()
    assert (world.pods(), world.group) == ([], None)  # an admitted PodGroup would hold a share of its queue
    assert field in Job("AIGCJob", world.job).condition_message
    condition = ready(world)
    assert (condition["status"], condition["reason"]) == ("False", reason)
    assert f"{resource.kind} films ({field}) does not exist in namespace default" in condition["message"]
    assert "kubectl create" in condition["message"]
    assert world.status["message"] == f"{reason}: {condition['message']}"
    assert dict(progress.facts(world.job))["Volumes"] == condition["message"]
    assert (world.last.requeue_after == MISSING_SECONDS) is (resource is CONFIG_MAPS)
    world.api.put(resource, claim())
    world.settle()
    assert world.pods() == ALL
    assert (ready(world)["status"], world.status.get("message")) == ("True", None)
    assert "Volumes" not in dict(progress.facts(world.job))


def test_optional_reference_holds_no_pod():
    optional = {"name": "films", "optional": True}
    reference = {"name": "A", "valueFrom": {"configMapKeyRef": {**optional, "key": "a"}}}
    volumes = {"volumes": [{"name": "v", "configMap": optional}]}
    world = AigcWorld(aigc_job(**template(volumes, env=[reference]), **EAGER))
    world.settle()
    assert world.pods() == ALL


def test_claim_of_the_template_of_a_stage_is_looked_at():
    stages = [STAGES[0], {**STAGES[1], **CLAIM_VOLUME}]
    world = AigcWorld(aigc_job(gpus=0, replicas=None, stages=stages))
    world.settle()
    assert "(spec.stages[1].template.spec.volumes[0]." in ready(world)["message"]
    assert world.pods() == []


def test_claim_that_goes_before_the_first_pod_takes_the_group_out_of_its_queue():
    world = AigcWorld(aigc_job(**OUTPUTS, **EAGER))
    world.api.put(PERSISTENT_VOLUME_CLAIMS, claim())
    world.reconcile()
    world.reconcile()
    assert world.group is not None
    for name in world.pods():
        world.api.remove(PODS, f"default/{name}")
    world.api.remove(PERSISTENT_VOLUME_CLAIMS, "default/films")
    world.settle()
    assert (world.group, world.pods()) == (None, [])


@pytest.mark.parametrize("spec", [OUTPUTS, MODEL, CACHE, CLAIM_VOLUME])
def test_claim_brings_the_jobs_that_name_it_to_the_controller(spec):
    world = AigcWorld(aigc_job(**spec))
    world.settle()
    watched = [one for one in world.controller.watches() if one.informer is world.controller._objects._claims]
    world.api.put(PERSISTENT_VOLUME_CLAIMS, claim())
    world.api.put(PERSISTENT_VOLUME_CLAIMS, {**claim(), "metadata": {"name": "other"}})
    items = watched[0].informer.items
    assert list(watched[0].keys(items["default/films"])) == ["default/train"]
    assert list(watched[0].keys(items["default/other"])) == []


def test_claim_that_is_being_deleted_holds_new_pods_and_no_running_job():
    world = AigcWorld(aigc_job(**OUTPUTS, **EAGER))
    world.api.put(PERSISTENT_VOLUME_CLAIMS, claim())
    world.begin()
    assert world.pods() == ALL
    gone = {"deletionTimestamp": "2026-01-01T00:00:00Z"}
    world.api.change(PERSISTENT_VOLUME_CLAIMS, "default/films", metadata=gone)
    world.settle()
    assert (world.pods(), world.phase) == (ALL, "Running")
    other = AigcWorld(aigc_job(**OUTPUTS, **EAGER))
    other.api.put(PERSISTENT_VOLUME_CLAIMS, claim(**gone))
    other.settle()
    assert other.pods() == []
    assert "films (spec.outputs.pvc.claimName) is being deleted" in ready(other)["message"]


@pytest.mark.parametrize("bind", ["Eager", "Reserve", "Late"])
def test_times_of_stages_begin_when_the_claim_exists(bind: str):
    progressive = {"gpuBind": bind, "reserveTimeoutSeconds": 30, "onNoGPU": "CPUFallback"}
    job = aigc_job(gpus=0, replicas=None, stages=STAGES, progressive=progressive, **OUTPUTS)
    world = AigcWorld(job)
    world.settle()
    world.pass_time(3600)
    world.settle()
    assert world.pods() == []
    for stage in world.status["stages"]:
        assert not {"boundAt", "reservedAt", "onCPU", "expiredAt"} & stage.keys(), stage
    world.api.put(PERSISTENT_VOLUME_CLAIMS, claim())
    world.settle()
    assert {"train-driver", "train-prepare-0"} <= set(world.pods())
    (infer,) = [one for one in world.status["stages"] if one["name"] == "infer"]
    assert ("boundAt" in infer, "reservedAt" in infer) == (bind != "Late", bind == "Reserve")
    assert "onCPU" not in infer


def test_another_claim_of_a_suspended_job_is_used():
    world = AigcWorld(aigc_job(**OUTPUTS, **EAGER))
    world.api.put(PERSISTENT_VOLUME_CLAIMS, {**claim(), "metadata": {"name": "other"}})
    world.settle()
    world.change_spec(policy={"suspend": True})
    world.settle()
    assert world.phase == "Suspended"
    world.change_spec(policy={"suspend": False}, outputs={"pvc": {"claimName": "other"}})
    world.settle()
    assert world.pods() == ALL
    volumes = world.pod("train-driver")["spec"]["volumes"]
    assert {"claimName": "other"} in [one.get("persistentVolumeClaim") for one in volumes]
    assert world.api.object(AIGC_JOBS, "default/train")
