"""F20: device plugins register with the agent over the kubelet's API, and serve its pods."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from device_plugin import RESOURCE, DevicePlugin

from windlass.kits.clock import SystemClock
from windlass.node.devices import plugin_messages, rpc
from windlass.node.devices.device_plugins import DevicePlugins, DevicesUnavailable
from windlass.node.probes.grpc_probe import RpcError


class Agent:
    """The agent's side, with the resources that it publishes."""

    def __init__(self, folder: Path) -> None:
        self.plugins = DevicePlugins(folder, SystemClock())
        self.plugins.publish = self._publish
        self.capacity: Mapping[str, int] = {}
        self.allocatable: Mapping[str, int] = {}
        self._changed = asyncio.Event()
        self._task = asyncio.ensure_future(self.plugins.run())

    def _publish(self, capacity: Mapping[str, int], allocatable: Mapping[str, int]) -> None:
        self.capacity, self.allocatable = dict(capacity), dict(allocatable)
        self._changed.set()

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(60):
            while not condition():
                self._changed.clear()
                await self._changed.wait()

    async def close(self) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)


async def listening(folder: Path) -> None:
    async with asyncio.timeout(60):
        while not (folder / "kubelet.sock").exists():
            await asyncio.sleep(0.01)


@pytest.fixture
async def folder(tmp_path: Path) -> Path:
    return tmp_path / "p"


@pytest.fixture
async def agent(folder: Path) -> AsyncIterator[Agent]:
    made = Agent(folder)
    await listening(folder)
    yield made
    await made.close()


@pytest.fixture
async def plugin(agent: Agent, folder: Path) -> AsyncIterator[DevicePlugin]:
    made = DevicePlugin(folder)
    await made.start()
    yield made
    await made.close()


def container(count: int, name: str = "main") -> dict[str, Any]:
    return {"name": name, "resources": {"limits": {RESOURCE: str(count), "cpu": "1"}}}


async def test_f20_devices_are_allocatable_and_an_unhealthy_one_is_not(
    agent: Agent, plugin: DevicePlugin
) -> None:
    await agent.until(lambda: agent.allocatable == {RESOURCE: 2})
    await plugin.set_health("widget-a", healthy=False)
    await agent.until(lambda: agent.allocatable == {RESOURCE: 1})
    assert agent.capacity == {RESOURCE: 2}
    assert await agent.plugins.allocate("u1", container(1)) == {"WIDGETS": "widget-b"}
    with pytest.raises(DevicesUnavailable, match="requested 1, available 0"):
        await agent.plugins.allocate("u2", container(1))
    await plugin.set_health("widget-a", healthy=True)
    await agent.until(lambda: agent.allocatable == {RESOURCE: 2})
    assert await agent.plugins.allocate("u2", container(1)) == {"WIDGETS": "widget-a"}


async def test_container_keeps_its_devices_until_the_pod_is_gone(agent: Agent, plugin: DevicePlugin) -> None:
    await agent.until(lambda: agent.allocatable == {RESOURCE: 2})
    assert await agent.plugins.allocate("u1", container(1)) == await agent.plugins.allocate(
        "u1", container(1)
    )
    assert agent.plugins.status_of("u1", "main") == [
        {"name": RESOURCE, "resources": [{"resourceID": "widget-a", "health": "Healthy"}]}
    ]
    assert await agent.plugins.allocate("u1", container(1, "second")) == {"WIDGETS": "widget-b"}
    agent.plugins.release("u1")
    assert await agent.plugins.allocate("u2", container(2)) == {"WIDGETS": "widget-a,widget-b"}
    assert await agent.plugins.allocate("u3", {"name": "plain"}) == {}


async def test_restarted_agent_finds_plugin_and_allocations(
    agent: Agent, plugin: DevicePlugin, folder: Path
) -> None:
    await agent.until(lambda: agent.allocatable == {RESOURCE: 2})
    await agent.plugins.allocate("u1", container(1))
    await agent.close()
    later = Agent(folder)
    try:
        await later.until(lambda: later.allocatable == {RESOURCE: 2})
        assert await later.plugins.allocate("u2", container(1)) == {"WIDGETS": "widget-b"}
    finally:
        await later.close()


async def test_devices_of_a_plugin_that_ended_are_not_allocatable(agent: Agent, plugin: DevicePlugin) -> None:
    await agent.until(lambda: agent.allocatable == {RESOURCE: 2})
    await plugin.close()
    await agent.until(lambda: agent.allocatable == {RESOURCE: 0})
    assert agent.capacity == {RESOURCE: 2}


async def test_invalid_registrations_are_refused(agent: Agent, folder: Path) -> None:
    plugin = DevicePlugin(folder)
    with pytest.raises(RpcError, match="unsupported API version 'v1alpha'"):
        await plugin.start("v1alpha")
    await plugin.close()
    socket = str(folder / "kubelet.sock")
    for endpoint, resource in (("x.sock", "widget"), ("../x.sock", RESOURCE), ("", RESOURCE)):
        with pytest.raises(RpcError, match="invalid resource"):
            await rpc.call(
                socket, plugin_messages.REGISTER, plugin_messages.register_request(endpoint, resource)
            )
    with pytest.raises(RpcError, match="unknown method"):
        await rpc.call(socket, "/v1beta1.Registration/Other", b"")
    with pytest.raises(RpcError, match="Unavailable"):
        await rpc.call(str(folder / "absent.sock"), plugin_messages.REGISTER, b"")
