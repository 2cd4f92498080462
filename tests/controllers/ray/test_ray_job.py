"""Life of a RayJob: its cluster, its submitter, retries, suspension, deletion, crashes of the controller."""

from __future__ import annotations

import contextlib
import copy
from typing import Any

import pytest
from example_counts import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from ray_world import Crash, RayWorld, ray_job

from windlass.api.resources import BATCH_JOBS, PODS, RAY_CLUSTERS, RAY_JOBS
from windlass.jobs.ray.job import read_ray_job, submit_command


def ready(**spec: Any) -> RayWorld:
    """Return a job with a cluster that is ready and a submission on its way."""
    world = RayWorld(ray_job(**spec))
    world.settle()
    world.run()
    world.settle()
    return world


def test_a_job_from_its_cluster_to_its_end():
    world = RayWorld(ray_job())
    world.settle()
    (cluster,) = world.api.objects(RAY_CLUSTERS)
    assert world.state == "Initializing"
    assert cluster["metadata"]["annotations"] == {"a": "b"}
    assert cluster["metadata"]["labels"]["ray.io/originated-from-cr-name"] == "j"
    world.run()
    world.settle()
    assert world.state == "Running"
    name = cluster["metadata"]["name"]
    assert world.job_status["dashboardURL"] == f"{name}-head-svc.default.svc.cluster.local:8265"
    (submitter,) = world.api.objects(BATCH_JOBS)
    container = submitter["spec"]["template"]["spec"]["containers"][0]
    assert container["command"] == ["/bin/bash", "-ce", "--"]
    assert f"--submission-id {world.job_status['jobId']} -- python a.py ; fi" in container["args"][0]
    world.tell("RUNNING")
    world.settle()
    assert world.job_status["jobStatus"] == "RUNNING"
    world.tell("SUCCEEDED", "done")
    world.settle()
    assert world.state == "Running", "the submitter still copies the output"
    world.end_submitter()
    world.settle()
    status = world.job_status
    assert (world.state, status["jobStatus"], status["message"], status["succeeded"]) == (
        "Complete",
        "SUCCEEDED",
        "done",
        1,
    )
    assert status["rayJobInfo"] == {"startTime": "2026-01-01T12:00:00Z"}
    assert len(world.api.objects(RAY_CLUSTERS)) == 1, "it is kept without shutdownAfterJobFinishes"


def test_a_job_that_does_not_run_in_time_fails():
    world = RayWorld(ray_job(preRunningDeadlineSeconds=60))
    world.settle()
    world.api.clock.jump(61)
    world.settle()
    assert (world.state, world.job_status["reason"]) == ("Failed", "PreRunningDeadlineExceeded")
    world = ready(preRunningDeadlineSeconds=60)
    world.api.clock.jump(61)
    world.settle()
    assert world.state == "Running", "it ran in time"


def test_the_cluster_is_deleted_after_its_time():
    world = ready(shutdownAfterJobFinishes=True, ttlSecondsAfterFinished=60)
    world.tell("SUCCEEDED")
    world.end_submitter()
    world.settle()
    assert len(world.api.objects(RAY_CLUSTERS)) == 1
    world.api.clock.jump(61)
    world.settle()
    assert world.api.objects(RAY_CLUSTERS) == []
    assert len(world.api.objects(BATCH_JOBS)) == 1, "its output can still be read"


@pytest.mark.parametrize(
    ("strategy", "pods", "clusters", "jobs"),
    [
        ({"onSuccess": {"policy": "DeleteWorkers"}}, 1, 1, 1),
        ({"onSuccess": {"policy": "DeleteSelf"}}, 0, 0, 0),
        ({"onFailure": {"policy": "DeleteCluster"}}, 2, 1, 1),
        (
            {
                "deletionRules": [
                    {"policy": "DeleteCluster", "condition": {"jobStatus": "SUCCEEDED", "ttlSeconds": 30}},
                    {"policy": "DeleteSelf", "condition": {"jobStatus": "FAILED"}},
                ]
            },
            0,
            0,
            1,
        ),
    ],
)
def test_what_is_deleted_at_the_end_follows_the_strategy(strategy, pods, clusters, jobs):
    world = ready(deletionStrategy=strategy)
    world.tell("SUCCEEDED")
    world.end_submitter()
    world.settle()
    world.api.clock.jump(31)
    world.settle()
    assert len(world.pods()) == pods
    assert len(world.api.objects(RAY_CLUSTERS)) == clusters
    assert len(world.api.objects(RAY_JOBS)) == jobs


