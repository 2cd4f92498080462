"""Client of the agent's stream listener, used in the process of the API server.

:class:`AgentStreams` implements the server's StreamSource protocol.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from windlass.node.streams import framing
from windlass.node.streams.framing import FrameReader

_BLOCK = 65_536
_RESPONSE_SECONDS = 10.0


class AgentStreams:
    """Streams of the pods of this box.

    ``path``: the agent's socket. ``refused``: makes the exception for a refusal from an HTTP status
    and a message.
    """

    def __init__(self, path: Path, *, refused: Callable[[int, str], Exception]) -> None:
        self._path = path
        self._refused = refused

    async def execute(
        self, pod: Mapping[str, Any], container: str, command: Sequence[str], *, stdin: bool, tty: bool
    ) -> CommandStream:
        """Run a command in a container. Raises ``refused``."""
        uid = pod["metadata"]["uid"]
        connection = await self._open({"kind": "exec", "container": container, "uid": uid})
        try:
            await self._response(connection)
            request = {"argv": list(command), "stdin": stdin, "tty": tty}
            content = framing.encode(json.dumps(request).encode())
            await asyncio.get_running_loop().sock_sendall(connection, content)
        except BaseException as error:
            connection.close()
            if isinstance(error, OSError):
                raise self._refused(503, f"the command's helper process ended: {error}") from error
            raise
        return CommandStream(connection)

    async def attach(
        self, pod: Mapping[str, Any], container: str, streams: Mapping[str, bool]
    ) -> CommandStream:
        """Attach to a running container with stdin or a terminal. Raises ``refused``."""
        uid = pod["metadata"]["uid"]
        connection = await self._open({"kind": "attach", "container": container, "uid": uid, **streams})
        stream = CommandStream(connection)
        try:
            await self._response(connection, stream)
        except BaseException:
            connection.close()
            raise
        return stream

    async def connect(self, pod: Mapping[str, Any], port: int) -> socket.socket:
        """Return a connection to a port of the pod. Raises ``refused``."""
        connection = await self._open({"kind": "port", "port": port, "uid": pod["metadata"]["uid"]})
        with connection:
            _, descriptors = await self._response(connection)
        if not descriptors:
            raise self._refused(500, "the node agent sent no connection")
        connected = socket.socket(fileno=descriptors[0])
        connected.setblocking(False)
        return connected

    async def usage(self) -> Mapping[str, Any]:
        """Return what the node and its containers use. Raises ``refused``."""
        connection = await self._open({"kind": "usage"})
        with connection:
            response, _ = await self._response(connection)
        return response

    async def _open(self, request: Mapping[str, Any]) -> socket.socket:
        loop = asyncio.get_running_loop()
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        connection.setblocking(False)
        try:
            await loop.sock_connect(connection, str(self._path))
            await loop.sock_sendall(connection, framing.encode(json.dumps(request).encode()))
        except OSError as error:
            connection.close()
            raise self._refused(503, f"the node agent does not answer: {error.strerror or error}") from error
        return connection

    async def _response(
        self, connection: socket.socket, stream: CommandStream | None = None
    ) -> tuple[dict[str, Any], list[int]]:
        """Read the agent's response; return it and the descriptors that came with it. Raises ``refused``.

        ``stream``: gets the messages that follow the response at once.
        """
        data, descriptors = b"", []
        frames: list[bytes] = []
        reader = FrameReader() if stream is None else stream.reader
        try:
            async with asyncio.timeout(_RESPONSE_SECONDS):
                while not frames:
                    await _readable(connection)
                    data, received, _, _ = socket.recv_fds(connection, _BLOCK, 2)
                    descriptors += received
                    if not data:
                        raise self._refused(503, "the node agent closed the connection")
                    frames = reader.feed(data)
            response = json.loads(frames[0])
            if stream is not None:
                stream.received += frames[1:]
            if "error" in response:
                raise self._refused(int(response.get("code", 500)), response["error"])
        except BaseException as error:
            for descriptor in descriptors:
                os.close(descriptor)
            if isinstance(error, TimeoutError):
                raise self._refused(503, "the node agent does not answer") from error
            raise
        return response, descriptors


class CommandStream:
    """Messages of one running command, in both directions.

    ``reader``, ``received``: bytes and messages that have arrived and were not returned yet.
    """

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self.reader = FrameReader()
        self.received: list[bytes] = []

    async def send(self, message: bytes) -> None:
        """Send a message to the command. Raises ``OSError`` if the command has ended."""
        await asyncio.get_running_loop().sock_sendall(self._connection, framing.encode(message))

    async def receive(self) -> bytes:
        """Return the next message; empty at the end."""
        loop = asyncio.get_running_loop()
        while not self.received:
            try:
                data = await loop.sock_recv(self._connection, _BLOCK)
            except OSError:
                data = b""
            if not data:
                return b""
            self.received = self.reader.feed(data)
        return self.received.pop(0)

    def close(self) -> None:
        self._connection.close()


async def _readable(connection: socket.socket) -> None:
    loop = asyncio.get_running_loop()
    ready: asyncio.Future[None] = loop.create_future()
    loop.add_reader(connection, lambda: ready.done() or ready.set_result(None))
    try:
        await ready
    finally:
        loop.remove_reader(connection)
