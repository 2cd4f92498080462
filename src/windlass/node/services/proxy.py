"""Process that listens on the addresses of Services and connects to their backends.

One such process runs in the pod network, for cluster addresses, and one in the
machine's network, for node ports. The agent writes ``<side>.table.json`` and sends
SIGUSR1. The process answers with ``<side>.state.json``. It survives the agent, and ends
when ``<side>.proxy.json`` names another process or is gone. This module uses only the
standard library.

Each side reaches some backends itself and the others through the Unix socket of the
other side (``<side>.sock``), which connects and relays.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import json
import os
import signal
import socket
from pathlib import Path
from typing import Any

from windlass.node.runtime import attempt_files, syscalls
from windlass.node.sandbox import network_namespace
from windlass.node.sandbox.rtnetlink import Netlink
from windlass.node.services.balancer import Backend, Balancer
from windlass.node.services.udp import UdpListener

POD_SIDE, MACHINE_SIDE = "pods", "machine"
DIRECTORY = "services"
"""Directory of both processes, below the agent's."""
_CHECK_SECONDS = 5.0
_CONNECT_SECONDS = 5.0
_BLOCK_BYTES = 65_536
_BACKLOG = 512
_RECORD, _TABLE, _STATE, _SOCKET = "proxy.json", "table.json", "state.json", "sock"


def record_name(side: str) -> str:
    return f"{side}.{_RECORD}"


def table_name(side: str) -> str:
    return f"{side}.{_TABLE}"


def state_name(side: str) -> str:
    return f"{side}.{_STATE}"


def service_proxies(root: Path) -> list[tuple[Path, str]]:
    """Return directory and name of the records of both processes, for a cleanup without an agent."""
    return [(root / DIRECTORY, record_name(side)) for side in (POD_SIDE, MACHINE_SIDE)]


def main(argument: str) -> int:
    """Serve until the record is gone. Write ``s`` or ``f<why>`` to stdout.

    ``{"directory", "side", "holder": record of the pod network or null, "network":
    {"address", "prefix", "services"}, "range", "reaches_pods", "reaches_others"}``
    """
    syscalls.close_inherited()
    syscalls.set_process_name("windlass-proxy")
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)  # until the loop handles it
    options = json.loads(argument)
    os.umask(0o077)
    os.chdir(options["directory"])  # Unix sockets have short paths
    try:
        if options["holder"] is not None:
            _join(options["holder"], options["network"])
    except OSError as error:
        os.write(1, f"f{error}".encode())
        return 1
    own = {**attempt_files.identity(os.getpid()), "holder": (options["holder"] or {}).get("pid", 0)}
    attempt_files.write(".", record_name(options["side"]), own, durable=False)
    asyncio.run(_Proxy(options).run())
    return 0


def _join(holder: dict[str, Any], network: dict[str, Any]) -> None:
    """Enter the pod network, and make it answer for all addresses of Services."""
    names = ("user", "net") if holder["user_namespace"] else ("net",)
    syscalls.enter(holder["pid"], holder["start_time"], names)
    with Netlink() as inside:
        with contextlib.suppress(FileExistsError):
            inside.add_address(network_namespace.BRIDGE, network["address"], network["prefix"])
        services = ipaddress.IPv4Network(network["services"])
        with contextlib.suppress(FileExistsError):
            inside.add_local_route(str(services.network_address), services.prefixlen)


