"""Life of a JobSet: start in order, restarts by rule, success, suspension, clean-up."""

from __future__ import annotations

from typing import Any

import pytest
from jobset_cluster import JobSetWorld, job_set, replicated

from windlass.api import annotations as names
from windlass.api import errors
from windlass.api.fields import jobset
from windlass.api.resources import BATCH_JOBS, PERSISTENT_VOLUME_CLAIMS, SERVICES

Json = dict[str, Any]


def started(*jobs: Json, **spec: Any) -> JobSetWorld:
    world = JobSetWorld(job_set(*jobs, **spec))
    world.settle()
    return world


def test_jobs_and_pods_carry_the_labels_and_the_gang_of_the_set():
    world = started(
        replicated("driver"),
        replicated("workers", pods=4, replicas=2),
        coordinator={"replicatedJob": "driver"},
    )
    assert world.jobs() == ["driver-0", "workers-0", "workers-1"]
    job = world.job("workers-1")
    template = job["spec"]["template"]
    for labels in (
        job["metadata"]["labels"],
        template["metadata"]["labels"],
        template["metadata"]["annotations"],
    ):
        assert labels[jobset.JOB_INDEX] == "1"
        assert labels[jobset.JOB_GLOBAL_INDEX] == "2"
        assert labels[jobset.GLOBAL_REPLICAS] == "3"
        assert labels[jobset.RESTART_ATTEMPT] == "0"
        assert labels[jobset.GROUP_NAME] == "default"
        assert labels[jobset.GROUP_REPLICAS] == "3"
        assert labels[jobset.JOB_GROUP_INDEX] == "2"
        assert labels[jobset.COORDINATOR] == "js-driver-0-0.js"
        assert labels[jobset.JOB_KEY] == "20dc345bc2e84bd8edbf2a3c1e402ea64730add9"
    assert template["metadata"]["annotations"][names.GROUP_NAME] == "js"
    assert template["spec"]["subdomain"] == "js"
    assert template["spec"]["restartPolicy"] == "OnFailure"
    assert job["spec"]["completionMode"] == "Indexed"
    assert world.groups() == {"js": 9}
    (service,) = world.api.objects(SERVICES)
    assert service["metadata"]["name"] == "js"
    assert service["spec"] == {
        "clusterIP": "None",
        "selector": {jobset.JOB_SET_NAME: "js"},
        "publishNotReadyAddresses": True,
    }


def test_jobs_in_order_start_one_after_the_other_as_gangs_of_their_own():
    world = started(
        replicated("driver"),
        replicated("workers", pods=3),
        startupPolicy={"startupPolicyOrder": "InOrder"},
    )
    assert world.jobs() == ["driver-0"]
    assert world.groups() == {"js": 1}
    assert world.condition("StartupPolicyInProgress") == "True/InOrderStartupPolicyInProgress"
    world.run("driver-0")
    world.settle()
    assert world.jobs() == ["driver-0", "workers-0"]
    assert world.groups() == {"js": 1, "js-workers": 3}
    world.run()
    world.settle()
    assert world.condition("StartupPolicyCompleted") == "True/InOrderStartupPolicyCompleted"
    assert world.condition("StartupPolicyInProgress").startswith("False/")


def test_dependencies_wait_for_ready_or_complete():
    world = started(
        replicated("initializer"),
        replicated("launcher", dependsOn=[{"name": "initializer", "status": "Complete"}]),
        replicated("worker", pods=4, dependsOn=[{"name": "launcher", "status": "Ready"}]),
    )
    world.run()
    world.settle()
    assert world.jobs() == ["initializer-0"]
    world.end("initializer-0")
    world.settle()
    assert world.jobs() == ["initializer-0", "launcher-0"]
    world.run("launcher-0")
    world.settle()
    assert "worker-0" in world.jobs()
    assert world.groups() == {"js": 1, "js-launcher": 1, "js-worker": 4}


@pytest.mark.parametrize(
    ("policy", "ended", "completed"),
    [
        ({}, ["leader-0", "workers-0"], False),
        ({}, ["leader-0", "workers-0", "workers-1"], True),
        ({"operator": "All", "targetReplicatedJobs": ["workers"]}, ["workers-0", "workers-1"], True),
        ({"operator": "Any", "targetReplicatedJobs": ["workers"]}, ["leader-0"], False),
        ({"operator": "Any", "targetReplicatedJobs": ["workers"]}, ["workers-1"], True),
    ],
)
def test_success_policy_ends_the_set_and_its_other_jobs(policy: Json, ended: list[str], completed: bool):
    spec = {"successPolicy": policy} if policy else {}
    world = started(replicated("leader"), replicated("workers", replicas=2), **spec)
    world.run()
    for name in ended:
        world.end(name)
    world.settle()
    assert (world.condition("Completed") == "True/AllJobsCompleted") is completed
    assert (world.status.get("terminalState") == "Completed") is completed
    if completed:
        assert world.jobs() == ended
        assert "AllJobsCompleted" in world.words.reasons()


