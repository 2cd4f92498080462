"""Pod network of this node: permitted isolation, the network namespace, and each pod's address.

:mod:`windlass.node.sandbox.namespaces` finds what the machine permits. With network namespaces every
pod has an address on the bridge. Without them all pods share the machine's network. Each then has a
loopback address of its own (``127.x.y.z``) for its names, so that two gangs may still use one
port unless they listen on 0.0.0.0.
"""

from __future__ import annotations

import asyncio
import hashlib
import ipaddress
import json
import signal
import socket
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from windlass.kits.files import unlink_if_exists, write_atomic
from windlass.node.paths import NodePaths
from windlass.node.runtime import attempt_files, syscalls
from windlass.node.runtime.helpers import read_to_end, reap, start_helper, wait_exit
from windlass.node.sandbox import connect, egress, network_namespace, sandbox

PLAN = "network.json"
_FIRST_POD = 16
"""Offset of the first pod address. Before it are the machine (.1), slirp's gateway (.2) and DNS (.3),
and the proxy of Services (.4)."""

POD_POOLS = (ipaddress.IPv4Network("100.64.0.0/10"), ipaddress.IPv4Network("198.18.0.0/15"))
"""Networks from which pod addresses are chosen."""
_MAX_TRIES = 3
"""Maximum number of attempts to find out what the machine permits."""


@dataclass(frozen=True, slots=True)
class Capabilities:
    """Namespaces that pods of this machine can have. ``refused``: namespace → reason."""

    user: bool
    namespaces: tuple[str, ...]
    pid: bool
    refused: dict[str, str] = field(default_factory=dict)

    @property
    def network(self) -> bool:
        return "net" in self.namespaces

    @property
    def mounts(self) -> bool:
        return "mnt" in self.namespaces


NO_ISOLATION = Capabilities(False, (), False, {"all": "disabled by option"})


class NetworkError(Exception):
    """The pod network could not be created."""


async def find_capabilities() -> Capabilities:
    """Find out in a separate process which namespaces the machine permits.

    All pods of this agent depend on the result, so the process is repeated if it ends without one.
    After the last attempt all namespaces count as refused.
    """
    why = ""
    for _ in range(_MAX_TRIES):
        try:
            return capabilities_of(json.loads(await _run_attempt()))
        except OSError as error:
            why = str(error)
        except ValueError:
            why = "the process that tries namespaces ended without a result"
    return Capabilities(False, (), False, {"all": why})


async def _run_attempt() -> bytes:
    """Return the output of the process that tries namespaces. Raises ``OSError``."""
    pid, reader = start_helper("windlass.node.sandbox.namespaces", "")
    response = await read_to_end(reader)
    await _reap_after_exit(pid)
    return response


def capabilities_of(permitted: Mapping[str, Any]) -> Capabilities:
    """Return the capabilities from the result of
    :func:`windlass.node.sandbox.namespaces.permitted_namespaces`.
    """
    return Capabilities(
        permitted["user"], tuple(permitted["namespaces"]), permitted["pid"], permitted["refused"]
    )


async def _reap_after_exit(pid: int) -> None:
    started = syscalls.start_time(pid)
    if started is None:
        reap(pid)
    else:
        await wait_exit(pid, started)


def busy_ranges(route_table: str, resolver: str = "") -> list[ipaddress.IPv4Network]:
    """Return the networks and addresses that the machine must still reach.

    They are the networks and gateways of a ``/proc/net/route`` text (the default route has no network),
    and the name servers of a ``resolv.conf`` text.
    """
    ranges = []
    for line in route_table.splitlines()[1:]:
        fields = line.split()
        if len(fields) < 8:
            continue
        address, gateway, mask = (
            ipaddress.IPv4Address(int.from_bytes(bytes.fromhex(fields[column]), "little"))
            for column in (1, 2, 7)
        )
        if int(mask):
            ranges.append(ipaddress.IPv4Network(f"{address}/{mask}", strict=False))
        if int(gateway):
            ranges.append(ipaddress.IPv4Network(gateway))
    for line in resolver.splitlines():
        words = line.split()
        if len(words) > 1 and words[0] == "nameserver" and ":" not in words[1]:
            ranges.append(ipaddress.IPv4Network(words[1]))
    return ranges


