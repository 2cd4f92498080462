"""``pods/NAME/portforward``: connections to ports of a pod, over a WebSocket.

kubectl tunnels SPDY frames through the WebSocket, with two streams for each connection. Other
clients use the channel protocol: two channels for each port, and one connection per port.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket as sockets
from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qsl

from windlass.api.errors import StatusError, bad_request
from windlass.client.transport import Response, Upgrade, WebSocket
from windlass.server.core import Call, ServerCore
from windlass.server.stream_source import StreamSource
from windlass.server.streams import spdy
from windlass.server.streams.spdy import SpdyConnection, SpdyError, data_frames
from windlass.server.verbs import pod_streams

TUNNEL = "SPDY/3.1+portforward.k8s.io"
CHANNELS = "v4.channel.k8s.io"
_BLOCK = 65_536
_QUEUED_BLOCKS = 64
"""Maximum number of received blocks that wait for one connection."""
_MAX_PORTS = 64


async def forward_ports(core: ServerCore, call: Call) -> Response:
    """Handle the upgrade of ``portforward``. Raises StatusError."""
    pod = pod_streams.stored_pod(core, call)
    consequence = "no port of it can be forwarded"
    pod_streams.check_has_process(core, pod, consequence)
    pod_streams.check_not_mirror(pod, consequence)
    phase = (pod.get("status") or {}).get("phase")
    if phase != "Running":
        raise bad_request(
            f'pod "{pod["metadata"]["name"]}" is not running: its phase is {phase or "Pending"}'
        )
    protocol = pod_streams.negotiated(call, (TUNNEL, CHANNELS))
    source = pod_streams.source_of(core)
    if protocol == TUNNEL:
        return Response(101, upgrade=Upgrade(protocol, _Tunnel(source, pod).serve))
    ports = _ports(call)
    return Response(101, upgrade=Upgrade(protocol, _Channels(source, pod, ports).serve))


def _ports(call: Call) -> list[int]:
    words = [
        word for name, value in parse_qsl(call.request.query) if name == "ports" for word in value.split(",")
    ]
    if not words:
        raise bad_request('query parameter "ports" is required')
    return [_port(word) for word in words[:_MAX_PORTS]]


def _port(word: str) -> int:
    if not word.isdecimal() or not 0 < int(word) < 65_536:
        raise bad_request(f'port "{word}" is not a number from 1 to 65535')
    return int(word)


class _Connection:
    """One connection to the pod: data from the client is queued, data from the pod is handed to ``deliver``."""

    def __init__(self, source: StreamSource, pod: Mapping[str, Any], port: int) -> None:
        self._source = source
        self._pod = pod
        self.port = port
        self._queue: asyncio.Queue[bytes] = asyncio.Queue(_QUEUED_BLOCKS)

    async def send(self, data: bytes) -> None:
        """Queue data for the pod; empty: nothing follows."""
        await self._queue.put(data)

    async def run(self, deliver: Any) -> str:
        """Copy in both directions until the pod closes; return why there is no connection, or ``""``."""
        try:
            connection = await self._source.connect(self._pod, self.port)
        except StatusError as error:
            name = self._pod["metadata"]["name"]
            return f"port {self.port} of pod {name} does not accept a connection: {error.message}"
        with connection:
            outward = asyncio.ensure_future(self._to_pod(connection))
            try:
                await self._from_pod(connection, deliver)
            finally:
                outward.cancel()
                await asyncio.gather(outward, return_exceptions=True)
        return ""

    async def _to_pod(self, connection: sockets.socket) -> None:
        loop = asyncio.get_running_loop()
        with contextlib.suppress(OSError):  # the pod has closed the connection: its side tells it
            while data := await self._queue.get():
                await loop.sock_sendall(connection, data)
            connection.shutdown(sockets.SHUT_WR)
        while True:
            await self._queue.get()

    async def _from_pod(self, connection: sockets.socket, deliver: Any) -> None:
        loop = asyncio.get_running_loop()
        with contextlib.suppress(OSError):
            while data := await loop.sock_recv(connection, _BLOCK):
                await deliver(data)


class _Tunnel:
    """Connections of one kubectl port-forward."""

    def __init__(self, source: StreamSource, pod: Mapping[str, Any]) -> None:
        self._source = source
        self._pod = pod
        self._spdy = SpdyConnection()
        self._errors: dict[str, int] = {}
        """Request → its error stream."""
        self._connections: dict[int, _Connection] = {}
        """Data stream → its connection."""
        self._tasks: dict[int, asyncio.Task[None]] = {}

    async def serve(self, socket: WebSocket) -> None:
        try:
            while (data := await socket.receive()) is not None:
                try:
                    events = self._spdy.receive(data)
                except SpdyError:
                    return
                if replies := self._spdy.replies():
                    await socket.send(replies)
                for event in events:
                    if isinstance(event, spdy.ConnectionEnd):
                        return
                    await self._on_event(socket, event)
        finally:
            for task in self._tasks.values():
                task.cancel()
            await asyncio.gather(*self._tasks.values(), return_exceptions=True)

    async def _on_event(self, socket: WebSocket, event: spdy.SpdyEvent) -> None:
        if isinstance(event, spdy.StreamOpened):
            await socket.send(self._spdy.accept(event.stream))
            self._open(socket, event)
        elif isinstance(event, spdy.StreamData):
            connection = self._connections.get(event.stream)
            if connection is not None:
                if event.data:
                    await connection.send(event.data)
                if event.finished:
                    await connection.send(b"")
        elif isinstance(event, spdy.StreamReset):
            self._connections.pop(event.stream, None)
            if task := self._tasks.pop(event.stream, None):
                task.cancel()

    def _open(self, socket: WebSocket, event: spdy.StreamOpened) -> None:
        headers = event.headers
        request = headers.get("requestid", "")
        if headers.get("streamtype") == "error":
            self._errors[request] = event.stream
            return
        errors = self._errors.pop(request, 0)
        word = headers.get("port", "")
        connection = _Connection(self._source, self._pod, int(word) if word.isdecimal() else 0)
        self._connections[event.stream] = connection
        self._tasks[event.stream] = asyncio.ensure_future(self._run(socket, connection, event.stream, errors))

    async def _run(self, socket: WebSocket, connection: _Connection, stream: int, errors: int) -> None:
        async def deliver(data: bytes) -> None:
            await socket.send(data_frames(stream, data))

        why = await connection.run(deliver)
        if errors:
            await socket.send(data_frames(errors, why.encode(), finish=True))
        await socket.send(data_frames(stream, b"", finish=True))
        self._connections.pop(stream, None)
        self._tasks.pop(stream, None)


class _Channels:
    """One connection for each port; channel 2n has the data of port n, channel 2n + 1 its error."""

    def __init__(self, source: StreamSource, pod: Mapping[str, Any], ports: list[int]) -> None:
        self._connections = [_Connection(source, pod, port) for port in ports]

    async def serve(self, socket: WebSocket) -> None:
        for number, connection in enumerate(self._connections):
            port = connection.port.to_bytes(2, "little")
            await socket.send(bytes([2 * number]) + port)
            await socket.send(bytes([2 * number + 1]) + port)
        tasks = [
            asyncio.ensure_future(self._run(socket, number, connection))
            for number, connection in enumerate(self._connections)
        ]
        try:
            while (message := await socket.receive()) is not None:
                number = message[0] // 2 if message else len(self._connections)
                if number < len(self._connections) and message[0] % 2 == 0 and message[1:]:
                    await self._connections[number].send(message[1:])
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _run(self, socket: WebSocket, number: int, connection: _Connection) -> None:
        async def deliver(data: bytes) -> None:
            await socket.send(bytes([2 * number]) + data)

        if why := await connection.run(deliver):
            await socket.send(bytes([2 * number + 1]) + why.encode())
