"""Heartbeat: changes of the node during a write, and requests to clear GPU faults meanwhile."""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from node_agent_server import NODE, NodeBox, serving
from scripted_nvml import H100_80, Script, binding, card

from windlass.api import annotations
from windlass.api.devices.node_annotation import read
from windlass.api.errors import failure
from windlass.api.resources import LEASES, NODES
from windlass.client.client import Client
from windlass.client.errors import Unreachable
from windlass.kits.clock import FakeClock, SystemClock
from windlass.kits.timestamps import parse_rfc3339, rfc3339_micro
from windlass.node.device_reporter import DeviceReporter, NodeAnnotations
from windlass.node.devices.monitor import PublishedDevices
from windlass.node.heartbeat import OwnNode
from windlass.node.machine import find_machine
from windlass.node.options import AgentOptions


class Interrupted:
    """The server's client; ``meanwhile`` is called once, in the middle of the ``after``-th request."""

    def __init__(self, client: Client, after: int, meanwhile: Callable[[], None]) -> None:
        self._client = client
        self._left = after
        self._meanwhile = meanwhile

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._client, name)

        async def called(*arguments: Any, **options: Any) -> Any:
            self._left -= 1
            answer = await method(*arguments, **options)
            if self._left == 0:
                self._meanwhile()
            return answer

        return called


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[NodeBox]:
    async with serving(tmp_path, agent=False) as box:
        yield box


def own_node(client: Any, folder: Path) -> OwnNode:
    found = find_machine(folder)
    return OwnNode(client, SystemClock(), NODE, found, labels={}, annotations={}, capacity={}, allocatable={})


@pytest.mark.parametrize("request_number", [1, 2, 3])
async def test_news_while_the_node_is_being_written_is_told_by_the_next_beat(
    server: NodeBox, tmp_path: Path, request_number: int
) -> None:
    await own_node(server.client, tmp_path).beat()
    condition = {
        "type": "GPUsHealthy",
        "status": "False",
        "reason": "CardUnhealthy",
        "message": "GPU 0: XID 79",
    }

    def news() -> None:
        node.change({"windlass.dev/node-devices": "of which one went bad"})
        capacity, healthy = {"nvidia.com/gpu": 2}, {"nvidia.com/gpu": 1}
        node.change_devices(PublishedDevices({}, {}, {}, capacity, healthy, (condition,)))

    node = own_node(Interrupted(server.client, request_number, news), tmp_path)
    node.change({"windlass.dev/node-devices": "all well"})
    await node.beat()
    await node.beat()
    found = await server.client.get(NODES, NODE)
    assert found["metadata"]["annotations"]["windlass.dev/node-devices"] == "of which one went bad"
    assert found["status"]["capacity"]["nvidia.com/gpu"] == "2"
    assert found["status"]["allocatable"]["nvidia.com/gpu"] == "1"
    messages = [c["message"] for c in found["status"]["conditions"] if c["type"] == "GPUsHealthy"]
    assert messages == ["GPU 0: XID 79"]


async def test_deleted_node_is_registered_again_when_its_lease_is_gone(
    server: NodeBox, tmp_path: Path
) -> None:
    node = own_node(server.client, tmp_path)
    await node.beat()
    first = await server.client.get(NODES, NODE)
    lease = await server.client.get(LEASES, NODE, "kube-node-lease")
    assert [owner["uid"] for owner in lease["metadata"]["ownerReferences"]] == [first["metadata"]["uid"]]
    await server.client.delete(NODES, NODE)
    await server.client.delete(LEASES, NODE, "kube-node-lease")  # by the garbage collector
    await node.beat()
    assert await server.client.find(LEASES, NODE, "kube-node-lease") is None
    await node.beat()
    again = await server.client.get(NODES, NODE)
    lease = await server.client.get(LEASES, NODE, "kube-node-lease")
    assert again["metadata"]["uid"] != first["metadata"]["uid"]
    assert [owner["uid"] for owner in lease["metadata"]["ownerReferences"]] == [again["metadata"]["uid"]]


async def test_failed_update_is_repeated(server: NodeBox, tmp_path: Path) -> None:
    def broken() -> None:
        raise Unreachable("WL-TEST-503", "the line was cut")

    node = own_node(Interrupted(server.client, 2, broken), tmp_path)
    with pytest.raises(Unreachable):
        await node.beat()
    node.change({})
    await node.beat()
    found = await server.client.get(NODES, NODE)
    assert any(c["type"] == "Ready" for c in found["status"]["conditions"])


