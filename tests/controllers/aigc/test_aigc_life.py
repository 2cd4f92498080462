"""Life of an AIGCJob: objects, phases, retries, suspension, figures of the driver, dead letters."""

from __future__ import annotations

import json

import pytest
from aigc_world import AigcWorld, aigc_job

from windlass.api.fields import aigc
from windlass.api.resources import (
    AIGC_JOBS,
    CONFIG_MAPS,
    NODES,
    PERSISTENT_VOLUME_CLAIMS,
    POD_GROUPS,
    PODS,
    SECRETS,
    SERVICES,
)
from windlass.cli.generation import progress
from windlass.jobs.aigc.model_files import reference_of
from windlass.jobs.aigc.storage import OutputsClaim

DRIVER, WORKERS = "train-driver", ["train-worker-0", "train-worker-1"]


def figures(done: int = 0, total: int = 10, **more):
    items = {"total": total, "done": done, "failed": 0, "deadLetter": 0, "inFlight": total - done}
    return {"items": items, "groups": [{"name": "a", "total": total, "done": done}], **more}


def test_outputs_without_a_place_get_a_claim_that_stays():
    for retain in (True, False):
        world = AigcWorld(aigc_job(outputs={"retain": retain}), claim=OutputsClaim("10Gi", "fast"))
        world.settle()
        world.settle()
        (claim,) = world.api.objects(PERSISTENT_VOLUME_CLAIMS)
        assert claim["spec"]["storageClassName"] == "fast"
        assert ("ownerReferences" in claim["metadata"]) is not retain
        volumes = {one["name"]: one for one in world.pod(DRIVER)["spec"]["volumes"]}
        assert volumes["windlass-outputs"]["persistentVolumeClaim"] == {"claimName": "train-outputs"}
    named = AigcWorld(aigc_job(outputs={"path": "/srv/x/"}), claim=OutputsClaim("10Gi"))
    named.settle()
    assert not named.api.objects(PERSISTENT_VOLUME_CLAIMS)
    key = {"name": "AWS_ACCESS_KEY_ID", "valueFrom": {"secretKeyRef": {"name": "s", "key": "a"}}}
    template = {"spec": {"containers": [{"name": "w", "env": [key, {"name": "OTHER", "value": "x"}]}]}}
    stored = AigcWorld(aigc_job(outputs={"path": "s3://b/k.jsonl"}, template=template))
    stored.settle()
    env = stored.pod(DRIVER)["spec"]["containers"][0]["env"]
    assert key in env
    names = {one["name"]: one.get("value") for one in env}
    assert names["WINDLASS_BATCH_OUTPUTS"] == "/srv/outputs/default-train"
    assert "OTHER" not in names
    assert stored.status["outputs"] == "s3://b/k.jsonl"


@pytest.mark.parametrize("ending", ["succeeds", "fails", "never starts"])
def test_outputs_that_are_not_retained_are_removed_before_the_job_is_deleted(ending: str):
    outputs = {"path": "/srv/data/rows.jsonl", "retain": False}
    world = AigcWorld(aigc_job(outputs=outputs, policy={"ttlSecondsAfterFinished": 60}))
    world.begin()
    world.end(DRIVER)
    world.settle()
    world.settle()
    world.pass_time(59)
    world.settle()
    assert world.phase == "Succeeded"
    assert "train-removal" not in world.pods()
    world.pass_time(2)
    world.settle()
    pod = world.pod("train-removal")
    (container,) = pod["spec"]["containers"]
    assert container["command"] == ["/usr/bin/python3", "-m", "windlass.items.driver.removal"]
    assert pod["spec"]["nodeName"] == world.pod(DRIVER)["spec"]["nodeName"]
    mounts = {one["name"]: one["mountPath"] for one in container["volumeMounts"]}
    assert mounts["windlass-outputs"] == "/srv/data"
    assert world.phase == "Succeeded"  # the job is there until the files are not
    if ending == "never starts":
        world.pass_time(601)
    else:
        world.run("train-removal")
        world.end("train-removal", 0 if ending == "succeeds" else 1)
    world.settle()
    assert world.api.object(AIGC_JOBS, "default/train") is None
    assert ("OutputsNotRemoved" in world.words.reasons()) is (ending != "succeeds")