def test_failed_job_without_policy_fails_the_set():
    world = started(replicated("a"), replicated("b"))
    world.run()
    world.end("b-0", failed="BackoffLimitExceeded")
    world.settle()
    assert world.condition("Failed") == "True/FailedJobs"
    assert world.status["terminalState"] == "Failed"
    assert "first failed job: js-b-0" in world.status["conditions"][-1]["message"]
    assert world.jobs() == ["b-0"]


def test_restart_recreates_all_jobs_until_max_restarts():
    world = started(replicated("a"), replicated("b", replicas=2), failurePolicy={"maxRestarts": 1})
    first = world.job("a-0")["metadata"]["uid"]
    world.run()
    world.end("b-1", failed="BackoffLimitExceeded")
    world.settle()
    assert world.status["restarts"] == world.status["restartsCountTowardsMax"] == 1
    assert world.condition("RestartingJobSet") == "True/DefaultFailurePolicy"
    assert world.jobs() == ["a-0", "b-0", "b-1"]
    assert world.job("a-0")["metadata"]["uid"] != first
    assert world.job("a-0")["metadata"]["labels"][jobset.RESTART_ATTEMPT] == "1"
    world.run()
    world.settle()
    assert world.condition("RestartingJobSet") == "False/JobsReady"
    world.end("a-0", failed="BackoffLimitExceeded")
    world.settle()
    assert world.condition("Failed") == "True/ReachedMaxRestarts"
    assert world.words.reasons().count("RestartJobSetFailurePolicyAction") == 1


def test_first_matching_rule_decides():
    rules = [
        {"action": "FailJobSet", "targetReplicatedJobs": ["leader"]},
        {"action": "RestartJobSetAndIgnoreMaxRestarts", "onJobFailureReasons": ["PodFailurePolicy"]},
        {
            "action": "RestartJob",
            "name": "lost",
            "onJobFailureMessagePatterns": ["node .* (lost|gone)"],
            "targetReplicatedJobs": ["workers"],
        },
    ]
    policy = {"maxRestarts": 1, "rules": rules}
    world = started(replicated("leader"), replicated("workers", replicas=2), failurePolicy=policy)
    world.run()
    for attempt in (1, 2):
        world.end("workers-0", failed="PodFailurePolicy")
        world.settle()
        assert world.status["restarts"] == attempt
        assert "restartsCountTowardsMax" not in world.status
    kept = world.job("workers-0")["metadata"]["uid"]
    world.end("workers-1", failed="BackoffLimitExceeded", message="node n1 is gone")
    world.settle()
    entry = next(item for item in world.status["replicatedJobsStatus"] if item["name"] == "workers")
    assert entry["jobRestarts"] == entry["jobRestartsCountTowardsMax"] == [0, 1]
    assert world.job("workers-0")["metadata"]["uid"] == kept
    assert world.job("workers-1")["metadata"]["labels"][jobset.JOB_RESTART_ATTEMPT] == "1"
    world.end("workers-1", failed="BackoffLimitExceeded")
    world.settle()
    assert world.condition("Failed") == "True/ReachedMaxRestarts"
    other = started(replicated("leader"), replicated("workers"), failurePolicy=policy)
    other.end("leader-0", failed="BackoffLimitExceeded")
    other.settle()
    assert other.condition("Failed") == "True/FailJobSetFailurePolicyAction"


def test_blocking_recreate_waits_until_all_former_jobs_are_gone():
    policy = {"maxRestarts": 1, "restartStrategy": "BlockingRecreate"}
    world = started(replicated("a"), replicated("b"), failurePolicy=policy)
    world.end("a-0", failed="BackoffLimitExceeded")
    world.reconcile()
    world.reconcile()
    assert world.deleting() == ["js-a-0", "js-b-0"]
    world.api.remove(BATCH_JOBS, "default/js-a-0")
    world.reconcile()
    assert world.jobs() == ["b-0"]
    world.settle()
    assert world.jobs() == ["a-0", "b-0"]


def test_suspended_set_holds_nothing_and_resumes_with_the_changed_template():
    world = started(replicated("a"), replicated("b", replicas=2), suspend=True)
    assert world.jobs() == ["a-0", "b-0", "b-1"]
    assert all(world.job(name)["spec"]["suspend"] for name in world.jobs())
    assert world.condition("Suspended") == "True/SuspendedJobs"
    assert world.groups() == {}
    jobs = [replicated("a"), replicated("b", replicas=2)]
    jobs[1]["template"]["spec"]["template"]["spec"]["nodeSelector"] = {"pool": "fast"}
    world.change(suspend=False, replicatedJobs=jobs)
    world.settle()
    assert world.condition("Suspended") == "False/ResumeJobs"
    assert not any(world.job(name)["spec"]["suspend"] for name in world.jobs())
    assert world.job("b-0")["spec"]["template"]["spec"]["nodeSelector"] == {"pool": "fast"}
    assert world.groups() == {"js": 3}
    world.run()
    world.change(suspend=True)
    world.settle()
    assert world.condition("Suspended") == "True/SuspendedJobs"
    assert world.groups() == {}
    entry = world.status["replicatedJobsStatus"][1]
    assert entry["suspended"] == 2