class _Proxy:
    """All listeners of one side."""

    def __init__(self, options: dict[str, Any]) -> None:
        self._side: str = options["side"]
        self._range = ipaddress.IPv4Network(options["range"])
        self._reaches_pods: bool = options["reaches_pods"]
        self._reaches_others: bool = options["reaches_others"]
        self._tcp: dict[tuple[str, int], tuple[asyncio.Server, Balancer]] = {}
        self._udp: dict[tuple[str, int], tuple[UdpListener, Balancer]] = {}
        self._changed = asyncio.Event()
        self._incomplete = False
        """A port of the table is not served yet."""

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGUSR1, self._changed.set)
        path = f"{self._side}.{_SOCKET}"
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)
        await asyncio.start_unix_server(self._relay, path, limit=_BLOCK_BYTES)
        self._detach()
        self._changed.set()
        while self._is_current():
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_CHECK_SECONDS):
                    await self._changed.wait()
            if self._changed.is_set() or self._incomplete:  # a port in use may be free by now
                self._changed.clear()
                await self._read_table()
        os._exit(0)  # connections end with the process

    def _detach(self) -> None:
        """Report that the process serves, and let go of the agent's descriptors."""
        with contextlib.suppress(OSError):  # the agent may be gone
            os.write(1, b"s")
        null = os.open(os.devnull, os.O_RDWR)
        os.dup2(null, 0)
        os.dup2(null, 1)
        os.close(null)

    def _is_current(self) -> bool:
        record = attempt_files.read(".", record_name(self._side))
        return record is not None and record.get("pid") == os.getpid()

    # -- table ---------------------------------------------------------------------------------

    async def _read_table(self) -> None:
        table = attempt_files.read(".", table_name(self._side))
        if table is None:
            return
        failed = []
        wanted: set[tuple[str, str, int]] = set()
        for entry in table["listeners"]:
            protocol, address, number = entry["protocol"], entry["address"], entry["number"]
            wanted.add((protocol, address, number))
            backends = [(host, port) for host, port in entry["backends"]]
            try:
                listeners = self._tcp if protocol == "TCP" else self._udp
                known = listeners.get((address, number))
                if known is not None:
                    known[1].change(backends, entry["affinity_seconds"])
                elif protocol == "TCP":
                    await self._listen_tcp(address, number, Balancer(backends, entry["affinity_seconds"]))
                else:
                    await self._listen_udp(address, number, Balancer(backends, entry["affinity_seconds"]))
            except OSError as error:
                failed.append({**entry, "error": error.strerror or str(error)})
        for key in [key for key in self._tcp if ("TCP", *key) not in wanted]:
            self._tcp.pop(key)[0].close()
        for key in [key for key in self._udp if ("UDP", *key) not in wanted]:
            self._udp.pop(key)[0].close()
        self._incomplete = bool(failed)
        state = {"serial": table["serial"], "failed": failed}
        attempt_files.write(".", state_name(self._side), state, durable=False)

    async def _listen_tcp(self, address: str, number: int, balancer: Balancer) -> None:
        listener = socket.socket()
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind((address, number))
            listener.listen(_BACKLOG)
            listener.setblocking(False)

            async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
                await self._serve(balancer, reader, writer)

            server = await asyncio.start_server(connected, sock=listener, limit=_BLOCK_BYTES)
        except BaseException:
            listener.close()
            raise
        self._tcp[address, number] = (server, balancer)

    async def _listen_udp(self, address: str, number: int, balancer: Balancer) -> None:
        def reachable(backend: Backend) -> bool:
            return self._is_direct(backend[0])

        listener = UdpListener(balancer, reachable)
        await asyncio.get_running_loop().create_datagram_endpoint(
            lambda: listener, local_addr=(address, number)
        )
        self._udp[address, number] = (listener, balancer)

    # -- connections ---------------------------------------------------------------------------

    async def _serve(
        self, balancer: Balancer, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        """Connect a client to the first backend that accepts, and relay."""
        loop = asyncio.get_running_loop()
        client = writer.get_extra_info("peername")[0]
        for backend in balancer.order(client, loop.time()):
            try:
                inner = await self._connect(backend)
            except (OSError, TimeoutError):
                continue
            balancer.connected(client, backend, loop.time())
            await _relay_both(reader, writer, *inner)
            return
        writer.transport.abort()  # a reset, as from an address without a listener

    def _is_direct(self, address: str) -> bool:
        inside = ipaddress.IPv4Address(address) in self._range
        return self._reaches_pods if inside else self._reaches_others

    async def _connect(self, backend: Backend) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Return streams to a backend. Raises ``OSError`` and ``TimeoutError``."""
        async with asyncio.timeout(_CONNECT_SECONDS):
            if self._is_direct(backend[0]):
                return await asyncio.open_connection(*backend, limit=_BLOCK_BYTES)
            other = POD_SIDE if self._side == MACHINE_SIDE else MACHINE_SIDE
            reader, writer = await asyncio.open_unix_connection(f"{other}.{_SOCKET}", limit=_BLOCK_BYTES)
            writer.write(f"{backend[0]} {backend[1]}\n".encode())
            if await reader.readline() != b"connected\n":
                writer.close()
                raise ConnectionRefusedError
            return reader, writer

    async def _relay(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Connect for the process of the other side, and relay."""
        try:
            address, port = (await reader.readline()).decode().split()
            async with asyncio.timeout(_CONNECT_SECONDS):
                inner = await asyncio.open_connection(address, int(port), limit=_BLOCK_BYTES)
        except (OSError, TimeoutError, ValueError):
            writer.close()
            return
        writer.write(b"connected\n")
        await _relay_both(reader, writer, *inner)


async def _relay_both(
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    inner_reader: asyncio.StreamReader,
    inner_writer: asyncio.StreamWriter,
) -> None:
    """Relay in both directions until both ends have closed theirs, or one is broken."""
    try:
        await asyncio.gather(_copy(reader, inner_writer), _copy(inner_reader, writer))
    except OSError:
        writer.transport.abort()
        inner_writer.transport.abort()
    finally:
        writer.close()
        inner_writer.close()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while block := await reader.read(_BLOCK_BYTES):
        writer.write(block)
        await writer.drain()
    if writer.can_write_eof() and not writer.is_closing():
        writer.write_eof()