class Declared:
    """A duty over a watch that writes down what was cleared, and a server that answers as it is told."""

    def __init__(self) -> None:
        self.cleared: list[tuple[int, float]] = []
        self.annotation = ""
        self.failures: list[Exception] = []
        self.clock = FakeClock()
        self.device_reporter = DeviceReporter(
            cast(Any, self),
            self.clock,
            cast(Any, SimpleNamespace()),
            cast(Any, SimpleNamespace(name=NODE)),
            cast(Any, SimpleNamespace(clear=lambda index, until: self.cleared.append((index, until)))),
            {},
        )

    def declare(self, text: str) -> None:
        self.annotation = text
        self.device_reporter.on_annotations(NodeAnnotations(NODE, {annotations.CLEAR_BAD_DEVICES: text}))

    async def patch(self, _resource: Any, _name: str, change: Any, *, kind: str) -> None:
        assert kind == "json"
        test, remove = change
        assert test["path"] == remove["path"] == "/metadata/annotations/windlass.dev~1clear-devices"
        await asyncio.sleep(0)
        if self.failures:
            raise self.failures.pop(0)
        if test["value"] != self.annotation:
            raise failure(422, "Invalid", "the test did not hold", {})
        self.annotation = ""

    @contextlib.asynccontextmanager
    async def heard(self) -> AsyncIterator[None]:
        task = asyncio.ensure_future(self.device_reporter._clear_faults())
        try:
            yield
            for _ in range(40):
                await self.clock.advance(1.0)
        finally:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task


async def test_no_clear_request_is_lost() -> None:
    scene = Declared()
    async with scene.heard():
        scene.declare("0@1970-01-01T00:00:10Z")
        scene.declare("1@1970-01-01T00:00:11Z")  # before the first was carried out
        await asyncio.sleep(0)
        scene.declare("2@1970-01-01T00:00:12Z")  # while the second is being taken off
    assert sorted(scene.cleared) == [(0, 10.0), (1, 11.0), (2, 12.0)]
    assert scene.annotation == ""


async def test_a_word_that_the_agent_has_not_heard_is_not_taken_off() -> None:
    scene = Declared()
    scene.declare("0@1970-01-01T00:00:10Z")
    scene.annotation = "1@1970-01-01T00:00:11Z"  # written since; the informer has not told it yet
    async with scene.heard():
        pass
    assert scene.cleared == [(0, 10.0)]
    assert scene.annotation == "1@1970-01-01T00:00:11Z"


async def test_a_server_that_is_away_is_asked_again_to_take_it_off() -> None:
    scene = Declared()
    scene.failures = [Unreachable("WL-TEST-503", "away"), Unreachable("WL-TEST-503", "away")]
    async with scene.heard():
        scene.declare("0@1970-01-01T00:00:10Z")
    assert scene.cleared == [(0, 10.0)]
    assert scene.annotation == ""


@pytest.mark.timeout(120)
async def test_a_card_declared_well_while_no_agent_ran_is_well_with_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = Script.write(tmp_path / "nvml.json", [card(H100_80, 0), card(H100_80, 1)])
    monkeypatch.setitem(sys.modules, "pynvml", binding(script))
    options = AgentOptions(node_name=NODE, gpus="auto", device_period_seconds=60.0)
    async with serving(tmp_path, options) as box:

        async def healthy() -> list[bool]:
            found = await box.client.get(NODES, NODE)
            return [c.healthy for c in read(found["metadata"]["annotations"]).cards]

        async def reached(wanted: list[bool]) -> bool:
            return await healthy() == wanted

        for wrong in (0, 1):
            script.xid(wrong, 79)
        await box.until(lambda: reached([False, False]))
        for index in (0, 1):
            await box.kill_agent()
            moment = rfc3339_micro(parse_rfc3339("2100-01-01T00:00:00Z"))
            words = {annotations.CLEAR_BAD_DEVICES: f"{index}@{moment}"}
            await box.client.patch(NODES, NODE, {"metadata": {"annotations": words}})
            await box.start_agent()
            await box.until(lambda index=index: reached([True, index == 1]))
        found = await box.client.get(NODES, NODE)
        assert annotations.CLEAR_BAD_DEVICES not in found["metadata"]["annotations"]
    assert json.loads((box.state.node / "health.json").read_text())["xids"] == []