def test_objects_of_a_job_are_read_from_the_cache():
    world = AigcWorld(aigc_job())
    world.begin()
    world.api.reads.clear()
    for _ in range(30):
        world.pass_time(1)
        world.reconcile()
    assert len(world.api.reads) <= 1


def test_waiting_job_is_preloading_until_a_node_has_the_model():
    model = {"name": "tiny", "source": "https://models.example/tiny.gguf"}
    world = AigcWorld(aigc_job(model=model))
    reference = reference_of({"model": model})
    assert reference is not None
    label = f"model.kurator.dev/{reference.key}"

    def look():
        world.settle()
        conditions = {one["type"]: one for one in world.status["conditions"]}
        return world.phase, conditions["ModelReady"]["status"], conditions["ModelReady"]["reason"]

    assert look() == ("Queued", "False", "Absent")
    world.api.put(NODES, {"metadata": {"name": "n1", "labels": {label: "fetching"}}})
    assert look() == ("Preloading", "False", "Fetching")
    world.api.change(NODES, "n1", metadata={"labels": {label: "ready"}})
    assert look() == ("Queued", "True", "Ready")
    world.begin()
    assert world.phase == "Running"


def test_model_is_ready_at_the_end_if_workers_had_it_before_its_node_was_labelled():
    model = {"name": "tiny", "source": "https://models.example/tiny.gguf"}
    reference = reference_of({"model": model})
    assert reference is not None
    label = f"model.kurator.dev/{reference.key}"
    ready, fetching = ("True", "Ready"), ("False", "Fetching")
    for before, at_end, expected in (
        ({}, {"found": 2}, ready),
        ({"found": 2}, {}, ready),
        ({}, {}, fetching),
    ):
        world = AigcWorld(aigc_job(model=model))
        world.api.put(NODES, {"metadata": {"name": "n1", "labels": {label: "fetching"}}})
        world.driver.status = figures(model=before)
        world.begin()
        message = json.dumps(figures(10, finished=True, model=at_end))
        world.driver.status = None
        world.end(DRIVER, message=message)
        world.settle()
        conditions = {one["type"]: (one["status"], one["reason"]) for one in world.status["conditions"]}
        assert (world.phase, conditions["ModelReady"]) == ("Succeeded", expected)


def test_driver_starts_before_the_gang_and_workers_find_it():
    world = AigcWorld(aigc_job(priorityClass="high", queue="q"))
    world.reconcile()
    assert world.pods() == [DRIVER]
    assert world.group["spec"] == {
        "minMember": 1,
        "queue": "q",
        "minResources": {"memory": "16Gi", "nvidia.com/gpu": "1"},
        "priorityClassName": "aigc-high",
    }
    assert world.phase == "Pending"
    world.settle()
    assert (world.pods(), world.phase) == ([DRIVER], "Queued")
    world.driver.status = {"items": {"total": 0, "admitted": 5}, "phase": "Admitting"}
    world.run()
    world.settle()
    assert (world.pods(), world.phase) == ([DRIVER], "Preprocessing")  # no GPU waits for the rows
    world.driver.status = figures()
    world.pass_time(1)
    world.settle()
    assert (world.pods(), world.phase) == ([DRIVER, *WORKERS], "WaitingForGPU")
    worker, driver = world.pod(WORKERS[0]), world.pod(DRIVER)
    assert worker["metadata"]["labels"] == {
        aigc.JOB_NAME: "train",
        aigc.PRIORITY: "high",
        aigc.ROLE: "worker",
        aigc.INDEX: "0",
    }
    (container,) = worker["spec"]["containers"]
    assert container["command"] == ["/usr/bin/python3", "-P", "-m", "windlass.items.worker"]
    assert container["resources"]["limits"] == {"memory": "16Gi", "nvidia.com/gpu": 1}
    (service,) = world.api.objects(SERVICES)
    port = service["spec"]["ports"][0]["port"]
    env = {entry["name"]: entry.get("value") for entry in container["env"]}
    assert env["WINDLASS_BATCH_DRIVER"] == f"http://train-driver.default.svc:{port}"
    listens = {one["name"]: one.get("value") for one in driver["spec"]["containers"][0]["env"]}
    assert listens["WINDLASS_BATCH_LISTEN"] == f"$(WINDLASS_BATCH_POD_IP):{port}"
    assert listens["WINDLASS_BATCH_OUTPUTS"] == "/srv/outputs/default-train"
    assert driver["spec"]["priorityClassName"] == worker["spec"]["priorityClassName"] == "aigc-high"
    (config,) = world.api.objects(CONFIG_MAPS)
    document = json.loads(config["data"]["batch.json"])
    assert document["metadata"]["name"] == "train"
    assert document["spec"]["runtimeRef"] == {"name": "builtin-generate"}
    assert len(world.api.objects(SECRETS)) == 1