def test_a_failed_job_gets_a_new_cluster_as_often_as_its_limit_allows():
    world = ready(backoffLimit=1)
    seen = set()
    for failed in (1, 2):
        seen.add((world.job_status["rayClusterName"], world.job_status["jobId"]))
        world.tell("FAILED", "it raised")
        world.end_submitter("Failed")
        world.settle()
        assert world.job_status["failed"] == failed
        if failed == 1:
            assert world.state == "Initializing"
            world.run()
            world.settle()
    assert len(seen) == 2, "each attempt has a cluster and a submission of its own"
    assert (world.state, world.job_status["reason"], world.job_status["message"]) == (
        "Failed",
        "AppFailed",
        "it raised",
    )


def test_without_a_dashboard_the_submitter_decides():
    world = ready()
    world.end_submitter()
    world.settle()
    assert (world.state, world.job_status["jobStatus"]) == ("Complete", "SUCCEEDED")
    other = ready()
    other.end_submitter("Failed")
    other.settle()
    assert (other.state, other.job_status["reason"]) == ("Failed", "SubmissionFailed")


def test_the_controller_submits_in_http_mode():
    world = ready(submissionMode="HTTPMode", runtimeEnvYAML="env_vars: {a: b}", entrypointNumCpus=1)
    assert world.api.objects(BATCH_JOBS) == []
    assert world.dashboard.submitted == [
        {
            "entrypoint": "python a.py",
            "submission_id": world.job_status["jobId"],
            "runtime_env": {"env_vars": {"a": "b"}},
            "entrypoint_num_cpus": 1.0,
        }
    ]
    world.tell("SUCCEEDED")
    world.settle()
    assert world.state == "Complete"


def test_an_interactive_job_waits_for_its_submission():
    world = ready(submissionMode="InteractiveMode", entrypoint=None)
    assert world.state == "Waiting"
    (job,) = world.api.objects(RAY_JOBS)
    world.api.change(RAY_JOBS, "default/j", spec={**job["spec"], "jobId": "mine"})
    world.settle()
    world.dashboard.jobs["mine"] = world.dashboard.jobs.get("mine") or _info("STOPPED")
    world.settle()
    assert (world.state, world.job_status["jobStatus"]) == ("Complete", "STOPPED")


def _info(status: str) -> Any:
    from windlass.client.ray_dashboard import RayJobInfo

    return RayJobInfo(status, "")


def test_suspension_deletes_the_cluster_and_a_resumed_job_begins_again():
    world = ready()
    (job,) = world.api.objects(RAY_JOBS)
    world.api.change(RAY_JOBS, "default/j", spec={**job["spec"], "suspend": True})
    world.settle()
    assert (world.state, world.pods(), world.api.objects(BATCH_JOBS)) == ("Suspended", [], [])
    assert "jobId" not in world.job_status
    world.api.change(RAY_JOBS, "default/j", spec={**job["spec"], "suspend": False})
    world.settle()
    assert world.state == "Initializing"
    assert len(world.pods()) == 2


def test_the_deadline_is_not_retried():
    world = ready(activeDeadlineSeconds=100, backoffLimit=3)
    world.api.clock.jump(101)
    world.settle()
    assert (world.state, world.job_status["reason"]) == ("Failed", "DeadlineExceeded")


