"""Ending what a killed agent left, without agent and server."""

from __future__ import annotations

import asyncio

from node_agent_server import NodeBox, pod

from windlass.node.cleanup import end_all
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