def test_phases_follow_the_pods_and_figures_the_driver():
    world = AigcWorld(aigc_job())
    world.driver.status = {"items": {"total": 0}, "phase": "Admitting"}
    world.settle()
    world.pass_time(60)  # the queue has no place
    world.begin(workers=False)
    world.pass_time(3)
    world.driver.status = figures()
    world.settle()
    assert world.phase == "WaitingForGPU"
    assert world.driver.asked[-1][0::3] == ("default", "secret")
    world.run(*WORKERS)
    world.driver.status = figures(4, quality={"mean": 93.5, "below": 1})
    world.pass_time(2)
    world.settle()
    assert world.phase == "Running"
    assert world.status["items"]["done"] == 4
    assert world.status["quality"] == {"mean": 93.5, "below": 1}
    assert world.status["gpus"] == 2
    assert world.last.requeue_after == 1.0
    world.pass_time(10)
    world.driver.status = figures(10, finished=True, busySeconds=6.5)
    world.settle()
    world.end(DRIVER)
    world.settle()
    assert world.phase == "Succeeded"
    assert world.status["items"] == {"total": 10, "done": 10, "failed": 0, "deadLetter": 0}
    assert (world.status["gpuSeconds"], world.status["gpuIdleSeconds"]) == (20, 13.5)
    assert world.status["gpuSecondsEager"] == 20 + 3  # the least worker, while the driver read the rows
    assert world.pods() == [DRIVER]  # workers that still ran are deleted
    conditions = {one["type"]: one["status"] for one in world.status["conditions"]}
    assert (conditions["Completed"], conditions["Failed"]) == ("True", "False")


def test_last_report_of_a_driver_that_was_never_asked_is_read_from_its_pod():
    for message, done in (
        (json.dumps(figures(10, finished=True)), "10 of 10 items are done"),
        ("", "the last report of the driver was not read: kubectl logs train-driver"),
    ):
        world = AigcWorld(aigc_job(gpus=0))
        world.driver.status = None
        world.begin()
        world.end(DRIVER, message=message)
        world.settle()
        conditions = {one["type"]: one["message"] for one in world.status["conditions"]}
        assert (world.phase, conditions["Completed"]) == ("Succeeded", done)


def test_failure_of_a_driver_that_was_never_asked_is_read_from_its_pod():
    world = AigcWorld(aigc_job(gpus=0, policy={"backoffLimit": 3}))
    world.driver.status = None
    world.begin(workers=False)
    failure = {"reason": "EmptyInput", "message": "the input has no row"}
    world.end(DRIVER, 1, message=json.dumps({"finished": True, "failure": failure}))
    world.settle()
    assert (world.phase, world.status["attempts"]) == ("Failed", 1)
    assert world.status["message"] == "EmptyInput: the input has no row"


def test_job_that_always_fails_has_one_attempt_more_than_its_limit():
    """T18: four attempts, Failed, and gone an hour later."""
    world = AigcWorld(aigc_job(policy={"backoffLimit": 3, "ttlSecondsAfterFinished": 3600}))
    for attempt in range(1, 5):
        world.begin()
        env = {one["name"]: one.get("value") for one in world.pod(DRIVER)["spec"]["containers"][0]["env"]}
        assert env["WINDLASS_BATCH_ATTEMPT"] == str(attempt)
        world.end(DRIVER, 1)
        for name in WORKERS:
            world.end(name)
        world.settle()
        world.pass_time(400)
        world.settle()
    assert world.phase == "Failed"
    assert world.status["attempts"] == 4
    assert world.pods() == []
    assert ("Retries", "3") in progress.facts({"kind": "AIGCJob", "status": world.status})
    world.pass_time(3599 - 400)  # the job ended 400 s ago
    world.reconcile()
    assert world.phase == "Failed"
    world.pass_time(1)
    world.reconcile()
    assert [action.resource.kind for action in world.last.deletes] == ["AIGCJob"]
    assert world.api.objects(AIGC_JOBS) == []


