"""Device plugin of two devices for tests, on the kubelet's API: ``python device_plugin.py FOLDER``.

``FOLDER`` has the agent's ``kubelet.sock``. Each line on standard input is ``NAME
Healthy`` or ``NAME Unhealthy`` and changes a device.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path

from windlass.node.devices import plugin_messages as messages
from windlass.node.devices import rpc

RESOURCE = "example.com/widget"
ENDPOINT = "widget.sock"


class DevicePlugin:
    """Serves its devices in a folder, and registers them with the agent there."""

    def __init__(self, folder: Path, devices: tuple[str, ...] = ("widget-a", "widget-b")) -> None:
        self._folder = folder
        self._devices = dict.fromkeys(devices, True)
        self._changed = asyncio.Condition()
        self._server = rpc.RpcServer(
            {messages.LIST_AND_WATCH: self._watch, messages.ALLOCATE: self._allocate}
        )

    async def start(self, version: str = messages.VERSION) -> None:
        await self._server.start(str(self._folder / ENDPOINT))
        request = messages.register_request(ENDPOINT, RESOURCE, version)
        await rpc.call(str(self._folder / "kubelet.sock"), messages.REGISTER, request)

    async def set_health(self, name: str, *, healthy: bool) -> None:
        async with self._changed:
            self._devices[name] = healthy
            self._changed.notify_all()

    async def close(self) -> None:
        await self._server.close()

    async def _watch(self, _request: bytes) -> AsyncIterator[bytes]:
        async with self._changed:
            while True:
                yield messages.devices_response(self._devices)
                await self._changed.wait()

    async def _allocate(self, request: bytes) -> AsyncIterator[bytes]:
        yield messages.allocate_response({"WIDGETS": ",".join(messages.allocated_ids(request))})


async def _main(folder: Path) -> None:
    plugin = DevicePlugin(folder)
    await plugin.start()
    print("registered", flush=True)
    while line := await asyncio.to_thread(sys.stdin.readline):
        name, health = line.split()
        await plugin.set_health(name, healthy=health == messages.HEALTHY)
    os._exit(0)


if __name__ == "__main__":
    asyncio.run(_main(Path(sys.argv[1])))
