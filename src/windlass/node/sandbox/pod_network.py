"""The network of the box: what the machine permits, the box itself, and each pod's address.

Levels, found by :mod:`windlass.node.sandbox.namespaces`: with network namespaces every pod has an address on the
box's bridge; without them all pods share the machine's network and each has a loopback address of its
own (``127.x.y.z``) that its names lead to, so that two gangs may still not use one port on 0.0.0.0.
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
from windlass.node.runtime.helpers import collect, read_to_end, start_helper, wait_exit
from windlass.node.sandbox import connect, egress, network_namespace, sandbox

PLAN = "network.json"
_FIRST_POD = 16
"""Addresses below stay for the machine (.1), slirp's gateway (.2) and its name server (.3)."""

POD_POOLS = (ipaddress.IPv4Network("100.64.0.0/10"), ipaddress.IPv4Network("198.18.0.0/15"))
"""Where pods' addresses come from."""
_TRIES = 3
"""So often is asked what the machine permits, where no answer comes."""


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What pods of this machine can have of their own. ``refused``: namespace → why not."""

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


NO_ISOLATION = Capabilities(False, (), False, {"all": "switched off by option"})


class NetworkError(Exception):
    """The box could not be made."""


async def find_capabilities() -> Capabilities:
    """Have namespaces tried in a process of their own; again where that one ends without an answer, since all pods of
    this agent depend on it. What it cannot tell then counts as refused."""
    why = ""
    for _ in range(_TRIES):
        try:
            return capabilities_of(json.loads(await _tried()))
        except OSError as error:
            why = str(error)
        except ValueError:
            why = "the process that tries namespaces gave no answer"
    return Capabilities(False, (), False, {"all": why})


async def _tried() -> bytes:
    """What the process that tries namespaces says. Raises ``OSError`` where it cannot be started."""
    pid, reader = start_helper("windlass.node.sandbox.namespaces", "")
    said = await read_to_end(reader)
    await _collected(pid)
    return said


def capabilities_of(found: Mapping[str, Any]) -> Capabilities:
    """What :func:`windlass.node.sandbox.namespaces.permitted_namespaces` says."""
    return Capabilities(found["user"], tuple(found["namespaces"]), found["pid"], found["refused"])


async def _collected(pid: int) -> None:
    started = syscalls.start_time(pid)
    if started is None:
        collect(pid)
    else:
        await wait_exit(pid, started)


def busy_ranges(route_table: str, resolver: str = "") -> list[ipaddress.IPv4Network]:
    """What the machine must still reach: the networks and gateways in a ``/proc/net/route`` text (the
    default route names no network), and the name servers in a ``resolv.conf`` text."""
    found = []
    for line in route_table.splitlines()[1:]:
        fields = line.split()
        if len(fields) < 8:
            continue
        address, gateway, mask = (
            ipaddress.IPv4Address(int.from_bytes(bytes.fromhex(fields[column]), "little"))
            for column in (1, 2, 7)
        )
        if int(mask):
            found.append(ipaddress.IPv4Network(f"{address}/{mask}", strict=False))
        if int(gateway):
            found.append(ipaddress.IPv4Network(gateway))
    for line in resolver.splitlines():
        words = line.split()
        if len(words) > 1 and words[0] == "nameserver" and ":" not in words[1]:
            found.append(ipaddress.IPv4Network(words[1]))
    return found


def _machine_needs() -> list[ipaddress.IPv4Network]:
    resolver = Path("/etc/resolv.conf")
    names = resolver.read_text() if resolver.exists() else ""
    return busy_ranges(Path("/proc/net/route").read_text(), names)


def choose_range(seed: str, busy: list[ipaddress.IPv4Network]) -> ipaddress.IPv4Network:
    """A /20 that nothing the machine needs lies in; the same ``seed`` prefers the same.

    Drawn from 100.64.0.0/10 (RFC 6598), then from 198.18.0.0/15 (RFC 2544): private networks of the house
    (10/8, 172.16/12, 192.168/16) are often reached by the default route and show in no table, so
    none of their addresses is taken.
    """
    for pool in POD_POOLS:
        candidates = list(pool.subnets(new_prefix=20))
        start = int.from_bytes(hashlib.sha256(seed.encode()).digest()[:4], "big")
        for step in range(len(candidates)):
            candidate = candidates[(start + step) % len(candidates)]
            if not any(candidate.overlaps(other) for other in busy):
                return candidate
    pools = " and ".join(map(str, POD_POOLS))
    raise NetworkError(f"every /20 of {pools} is in use on this machine")


class Network:
    """``folder`` is the agent's own. Call :meth:`prepare` first; addresses are given out after that."""

    def __init__(self, folder: Path, capabilities: Capabilities, *, wanted_range: str = "") -> None:
        self._folder = folder
        self.capabilities = capabilities
        self._wanted_range = wanted_range
        self._range = ipaddress.IPv4Network("127.0.0.0/8")
        self._given: dict[str, str] = {}
        self._next = 0
        self._box: dict[str, Any] | None = None
        self.outbound = egress.Outbound("machine", "pods share the machine's network")
        self.nameserver = ""
        self._box_lock = asyncio.Lock()

    # -- the box -------------------------------------------------------------------------------

    async def prepare(self) -> None:
        """Choose the range, make or find the box, open the way out. Raises :class:`NetworkError`."""
        seed = str(self._folder)
        if self.capabilities.network:
            self._range = self._stored_range() or self._choose(seed)
        else:
            self._range = ipaddress.IPv4Network(
                f"127.{hashlib.sha256(seed.encode()).digest()[0] % 200 + 20}.0.0/16"
            )
        await self.ensure_box()

    def _stored_range(self) -> ipaddress.IPv4Network | None:
        record = attempt_files.read(str(self._folder), PLAN)
        return ipaddress.IPv4Network(record["range"]) if record else None

    def _choose(self, seed: str) -> ipaddress.IPv4Network:
        if self._wanted_range:
            chosen = ipaddress.IPv4Network(self._wanted_range)
        else:
            chosen = choose_range(seed, _machine_needs())
        write_atomic(self._folder / PLAN, json.dumps({"range": str(chosen)}))
        return chosen

    @property
    def needs_box(self) -> bool:
        return self.capabilities.network or (self.capabilities.user and bool(self.capabilities.namespaces))

    async def ensure_box(self) -> dict[str, Any] | None:
        """The holder's record (pid, start time …), after making it if it is gone; None where none is needed."""
        if not self.needs_box:
            return None
        async with self._box_lock:
            record = attempt_files.read(str(self._folder), network_namespace.RECORD)
            if not attempt_files.is_running(record):
                record = await self._make_box()
            elif self._box is not None and record == self._box:
                return record
            assert record is not None
            self._box = record
            if self.capabilities.network:
                self.outbound = await egress.ensure(self._folder, record, self._range, self.uplink)
        return record

    @property
    def uplink(self) -> str:
        """The machine's own end of the cable into the box; only root can lay one."""
        if self.capabilities.user:
            return ""
        return "wl" + hashlib.sha256(str(self._folder).encode()).hexdigest()[:10]

    async def _make_box(self) -> dict[str, Any]:
        spec = {
            "user_namespace": self.capabilities.user,
            "network": self.capabilities.network,
            "uplink": self.uplink if self.capabilities.network else "",
            "uplink_address": self.address_at(1),
            "prefix": self._range.prefixlen,
            "pods": self._survivors(),
        }
        unlink_if_exists(self._folder / network_namespace.RECORD)
        attempt_files.write(str(self._folder), network_namespace.SPEC, spec)
        pid, reader = start_helper(
            "windlass.node.sandbox.network_namespace", str(self._folder), errors=self._folder / "box.err"
        )
        said = await read_to_end(reader)
        record = attempt_files.read(str(self._folder), network_namespace.RECORD)
        if not said.startswith(b"s") or record is None:
            await _collected(pid)
            raise NetworkError(said[1:].decode(errors="replace") or "the box did not come up")
        return record

    def _survivors(self) -> list[dict[str, Any]]:
        """Sandboxes of pods that still run and hold the network of a box whose holder is gone."""
        found = []
        for folder in NodePaths(self._folder).pods.glob("*"):
            record = attempt_files.read(str(folder), sandbox.RECORD)
            if record and record.get("box_descriptor", -1) >= 0 and attempt_files.is_running(record):
                found.append({key: record[key] for key in ("pid", "start_time", "box_descriptor")})
        return found

    async def take_down(self) -> None:
        """End the box and what leads out of it. Pods that still run lose their network."""
        await egress.stop(self._folder)
        if self.outbound.kind == "nat":
            egress.remove_nat(self._range, self.uplink)
        record = (
            attempt_files.read(str(self._folder), network_namespace.RECORD) or self._box
        )  # the folder may have been removed
        unlink_if_exists(self._folder / network_namespace.RECORD)
        if record is not None and attempt_files.signal(record, signal.SIGKILL):
            await wait_exit(record["pid"], record["start_time"])
        self._box = None

    async def connect(self, address: str, port: int, *, timeout_seconds: float = 5.0) -> socket.socket:
        """A TCP connection as the machine makes it: to a pod, or anywhere. Raises ``OSError``.

        As root pods are reached by the uplink. Otherwise a helper inside the box connects and hands the
        connection over: a socket stays in the network in which it was made.
        """
        if not self.uplink and self.capabilities.network and ipaddress.IPv4Address(address) in self._range:
            return await connect.connect(self._folder, address, port, timeout_seconds)
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
    def prefix(self) -> int:
        return self._range.prefixlen

    @property
    def gateway(self) -> str:
        """Where pods send what is not for the box; empty when nothing leads out."""
        return self.outbound.gateway

    @property
    def host_address(self) -> str:
        """The machine, as its pods may reach it."""
        return self.address_at(1) if self.capabilities.network else "127.0.0.1"

    def address_at(self, number: int) -> str:
        return str(self._range.network_address + number)

    def adopt(self, uid: str, address: str) -> None:
        """A pod that runs already keeps its address."""
        if address:
            self._given[uid] = address

    def address(self, uid: str) -> str:
        """The pod's address: the one it has, or the next free one. Used ones come round last."""
        if uid in self._given:
            return self._given[uid]
        taken = set(self._given.values())
        size = self._range.num_addresses - _FIRST_POD - 1
        for _ in range(size):
            candidate = self.address_at(_FIRST_POD + self._next)
            self._next = (self._next + 1) % size
            if candidate not in taken and not candidate.endswith((".0", ".255")):
                self._given[uid] = candidate
                return candidate
        raise NetworkError(f"all {size} addresses of {self._range} are in use")

    def known(self, uid: str) -> str:
        return self._given.get(uid, "")

    def release(self, uid: str) -> None:
        self._given.pop(uid, None)
