"""The agent on an embedded server, with real processes."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest
from node_agent_server import NODE, NodeBox, Options, pod, serving

from windlass.api import annotations
from windlass.api.errors import StatusError
from windlass.api.resources import (
    CONFIG_MAPS,
    EVENTS,
    LEASES,
    NODES,
    PERSISTENT_VOLUME_CLAIMS,
    PERSISTENT_VOLUMES,
    PODS,
    SECRETS,
)
from windlass.node.options import AgentOptions, ImageEntry
from windlass.node.runtime import attempt_files, syscalls
from windlass.node.runtime.log_reader import LogNotFound


def state_of(found: dict[str, Any], index: int = 0) -> dict[str, Any]:
    return found["status"]["containerStatuses"][index]["state"]


async def events(box: NodeBox, name: str) -> dict[str, str]:
    assert box.agent is not None
    await box.agent.recorder.drain()
    found = (await box.client.list(EVENTS, "default")).items
    return {e["reason"]: e["message"] for e in found if e["involvedObject"]["name"] == name}


async def told(box: NodeBox, name: str, reason: str) -> str:
    """Wait for an event, which may come after the status that it is about, and return its message."""

    async def message() -> str | None:
        return (await events(box, name)).get(reason)

    return await box.until(message)


def folder(box: NodeBox, found: dict[str, Any], attempt: int = 0, container: str = "main") -> Path:
    return box.state.node / "pods" / found["metadata"]["uid"] / "containers" / container / str(attempt)


# -- lives -----------------------------------------------------------------------------------------


async def test_a_pod_runs_and_ends_with_its_own_exit_code_and_log(box: NodeBox) -> None:
    await box.create(pod("good", "sh", "-c", "echo out; echo err >&2"))
    await box.create(pod("bad", "sh", "-c", "exit 7"))
    await box.create(pod("killed", "sh", "-c", "kill -9 $$$$"))
    good = await box.phase("good", "Succeeded")
    assert state_of(good)["terminated"]["exitCode"] == 0
    assert state_of(good)["terminated"]["reason"] == "Completed"
    assert sorted((await box.log("good")).split()) == ["err", "out"]
    conditions = {c["type"]: (c["status"], c.get("reason")) for c in good["status"]["conditions"]}
    assert conditions["Ready"] == ("False", "PodCompleted")
    bad = await box.phase("bad", "Failed")
    assert (state_of(bad)["terminated"]["exitCode"], state_of(bad)["terminated"]["reason"]) == (7, "Error")
    killed = state_of(await box.phase("killed", "Failed"))["terminated"]
    assert (killed["exitCode"], killed["signal"]) == (137, 9)
    assert good["status"]["podIP"] != bad["status"]["podIP"]


async def test_a_running_pod_is_ready_and_deletion_ends_it_in_its_grace(box: NodeBox) -> None:
    script = "trap '' TERM; echo up; while :; do sleep 0.05; done"
    made = await box.create(pod("p", "sh", "-c", script, terminationGracePeriodSeconds=3600))
    running = await box.phase("p", "Running")
    assert {c["type"]: c["status"] for c in running["status"]["conditions"]}["Ready"] == "True"
    assert "startedAt" in state_of(running)["running"]
    await box.until(lambda: "up" in asyncio_text(box, made))
    begin = time.monotonic()
    await box.client.delete(PODS, "p", "default", grace_seconds=1)
    await box.gone("p")
    assert time.monotonic() - begin > 0.9  # and not the hour that its spec gives
    await box.until(lambda: not (box.state.node / "pods" / made["metadata"]["uid"]).exists())
    # The log outlives the pod.
    chunks = [c async for c in box.logs.open(made, Options("main"))]
    assert b"".join(chunks) == b"up\n"


def asyncio_text(box: NodeBox, found: dict[str, Any]) -> str:
    path = box.state.node / "logs" / f"default_{found['metadata']['name']}_{found['metadata']['uid']}"
    return "".join(p.read_text() for p in path.rglob("*.log"))


async def test_a_shorter_grace_hurries_a_deletion_that_is_under_way(box: NodeBox) -> None:
    made = await box.create(pod("p", "sh", "-c", "trap '' TERM; echo up; while :; do sleep 0.05; done"))
    await box.until(lambda: "up" in asyncio_text(box, made))
    begin = time.monotonic()
    await box.client.delete(PODS, "p", "default", grace_seconds=600)
    await asyncio.sleep(0.3)
    await box.client.delete(PODS, "p", "default", grace_seconds=1)
    await box.gone("p")
    assert time.monotonic() - begin < 100


async def test_init_containers_sidecars_and_several_containers(box: NodeBox) -> None:
    shared = [{"name": "v", "mountPath": "/work-shared"}]
    spec = pod(
        "many",
        "sh",
        "-c",
        "cat /work-shared/order; echo main",
        container={"volumeMounts": shared},
        volumes=[{"name": "v", "emptyDir": {}}],
        initContainers=[
            {
                "name": "i1",
                "image": "x",
                "command": ["sh", "-c", "sleep 0.2; echo one >> /work-shared/order"],
                "volumeMounts": shared,
            },
            {
                "name": "side",
                "image": "x",
                "restartPolicy": "Always",
                "command": ["sh", "-c", "echo side > /work-shared/side; sleep 1000"],
                "volumeMounts": shared,
            },
            {
                "name": "i2",
                "image": "x",
                "command": ["sh", "-c", "echo two >> /work-shared/order"],
                "volumeMounts": shared,
            },
        ],
    )
    await box.create(spec)
    done = await box.phase("many", "Succeeded", "Failed")
    assert done["status"]["phase"] == "Succeeded"
    assert await box.log("many") == "one\ntwo\nmain\n"
    inits = {c["name"]: c["state"] for c in done["status"]["initContainerStatuses"]}
    assert inits["i1"]["terminated"]["exitCode"] == 0
    assert inits["side"]["terminated"]["exitCode"] == 143  # stopped after the main container


async def test_restart_policy_on_failure_restarts_and_keeps_the_previous_log(
    box: NodeBox, tmp_path: Path
) -> None:
    marker = tmp_path / "ran"
    script = f"echo try; test -e {marker} && exit 0; touch {marker}; exit 5"
    await box.create(pod("again", "sh", "-c", script, restartPolicy="OnFailure"))
    done = await box.phase("again", "Succeeded")
    status = done["status"]["containerStatuses"][0]
    assert status["restartCount"] == 1
    assert status["lastState"]["terminated"]["exitCode"] == 5
    assert await box.log("again", previous=True) == "try\n"


async def test_crash_loops_back_off_and_say_so(box: NodeBox) -> None:
    await box.create(pod("loop", "sh", "-c", "exit 1", restartPolicy="Always"))

    async def backing_off() -> Any:
        found = await box.get("loop")
        waiting = (
            (found.get("status", {}).get("containerStatuses") or [{}])[0].get("state", {}).get("waiting")
        )
        return found if waiting and waiting["reason"] == "CrashLoopBackOff" else None

    found = await box.until(backing_off)
    status = found["status"]["containerStatuses"][0]
    assert found["status"]["phase"] == "Running"
    assert status["state"]["waiting"]["message"].startswith("back-off 10s restarting failed container=main")
    assert status["restartCount"] == 1
    await told(box, "loop", "BackOff")


async def test_the_deadline_of_a_pod(box: NodeBox) -> None:
    await box.create(pod("late", "sleep", "1000", activeDeadlineSeconds=1, restartPolicy="Always"))
    found = await box.phase("late", "Failed")
    assert found["status"]["reason"] == "DeadlineExceeded"


async def test_what_cannot_start_says_why_and_what_to_do(box: NodeBox) -> None:
    await box.create(pod("nocmd", "no-such-program"))
    await box.create(pod("nodir", "true", container={"workingDir": "/no/such/dir"}))
    ended = state_of(await box.phase("nocmd", "Failed"))["terminated"]
    assert (ended["reason"], ended["exitCode"]) == ("StartError", 128)
    assert 'exec: "no-such-program": executable file not found in $PATH' in ended["message"]
    assert "no-such-program" in await told(box, "nocmd", "Failed")
    ended = state_of(await box.phase("nodir", "Failed"))["terminated"]
    assert "mkdir -p /no/such/dir" in ended["message"]


async def test_the_end_of_the_log_is_the_termination_message_when_asked_for(box: NodeBox) -> None:
    extra = {"terminationMessagePolicy": "FallbackToLogsOnError"}
    await box.create(pod("m", "sh", "-c", "echo because; exit 2", container=extra))
    assert state_of(await box.phase("m", "Failed"))["terminated"]["message"] == "because\n"


# -- configuration ---------------------------------------------------------------------------------


async def test_environment_and_volumes_come_from_the_objects(box: NodeBox) -> None:
    await box.client.create(
        CONFIG_MAPS, {"metadata": {"name": "cm", "namespace": "default"}, "data": {"k": "v", "file": "text"}}
    )
    await box.client.create(
        SECRETS,
        {
            "metadata": {"name": "s", "namespace": "default"},
            "data": {"pw": base64.b64encode(b"hush").decode()},
        },
    )
    container = {
        "env": [
            {"name": "K", "valueFrom": {"configMapKeyRef": {"name": "cm", "key": "k"}}},
            {"name": "PW", "valueFrom": {"secretKeyRef": {"name": "s", "key": "pw"}}},
            {"name": "IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
        ],
        "args": [
            "echo $(K) $PW $IP; cat /etc/volcano/file /data/in/pw; "
            "echo x > /data/scratch/y; cat /data/scratch/y; echo z > /etc/volcano/new"
        ],
        "volumeMounts": [
            {"name": "cm", "mountPath": "/etc/volcano"},
            {"name": "s", "mountPath": "/data/in"},
            {"name": "scratch", "mountPath": "/data/scratch"},
        ],
    }
    volumes = [
        {"name": "cm", "configMap": {"name": "cm"}},
        {"name": "s", "secret": {"secretName": "s"}},
        {"name": "scratch", "emptyDir": {"medium": "Memory"}},
    ]
    await box.create(pod("conf", "sh", "-c", container=container, volumes=volumes))
    found = await box.phase("conf", "Failed", "Succeeded")
    text = await box.log("conf")
    assert text.startswith(f"v hush {found['status']['podIP']}\ntexthushx\n")
    assert "Read-only file system" in text
    assert not Path("/etc/volcano").exists()
    assert not Path("/data/in").exists()  # nothing is written to the machine


async def test_missing_objects_are_waited_for(box: NodeBox) -> None:
    ref = {"name": "X", "valueFrom": {"configMapKeyRef": {"name": "late", "key": "x"}}}
    await box.create(pod("w", "sh", "-c", "echo $X", container={"env": [ref]}))

    async def waiting() -> Any:
        statuses = (await box.get("w")).get("status", {}).get("containerStatuses")
        return (
            statuses and statuses[0]["state"].get("waiting", {}).get("reason") == "CreateContainerConfigError"
        )

    await box.until(waiting)
    assert 'configmap "late" not found' in await told(box, "w", "Failed")
    await box.client.create(
        CONFIG_MAPS, {"metadata": {"name": "late", "namespace": "default"}, "data": {"x": "here"}}
    )
    await box.phase("w", "Succeeded")
    assert await box.log("w") == "here\n"


async def test_a_missing_volume_source_keeps_the_pod_pending_with_the_reason(box: NodeBox) -> None:
    spec = pod("v", "true", volumes=[{"name": "c", "configMap": {"name": "none"}}])
    await box.create(spec)
    await told(box, "v", "FailedMount")
    found = await box.get("v")
    assert found["status"]["phase"] == "Pending"
    assert state_of(found)["waiting"]["message"] == 'configmap "none" not found'
    await box.kill_agent()  # it has left no record of the pod, which is begun again with its first start
    begun = {"status": {"startTime": "2026-01-01T00:00:00Z"}}
    await box.client.patch(PODS, "v", begun, "default", subresource="status")
    await box.client.create(
        CONFIG_MAPS, {"metadata": {"name": "none", "namespace": "default"}, "data": {"x": "here"}}
    )
    await box.start_agent()
    found = await box.phase("v", "Succeeded")
    assert found["status"]["startTime"] == "2026-01-01T00:00:00Z"
    await box.client.delete(PODS, "v", "default")
    await box.gone("v")


async def test_a_pod_without_a_command_gets_a_marked_placeholder(box: NodeBox) -> None:
    await box.create(pod("empty"))
    await box.phase("empty", "Succeeded")
    assert "placeholder" in await box.log("empty")
    await told(box, "empty", "Placeholder")
    assert "busybox" in await told(box, "empty", "ImageIgnored")
    marks = (await box.get("empty"))["metadata"]["annotations"]
    assert marks[annotations.PLACEHOLDER] == "main"


async def test_a_placeholder_that_would_be_restarted_runs_until_it_is_stopped(box: NodeBox) -> None:
    init = {"name": "first", "image": "busybox"}
    await box.create(
        pod("server", restartPolicy="Always", initContainers=[init], terminationGracePeriodSeconds=200)
    )
    await box.phase("server", "Running")

    async def told() -> bool:
        return "runs until it is stopped" in await box.log("server")

    await box.until(told)
    assert "ends with 0" in await box.log("server", "first")  # or the pod would never come past it
    found = await box.get("server")
    assert state_of(found)["running"]
    assert found["status"]["containerStatuses"][0]["restartCount"] == 0
    await box.client.delete(PODS, "server", "default")
    await box.gone("server")  # it heeds SIGTERM


async def test_images_can_stand_for_environments(tmp_path: Path) -> None:
    (tmp_path / "env/bin").mkdir(parents=True)
    tool = tmp_path / "env/bin/tool"
    tool.write_text("#!/bin/sh\necho tool in $PWD with $FLAVOUR\n")
    tool.chmod(0o755)
    images = {"lab/*": ImageEntry(path=str(tmp_path / "env"), env={"FLAVOUR": "x"}, command=("tool",))}
    options = AgentOptions(node_name=NODE, gpus="none", images=images)
    async with serving(tmp_path, options) as box:
        await box.create(pod("i", container={"image": "lab/a:1"}))
        await box.phase("i", "Succeeded")
        assert await box.log("i") == f"tool in {tmp_path}/env with x\n"
        assert "ImageIgnored" not in await events(box, "i")


async def test_claims_keep_their_files_between_pods(box: NodeBox) -> None:
    mount = {"volumeMounts": [{"name": "c", "mountPath": "/claim"}]}
    volumes = [{"name": "c", "persistentVolumeClaim": {"claimName": "data"}}]
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    metadata = {
        "name": "data",
        "namespace": "default",
        "annotations": {"volume.kubernetes.io/storage-provisioner": "windlass.dev/local-path"},
    }
    claim = await box.client.create(PERSISTENT_VOLUME_CLAIMS, {"metadata": metadata, "spec": spec})
    name = f"pvc-{claim['metadata']['uid']}"
    await box.until(lambda: box.client.find(PERSISTENT_VOLUMES, name))
    change = {"spec": {"volumeName": name}}  # the binder of the control plane
    await box.client.patch(PERSISTENT_VOLUME_CLAIMS, "data", change, "default")
    await box.create(pod("w1", "sh", "-c", "echo kept > /claim/f", container=mount, volumes=volumes))
    await box.phase("w1", "Succeeded")
    await box.create(pod("w2", "cat", "/claim/f", container=mount, volumes=volumes))
    await box.phase("w2", "Succeeded")
    assert await box.log("w2") == "kept\n"
    directory = box.state.node / "claims" / f"{name}_default_data"
    assert (directory / "f").read_text() == "kept\n"
    await box.client.patch(PERSISTENT_VOLUMES, name, {"status": {"phase": "Released"}}, subresource="status")
    await box.until(lambda: not directory.exists())


async def test_memory_limits_hold(box: NodeBox) -> None:
    grow = "b = bytearray(200 * 2**20); b[::4096] = b'x' * len(b[::4096]); import time; time.sleep(30)"
    limits = {"resources": {"limits": {"memory": "64Mi"}}}
    await box.create(pod("fat", "/usr/bin/python3", "-S", "-c", grow, container=limits))
    ended = state_of(await box.phase("fat", "Failed"))["terminated"]
    assert (ended["reason"], ended["exitCode"]) == ("OOMKilled", 137)


# -- devices ---------------------------------------------------------------------------------------


def gpu_pod(name: str, devices: str | None, count: int = 1, *command: str) -> dict[str, Any]:
    marks = {} if devices is None else {"annotations": {annotations.DEVICES: devices}}
    limits = {"resources": {"limits": {"nvidia.com/gpu": str(count)}}}
    words = command or ("sh", "-c", "echo $CUDA_VISIBLE_DEVICES")
    return pod(name, *words, metadata=marks, container=limits)


@pytest.fixture
async def gpus(tmp_path: Path) -> Any:
    async with serving(tmp_path, AgentOptions(node_name=NODE, gpus="simulated:4")) as running:
        yield running


async def test_devices_are_those_of_the_binding_exactly(gpus: NodeBox) -> None:
    node = await gpus.client.get(NODES, NODE)
    assert node["status"]["allocatable"]["nvidia.com/gpu"] == "4"
    assert node["metadata"]["labels"]["nvidia.com/gpu.product"] == "Simulated-GPU"
    await gpus.create(gpu_pod("two", "3,1", 2))
    await gpus.create(pod("none", "sh", "-c", 'echo "[$CUDA_VISIBLE_DEVICES]"'))
    await gpus.phase("two", "Succeeded")
    assert await gpus.log("two") == "3,1\n"
    await gpus.phase("none", "Succeeded")
    assert await gpus.log("none") == "[]\n"  # a pod that asked for none sees none


async def test_a_manifest_cannot_reach_for_other_devices(gpus: NodeBox) -> None:
    spec = gpu_pod("sly", "2")
    spec["spec"]["containers"][0]["env"] = [{"name": "CUDA_VISIBLE_DEVICES", "value": "0,1,2,3"}]
    await gpus.create(spec)
    await gpus.phase("sly", "Succeeded")
    assert await gpus.log("sly") == "2\n"


async def test_a_device_that_is_held_is_waited_for_never_shared(gpus: NodeBox) -> None:
    await gpus.create(gpu_pod("first", "0", 1, "sleep", "1000"))
    await gpus.phase("first", "Running")
    await gpus.create(gpu_pod("second", "0"))  # what a lying or a racing server would say
    assert await told(gpus, "second", "DeviceInUse") == "device 0 is held by pod default/first"
    assert (await gpus.get("second"))["status"]["phase"] == "Pending"
    await gpus.client.delete(PODS, "first", "default", grace_seconds=1)
    await gpus.phase("second", "Succeeded")
    assert await gpus.log("second") == "0\n"


@pytest.mark.parametrize("left", ["", '{"claims": [{"device": "0", "mil', "[1]"])
async def test_who_runs_keeps_its_devices_where_the_ledger_is_lost(
    gpus: NodeBox, left: str, caplog: pytest.LogCaptureFixture
) -> None:
    await gpus.create(gpu_pod("first", "0", 1, "sleep", "1000"))
    await gpus.phase("first", "Running")
    await gpus.kill_agent()
    (gpus.state.node / "devices.json").write_text(left)
    await gpus.start_agent()
    assert "devices.json cannot be read" in caplog.text
    await gpus.create(gpu_pod("second", "0"))
    assert await told(gpus, "second", "DeviceInUse") == "device 0 is held by pod default/first"


async def test_who_is_started_again_has_its_devices_where_the_ledger_is_an_older_one(gpus: NodeBox) -> None:
    """As after a power cut: nothing runs, and the file was not waited for."""
    script = "echo $CUDA_VISIBLE_DEVICES; test -e begun && exit 0; touch begun; sleep 1000"
    first = gpu_pod("first", "2", 1, "sh", "-c", script)
    first["spec"]["restartPolicy"] = "OnFailure"
    await gpus.create(first)
    found = await gpus.phase("first", "Running")
    claim = attempt_files.read(str(folder(gpus, found)), attempt_files.CLAIM)
    assert claim is not None
    begun = gpus.state.node / "pods" / found["metadata"]["uid"] / "work" / "begun"
    await gpus.until(begun.exists)
    await gpus.kill_agent()
    os.kill(claim["pid"], signal.SIGKILL)
    (gpus.state.node / "devices.json").write_text('{"claims": []}')
    await gpus.start_agent()
    await gpus.phase("first", "Succeeded")
    assert await gpus.log("first") == "2\n"
    assert '"claims": []' in (gpus.state.node / "devices.json").read_text()


@pytest.mark.parametrize(
    ("devices", "words"), [(None, "bound with none"), ("7", "no device 7"), ("x", "by number")]
)
async def test_a_binding_that_cannot_be_is_refused(gpus: NodeBox, devices: str | None, words: str) -> None:
    await gpus.create(gpu_pod("odd", devices))
    found = await gpus.phase("odd", "Failed")
    assert found["status"]["reason"] == "UnexpectedAdmissionError"
    assert words in found["status"]["message"]


# -- faults ----------------------------------------------------------------------------------------


async def test_running_pods_are_adopted_by_the_next_agent(box: NodeBox) -> None:
    await box.create(pod("p", "sh", "-c", "echo up; while :; do test -e go && exit 6; sleep 0.05; done"))
    before = await box.phase("p", "Running")
    claim = attempt_files.read(str(folder(box, before)), attempt_files.CLAIM)
    await box.kill_agent()
    assert attempt_files.is_running(claim)
    await box.start_agent()
    assert box.agent is not None
    worker = box.agent.workers[before["metadata"]["uid"]]
    await box.until(lambda: "p" in worker.machine.key and worker.machine.containers["main"].step == "Running")
    assert attempt_files.is_running(claim)
    (box.state.node / "pods" / before["metadata"]["uid"] / "work/go").touch()
    after = await box.phase("p", "Failed")
    status = after["status"]["containerStatuses"][0]
    assert (status["state"]["terminated"]["exitCode"], status["restartCount"]) == (6, 0)
    assert after["status"]["podIP"] == before["status"]["podIP"]
    assert await box.log("p") == "up\n"  # started once


async def test_what_has_ended_never_seems_to_run_again(box: NodeBox, monkeypatch: pytest.MonkeyPatch) -> None:
    """A controller that saw the pod of a finished job start over would end it."""
    await box.create(pod("p", "sh", "-c", "exit 0"))
    ended = await box.phase("p", "Succeeded")
    await box.kill_agent()
    told: list[str] = []
    patch = type(box.client).patch

    async def spy(self: Any, resource: Any, name: str, change: Any, *rest: Any, **options: Any) -> Any:
        if name == "p" and "phase" in change.get("status", {}):
            told.append(change["status"]["phase"])
        return await patch(self, resource, name, change, *rest, **options)

    monkeypatch.setattr(type(box.client), "patch", spy)
    agent = await box.start_agent()
    worker = agent.workers[ended["metadata"]["uid"]]
    await worker.ended.wait()
    await box.until(lambda: told)
    assert set(told) == {"Succeeded"}
    await events(box, "p")  # all are written
    started = [e for e in (await box.client.list(EVENTS, "default")).items if e["reason"] == "Started"]
    assert sum(e.get("count", 1) for e in started) <= 1  # the first agent's may have died with it


async def test_what_ended_while_no_agent_looked_is_told_truly(box: NodeBox) -> None:
    await box.create(pod("p", "sh", "-c", "until test -e go; do sleep 0.05; done; exit 9"))
    found = await box.phase("p", "Running")
    await box.kill_agent()
    (box.state.node / "pods" / found["metadata"]["uid"] / "work/go").touch()
    await box.until(lambda: (folder(box, found) / attempt_files.EXIT).exists())
    assert [c async for c in box.logs.open(found, Options("main"))] == []  # read without an agent
    await box.start_agent()
    assert state_of(await box.phase("p", "Failed"))["terminated"]["exitCode"] == 9


async def test_an_attempt_whose_supervisor_was_killed_is_unknown_never_success(box: NodeBox) -> None:
    await box.create(pod("p", "sleep", "1000"))
    found = await box.phase("p", "Running")
    claim = attempt_files.read(str(folder(box, found)), attempt_files.CLAIM)
    assert claim is not None
    below = syscalls.descendants(claim["pid"])
    await box.kill_agent()
    os.kill(claim["pid"], signal.SIGKILL)
    await box.until(lambda: all(syscalls.start_time(p) is None for p in below))
    await box.start_agent()
    ended = state_of(await box.phase("p", "Failed"))["terminated"]
    assert (ended["exitCode"], ended["reason"]) == (137, "ContainerStatusUnknown")


async def test_the_supervisor_killed_while_the_agent_looks(box: NodeBox) -> None:
    await box.create(pod("p", "sleep", "1000", restartPolicy="OnFailure"))
    found = await box.phase("p", "Running")
    claim = attempt_files.read(str(folder(box, found)), attempt_files.CLAIM)
    assert claim is not None
    os.kill(claim["pid"], signal.SIGKILL)

    async def restarted() -> Any:
        status = (await box.get("p"))["status"]["containerStatuses"][0]
        return status if status["restartCount"] == 1 and "running" in status["state"] else None

    status = await box.until(restarted)
    assert status["lastState"]["terminated"]["reason"] == "ContainerStatusUnknown"


async def test_a_lost_folder_makes_running_containers_unknown(tmp_path: Path) -> None:
    async with serving(tmp_path, agent=False) as box:
        await box.create(pod("p", "echo", "must not run"))
        status = {
            "phase": "Running",
            "containerStatuses": [
                {
                    "name": "main",
                    "image": "x",
                    "imageID": "",
                    "ready": True,
                    "restartCount": 0,
                    "state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}},
                    "lastState": {},
                }
            ],
        }
        await box.client.patch(PODS, "p", {"status": status}, "default", subresource="status")
        await box.start_agent()
        found = await box.phase("p", "Failed", "Succeeded")
        assert state_of(found)["terminated"]["reason"] == "ContainerStatusUnknown"
        with pytest.raises(LogNotFound):
            await box.log("p")


async def test_a_pod_removed_while_no_agent_looked_is_ended(box: NodeBox) -> None:
    await box.create(pod("p", "sleep", "1000"))
    found = await box.phase("p", "Running")
    claim = attempt_files.read(str(folder(box, found)), attempt_files.CLAIM)
    await box.kill_agent()
    await box.client.delete(PODS, "p", "default", grace_seconds=0)
    assert attempt_files.is_running(claim)
    await box.start_agent()
    await box.until(lambda: not attempt_files.is_running(claim))
    await box.until(lambda: not (box.state.node / "pods" / found["metadata"]["uid"]).exists())


async def test_a_pod_made_anew_under_the_same_name_is_another_pod(box: NodeBox) -> None:
    await box.create(pod("p", "sleep", "1000"))
    first = await box.phase("p", "Running")
    await box.client.delete(PODS, "p", "default", grace_seconds=0)
    await box.create(pod("p", "echo", "second"))
    second = await box.phase("p", "Succeeded")
    assert first["metadata"]["uid"] != second["metadata"]["uid"]
    assert await box.log("p") == "second\n"
    await box.until(lambda: not (box.state.node / "pods" / first["metadata"]["uid"]).exists())


async def test_agents_killed_again_and_again_start_nothing_twice_and_lose_nothing(
    box: NodeBox, tmp_path: Path
) -> None:
    """Agents die at random moments while pods come; every pod runs exactly once and ends as it ended."""
    for number in range(12):
        script = f"echo ran >> {tmp_path}/ran-{number}; sleep 0.{number % 5}; exit {number % 3}"
        await box.create(pod(f"p{number}", "sh", "-c", script))
        if number % 2:
            await asyncio.sleep(0.013 * number)
            await box.kill_agent()
            await box.start_agent()
    for number in range(12):
        found = await box.phase(f"p{number}", "Succeeded", "Failed")
        assert state_of(found)["terminated"]["exitCode"] == number % 3
        assert (tmp_path / f"ran-{number}").read_text() == "ran\n"


async def test_stopping_the_pods_tells_the_server_and_leaves_no_process(tmp_path: Path) -> None:
    async with serving(tmp_path) as box:
        await box.create(pod("p", "sh", "-c", "setsid sleep 1000 & sleep 1000", restartPolicy="Always"))
        found = await box.phase("p", "Running")
        claim = attempt_files.read(str(folder(box, found)), attempt_files.CLAIM)
        assert claim is not None
        below = [claim["pid"], *syscalls.descendants(claim["pid"])]
        assert box.agent is not None
        await box.agent.stop_pods(2.0)
        assert [p for p in below if syscalls.start_time(p) is not None] == []
        found = await box.get("p")
        assert (found["status"]["phase"], found["status"]["reason"]) == ("Failed", "Terminated")
        holder = attempt_files.read(str(box.state.node), "box.json")
        assert holder is None


async def test_no_zombies_are_left_behind(box: NodeBox) -> None:
    def zombies() -> set[int]:
        found = set()
        for pid in syscalls.children(os.getpid()):
            with contextlib.suppress(OSError):  # it is gone, perhaps between its opening and its reading
                text = Path(f"/proc/{pid}/stat").read_text()
                if text.rpartition(")")[2].split()[0] == "Z" and "windlass" in text:
                    found.add(pid)
        return found

    before = set(syscalls.children(os.getpid()))  # of other tests in this process
    for number in range(5):
        await box.create(pod(f"z{number}", "true"))
    for number in range(5):
        await box.phase(f"z{number}", "Succeeded")
    await box.until(lambda: not zombies() - before)


async def test_the_node_has_a_lease_and_facts(box: NodeBox) -> None:
    lease = await box.until(lambda: box.client.find(LEASES, NODE, "kube-node-lease"))
    assert lease["spec"]["holderIdentity"] == NODE
    node = await box.client.get(NODES, NODE)
    assert node["metadata"]["labels"]["windlass.dev/box"] == "true"
    assert node["metadata"]["annotations"]["windlass.dev/limits"]
    assert node["status"]["nodeInfo"]["kubeletVersion"].startswith("v1.36")
    allocatable, capacity = node["status"]["allocatable"], node["status"]["capacity"]
    assert int(allocatable["memory"][:-2]) < int(capacity["memory"][:-2])
    assert capacity["pods"] == "250"


async def test_gpus_that_are_no_more_leave_the_node(tmp_path: Path) -> None:
    async with serving(tmp_path, AgentOptions(node_name=NODE, gpus="simulated:2")) as box:
        await box.kill_agent()
        box.options = AgentOptions(node_name=NODE, gpus="none")
        await box.start_agent()

        async def without() -> Any:
            node = await box.client.get(NODES, NODE)
            labels = [k for k in node["metadata"]["labels"] if k.startswith("nvidia.com/")]
            return not labels and "nvidia.com/gpu" not in node["status"]["allocatable"]

        await box.until(without)


async def test_finished_pods_of_other_times_are_only_deleted(tmp_path: Path) -> None:
    async with serving(tmp_path, agent=False) as box:
        await box.create(pod("old", "true"))
        change = {"status": {"phase": "Succeeded"}}
        await box.client.patch(PODS, "old", change, "default", subresource="status")
        await box.client.delete(PODS, "old", "default")
        await box.start_agent()
        await box.gone("old")
        with pytest.raises(StatusError):
            await box.get("old")
