"""Life of an AIGCJob: objects, phases, retries, suspension, figures of the driver, dead letters."""

from __future__ import annotations

import json

from aigc_world import AigcWorld, aigc_job

from windlass.api import aigc_fields as fields
from windlass.api.resources import CONFIG_MAPS, POD_GROUPS, PODS, SECRETS, SERVICES

DRIVER, WORKERS = "train-driver", ["train-worker-0", "train-worker-1"]


def figures(done: int = 0, total: int = 10, **more):
    items = {"total": total, "done": done, "failed": 0, "deadLetter": 0, "inFlight": total - done}
    return {"items": items, "groups": [{"name": "a", "total": total, "done": done}], **more}


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
        fields.JOB_NAME: "train",
        fields.PRIORITY: "high",
        fields.ROLE: "worker",
        fields.INDEX: "0",
    }
    (container,) = worker["spec"]["containers"]
    assert container["command"] == ["/usr/bin/python3", "-m", "windlass.items.worker"]
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
    world.driver.status = figures()
    world.begin(workers=False)
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
    assert world.status["gpuSecondsEager"] == 20 + world.status["rowsReadSeconds"]
    assert world.pods() == [DRIVER]  # workers that still ran are deleted
    conditions = {one["type"]: one["status"] for one in world.status["conditions"]}
    assert (conditions["Completed"], conditions["Failed"]) == ("True", "False")


def test_job_that_always_fails_has_one_attempt_more_than_its_limit():
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
    world.pass_time(3601)
    world.reconcile()
    assert [action.resource.kind for action in world.last.deletes] == ["AIGCJob"]


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
    world.annotate({fields.RETRY: "1"})
    world.begin()
    assert world.phase == "Running"
    env = {one["name"]: one.get("value") for one in world.pod(DRIVER)["spec"]["containers"][0]["env"]}
    assert env["WINDLASS_BATCH_RETRY_DEAD"] == "true"
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
    assert container["command"][1:] == ["-m", "windlass.items.worker"]
    assert {"name": "windlass-shared-memory", "mountPath": "/dev/shm"} in container["volumeMounts"]
    assert world.pod(DRIVER)["spec"]["nodeSelector"] == {"a": "b"}
    document = json.loads(world.api.objects(CONFIG_MAPS)[0]["data"]["batch.json"])
    assert document["spec"]["runtimeRef"] == {"name": "process"}
    assert document["spec"]["template"] == template


def test_workers_follow_the_rows_that_wait():
    world = AigcWorld(aigc_job(replicas=None, autoscale={"min": 1, "max": 3}, batching={"size": 10}))
    world.driver.status = figures(0, 100)
    world.begin()
    assert len(world.pods()) == 4
    assert world.status["workers"]["desired"] == 3
    assert world.group["spec"]["minMember"] == 1
    events = [text for _, _, reason, text in world.words.said if reason == "AIGCJobScaled"]
    assert "100 items not done ÷ 10 items in a batch" in events[0]
    world.driver.status = figures(95, 100)
    world.pass_time(100)
    world.settle()
    assert world.status["workers"]["desired"] == 3  # a change was less than 300 s ago
    world.pass_time(250)
    world.settle()
    world.settle()
    assert world.status["workers"]["desired"] == 1
    assert world.pods() == [DRIVER, WORKERS[0]]
