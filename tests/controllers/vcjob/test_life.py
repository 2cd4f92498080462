"""Volcano Jobs from creation to the end, look by look."""

from __future__ import annotations

from typing import Any

import pytest
from vcjob_cluster import World, annotations, gang, job, started, task

from windlass.api.errors import StatusError, forbidden
from windlass.api.resources import (
    COMMANDS,
    CONFIG_MAPS,
    PERSISTENT_VOLUME_CLAIMS,
    POD_GROUPS,
    PODS,
    SERVICES,
    VOLCANO_JOBS,
    Resource,
)

Json = dict[str, Any]
RESTART_ON_FAILURE = [{"event": "PodFailed", "action": "RestartJob"}]


# From nothing to the end.


def test_no_pod_before_the_group_is_admitted() -> None:
    world = gang()
    world.settle()
    assert (world.phase, world.pods()) == ("Pending", [])
    assert world.group is not None
    world.admit("Pending")
    world.settle()
    assert world.pods() == []
    world.admit("Inqueue")
    world.settle()
    assert world.pods() == ["train-worker-0", "train-worker-1", "train-worker-2"]
    assert world.status["pending"] == 3
    assert world.status["minAvailable"] == 3


def test_running_when_min_available_have_started() -> None:
    world = gang(workers=3, minAvailable=2)
    world.settle()
    world.admit()
    world.settle()
    world.run("train-worker-0")
    world.settle()
    assert world.phase == "Pending"
    world.run("train-worker-1")
    world.settle()
    assert world.phase == "Running"
    assert world.status["taskStatusCount"] == {"worker": {"phase": {"Running": 2, "Pending": 1}}}
    assert (world.status["running"], world.status["pending"]) == (2, 1)


def test_completed_when_all_succeeded() -> None:
    world = started()
    for name in world.pods():
        world.pass_time(10)
        world.end(name)
    world.settle()
    assert world.phase == "Completed"
    assert world.status["succeeded"] == 3
    assert [c["status"] for c in world.status["conditions"]] == ["Pending", "Running", "Completed"]
    assert world.status["runningDuration"] == "30s"
    assert world.words.reasons()[-1] == "Completed"


def test_nothing_is_written_when_nothing_changed() -> None:
    world = started()
    before = len(world.api.log)
    world.settle()
    assert len(world.api.log) == before


def test_failed_when_a_pod_failed_and_no_policy_says_otherwise() -> None:
    world = started()
    world.end("train-worker-1", 1)
    world.settle()
    assert world.phase == "Running"  # the others go on, as in Volcano
    assert world.status["failed"] == 1
    world.end("train-worker-0")
    world.end("train-worker-2")
    world.settle()
    assert world.phase == "Failed"
    assert world.status["state"]["message"] == "task worker: 2 of 3 pods succeeded, 3 are needed"
    assert world.pods() == ["train-worker-0", "train-worker-1", "train-worker-2"]


def test_min_success_completes_at_once_and_ends_the_rest() -> None:
    world = started(minSuccess=1)
    world.end("train-worker-2")
    world.settle()
    assert world.phase == "Completed"
    world.api.finish_deletions()
    world.settle()
    assert world.pods() == ["train-worker-2"]
    assert world.group is None  # not all members finished: the group would go on asking for room


def test_min_success_that_is_not_reached_is_a_failure() -> None:
    world = started(minSuccess=2)
    world.end("train-worker-0")
    world.end("train-worker-1", 1)
    world.end("train-worker-2", 1)
    world.settle()
    assert world.phase == "Failed"
    assert world.status["state"]["message"].startswith("task worker: 1 of 3")


def test_below_the_minimums_of_the_tasks_only_the_sum_counts() -> None:
    world = World(job(task("a", 1), task("b", 2), minAvailable=1))
    world.start()
    world.end("train-a-0", 1)
    world.end("train-b-0")
    world.end("train-b-1", 1)
    world.settle()
    assert world.phase == "Completed"


def test_back_to_pending_when_too_many_pods_wait_again() -> None:
    world = started()
    world.take_away("train-worker-0")
    world.settle()
    assert world.phase == "Pending"
    assert world.status["state"]["message"] == "1 of 3 pods are pending"
    world.run("train-worker-0")
    world.settle()
    assert world.phase == "Running"