def _machine_ranges() -> list[ipaddress.IPv4Network]:
    resolver = Path("/etc/resolv.conf")
    names = resolver.read_text() if resolver.exists() else ""
    return busy_ranges(Path("/proc/net/route").read_text(), names)


def choose_range(seed: str, busy: list[ipaddress.IPv4Network]) -> ipaddress.IPv4Network:
    """Return a free /20 network. Equal ``seed``s prefer equal networks. Raises :class:`NetworkError`.

    It is from 100.64.0.0/10 (RFC 6598), else from 198.18.0.0/15 (RFC 2544). Private networks (10/8,
    172.16/12, 192.168/16) are excluded: they are often reached by the default route and are then in no
    routing table.
    """
    for pool in POD_POOLS:
        candidates = list(pool.subnets(new_prefix=20))
        start = int.from_bytes(hashlib.sha256(seed.encode()).digest()[:4], "big")
        for offset in range(len(candidates)):
            candidate = candidates[(start + offset) % len(candidates)]
            if not any(candidate.overlaps(other) for other in busy):
                return candidate
    pools = " and ".join(map(str, POD_POOLS))
    raise NetworkError(f"every /20 of {pools} is in use on this machine")


class Network:
    """Pod network of one agent. ``directory`` is the agent's own. Call :meth:`prepare` first."""

    def __init__(self, directory: Path, capabilities: Capabilities, *, wanted_range: str = "") -> None:
        self._directory = directory
        self.capabilities = capabilities
        self._wanted_range = wanted_range
        self._range = ipaddress.IPv4Network("127.0.0.0/8")
        self._addresses: dict[str, str] = {}
        self._next = 0
        self._holder: dict[str, Any] | None = None
        self.outbound = egress.Outbound("machine", "pods share the machine's network")
        self.nameserver = ""
        self._lock = asyncio.Lock()

    # -- namespace -----------------------------------------------------------------------------

    async def prepare(self) -> None:
        """Choose the range, create or find the namespace, and set up outbound traffic.

        Raises :class:`NetworkError`.
        """
        seed = str(self._directory)
        if self.capabilities.network:
            self._range = self._stored_range() or self._choose(seed)
        else:
            digest = hashlib.sha256(seed.encode()).digest()
            self._range = ipaddress.IPv4Network(f"127.{digest[0] % 200 + 20}.0.0/16")
            # Agents of one machine may share a range: they begin at different addresses.
            self._next = int.from_bytes(digest[1:3], "big")
        await self.ensure_namespace()

    def _stored_range(self) -> ipaddress.IPv4Network | None:
        record = attempt_files.read(str(self._directory), PLAN)
        return ipaddress.IPv4Network(record["range"]) if record else None

    def _choose(self, seed: str) -> ipaddress.IPv4Network:
        if self._wanted_range:
            chosen = ipaddress.IPv4Network(self._wanted_range)
        else:
            chosen = choose_range(seed, _machine_ranges())
        write_atomic(self._directory / PLAN, json.dumps({"range": str(chosen)}))
        return chosen

    @property
    def needs_namespace(self) -> bool:
        return self.capabilities.network or (self.capabilities.user and bool(self.capabilities.namespaces))

    async def ensure_namespace(self) -> dict[str, Any] | None:
        """Return the record of the holder, which is created if it is gone. None if none is needed."""
        if not self.needs_namespace:
            return None
        async with self._lock:
            record = attempt_files.read(str(self._directory), network_namespace.RECORD)
            if not attempt_files.is_running(record):
                record = await self._create_namespace()
            elif self._holder is not None and record == self._holder:
                return record
            assert record is not None
            self._holder = record
            if self.capabilities.network:
                self.outbound = await egress.ensure(self._directory, record, self._range, self.uplink)
        return record

    @property
    def uplink(self) -> str:
        """Name of the machine's end of the veth pair into the pod network. Empty without root."""
        if self.capabilities.user:
            return ""
        return "wl" + hashlib.sha256(str(self._directory).encode()).hexdigest()[:10]

    async def _create_namespace(self) -> dict[str, Any]:
        spec = {
            "user_namespace": self.capabilities.user,
            "network": self.capabilities.network,
            "uplink": self.uplink if self.capabilities.network else "",
            "uplink_address": self.address_at(1),
            "prefix": self._range.prefixlen,
            "pods": self._survivors(),
        }
        unlink_if_exists(self._directory / network_namespace.RECORD)
        attempt_files.write(str(self._directory), network_namespace.SPEC, spec)
        pid, reader = start_helper(
            "windlass.node.sandbox.network_namespace",
            str(self._directory),
            errors=self._directory / "box.err",
        )
        response = await read_to_end(reader)
        record = attempt_files.read(str(self._directory), network_namespace.RECORD)
        if not response.startswith(b"s") or record is None:
            await _reap_after_exit(pid)
            raise NetworkError(
                response[1:].decode(errors="replace")
                or "the holder of the pod network ended without an error message"
            )
        return record

    def _survivors(self) -> list[dict[str, Any]]:
        """Return the sandboxes that keep the network of a killed holder alive."""
        sandboxes = []
        for directory in NodePaths(self._directory).pods.glob("*"):
            record = attempt_files.read(str(directory), sandbox.RECORD)
            if record and record.get("box_descriptor", -1) >= 0 and attempt_files.is_running(record):
                sandboxes.append({key: record[key] for key in ("pid", "start_time", "box_descriptor")})
        return sandboxes

    async def take_down(self) -> None:
        """End the pod network and its outbound helper. Running pods lose their network."""
        await egress.stop(self._directory)
        if self.outbound.kind == "nat":
            egress.remove_nat(self._range, self.uplink)
        record = (
            attempt_files.read(str(self._directory), network_namespace.RECORD) or self._holder
        )  # the directory may have been removed
        unlink_if_exists(self._directory / network_namespace.RECORD)
        if record is not None and attempt_files.signal(record, signal.SIGKILL):
            await wait_exit(record["pid"], record["start_time"])
        self._holder = None

    async def connect(self, address: str, port: int, *, timeout_seconds: float = 5.0) -> socket.socket:
        """Return a TCP connection to a pod or to any other address. Raises ``OSError``.

        Root reaches pods by the uplink. Otherwise a helper inside the pod network connects and passes the
        socket on: a socket stays in the network in which it was created.
        """
        if not self.uplink and self.capabilities.network and ipaddress.IPv4Address(address) in self._range:
            return await connect.connect(self._directory, address, port, timeout_seconds)
        loop = asyncio.get_running_loop()
        connection = socket.socket()
        connection.setblocking(False)
        try:
            async with asyncio.timeout(timeout_seconds):
                await loop.sock_connect(connection, (address, port))
        except BaseException:
            connection.close()
            raise
        connection.setblocking(True)
        return connection

    # -- addresses -----------------------------------------------------------------------------

    @property
    def range(self) -> str:
        """Network from which pods get their addresses."""
        return str(self._range)

    @property
    def prefix(self) -> int:
        return self._range.prefixlen

    @property
    def gateway(self) -> str:
        """Gateway of the pods. Empty without outbound traffic."""
        return self.outbound.gateway

    @property
    def host_address(self) -> str:
        """Address at which pods reach the machine."""
        return self.address_at(1) if self.capabilities.network else "127.0.0.1"

    def address_at(self, number: int) -> str:
        return str(self._range.network_address + number)

    def adopt(self, uid: str, address: str) -> None:
        """Retain the address of a running pod."""
        if address:
            self._addresses[uid] = address

    def address(self, uid: str) -> str:
        """Return the pod's address: its own, or the next free one. Addresses are reused as late as possible."""
        if uid in self._addresses:
            return self._addresses[uid]
        taken = set(self._addresses.values())
        size = self._range.num_addresses - _FIRST_POD - 1
        for _ in range(size):
            candidate = self.address_at(_FIRST_POD + self._next % size)
            self._next += 1
            if candidate not in taken and not candidate.endswith((".0", ".255")):
                self._addresses[uid] = candidate
                return candidate
        raise NetworkError(f"all {size} addresses of {self._range} are in use")

    def known(self, uid: str) -> str:
        return self._addresses.get(uid, "")

    def release(self, uid: str) -> None:
        self._addresses.pop(uid, None)