@pytest.mark.parametrize(
    ("reason", "words"),
    [
        ("TooManyInvalidRows", "4 of 6 rows are not valid (66.7 %): items.maxFailedPercent allows 1 %"),
        ("EmptyInput", "the input has no row"),
        ("ProgramDoesNotStart", "the command ended with exit code 2 before it answered (5 times)"),
        ("ScorerFailed", "6 of 6 items failed because their scorer did"),
    ],
)
def test_input_that_cannot_be_used_fails_once_and_binds_no_gpu(reason: str, words: str):
    world = AigcWorld(aigc_job(policy={"backoffLimit": 3}))
    failure = {"reason": reason, "message": words}
    world.driver.status = figures(0, 6, finished=True, failure=failure)
    world.begin(workers=False)
    assert world.pods() == [DRIVER]
    world.end(DRIVER, 1)
    world.settle()
    assert (world.phase, world.status["attempts"]) == ("Failed", 1)
    assert world.status["message"] == f"{reason}: {words}"


def test_last_words_of_a_failed_worker_are_the_message_of_the_job():
    world = AigcWorld(aigc_job(policy={"backoffLimit": 1}, replicas=1))
    for phase in ("Retrying", "Failed"):
        world.begin()
        world.end(WORKERS[0], 1, "loading\nwindlass: /no/such cannot be started: No such file\n")
        world.settle()
        assert world.phase == phase
        assert f"{WORKERS[0]}: windlass: /no/such cannot be started: No such file" in world.status["message"]
        world.pass_time(400)
        world.settle()


@pytest.mark.parametrize("answers", [True, False])
def test_the_driver_of_a_job_that_fails_writes_the_rows_that_are_done(answers: bool):
    world = AigcWorld(aigc_job(policy={"backoffLimit": 0}, replicas=1))
    world.driver.status = figures(4)
    world.begin()
    world.settle()
    world.pass_time(2)
    world.settle()
    if not answers:
        world.driver.status = None
    world.end(WORKERS[0], 3)
    world.settle()
    assert world.phase == "Failed"
    cause = f"{WORKERS[0]}: exit code 3; its pods were restarted 0 times (backoffLimit)"
    assert world.driver.ends == [cause] * answers
    assert world.status["message"] == cause + "; the outputs have 4 of 10 rows" * answers
    world.pass_time(2)
    world.settle()
    assert len(world.driver.ends) == answers


def test_a_full_disk_is_the_message_of_the_running_job():
    world = AigcWorld(aigc_job())
    world.driver.status = figures(3)
    world.begin()
    blocked = {"reason": "DiskFull", "message": "the disk of /out is full: free space, then it continues"}
    for batch, words in (
        (figures(3, blocked=blocked), f"DiskFull: {blocked['message']}"),
        (figures(4), None),
    ):
        world.driver.status = batch
        world.pass_time(2)
        world.settle()
        assert (world.phase, world.status.get("message")) == ("Running", words)


def test_a_driver_that_its_node_does_not_start_is_the_message_of_the_job():
    world = AigcWorld(aigc_job(gpus=0))
    world.driver.status = None
    world.settle()
    world.run(*WORKERS)
    world.api.change(PODS, f"default/{DRIVER}", spec={"nodeName": "node-1"})
    world.settle()
    assert "message" not in world.status
    assert world.last.requeue_after is not None
    world.pass_time(25)
    world.settle()
    assert world.status["message"].startswith(f"{DRIVER} does not start on node node-1: kubectl describe pod")
    waits = {"reason": "ContainerCreating", "message": "hostPath /data: Read-only file system"}
    states = [{"name": "driver", "state": {"waiting": waits}}]
    world.api.change(PODS, f"default/{DRIVER}", status={"phase": "Pending", "containerStatuses": states})
    world.settle()
    assert waits["message"] in world.status["message"]
    waits["message"] = 'hostPath "/data" of volume "windlass-input": No such file or directory'
    world.api.change(PODS, f"default/{DRIVER}", status={"phase": "Pending", "containerStatuses": states})
    world.settle()
    assert world.status["message"].endswith("No such file or directory (the folder of spec.input.path)")
    world.driver.status = figures(1)
    world.run(DRIVER)
    world.settle()
    assert "message" not in world.status