def test_the_group_of_a_gang_that_finished_stays_as_its_record() -> None:
    world = started()
    for name in world.pods():
        world.end(name)
    world.settle()
    assert world.group is not None
    assert world.api.objects(SERVICES) == []


# Restarts.


def test_restart_of_the_whole_job() -> None:
    world = started(policies=RESTART_ON_FAILURE)
    old = {name: world.pod(name)["metadata"]["uid"] for name in world.pods()}
    old_group = world.group
    assert old_group is not None
    world.end("train-worker-1", 137)
    world.reconcile()
    assert world.phase == "Restarting"
    assert (world.status["version"], world.status["retryCount"]) == (1, 1)
    assert world.status["state"]["reason"] == "PodFailed"
    assert "train-worker-1 failed with exit code 137" in world.status["state"]["message"]
    world.settle()
    assert world.phase == "Restarting"  # running pods are given time to end
    world.converge()
    assert world.phase == "Pending"
    assert world.group is not None
    assert world.group["metadata"]["uid"] != old_group["metadata"]["uid"]
    assert set(world.pods()) == set(old)
    assert all(world.pod(name)["metadata"]["uid"] != uid for name, uid in old.items())
    assert {annotations(world.pod(n))["volcano.sh/job-version"] for n in world.pods()} == {"1"}
    assert {annotations(world.pod(n))["volcano.sh/job-retry-count"] for n in world.pods()} == {"1"}
    world.run()
    world.settle()
    assert world.phase == "Running"
    assert "restart" not in world.status.get("controlledResources", {})


def test_a_restart_also_replaces_what_has_succeeded() -> None:
    world = started(policies=RESTART_ON_FAILURE)
    world.end("train-worker-0")
    world.settle()
    world.end("train-worker-1", 1)
    world.converge()
    assert world.phase == "Pending"
    assert {world.pod(name)["status"]["phase"] for name in world.pods()} == {"Pending"}


@pytest.mark.parametrize(("max_retry", "reruns"), [(3, 2), (1, 0), (0, 2), (None, 2)])
def test_max_retry(max_retry: int | None, reruns: int) -> None:
    """With maxRetry 3 there are two reruns; the third failure ends the job and keeps the failed pods."""
    more = {} if max_retry is None else {"maxRetry": max_retry}
    world = started(policies=RESTART_ON_FAILURE, **more)
    for _ in range(reruns):
        world.end("train-worker-0", 1)
        world.converge()
        assert world.phase == "Pending"
        world.run()
        world.settle()
    world.end("train-worker-0", 1)
    world.converge()
    assert world.phase == "Failed"
    assert world.status["state"]["reason"] == "MaxRetryReached"
    assert "exit code 1" in world.status["state"]["message"]
    assert world.pods() == ["train-worker-0"]  # the finished one stays for its log, the others are ended
    assert world.status["retryCount"] == reruns + 1


def test_restart_of_one_pod_keeps_the_others_and_the_group() -> None:
    world = started(policies=[{"event": "PodFailed", "action": "RestartPod"}])
    kept = {n: world.pod(n)["metadata"]["uid"] for n in ("train-worker-0", "train-worker-2")}
    old = world.pod("train-worker-1")["metadata"]["uid"]
    group = world.group
    assert group is not None
    world.end("train-worker-1", 1)
    world.converge()
    assert (world.status.get("version", 0), world.status["retryCount"]) == (0, 1)
    assert {n: world.pod(n)["metadata"]["uid"] for n in kept} == kept
    assert world.pod("train-worker-1")["metadata"]["uid"] != old
    assert world.group is not None
    assert world.group["metadata"]["uid"] == group["metadata"]["uid"]
    world.run("train-worker-1")
    world.settle()
    assert world.phase == "Running"


def test_pods_that_fail_together_are_one_retry() -> None:
    world = started(policies=[{"event": "PodFailed", "action": "RestartPod"}])
    for name in world.pods():
        world.end(name, 1)
    world.converge()
    assert world.status["retryCount"] == 1
    assert {world.pod(n)["status"]["phase"] for n in world.pods()} == {"Pending"}


