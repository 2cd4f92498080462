"""Mirror pods of the control plane's processes (C6), by the agent on an embedded server."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from node_agent_server import NODE, NodeBox, Options, pod, serving

from windlass.api.annotations import MIRROR, PROCESS
from windlass.api.resources import NODES, PODS
from windlass.kits.clock import FakeClock
from windlass.kits.processes import start_time
from windlass.node import mirror_pods
from windlass.node.mirrored_parts import PARTS, NodeState, ProcessState, mirror_pod, status
from windlass.node.options import AgentOptions
from windlass.node.runtime.process_log import ProcessLogReader

STARTED = "2026-01-01T00:00:00Z"


def entry(pid: int | None = None, restarts: int = 0, **last_exit: Any) -> dict[str, Any]:
    pid = os.getpid() if pid is None else pid
    ticks = start_time(pid) if pid else None
    record = {"pid": pid, "startTicks": ticks, "started": STARTED, "restarts": restarts}
    return {**record, "lastExit": last_exit}


def record(box: NodeBox, **processes: dict[str, Any]) -> None:
    box.state.write_supervisor({"processes": {"server": entry(), "node": entry(), **processes}})


@pytest.fixture
async def box(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[NodeBox]:
    monkeypatch.setattr(mirror_pods, "_PERIOD_SECONDS", 0.05)
    options = AgentOptions(node_name=NODE, gpus="simulated:2")
    async with serving(tmp_path, options, agent=False) as made:
        record(made, control=entry())
        await made.start_agent()
        yield made


async def names(box: NodeBox, namespace: str) -> list[str]:
    return sorted(p["metadata"]["name"] for p in (await box.client.list(PODS, namespace)).items)


async def found(
    box: NodeBox, name: str = "volcano-scheduler-box", namespace: str = "volcano-system"
) -> dict[str, Any] | None:
    pods = (await box.client.list(PODS, namespace)).items
    return next(
        (p for p in pods if p["metadata"]["name"] == name and p.get("status", {}).get("hostIP")), None
    )


async def container(box: NodeBox, name: str = "volcano-scheduler-box") -> dict[str, Any]:
    shown = await box.until(lambda: found(box, name))
    return shown["status"]["containerStatuses"][0]


async def test_c6_parts_of_volcano_and_of_the_gpu_operator_are_shown(box: NodeBox) -> None:
    await box.until(lambda: found(box, "gpu-feature-discovery-box", "gpu-operator"))
    volcano = ["volcano-admission-box", "volcano-controllers-box", "volcano-scheduler-box"]
    assert await names(box, "volcano-system") == volcano
    toolkit, plugin = "nvidia-container-toolkit-daemonset-box", "nvidia-device-plugin-daemonset-box"
    assert await names(box, "gpu-operator") == ["gpu-feature-discovery-box", toolkit, plugin]
    assert await names(box, "kubeflow") == ["training-operator-box"]
    assert await names(box, "kurator-system") == []  # no process does this work
    shown = await box.get("volcano-admission-box", "volcano-system")
    node = await box.client.get(NODES, NODE)
    assert shown["metadata"]["ownerReferences"][0]["uid"] == node["metadata"]["uid"]
    assert shown["metadata"]["annotations"][MIRROR]
    assert shown["status"]["phase"] == "Running"
    assert box.agent is not None
    assert not box.agent.workers  # the agent starts nothing for them


async def test_a_mirror_pod_has_the_health_and_restarts_of_its_process(box: NodeBox) -> None:
    admission = await container(box, "volcano-admission-box")
    assert (admission["ready"], admission["restartCount"]) == (True, 0)
    assert admission["state"]["running"]["startedAt"] == STARTED
    scheduler = await container(box)
    assert not scheduler["ready"]  # nothing listens on the control socket of this box
    ended = {"code": -9, "started": STARTED, "ended": "2026-01-01T00:01:00Z"}
    record(box, control=entry(0, restarts=3, **ended))

    async def restarted() -> bool:
        return (await container(box))["restartCount"] == 3

    await box.until(restarted)
    scheduler = await container(box)
    assert scheduler["state"] == {"waiting": {"reason": "CrashLoopBackOff"}}
    assert scheduler["lastState"]["terminated"]["exitCode"] == 137


async def test_a_deleted_mirror_pod_is_created_again_and_a_foreign_one_removed(box: NodeBox) -> None:
    before = await box.until(lambda: found(box))
    await box.client.delete(PODS, "volcano-scheduler-box", "volcano-system")

    async def again() -> bool:
        shown = await found(box)
        return shown is not None and shown["metadata"]["uid"] != before["metadata"]["uid"]

    await box.until(again)
    foreign = pod("foreign", "sleep", "60", metadata={"annotations": {MIRROR: "x"}})
    await box.create(foreign)
    await box.gone("foreign")


async def test_a_namespace_under_deletion_does_not_stop_the_other_parts(box: NodeBox) -> None:
    await box.until(lambda: found(box, "gpu-feature-discovery-box", "gpu-operator"))
    namespaces = mirror_pods.NAMESPACES
    await box.client.patch(namespaces, "gpu-operator", {"metadata": {"finalizers": ["test/hold"]}})
    await box.client.delete(namespaces, "gpu-operator")
    record(box, control=entry(restarts=1))

    async def restarted() -> bool:
        return (await container(box))["restartCount"] == 1

    await box.until(restarted)


def test_parts_of_the_gpu_operator_are_absent_without_devices() -> None:
    present = {part.namespace for part in PARTS if part.present(NodeState({}, {"cpu": "2"}))}
    assert present == {"volcano-system", "kubeflow"}


def test_conditions_keep_their_time_while_they_hold() -> None:
    part = PARTS[0]
    state = ProcessState(7, STARTED, 0, {})
    first = status(part, state, "10.0.0.1", {}, "2026-01-01T00:00:10Z")
    assert status(part, state, "10.0.0.1", first, "2026-01-01T00:00:20Z") == first
    failing = ProcessState(7, STARTED, 0, {}, "not known yet: Pod")
    then = status(part, failing, "10.0.0.1", first, "2026-01-01T00:00:30Z")
    ready = {c["type"]: c for c in then["conditions"]}["Ready"]
    assert (ready["status"], ready["message"]) == ("False", "not known yet: Pod")
    assert ready["lastTransitionTime"] == "2026-01-01T00:00:30Z"


# -- logs ------------------------------------------------------------------------------------------


class Containers:
    """Source of other logs, which says that it was asked."""

    async def open(self, pod: Any, options: Any) -> AsyncIterator[bytes]:
        yield b"of a container"


LOG = b"2026-01-01T00:00:01.5Z info a\nTraceback\n2026-01-01T00:00:03Z info b\n"


async def read(folder: Path, shown: dict[str, Any], **options: Any) -> bytes:
    (folder / "control.log").write_bytes(LOG)
    reader = ProcessLogReader(
        Containers(), lambda role: folder / f"{role}.log", clock=FakeClock(), missing=LookupError
    )
    return b"".join([chunk async for chunk in reader.open(shown, Options("c", **options))])


async def test_logs_of_a_mirror_pod_are_those_of_its_process(tmp_path: Path) -> None:
    shown = mirror_pod(PARTS[0], NODE, "u")
    assert await read(tmp_path, shown) == LOG
    assert await read(tmp_path, shown, tail_lines=1) == b"2026-01-01T00:00:03Z info b\n"
    assert await read(tmp_path, shown, since="2026-01-01T00:00:02") == b"2026-01-01T00:00:03Z info b\n"
    stamped = await read(tmp_path, shown, timestamps=True)
    assert stamped.splitlines()[1] == b"2026-01-01T00:00:01.5Z Traceback"
    with pytest.raises(LookupError, match="leave out --previous"):
        await read(tmp_path, shown, previous=True)


async def test_logs_of_other_pods_come_from_their_containers(tmp_path: Path) -> None:
    assert await read(tmp_path, pod("p")) == b"of a container"
    outside = {"metadata": {"annotations": {MIRROR: "x", PROCESS: "../secret"}}}
    assert await read(tmp_path, outside) == b"of a container"


async def test_a_followed_log_goes_on_after_it_was_truncated(tmp_path: Path) -> None:
    path = tmp_path / "control.log"
    path.write_bytes(LOG)
    clock = FakeClock()
    reader = ProcessLogReader(Containers(), lambda _: path, clock=clock, missing=LookupError)
    chunks = reader.open(mirror_pod(PARTS[0], NODE, "u"), Options("c", follow=True))
    assert await anext(chunks) == LOG
    path.write_bytes(b"new\n")
    following = asyncio.ensure_future(anext(chunks))
    while not following.done():
        await asyncio.sleep(0)
        await clock.advance(1.0)
    assert following.result() == b"new\n"
