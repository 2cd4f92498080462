"""Proxies of Services on this node: their tables, their processes and their names.

There are two processes (:mod:`windlass.node.services.proxy`): one in the pod network for
cluster addresses, and one in the machine's network for node ports. Each starts with its
first listener and survives the agent.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import signal
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from windlass.api.resources import SERVICES
from windlass.api.service_network import SERVICE_NETWORK
from windlass.client.event_correlator import ObjectRef
from windlass.client.informers import Informer
from windlass.client.recorder import EventRecorder
from windlass.kits.clock import Clock
from windlass.kits.files import unlink_if_exists
from windlass.node.runtime import attempt_files
from windlass.node.runtime.helpers import read_to_end, start_helper, wait_exit
from windlass.node.sandbox.pod_network import Network, NetworkError
from windlass.node.services import proxy
from windlass.node.services.tables import (
    EndpointSlice,
    Listener,
    NodeService,
    ServiceAddresses,
    listeners,
)

_log = logging.getLogger("windlass.node")
_COALESCE_SECONDS = 0.01
_CHECK_SECONDS = 5.0
_PROXY_ADDRESS = 4
"""Offset of the proxy's own address in the range of pods."""
_MODULE = "windlass.node.services.proxy"
Json = dict[str, Any]


def loopback_prefix(directory: Path) -> str:
    """Return two octets for loopback addresses of Services, other than those of pods."""
    seed = hashlib.sha256(str(directory).encode()).digest()[0] % 200
    return f"127.{(seed + 100) % 200 + 20}"