def test_a_failure_during_a_partial_restart_widens_it() -> None:
    world = started(policies=[{"event": "PodFailed", "action": "RestartPod"}])
    world.run()
    world.end("train-worker-0", 1)
    world.reconcile()
    assert world.phase == "Restarting"
    world.end("train-worker-1", 1)
    world.converge()
    assert world.status["retryCount"] == 1
    assert world.pod("train-worker-1")["status"]["phase"] == "Pending"


def test_restart_of_one_task() -> None:
    policies = [{"event": "PodFailed", "action": "RestartTask"}]
    world = World(job(task("ps", 1), task("worker", 2, policies=policies)))
    world.start()
    ps = world.pod("train-ps-0")["metadata"]["uid"]
    world.end("train-worker-0", 1)
    world.converge()
    assert world.pod("train-ps-0")["metadata"]["uid"] == ps
    assert world.pod("train-worker-1")["status"]["phase"] == "Pending"
    assert world.status["retryCount"] == 1


def test_restart_of_one_partition() -> None:
    policy = {"totalPartitions": 2, "partitionSize": 2, "minPartitions": 1}
    policies = [{"event": "PodFailed", "action": "RestartPartition"}]
    world = World(job(task("worker", 4, partitionPolicy=policy, policies=policies)))
    world.start()
    uids = {name: world.pod(name)["metadata"]["uid"] for name in world.pods()}
    world.end("train-worker-3", 1)
    world.converge()
    changed = [name for name in world.pods() if world.pod(name)["metadata"]["uid"] != uids[name]]
    assert changed == ["train-worker-2", "train-worker-3"]


def test_the_tasks_policies_go_before_the_jobs() -> None:
    world = World(
        job(
            task("ps", 1),
            task("worker", 2, policies=[{"event": "PodFailed", "action": "AbortJob"}]),
            policies=[{"event": "*", "action": "RestartJob"}],
        )
    )
    world.start()
    world.end("train-worker-0", 1)
    world.reconcile()
    assert world.phase == "Aborting"


def test_policy_by_exit_code() -> None:
    world = started(policies=[{"exitCode": 3, "action": "AbortJob"}, {"exitCode": 7, "action": "RestartJob"}])
    world.end("train-worker-0", 5)
    world.settle()
    assert world.phase == "Running"
    world.end("train-worker-1", 7)
    world.reconcile()
    assert world.phase == "Restarting"


def test_task_completed() -> None:
    policies = [{"event": "TaskCompleted", "action": "CompleteJob"}]
    world = World(job(task("master", 1, policies=policies), task("worker", 2)))
    world.start()
    world.end("train-master-0")
    world.reconcile()
    assert world.phase == "Completing"
    world.converge()
    assert world.phase == "Completed"
    assert world.pods() == ["train-master-0"]


def test_an_end_in_success_goes_before_a_failure_of_the_same_second() -> None:
    policies = [{"event": "TaskCompleted", "action": "CompleteJob"}]
    world = World(job(task("master", 1, policies=policies), task("worker", 2), policies=RESTART_ON_FAILURE))
    world.start()
    world.end("train-worker-0", 1)
    world.end("train-master-0")
    world.reconcile()
    assert world.phase == "Completing"


def test_task_failed_after_too_many_container_restarts() -> None:
    world = started(policies=[{"event": "TaskFailed", "action": "TerminateJob"}])
    for name, count in (("train-worker-0", 1), ("train-worker-1", 1), ("train-worker-2", 1)):
        statuses = [{"name": "main", "restartCount": count}]
        world.api.change(PODS, f"default/{name}", status={"containerStatuses": statuses})
    world.reconcile()
    assert world.phase == "Terminating"


def test_the_group_runs_only_in_part() -> None:
    world = started(policies=[{"event": "Unknown", "action": "RestartJob"}])
    world.admit("Unknown")
    world.reconcile()
    assert world.phase == "Restarting"


# Commands.