def test_killed_pods_are_replaced_at_once_and_count_no_retry():
    world = AigcWorld(aigc_job(policy={"backoffLimit": 0}))
    world.begin()
    for name in (DRIVER, WORKERS[0], DRIVER):
        world.end(name, 137)
        world.settle()
        assert world.pods() == [DRIVER, *WORKERS]
        world.run()
        world.settle()
    assert world.phase == "Running"
    assert world.status["attempts"] == 1


def test_worker_that_lacked_memory_counts_as_a_failure():
    world = AigcWorld(aigc_job(policy={"backoffLimit": 0}))
    world.begin()
    world.end(WORKERS[0], 137)
    status = world.pod(WORKERS[0])["status"]["containerStatuses"]
    status[0]["state"]["terminated"]["reason"] = "OOMKilled"
    world.api.change(PODS, f"default/{WORKERS[0]}", status={"containerStatuses": status})
    world.settle()
    assert world.phase == "Failed"


def test_worker_that_ended_early_is_replaced_while_rows_are_left():
    world = AigcWorld(aigc_job())
    world.driver.status = figures(3)
    world.begin()
    first = world.pod(WORKERS[0])["metadata"]["uid"]
    world.end(WORKERS[0])
    world.settle()
    assert world.pod(WORKERS[0])["metadata"]["uid"] == first
    world.pass_time(6)
    world.settle()
    assert world.pod(WORKERS[0])["metadata"]["uid"] != first
    world.driver.status = figures(10, finished=True)
    world.run()
    world.pass_time(2)
    world.settle()
    second = world.pod(WORKERS[0])["metadata"]["uid"]
    world.end(WORKERS[0])
    world.pass_time(60)
    world.settle()
    assert world.pod(WORKERS[0])["metadata"]["uid"] == second


def test_suspended_job_has_no_pods_and_keeps_its_figures():
    world = AigcWorld(aigc_job())
    world.driver.status = figures(5)
    world.begin()
    world.change_spec(policy={"suspend": True})
    world.settle()
    assert (world.phase, world.pods(), world.api.objects(POD_GROUPS)) == ("Suspended", [], [])
    assert world.status["items"]["done"] == 5
    world.change_spec(policy={"suspend": False})
    world.begin()
    assert world.phase == "Running"


def test_workers_follow_the_number_of_replicas():
    world = AigcWorld(aigc_job(parallelism={"min": 1, "max": 4}))
    world.begin()
    world.change_spec(replicas=4)
    world.settle()
    assert len(world.pods()) == 5
    world.change_spec(replicas=1)
    world.settle()
    world.settle()
    assert world.pods() == [DRIVER, WORKERS[0]]
    assert world.group["spec"]["minMember"] == 1


def test_dead_letters_of_a_finished_job_run_again():
    world = AigcWorld(aigc_job())
    world.begin()
    world.end(DRIVER)
    world.settle()
    world.settle()
    assert world.phase == "Succeeded"
    world.annotate({aigc.RETRY: "1"})
    world.begin()
    assert world.phase == "Running"
    env = {one["name"]: one.get("value") for one in world.pod(DRIVER)["spec"]["containers"][0]["env"]}
    assert env["WINDLASS_BATCH_RETRY_DEAD"] == "1"
    world.end(DRIVER)
    world.settle()
    world.settle()
    assert world.phase == "Succeeded"
    assert "AIGCJobRetried" in world.words.reasons()


def test_pods_of_a_template_keep_their_program_for_the_worker():
    template = {
        "metadata": {"labels": {"app": "x"}},
        "spec": {
            "containers": [{"name": "gen", "image": "python", "command": ["python3", "-c", "pass"]}],
            "nodeSelector": {"a": "b"},
        },
    }
    world = AigcWorld(aigc_job(gpus=0, template=template, sharedMemory={"sizeLimit": "1Gi"}))
    world.settle()
    (container,) = world.pod(WORKERS[0])["spec"]["containers"]
    assert container["image"] == "python"
    assert container["command"][2:] == ["-m", "windlass.items.worker"]
    assert {"name": "windlass-shared-memory", "mountPath": "/dev/shm"} in container["volumeMounts"]
    assert world.pod(DRIVER)["spec"]["nodeSelector"] == {"a": "b"}
    document = json.loads(world.api.objects(CONFIG_MAPS)[0]["data"]["batch.json"])
    assert document["spec"]["runtimeRef"] == {"name": "process"}
    assert document["spec"]["template"] == template
