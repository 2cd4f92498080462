"""JobFlows: order of the jobs, phases, probes, patches, and controllers that stop anywhere."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from fakeapi import Crash
from flow_cluster import KEY, FlowWorld, step, template_spec

from windlass.api.resources import JOB_FLOWS, JOB_TEMPLATES, VOLCANO_JOBS
from windlass.controllers.jobflow.flow import PodCondition
from windlass.controllers.jobflow.patching import patched_spec
from windlass.controllers.jobflow.probing import probe_pod
from windlass.controllers.jobflow.status import FlowJob, FlowPhase, next_phase

Json = dict[str, Any]


def diamond(**more: Any) -> FlowWorld:
    return FlowWorld(step("a"), step("b", "a"), step("c", "b"), step("d", "b"), step("e", "c", "d"), **more)


def test_jobs_are_created_in_the_order_of_their_dependencies() -> None:
    world = diamond()
    world.settle()
    assert (world.jobs(), world.phase, world.status["unKnowJobs"]) == (["a"], "Pending", ["f-a"])
    marks = {"volcano.sh/createdByJobFlow": "default.f", "volcano.sh/createdByJobTemplate": "default.a"}
    metadata = world.job("a")["metadata"]
    assert metadata["labels"] == metadata["annotations"] == marks
    assert (metadata["ownerReferences"][0]["kind"], world.job("a")["spec"]) == ("JobFlow", template_spec())
    world.enter("Running", "a")
    world.settle()
    assert (world.jobs(), world.phase, world.status["runningJobs"]) == (["a"], "Running", ["f-a"])
    world.enter("Completed", "a")
    world.settle()
    world.enter("Completed", "b")
    world.settle()
    assert world.jobs() == ["a", "b", "c", "d"]
    world.enter("Completed", "c")
    world.settle()
    assert world.jobs() == ["a", "b", "c", "d"]
    world.enter("Completed", "d")
    world.settle()
    world.enter("Completed", "e", runningDuration="90s", retryCount=1)
    world.settle()
    assert world.phase == "Succeed"
    assert world.status["completedJobs"] == ["f-a", "f-b", "f-c", "f-d", "f-e"]
    assert world.status["conditions"]["f-e"]["runningDuration"] == "90s"
    entry = world.status["jobStatusList"][-1]
    assert (entry["name"], entry["state"], entry["restartCount"]) == ("f-e", "Completed", 1)
    assert entry["endTimestamp"] == "2026-01-01T12:01:30Z"
    assert world.words.reasons() == ["Created"] * 5
    template = world.api.object(JOB_TEMPLATES, "default/e")
    assert template is not None
    assert template["status"] == {"jobDependsOnList": ["f-e"]}


def test_phases_of_a_job_become_its_history() -> None:
    world = FlowWorld(step("a"))
    world.settle()
    for phase in ("Pending", "Running", "Running", "Completed"):
        world.api.clock.jump(10)
        world.enter(phase, "a")
        world.settle()
    (entry,) = world.status["jobStatusList"]
    at = "2026-01-01T12:00:{}Z".format
    assert entry["runningHistories"] == [
        {"state": "Pending", "startTimestamp": at(10), "endTimestamp": at(20)},
        {"state": "Running", "startTimestamp": at(20), "endTimestamp": at(40)},
        {"state": "Completed", "startTimestamp": at(40)},
    ]


@pytest.mark.parametrize("phase", ["Failed", "Terminated"])
def test_a_failed_job_ends_the_flow(phase: str) -> None:
    world = FlowWorld(step("a"), step("b"), step("c", "b"))
    world.settle()
    world.enter("Running", "a", "b")
    world.settle()
    world.enter(phase, "a")
    world.settle()
    world.enter("Completed", "b")
    world.settle()
    assert (world.phase, world.jobs()) == ("Failed", ["a", "b"])


def test_next_phase_of_every_mix_of_jobs() -> None:
    def after(before: FlowPhase, *phases: str) -> str:
        return next_phase(before, [FlowJob(str(at), phase, None) for at, phase in enumerate(phases)], 2)

    pending, running = FlowPhase.PENDING, FlowPhase.RUNNING
    assert after(pending) == after(pending, "Pending") == after(pending, "Aborted", "") == "Pending"
    assert after(pending, "Running", "Pending") == after(pending, "Completed", "Terminated") == "Running"
    assert after(pending, "Running", "Failed") == after(pending, "Terminated") == "Failed"
    assert after(running, "Completed", "Restarting") == after(running, "Aborted", "Pending") == "Running"
    assert after(running, "Completed", "Completed") == "Succeed"
    assert after(running, "Completed", "Failed") == after(running, "Terminated", "Running") == "Failed"
    for final in (FlowPhase.SUCCEED, FlowPhase.FAILED, FlowPhase.TERMINATING):
        assert after(final, "Running", "Failed") == final


def test_jobs_are_deleted_or_kept_when_the_flow_has_succeeded() -> None:
    for retain, left in (("delete", []), ("retain", ["a"]), ("", ["a"])):
        world = FlowWorld(step("a"), retain=retain)
        world.settle()
        world.enter("Completed", "a")
        world.settle()
        assert (world.phase, world.jobs()) == ("Succeed", left)
        assert world.status["completedJobs"] == ["f-a"]


def test_a_completed_job_that_was_deleted_is_not_run_again() -> None:
    world = FlowWorld(step("a"), step("b", "a"))
    world.settle()
    world.enter("Completed", "a")
    world.settle()
    world.api.remove(VOLCANO_JOBS, "default/f-a")
    world.settle()
    world.enter("Completed", "b")
    world.settle()
    assert (world.phase, world.jobs()) == ("Succeed", ["b"])


def test_a_missing_template_and_a_foreign_job_are_reported() -> None:
    world = FlowWorld(step("a"), step("z"))
    world.api.put(VOLCANO_JOBS, {"metadata": {"name": "f-a"}, "spec": template_spec()})
    world.settle()
    said = [(reason, message) for _, _, reason, message in world.words.said]
    assert ("JobTemplateNotFound", "JobTemplate z does not exist: Job f-z waits for it") in said
    assert any(reason == "JobExists" and "delete it, or rename the flow" in text for reason, text in said)
    world.template("z")
    world.settle()
    assert world.jobs() == ["a", "z"]


PROBES = {
    "httpGetList": [{"taskName": "t", "port": 80, "path": "ready"}],
    "tcpSocketList": [{"taskName": "t", "port": 81}],
    "taskStatusList": [{"taskName": "t", "phase": "Running"}],
}


def test_a_probe_replaces_the_completion_of_the_targets() -> None:
    world = FlowWorld(step("a"), step("b", "a", probe=PROBES))
    world.settle()
    world.enter("Running", "a")
    world.settle()
    assert (world.jobs(), world.last.requeue_after) == (["a"], 2.0)  # no pod yet
    world.pod("a", "t", address="10.0.0.1")
    world.pod("a", "t", address="10.0.0.2")
    world.pod("a", "other", phase="Pending", address="10.0.0.3")
    for address in ("10.0.0.1", "10.0.0.2"):
        world.settle()
        assert world.jobs() == ["a"]
        world.listening |= {(address, 80, "/ready"), (address, 81, "")}
    world.settle()
    assert (world.jobs(), world.last.requeue_after) == (["a", "b"], None)


def test_a_task_that_has_ended_meets_the_phase_succeeded_only() -> None:
    for phase, begins in (("Succeeded", True), ("Running", False)):
        probe = {"taskStatusList": [{"taskName": "t", "phase": phase}]}
        world = FlowWorld(step("a"), step("b", "a", probe=probe))
        world.settle()
        world.enter("Running", "a")
        world.pod("a", "t", phase="Succeeded")
        world.settle()
        assert ("b" in world.jobs()) is begins


def test_probes_by_tcp_and_http() -> None:
    async def answers() -> list[bool]:
        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            found = head.startswith("GET /ready HTTP/1.1") and "X-Key: 7" in head
            writer.write(f"HTTP/1.1 {'204 No Content' if found else '500 Oh'}\r\n\r\n".encode())
            writer.close()

        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        async with server:
            return [
                await probe_pod("127.0.0.1", PodCondition("t", port=port)),
                await probe_pod(
                    "127.0.0.1", PodCondition("t", port=port, path="/ready", header=("X-Key", "7"))
                ),
                await probe_pod("127.0.0.1", PodCondition("t", port=port, path="/ready")),
                await probe_pod("127.0.0.1", PodCondition("t", port=1)),
            ]

    assert asyncio.run(answers()) == [True, True, False, False]


def test_patches_merge_by_name() -> None:
    spec = {
        "minAvailable": 1,
        "plugins": {"svc": []},
        "policies": [{"event": "PodFailed", "action": "RestartJob"}],
        "volumes": [{"mountPath": "/data", "volumeClaimName": "x"}],
        **template_spec(),
    }
    container = {"name": "main", "image": "new", "env": [{"name": "A", "value": "1"}]}
    patch = {
        "minAvailable": 2,
        "plugins": {"env": []},
        "policies": [],
        "volumes": [{"mountPath": "/data", "volumeClaimName": "y"}, {"mountPath": "/out", "volumeClaim": {}}],
        "tasks": [
            {"replicas": 2, "template": {"spec": {"containers": [container]}}},
            {"name": "more", "replicas": 1},
        ],
    }
    found = patched_spec(spec, patch)
    assert found["tasks"][0] == {
        "name": "t",
        "replicas": 2,
        "template": {"spec": {"containers": [{**container, "command": ["true"]}]}},
    }
    assert found["tasks"][1] == {"name": "more", "replicas": 1}
    assert (found["minAvailable"], found["plugins"], found["policies"]) == (2, {"svc": [], "env": []}, [])
    assert [volume["mountPath"] for volume in found["volumes"]] == ["/data", "/out"]
    assert spec["tasks"] == template_spec()["tasks"]
    two = {"tasks": [{"name": "x"}, {"name": "y"}]}
    with pytest.raises(ValueError, match=r"the template has 2 tasks \(x, y\): name the task"):
        patched_spec(two, {"tasks": [{"replicas": 1}]})


def test_a_patch_that_does_not_fit_is_reported() -> None:
    world = FlowWorld(step("a", patch={"tasks": [{"replicas": 3}]}))
    world.template("a", {"tasks": [{"name": "x"}, {"name": "y"}]})
    world.settle()
    assert (world.jobs(), set(world.words.reasons())) == ([], {"InvalidPatch"})


def test_a_controller_that_stops_between_any_two_writes_changes_nothing() -> None:
    def play(world: FlowWorld, crashes: int | None) -> Json:
        world.api.crash_after = crashes
        for names, phase in (("", ""), ("a", "Running"), ("a", "Completed"), ("b", "Completed")):
            world.enter(phase, *names)
            try:
                world.settle()
            except Crash:
                world.restart()
                world.settle()
        status = dict(world.status)
        log = [entry for entry in world.api.log if entry[0] == "create"]
        return {"status": status, "jobs": world.jobs(), "created": log}

    calm = play(FlowWorld(step("a"), step("b", "a"), retain="delete"), None)
    assert (calm["status"]["state"], calm["jobs"]) == ({"phase": "Succeed"}, [])
    for crashes in range(12):
        assert play(FlowWorld(step("a"), step("b", "a"), retain="delete"), crashes) == calm, crashes


def test_a_flow_that_is_being_deleted_is_left_alone() -> None:
    world = FlowWorld(step("a"))
    world.api.change(JOB_FLOWS, KEY, metadata={"deletionTimestamp": "2026-01-01T12:00:00Z"})
    world.settle()
    assert world.jobs() == []