@pytest.mark.parametrize(
    ("action", "during", "after"),
    [
        ("AbortJob", "Aborting", "Aborted"),
        ("TerminateJob", "Terminating", "Terminated"),
        ("CompleteJob", "Completing", "Completed"),
    ],
)
def test_a_command_ends_the_job(action: str, during: str, after: str) -> None:
    world = started()
    world.end("train-worker-0")
    world.command(action)
    world.reconcile()
    assert world.phase == during
    world.converge()
    assert world.phase == after
    assert world.pods() == ["train-worker-0"]
    assert world.group is None
    assert world.api.objects(COMMANDS) == []
    assert "CommandIssued" in world.words.reasons()


def test_abort_and_resume() -> None:
    world = started()
    world.end("train-worker-0")
    world.end("train-worker-1", 1)
    world.command("AbortJob")
    world.converge()
    assert world.phase == "Aborted"
    done = world.pod("train-worker-0")["metadata"]["uid"]
    world.command("ResumeJob")
    world.converge()
    assert world.phase == "Pending"
    assert world.status["retryCount"] == 1
    assert world.pod("train-worker-0")["metadata"]["uid"] == done  # done is done
    assert world.pod("train-worker-1")["status"]["phase"] == "Pending"  # what failed is tried again
    world.run("train-worker-1", "train-worker-2")
    world.settle()
    assert world.phase == "Running"


def test_resume_while_still_aborting() -> None:
    world = started()
    world.command("AbortJob", "a")
    world.reconcile()
    world.pass_time(1)
    world.command("ResumeJob", "b")
    world.converge()
    assert world.phase == "Pending"
    assert len(world.pods()) == 3


def test_restart_by_command() -> None:
    world = started()
    world.command("RestartJob")
    world.converge()
    assert (world.phase, world.status["retryCount"], world.status["version"]) == ("Pending", 1, 1)


def test_commands_are_carried_out_in_order() -> None:
    world = started()
    world.command("AbortJob", "first")
    world.pass_time(1)
    world.command("ResumeJob", "second")
    world.reconcile()
    assert world.phase == "Aborting"
    assert [c["metadata"]["name"] for c in world.api.objects(COMMANDS)] == ["second"]
    world.reconcile()
    assert world.phase == "Restarting"
    assert world.api.objects(COMMANDS) == []


@pytest.mark.parametrize("action", ["ResumeJob", "Dance", "RestartPod", ""])
def test_a_command_that_changes_nothing_is_told_and_removed(action: str) -> None:
    world = started()
    world.command(action)
    world.settle()
    assert world.phase == "Running"
    assert world.api.objects(COMMANDS) == []
    assert ("train", "Warning", "CommandIssued") in [said[:3] for said in world.words.said]


def test_a_command_for_a_job_that_is_not_there_is_removed() -> None:
    world = World()
    world.command("AbortJob")
    world.settle()
    assert world.api.objects(COMMANDS) == []


def test_a_command_that_cannot_be_removed_is_carried_out_once() -> None:
    world = started()

    def keep_commands(verb: str, resource: Resource, obj: Json) -> StatusError | None:
        return forbidden(resource, "x", "no") if (verb, resource) == ("delete", COMMANDS) else None

    world.api.reject = keep_commands
    world.command("RestartJob")
    for _ in range(3):
        world.reconcile()
        world.api.finish_deletions()
        if world.group is not None:
            world.admit()
    assert world.phase == "Pending"
    world.reconcile()
    world.run()
    world.reconcile()
    assert world.phase == "Running"
    assert (world.status["version"], world.status["retryCount"]) == (1, 1)


def test_abort_while_restarting() -> None:
    world = started(policies=RESTART_ON_FAILURE)
    world.end("train-worker-0", 1)
    world.reconcile()
    world.command("AbortJob")
    world.converge()
    assert world.phase == "Aborted"


# Scaling, dependencies, claims, plugins.