class ServiceProxies:
    """Proxies of one agent. ``on_names`` is called when names of Services may have changed."""

    def __init__(
        self,
        directory: Path,
        network: Network,
        clock: Clock,
        recorder: EventRecorder,
        services: Informer[NodeService],
        slices: Informer[EndpointSlice],
    ) -> None:
        self._directory = directory / proxy.DIRECTORY
        self._network = network
        self._clock = clock
        self._recorder = recorder
        own_network = network.capabilities.network
        self.machine_addresses = ServiceAddresses(loopback_prefix(directory))
        """Addresses for pods on the host network."""
        self.addresses = ServiceAddresses() if own_network else self.machine_addresses
        """Addresses for all other pods."""
        self._serves_machine = not own_network
        self.services = services.items
        self.slices_of: dict[str, dict[str, EndpointSlice]] = {}
        self._published: dict[str, list[Listener]] = {}
        self._serial = 0
        self._reported: set[tuple[str, str, int]] = set()
        self._changed = asyncio.Event()
        self.on_slices: Callable[[str], None] = lambda _: None
        services.add_handler(self._touch, lambda _, new: self._touch(new), self._touch)
        slices.add_handler(self._add, self._update, self._remove)

    def serve_machine(self) -> None:
        """Serve Services in the machine's network too: a pod on the host network has started."""
        if not self._serves_machine:
            self._serves_machine = True
            self._changed.set()

    def _touch(self, _: object) -> None:
        self._changed.set()

    def _add(self, found: EndpointSlice) -> None:
        key = f"{found.namespace}/{found.service}"
        self.slices_of.setdefault(key, {})[found.name] = found
        self._changed.set()
        self.on_slices(key)

    def _update(self, old: EndpointSlice, new: EndpointSlice) -> None:
        if old.service != new.service:
            self._remove(old)
        self._add(new)

    def _remove(self, found: EndpointSlice) -> None:
        key = f"{found.namespace}/{found.service}"
        self.slices_of.get(key, {}).pop(found.name, None)
        self._changed.set()
        self.on_slices(key)

    async def run(self) -> None:
        """Publish the tables after each change, and restart processes that have ended."""
        while True:
            try:
                async with asyncio.timeout(_CHECK_SECONDS):
                    await self._changed.wait()
                await self._clock.sleep(_COALESCE_SECONDS)
            except TimeoutError:
                pass
            self._changed.clear()
            try:
                await self._publish()
            except (OSError, NetworkError) as error:
                _log.warning("Services are not up to date on this node, retrying: %s", error)
                await self._clock.sleep(1.0)
                self._changed.set()

    async def _publish(self) -> None:
        cluster, node = listeners(self.services.values(), self.slices_of)
        own_network = self._network.capabilities.network
        if self._serves_machine:
            loopback = self.machine_addresses.address
            node += [{**entry, "address": loopback(entry["address"])} for entry in cluster]
        sides = {proxy.POD_SIDE: cluster, proxy.MACHINE_SIDE: node}
        needed = any(sides.values())
        for side, table in sides.items():
            if side == proxy.POD_SIDE and not own_network:
                continue
            # Each side may need the other one to reach a backend.
            await self._publish_side(side, table, start=needed)

    async def _publish_side(self, side: str, table: list[Listener], *, start: bool) -> None:
        record = attempt_files.read(str(self._directory), proxy.record_name(side))
        running = attempt_files.is_running(record)
        if not running and not start:
            return
        holder = await self._network.ensure_namespace() if side == proxy.POD_SIDE else None
        if running and record is not None and holder is not None and record["holder"] != holder["pid"]:
            await self._end(side)
            running = False
        if running and self._published.get(side) == table:
            return
        self._directory.mkdir(mode=0o700, exist_ok=True)
        self._serial += 1
        self._published[side] = table
        attempt_files.write(
            str(self._directory),
            proxy.table_name(side),
            {"serial": self._serial, "listeners": table},
            durable=False,
        )
        if running:
            attempt_files.signal(record, signal.SIGUSR1)
        else:
            await self._start(side, holder)
        await self._report_failures(side, self._serial)

    async def _start(self, side: str, holder: Mapping[str, Any] | None) -> None:
        """Start the process of a side. Raises ``OSError``."""
        network, own = self._network, self._network.capabilities.network
        root = bool(network.uplink) or not own
        options: dict[str, Any] = {
            "directory": str(self._directory),
            "side": side,
            "holder": None,
            "network": None,
            "range": network.range,
            "reaches_pods": root or side == proxy.POD_SIDE,
            "reaches_others": side == proxy.MACHINE_SIDE,
        }
        if holder is not None:
            options["holder"] = {key: holder[key] for key in ("pid", "start_time", "user_namespace")}
            options["network"] = {
                "address": network.address_at(_PROXY_ADDRESS),
                "prefix": network.prefix,
                "services": SERVICE_NETWORK,
            }
        errors = self._directory / f"{side}.err"
        pid, reader = start_helper(_MODULE, json.dumps(options), errors=errors)
        started = attempt_files.identity(pid)["start_time"]
        response = await read_to_end(reader)
        if response != b"s":
            await wait_exit(pid, started)
            why = response[1:].decode(errors="replace") or errors.read_text(errors="replace").strip()[-300:]
            raise OSError(
                f"the proxy of Services did not start: {why or 'it ended without an error message'}"
            )

    async def _report_failures(self, side: str, serial: int) -> None:
        """Wait until the process has read its table. Record an event for each port that is not served."""
        for _ in range(250):
            state = attempt_files.read(str(self._directory), proxy.state_name(side))
            if state is not None and state["serial"] == serial:
                break
            await self._clock.sleep(0.02)
        else:
            self._published.pop(side, None)  # the next check publishes the table again
            return
        failed = {(entry["service"], entry["address"], entry["number"]): entry for entry in state["failed"]}
        for key, entry in failed.items():
            service = self.services.get(entry["service"])
            if key in self._reported or service is None:
                continue
            message = (
                f"{entry['address']}:{entry['number']}/{entry['protocol']} is not served on this machine: "
                f"{entry['error']}"
            )
            ref = ObjectRef(SERVICES.api_version, SERVICES.kind, service.namespace, service.name, service.uid)
            self._recorder.event(ref, "Warning", "PortNotServed", message)
        own = {key for key in self._reported if (key[1] == "127.0.0.1") != (side == proxy.MACHINE_SIDE)}
        self._reported = own | set(failed)

    async def take_down(self) -> None:
        """End both processes."""
        for side in (proxy.POD_SIDE, proxy.MACHINE_SIDE):
            await self._end(side)

    async def _end(self, side: str) -> None:
        record = attempt_files.read(str(self._directory), proxy.record_name(side))
        unlink_if_exists(self._directory / proxy.record_name(side))
        if record is not None and attempt_files.signal(record, signal.SIGKILL):
            await wait_exit(record["pid"], record["start_time"])