def test_a_job_in_a_cluster_of_its_user_leaves_it_alone():
    world = RayWorld(ray_job(rayClusterSpec=None, clusterSelector={"ray.io/cluster": "mine"}))
    world.settle()
    assert world.words.reasons() == ["RayClusterNotFound"]
    from ray_world import ray_cluster

    manifest = ray_cluster(1)
    manifest["metadata"]["name"] = "mine"
    world.api.put(RAY_CLUSTERS, manifest)
    world.settle()
    world.run()
    world.settle()
    world.tell("SUCCEEDED")
    world.end_submitter()
    world.settle()
    assert world.state == "Complete"
    assert len(world.api.objects(RAY_CLUSTERS)) == 1


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"rayClusterSpec": None}, "one of spec.rayClusterSpec and spec.clusterSelector must be set"),
        ({"entrypoint": " "}, "spec.entrypoint is empty, and K8sJobMode needs one"),
        ({"runtimeEnvYAML": "a: ["}, "spec.runtimeEnvYAML is no YAML: "),
        ({"runtimeEnvYAML": "- a"}, "spec.runtimeEnvYAML must be a mapping"),
        (
            {"rayClusterSpec": None, "clusterSelector": {"a": "b"}},
            "spec.clusterSelector must name the cluster by the key ray.io/cluster",
        ),
    ],
)
def test_what_cannot_run_is_told_in_the_status(spec, message):
    world = RayWorld(ray_job(**spec))
    world.settle()
    assert world.state == "ValidationFailed"
    assert message in world.job_status["message"]


def test_the_submission_is_quoted_for_the_shell():
    manifest = ray_job(
        runtimeEnvYAML='env_vars: {a: "it\'s"}', metadata={"k": "$HOME"}, entrypointNumGpus=0.5
    )
    manifest["metadata"]["uid"] = "u"
    command = submit_command(read_ray_job(manifest), "id", "head:8265")
    assert '--runtime-env-json \'{"env_vars": {"a": "it\'"\'"\'s"}}\'' in command
    assert '--metadata-json \'{"k": "$HOME"}\'' in command
    assert "--entrypoint-num-gpus 0.500000" in command


EVENTS = st.one_of(
    st.just(("run", "")),
    st.tuples(st.just("tell"), st.sampled_from(["RUNNING", "SUCCEEDED", "FAILED"])),
    st.tuples(st.just("end"), st.sampled_from(["Complete", "Failed"])),
    st.tuples(st.just("suspend"), st.booleans()),
    st.tuples(st.just("time"), st.sampled_from([1, 301])),
)


def play(world: RayWorld, event: tuple[str, Any]) -> None:
    word, how = event
    jobs = world.api.objects(RAY_JOBS)
    match word:
        case "run":
            world.run()
        case "tell" if world.job_status.get("jobId"):
            world.tell(how)
        case "end" if world.api.objects(BATCH_JOBS):
            world.end_submitter(how)
        case "suspend" if jobs:
            world.api.change(RAY_JOBS, "default/j", spec={**jobs[0]["spec"], "suspend": how})
        case "time":
            world.api.clock.jump(how)


def picture(world: RayWorld) -> Any:
    def plain(obj: Any) -> Any:
        kept = copy.deepcopy(obj)
        for field in ("uid", "resourceVersion", "creationTimestamp", "ownerReferences", "generation"):
            kept["metadata"].pop(field, None)
        (kept.get("status") or {}).pop("observedGeneration", None)
        return kept

    kinds = (RAY_JOBS, RAY_CLUSTERS, BATCH_JOBS, PODS)
    return {kind.plural: sorted((plain(obj) for obj in world.api.objects(kind)), key=str) for kind in kinds}


@settings(max_examples=examples(60), deadline=None)
@given(
    spec=st.fixed_dictionaries(
        {"backoffLimit": st.sampled_from([0, 1]), "shutdownAfterJobFinishes": st.booleans()}
    ),
    history=st.lists(st.tuples(EVENTS, st.lists(st.integers(0, 4), max_size=3)), max_size=9),
)
def test_crashes_change_nothing(spec, history):
    manifest = ray_job(activeDeadlineSeconds=600, **spec)
    manifest["metadata"]["uid"] = "fixed"
    calm, stormy = RayWorld(copy.deepcopy(manifest)), RayWorld(copy.deepcopy(manifest))
    for world in (calm, stormy):
        world.settle()
    for event, crashes in history:
        for world in (calm, stormy):
            play(world, event)
        calm.settle()
        for writes in crashes:
            stormy.api.crash_after = writes
            with contextlib.suppress(Crash):
                stormy.reconcile()
            stormy.restart()
        stormy.settle()
        assert picture(stormy) == picture(calm), event