def test_scaling_up() -> None:
    world = World(job(task("worker", 2), plugins={"svc": []}))
    world.start()
    tasks = world.job["spec"]["tasks"]
    world.api.change(
        VOLCANO_JOBS, "default/train", spec={"minAvailable": 3, "tasks": [{**tasks[0], "replicas": 3}]}
    )
    world.settle()
    assert world.pods()[-1] == "train-worker-2"
    assert world.group is not None
    assert world.group["spec"]["minMember"] == 3
    assert world.group["spec"]["minTaskMember"] == {"worker": 3}
    hosts = world.api.object(CONFIG_MAPS, "default/train-svc")
    assert hosts is not None
    assert hosts["data"]["VC_WORKER_NUM"] == "3"


def test_a_task_waits_for_another() -> None:
    world = World(job(task("ps", 1), task("worker", 2, dependsOn={"name": ["ps"]}), minAvailable=1))
    world.settle()
    world.admit()
    world.settle()
    assert world.pods() == ["train-ps-0"]
    world.api.change(PODS, "default/train-ps-0", status={"phase": "Running"})
    world.settle()
    assert world.pods() == ["train-ps-0"]  # running, not ready
    world.run("train-ps-0")
    world.settle()
    assert world.pods() == ["train-ps-0", "train-worker-0", "train-worker-1"]


@pytest.mark.parametrize(("iteration", "waits"), [("any", False), ("all", True), (None, True)])
def test_a_task_waits_for_any_or_all(iteration: str | None, waits: bool) -> None:
    depends: Json = {"name": ["a", "b"]}
    if iteration:
        depends["iteration"] = iteration
    world = World(job(task("a", 1), task("b", 1), task("c", 1, dependsOn=depends), minAvailable=1))
    world.settle()
    world.admit()
    world.settle()
    world.run("train-a-0")
    world.settle()
    assert ("train-c-0" in world.pods()) is not waits


def test_a_claim_that_is_not_there_is_waited_for() -> None:
    world = World(job(volumes=[{"mountPath": "/d", "volumeClaimName": "data"}]))
    world.settle()
    assert world.group is None
    assert "PVCError" in world.words.reasons()
    world.api.put(PERSISTENT_VOLUME_CLAIMS, {"metadata": {"name": "data"}})
    world.settle()
    assert world.group is not None
    assert world.status["controlledResources"]["volume-pvc-data"] == "data"


def test_a_claim_of_the_job_is_made_once() -> None:
    world = World(job(volumes=[{"mountPath": "/d", "volumeClaim": {"accessModes": ["ReadWriteOnce"]}}]))
    world.start()
    (claim,) = world.api.objects(PERSISTENT_VOLUME_CLAIMS)
    volume = world.pod("train-worker-0")["spec"]["volumes"][0]
    assert volume["persistentVolumeClaim"]["claimName"] == claim["metadata"]["name"]
    assert claim["metadata"]["ownerReferences"][0]["uid"] == world.job["metadata"]["uid"]


def test_svc_objects_come_and_go_with_the_job() -> None:
    world = World(job(plugins={"svc": []}))
    world.start()
    assert [s["metadata"]["name"] for s in world.api.objects(SERVICES)] == ["train"]
    assert world.status["controlledResources"]["plugin-svc"] == "svc"
    for name in world.pods():
        world.end(name)
    world.settle()
    assert world.api.objects(SERVICES) == []
    assert world.api.objects(CONFIG_MAPS) == []
    assert "plugin-svc" not in world.status["controlledResources"]


def test_a_hosts_map_of_somebody_else_is_not_overwritten() -> None:
    world = World(job(plugins={"svc": []}))
    world.api.put(CONFIG_MAPS, {"metadata": {"name": "train-svc"}, "data": {"mine": "1"}})
    world.settle()
    assert world.group is None
    assert "PluginError" in world.words.reasons()
    kept = world.api.object(CONFIG_MAPS, "default/train-svc")
    assert kept is not None
    assert kept["data"] == {"mine": "1"}


def test_objects_of_an_earlier_job_of_the_same_name_are_waited_for() -> None:
    world = World(job(plugins={"svc": []}))
    old = {"kind": "Job", "apiVersion": "batch.volcano.sh/v1alpha1", "name": "train", "uid": "old"}
    world.api.put(SERVICES, {"metadata": {"name": "train", "ownerReferences": [{**old, "controller": True}]}})
    world.settle()
    assert world.group is None
    assert world.last.requeue_after == 1.0
    world.api.remove(SERVICES, "default/train")
    world.settle()
    assert world.group is not None