def test_deadline_and_time_to_live_are_counted_by_the_clock():
    world = started(replicated("a"), activeDeadlineSeconds=60, ttlSecondsAfterFinished=30)
    assert world.last.requeue_after == 60.0
    world.api.clock.jump(61)
    world.settle()
    assert world.condition("Failed") == "True/DeadlineExceeded"
    assert world.jobs() == []
    world.api.clock.jump(31)
    world.reconcile()
    assert world.set is None or world.set["metadata"]["deletionTimestamp"]


def test_scaled_set_scales_its_jobs_and_its_gang():
    world = started(replicated("workers", pods=2))
    world.run()
    world.change(replicatedJobs=[replicated("workers", pods=5)])
    world.settle()
    assert world.job("workers-0")["spec"]["completions"] == 5
    assert world.groups() == {"js": 5}


def test_exclusive_placement_is_affinity_of_each_job_to_itself():
    manifest = job_set(replicated("workers", pods=2, replicas=2))
    manifest["metadata"]["annotations"] = {jobset.EXCLUSIVE: "rack"}
    world = JobSetWorld(manifest)
    world.settle()
    template = world.job("workers-1")["spec"]["template"]
    key = template["metadata"]["labels"][jobset.JOB_KEY]
    affinity = template["spec"]["affinity"]
    required = "requiredDuringSchedulingIgnoredDuringExecution"
    (near,), (apart,) = affinity["podAffinity"][required], affinity["podAntiAffinity"][required]
    assert near["topologyKey"] == apart["topologyKey"] == "rack"
    assert near["labelSelector"]["matchExpressions"] == [
        {"key": jobset.JOB_KEY, "operator": "In", "values": [key]}
    ]
    assert {"key": jobset.JOB_KEY, "operator": "NotIn", "values": [key]} in (
        apart["labelSelector"]["matchExpressions"]
    )


def test_claims_are_shared_by_the_jobs_that_mount_them():
    job = replicated("a")
    container = job["template"]["spec"]["template"]["spec"]["containers"][0]
    container["volumeMounts"] = [{"name": "cache", "mountPath": "/cache"}]
    template = {"metadata": {"name": "cache"}, "spec": {"accessModes": ["ReadWriteOnce"]}}
    world = started(job, replicated("b"), volumeClaimPolicies=[{"templates": [template]}])
    (claim,) = world.api.objects(PERSISTENT_VOLUME_CLAIMS)
    assert claim["metadata"]["name"] == "cache-js"
    assert claim["metadata"]["ownerReferences"][0]["kind"] == "JobSet"
    volumes = world.job("a-0")["spec"]["template"]["spec"]["volumes"]
    assert volumes == [{"name": "cache", "persistentVolumeClaim": {"claimName": "cache-js"}}]
    assert "volumes" not in world.job("b-0")["spec"]["template"]["spec"]


def test_set_of_another_controller_is_left_alone():
    world = started(replicated("a"), managedBy="kueue.x-k8s.io/multikueue")
    assert world.jobs() == []
    assert world.status == {}


def test_pods_that_name_a_group_of_their_own_stay_in_it():
    job = replicated("node", pods=2)
    job["template"]["spec"]["template"]["metadata"] = {"annotations": {names.GROUP_NAME: "mine"}}
    world = started(job)
    assert world.groups() == {}
    annotations = world.job("node-0")["spec"]["template"]["metadata"]["annotations"]
    assert annotations[names.GROUP_NAME] == "mine"


def test_refused_job_is_told_until_it_is_accepted():
    world = JobSetWorld(job_set(replicated("a")))
    message = 'jobs.batch "js-a-0" is forbidden: exceeded quota: small'
    world.api.reject = lambda verb, resource, _: (
        errors.failure(403, "Forbidden", message) if verb == "create" and resource is BATCH_JOBS else None
    )
    world.reconcile()
    world.reconcile()
    assert world.condition("CreationFailed") == "True/JobCreationFailed"
    assert message in world.status["conditions"][-1]["message"]
    assert "JobCreationFailed" in world.words.reasons()
    world.api.reject = lambda *_: None
    world.settle()
    assert world.condition("CreationFailed") == "False/Created"
    assert world.jobs() == ["a-0"]
