"""Life of a ``batch/v1`` Job: status, conditions, events and pods as with kube-controller-manager."""

from __future__ import annotations

import asyncio

from batch_cluster import BatchWorld
from vcjob_cluster import KEY

from windlass.api.fields.batch import COMPLETION_INDEX, INDEX_FAILURES, TRACKING
from windlass.api.resources import BATCH_JOBS, PODS
from windlass.controllers.expectations import identity


def started(restart: str = "Never", **spec: object) -> BatchWorld:
    world = BatchWorld(restart, **spec)
    world.settle()
    world.run()
    world.settle()
    return world


def finish_deletions(world: BatchWorld) -> None:
    """The node has stopped the processes; a pod with a finalizer is Failed and stays."""
    for pod in world.api.objects(PODS):
        if not pod["metadata"].get("deletionTimestamp"):
            continue
        key = f"default/{pod['metadata']['name']}"
        if pod["metadata"].get("finalizers"):
            world.api.change(PODS, key, status={"phase": "Failed"})
        else:
            world.api.remove(PODS, key)


def test_one_pod_succeeds():
    world = started()
    assert world.counts() == (1, 0, 0, 0)
    [name] = world.pods()
    assert world.pod(name)["metadata"]["finalizers"] == [TRACKING]
    world.end(name)
    world.settle()
    assert world.counts() == (0, 0, 1, 0)
    assert world.conditions() == [
        ("SuccessCriteriaMet", "CompletionsReached"),
        ("Complete", "CompletionsReached"),
    ]
    assert world.status["completionTime"] >= world.status["startTime"]
    assert world.status["uncountedTerminatedPods"] == {}
    assert not world.pod(name)["metadata"].get("finalizers")
    assert world.words.reasons() == ["SuccessfulCreate", "Completed"]


def test_indexes_have_names_hostnames_and_variables():
    world = started(completionMode="Indexed", completions=3, parallelism=2)
    pods = [world.pod(name) for name in world.unfinished()]
    assert [BatchWorld.index(pod) for pod in pods] == [0, 1]
    assert [pod["spec"]["hostname"] for pod in pods] == ["train-0", "train-1"]
    assert [pod["metadata"]["name"][:8] for pod in pods] == ["train-0-", "train-1-"]
    assert pods[1]["metadata"]["labels"][COMPLETION_INDEX] == "1"
    [variable] = pods[0]["spec"]["containers"][0]["env"]
    assert variable["name"] == "JOB_COMPLETION_INDEX"
    world.end(world.unfinished()[1])
    world.settle()
    assert [BatchWorld.index(world.pod(name)) for name in world.unfinished()] == [0, 2]
    assert world.status["completedIndexes"] == "1"
    for name in world.unfinished():
        world.end(name)
    world.settle()
    assert world.status["completedIndexes"] == "0-2"
    assert world.conditions()[-1] == ("Complete", "CompletionsReached")


def test_failures_are_repeated_later_and_later():
    world = started(backoffLimit=3)
    for failures, delay in ((1, 10), (2, 20), (3, 40)):
        world.end(world.unfinished()[0], 1)
        world.settle()
        assert world.counts() == (0, 0, 0, failures)
        world.pass_time(delay - 1)
        world.settle()
        assert not world.unfinished()
        world.pass_time(1)
        world.settle()
        assert len(world.unfinished()) == 1
        world.run(world.unfinished()[0])
    world.end(world.unfinished()[0], 1)
    world.settle()
    assert world.conditions() == [
        ("FailureTarget", "BackoffLimitExceeded"),
        ("Failed", "BackoffLimitExceeded"),
    ]
    assert world.status["failed"] == 4
    assert "completionTime" not in world.status
    assert world.words.said[-1][1:] == (
        "Warning",
        "BackoffLimitExceeded",
        "Job has reached the specified backoff limit",
    )


def test_failed_job_waits_for_its_terminating_pods():
    world = started(completions=3, parallelism=3, backoffLimit=0)
    world.end(world.unfinished()[0], 1)
    world.settle()
    assert world.conditions() == [("FailureTarget", "BackoffLimitExceeded")]
    assert world.counts() == (0, 2, 0, 3)
    finish_deletions(world)
    world.settle()
    assert world.conditions()[-1] == ("Failed", "BackoffLimitExceeded")
    assert world.counts() == (0, 0, 0, 3)


def test_restarts_of_containers_count_with_on_failure():
    world = started("OnFailure", backoffLimit=2)
    [name] = world.unfinished()
    for restarts, ends in ((1, False), (2, True)):
        containers = [{"name": "main", "restartCount": restarts}]
        world.api.change(PODS, f"default/{name}", status={"containerStatuses": containers})
        world.settle()
        assert bool(world.conditions()) is ends
    assert world.conditions()[0] == ("FailureTarget", "BackoffLimitExceeded")


def test_suspended_and_resumed():
    world = started(completions=2, parallelism=2, activeDeadlineSeconds=100)
    world.pass_time(50)
    world.change_spec(suspend=True)
    world.settle()
    assert world.conditions() == [("Suspended", "JobSuspended")]
    assert world.counts() == (0, 2, 0, 0)  # they do not count as failed
    assert "startTime" not in world.status
    finish_deletions(world)
    world.pass_time(100)
    world.settle()
    assert world.counts() == (0, 0, 0, 0)
    world.change_spec(suspend=False)
    world.settle()
    assert world.counts() == (2, 0, 0, 0)
    assert world.status["conditions"][0]["status"] == "False"
    assert world.words.reasons()[-4:-2] == ["SuccessfulDelete", "Resumed"]
    world.pass_time(100)
    world.settle()
    assert world.conditions()[-1] == ("Failed", "DeadlineExceeded")


