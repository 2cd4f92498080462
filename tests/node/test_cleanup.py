"""Ending what a killed agent left, without agent and server."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import pytest
from node_agent_server import NODE, NodeBox, pod, serving

from windlass.kits.state import StateFolder
from windlass.modelcache import shared
from windlass.node import cleanup
from windlass.node.cleanup import end_all
from windlass.node.options import AgentOptions
from windlass.node.paths import NodePaths
from windlass.node.runtime import attempt_files, syscalls


async def test_everything_an_agent_left_is_ended_and_told_truly_later(box: NodeBox) -> None:
    await box.create(pod("p", "sh", "-c", "setsid sleep 1000 & sleep 1000"))
    found = await box.phase("p", "Running")
    folder = box.state.node / "pods" / found["metadata"]["uid"]
    claim = attempt_files.read(str(folder / "containers/main/0"), attempt_files.CLAIM)
    holder = attempt_files.read(str(box.state.node), "box.json")
    assert claim is not None
    assert holder is not None
    below = [claim["pid"], *syscalls.descendants(claim["pid"]), holder["pid"]]
    assert await asyncio.to_thread(end_all, box.state, 0.5) == []  # an agent works there
    await box.kill_agent()
    ended = await asyncio.to_thread(end_all, box.state, 0.5)
    assert {claim["pid"], holder["pid"]} <= set(ended)
    assert [pid for pid in below if syscalls.start_time(pid) is not None] == []
    assert await asyncio.to_thread(end_all, box.state, 0.5) == []
    await box.start_agent()
    status = (await box.phase("p", "Failed"))["status"]["containerStatuses"][0]
    assert status["state"]["terminated"]["signal"] == 15


async def test_processes_of_a_supervisor_that_does_not_react_are_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a pid namespace they would outlive it."""
    monkeypatch.setattr(cleanup, "_SLACK_SECONDS", 0.2)
    async with serving(tmp_path, AgentOptions(node_name=NODE, gpus="none", isolation="none")) as box:
        await box.create(pod("p", "sh", "-c", "setsid sleep 1000 & echo up; sleep 1000"))
        found = await box.phase("p", "Running")

        async def is_up() -> bool:
            return await box.log("p") == "up\n"

        await box.until(is_up)
        folder = box.state.node / "pods" / found["metadata"]["uid"] / "containers/main/0"
        claim = attempt_files.read(str(folder), attempt_files.CLAIM)
        assert claim is not None
        below = syscalls.descendants(claim["pid"])
        assert len(below) >= 3
        await box.kill_agent()
        os.kill(claim["pid"], signal.SIGSTOP)
        assert await asyncio.to_thread(end_all, box.state, 0.0) == [claim["pid"]]
        await box.until(lambda: all(syscalls.start_time(pid) is None for pid in below))


def test_models_that_killed_workers_left_in_memory_are_removed_and_those_of_another_box_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared, "MEMORY", tmp_path)
    (tmp_path / "weights").mkdir()
    (tmp_path / "weights" / "w").write_bytes(b"x")
    copies = []
    for name in ("one", "other"):
        state = StateFolder(tmp_path / name)
        state.node.mkdir(parents=True)
        memory = Path(shared.memory_of(NodePaths(state.node).models))
        memory.mkdir()
        copies.append(shared.attach(tmp_path / "weights", "m-1", memory))
    assert end_all(StateFolder(tmp_path / "one"), 0.0) == []
    assert [copy.files.is_dir() for copy in copies] == [False, True]
    copies[1].close()
    assert not copies[1].files.exists()