def test_a_plugin_that_is_not_served_holds_the_job() -> None:
    world = World(job(plugins={"horovod": []}))
    world.settle()
    assert (world.phase, world.group) == ("Pending", None)
    assert ("train", "Warning", "PluginError", "plugin horovod is not served") in world.words.said


def test_a_missing_priority_class_is_told_and_not_refused() -> None:
    world = World(job(priorityClassName="high"))
    world.start()
    assert "priorityClassName" not in world.pod("train-worker-0")["spec"]
    assert "PriorityClassNotFound" in world.words.reasons()


@pytest.mark.parametrize("phase", ["Pending", "Inqueue"])
def test_why_the_gang_waits_is_told_on_the_job(phase: str) -> None:
    """Whether its queue has let it in or not, and not once it is scheduled."""
    world = gang()
    world.settle()
    waits = {"type": "Unschedulable", "status": "True", "message": "4 GPUs are free, 8 are needed"}
    world.api.change(POD_GROUPS, world.group_key, status={"phase": phase, "conditions": [waits]})
    world.reconcile()
    told = [said for said in world.words.said if said[2] == "PodGroupPending"]
    assert [(name, kind) for name, kind, *_ in told] == [("train", "Warning")]
    assert told[0][3].endswith(": 4 GPUs are free, 8 are needed")
    done = [{**waits, "status": "False"}, {"type": "Scheduled", "status": "True", "message": "ready"}]
    world.api.change(POD_GROUPS, world.group_key, status={"phase": "Running", "conditions": done})
    world.reconcile()
    assert [said for said in world.words.said if said[2] == "PodGroupPending"] == told


def test_a_spec_that_cannot_be_read_is_told() -> None:
    world = World(job(policies=[{"event": "PodFailed", "action": "RestartJob", "timeout": "soon"}]))
    world.reconcile()
    assert world.words.reasons() == ["InvalidJob"]
    assert world.phase == ""


def test_the_status_is_true_while_pods_are_refused() -> None:
    world = gang()
    world.settle()
    world.admit()

    def quota(verb: str, resource: Resource, obj: Json) -> StatusError | None:
        full = verb == "create" and resource == PODS and obj["metadata"]["name"].endswith("-2")
        return forbidden(PODS, "train-worker-2", "exceeded quota: q") if full else None

    world.api.reject = quota
    for _ in range(4):
        world.reconcile()
    assert world.pods() == ["train-worker-0", "train-worker-1"]
    assert world.status["pending"] == 2
    assert world.status["controlledResources"]["pods/worker"] == "0-1"
    world.api.reject = lambda *_: None
    world.settle()
    assert world.status["pending"] == 3


# The end of life.


def test_time_to_live() -> None:
    world = started(ttlSecondsAfterFinished=60)
    for name in world.pods():
        world.end(name)
    world.settle()
    assert (world.phase, world.last.requeue_after) == ("Completed", 60)
    world.pass_time(60)
    world.reconcile()
    assert world.api.log[-1] == ("delete", "jobs", "default/train")
    assert world.job["metadata"]["finalizers"] == ["foregroundDeletion"]


def test_an_aborted_job_does_not_expire() -> None:
    world = started(ttlSecondsAfterFinished=60)
    world.command("AbortJob")
    world.converge()
    world.pass_time(100)
    world.settle()
    assert "deletionTimestamp" not in world.job["metadata"]


def test_a_job_that_is_being_deleted_is_left_alone() -> None:
    world = started(policies=RESTART_ON_FAILURE)
    world.end("train-worker-0", 1)
    world.api.change(VOLCANO_JOBS, "default/train", metadata={"deletionTimestamp": "2026-01-01T12:00:00Z"})
    before = len(world.api.log)
    world.settle()
    assert len(world.api.log) == before


def test_unknown_fields_of_the_status_survive() -> None:
    world = gang()
    world.api.change(VOLCANO_JOBS, "default/train", status={"later": {"x": 1}})
    world.settle()
    assert world.status["later"] == {"x": 1}