def test_rules_about_exit_codes_and_conditions():
    rules = [
        {"action": "FailJob", "onExitCodes": {"containerName": "main", "operator": "In", "values": [42]}},
        {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]},
    ]
    world = started(backoffLimit=0, podFailurePolicy={"rules": rules})
    [name] = world.unfinished()
    evicted = [{"type": "DisruptionTarget", "status": "True"}]
    world.api.change(PODS, f"default/{name}", status={"phase": "Failed", "conditions": evicted})
    world.settle()
    world.pass_time(10)
    world.settle()
    assert (world.conditions(), world.counts()) == ([], (1, 0, 0, 0))
    [name] = world.unfinished()
    world.end(name, 42)
    world.settle()
    assert world.conditions()[-1] == ("Failed", "PodFailurePolicy")
    assert world.status["conditions"][-1]["message"] == (
        f"Container main for pod default/{name} failed with exit code 42 matching FailJob rule at index 0"
    )


def test_each_index_has_a_limit_of_its_own():
    world = started(
        completionMode="Indexed", completions=2, parallelism=2, backoffLimitPerIndex=1, maxFailedIndexes=1
    )
    world.end(world.unfinished()[0], 1)
    world.settle()
    world.pass_time(10)
    world.settle()
    first = world.pod(world.unfinished()[0])
    assert (BatchWorld.index(first), first["metadata"]["annotations"][INDEX_FAILURES]) == (0, "1")
    world.end(first["metadata"]["name"], 1)
    world.settle()
    assert (world.status["failedIndexes"], world.counts()) == ("0", (1, 0, 0, 2))
    world.end(world.unfinished()[0])
    world.settle()
    assert world.conditions()[-1] == ("Failed", "FailedIndexes")
    assert world.status["completedIndexes"] == "1"


def test_success_policy_ends_the_rest():
    rules = [{"succeededIndexes": "2"}, {"succeededIndexes": "0,1", "succeededCount": 1}]
    world = started(completionMode="Indexed", completions=3, parallelism=3, successPolicy={"rules": rules})
    world.end(world.unfinished()[0])
    world.settle()
    assert world.conditions() == [("SuccessCriteriaMet", "SuccessPolicy")]
    assert world.counts() == (0, 2, 1, 0)
    finish_deletions(world)
    world.settle()
    assert world.conditions()[-1] == ("Complete", "SuccessPolicy")
    assert world.counts() == (0, 0, 1, 0)
    assert world.status["conditions"][-1]["message"] == "Matched rules at index 1"


def test_pod_is_replaced_when_it_is_gone_with_replacement_policy_failed():
    for policy, replaced in (("Failed", False), ("TerminatingOrFailed", True)):
        world = started(podReplacementPolicy=policy)
        [name] = world.unfinished()
        asyncio.run(world.api.delete(PODS, name, "default"))
        world.settle()
        world.pass_time(10)
        world.settle()
        assert bool(world.unfinished()) is replaced, policy
        finish_deletions(world)
        world.settle()
        world.pass_time(20)
        world.settle()
        assert len(world.unfinished()) == 1


def test_finished_job_is_deleted_after_its_time_to_live():
    world = started(ttlSecondsAfterFinished=30)
    world.end(world.unfinished()[0])
    world.settle()
    assert world.last.requeue_after == 30
    world.pass_time(30)
    world.reconcile()
    assert world.job["metadata"]["deletionTimestamp"]
    assert world.job["metadata"]["finalizers"] == ["foregroundDeletion"]


def test_pods_of_a_deleted_job_lose_the_finalizer():
    world = started()
    world.api.remove(BATCH_JOBS, KEY)
    world.settle()
    assert [pod["metadata"].get("finalizers") for pod in world.api.objects(PODS)] == [None]


def test_another_controller_runs_a_job_that_names_it():
    world = BatchWorld(managedBy="example.com/queue")
    world.settle()
    assert (world.pods(), world.status) == ([], {})


def test_parallelism_and_completions_of_an_indexed_job_change_together():
    world = started(completionMode="Indexed", completions=3, parallelism=3)
    world.change_spec(completions=1, parallelism=1)
    world.settle()
    left = [pod for pod in world.api.objects(PODS) if not identity(pod).deleting]
    assert [BatchWorld.index(pod) for pod in left] == [0]
    assert world.counts() == (1, 2, 0, 0)


def test_work_queue_ends_when_one_pod_succeeds_and_the_others_end():
    world = started(parallelism=3)
    first, *others = world.unfinished()
    world.end(first)
    world.settle()
    assert world.counts() == (2, 0, 1, 0)
    world.end(others[0], 1)
    world.settle()
    world.pass_time(60)
    world.settle()
    assert world.counts() == (1, 0, 1, 1)  # no new pods after a success
    world.end(others[1])
    world.settle()
    assert world.conditions()[-1] == ("Complete", "CompletionsReached")
