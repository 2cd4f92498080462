"""Device plugins of this node, as a kubelet serves them.

A plugin connects to the socket ``kubelet.sock`` in the directory ``device-plugins`` of
the agent and registers a resource with the name of its own socket there. The agent then
follows the list of its devices. Healthy devices are allocatable. When a container
starts, the agent chooses devices, asks the plugin for their variables, and records which
container has which.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from typing import Any

from windlass.kits.clock import Clock
from windlass.kits.files import unlink_if_exists, write_atomic
from windlass.node.devices import plugin_messages, rpc
from windlass.node.probes.grpc_probe import Http2Missing, RpcError

SOCKET = "kubelet.sock"
_RECORD = "plugins.json"
_RETRY_SECONDS = 1.0
_TRIES = 5
"""Number of attempts to reach the socket of a plugin after it has registered or its connection has ended."""
_log = logging.getLogger("windlass.node")


class DevicesUnavailable(Exception):
    """A container's devices cannot be allocated now."""


class DevicePlugins:
    """Registered resources, their devices, and their allocations.

    ``publish``: takes capacity and allocatable, by resource, after each change.
    """

    def __init__(self, directory: Path, clock: Clock) -> None:
        self._directory = directory
        self._clock = clock
        self._endpoints: dict[str, str] = {}
        self._devices: dict[str, dict[str, bool]] = {}
        self._held: dict[str, dict[str, dict[str, list[str]]]] = {}
        """Pod uid → container → resource → device ids."""
        self._watches: dict[str, asyncio.Task[None]] = {}
        self.publish: Callable[[Mapping[str, int], Mapping[str, int]], None] = lambda _capacity, _usable: None
        self._load()

    # -- registration ------------------------------------------------------------------------------

    async def run(self) -> None:
        """Serve registrations until cancelled. Without the package h2 it does nothing."""
        server = rpc.RpcServer({plugin_messages.REGISTER: self._register})
        self._directory.mkdir(mode=0o700, exist_ok=True)
        socket = self._directory / SOCKET
        unlink_if_exists(socket)
        try:
            await server.start(str(socket))
        except Http2Missing:
            return
        except OSError as error:  # the path is too long for a socket
            _log.warning("device plugins cannot register: %s: %s", socket, error)
            return
        try:
            for resource in tuple(self._endpoints):
                self._follow(resource)
            await asyncio.Event().wait()
        finally:
            for task in self._watches.values():
                task.cancel()
            await server.close()
            unlink_if_exists(socket)

    async def _register(self, request: bytes) -> AsyncIterator[bytes]:
        try:
            words = plugin_messages.texts(request)
        except ValueError as error:
            raise RpcError("InvalidArgument", str(error)) from error
        version, endpoint, resource = (words.get(number, "") for number in (1, 2, 3))
        if version != plugin_messages.VERSION:
            raise RpcError("InvalidArgument", f"unsupported API version {version!r}; supported: v1beta1")
        if "/" not in resource or not endpoint or "/" in endpoint:
            raise RpcError("InvalidArgument", f"invalid resource {resource!r} or endpoint {endpoint!r}")
        _log.info("device plugin of %s registered at %s", resource, endpoint)
        self._endpoints[resource] = endpoint
        self._save()
        self._follow(resource)
        yield b""

    def _follow(self, resource: str) -> None:
        if old := self._watches.pop(resource, None):
            old.cancel()
        self._watches[resource] = asyncio.ensure_future(self._watch(resource))

    async def _watch(self, resource: str) -> None:
        """Follow the devices of a plugin. They are unhealthy once it is gone."""
        path = str(self._directory / self._endpoints[resource])
        failures = 0
        while failures < _TRIES:
            try:
                async for response in rpc.stream(path, plugin_messages.LIST_AND_WATCH, b""):
                    failures = 0
                    self._devices[resource] = plugin_messages.devices(response)
                    self._publish()
            except (RpcError, ValueError) as error:
                _log.warning("device plugin of %s: %s", resource, error)
            self._devices[resource] = dict.fromkeys(self._devices.get(resource, {}), False)
            self._publish()
            failures += 1
            await self._clock.sleep(_RETRY_SECONDS)

    def _publish(self) -> None:
        capacity = {resource: len(listed) for resource, listed in self._devices.items()}
        self.publish(capacity, {name: sum(listed.values()) for name, listed in self._devices.items()})

    # -- allocation --------------------------------------------------------------------------------

    async def allocate(self, uid: str, container: Mapping[str, Any]) -> dict[str, str]:
        """Return the variables for a container's devices, which are allocated if they are not yet.

        Raises :class:`DevicesUnavailable`.
        """
        variables: dict[str, str] = {}
        limits = (container.get("resources") or {}).get("limits") or {}
        for resource in sorted(limits.keys() & self._endpoints.keys()):
            ids = self._choose(uid, container["name"], resource, int(limits[resource]))
            try:
                response = await rpc.call(
                    str(self._directory / self._endpoints[resource]),
                    plugin_messages.ALLOCATE,
                    plugin_messages.allocate_request(ids),
                )
                found, others = plugin_messages.environment(response)
            except (RpcError, ValueError) as error:
                raise DevicesUnavailable(f"device plugin of {resource}: {error}") from error
            if others:
                _log.warning("%s of the device plugin of %s are not applied", ", ".join(others), resource)
            variables |= found
        return variables

    def _choose(self, uid: str, container: str, resource: str, count: int) -> list[str]:
        """Return the devices of a container, chosen among the free healthy ones at the first call."""
        own = self._held.get(uid, {}).get(container, {}).get(resource)
        listed = self._devices.get(resource, {})
        if own is not None and len(own) == count and all(listed.get(name) for name in own):
            return own
        taken = {
            name
            for pod, containers in self._held.items()
            for at, held in containers.items()
            for name in held.get(resource, ())
            if (pod, at) != (uid, container)
        }
        free = sorted(name for name, healthy in listed.items() if healthy and name not in taken)
        if len(free) < count:
            raise DevicesUnavailable(
                f"requested number of devices unavailable for {resource}: requested {count}, available {len(free)}"
            )
        chosen = free[:count]
        self._held.setdefault(uid, {}).setdefault(container, {})[resource] = chosen
        self._save()
        return chosen

    def status_of(self, uid: str, container: str) -> list[dict[str, Any]]:
        """Return ``allocatedResourcesStatus`` of a container."""
        held = self._held.get(uid, {}).get(container, {})
        return [
            {
                "name": resource,
                "resources": [
                    {"resourceID": name, "health": self._health(resource, name)} for name in held[resource]
                ],
            }
            for resource in sorted(held)
        ]

    def _health(self, resource: str, name: str) -> str:
        healthy = self._devices.get(resource, {}).get(name)
        return "Unknown" if healthy is None else "Healthy" if healthy else "Unhealthy"

    def release(self, uid: str) -> None:
        if self._held.pop(uid, None) is not None:
            self._save()

    # -- storage -----------------------------------------------------------------------------------

    def _load(self) -> None:
        with contextlib.suppress(OSError, ValueError, AttributeError):
            record = json.loads((self._directory / _RECORD).read_bytes())
            self._endpoints, self._held = dict(record["endpoints"]), dict(record["held"])

    def _save(self) -> None:
        record = {"endpoints": self._endpoints, "held": self._held}
        write_atomic(self._directory / _RECORD, json.dumps(record), durable=False)
