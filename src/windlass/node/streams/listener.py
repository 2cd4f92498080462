"""Listener of the agent for streams into its pods.

The API server connects to a Unix socket and names a pod. The agent checks the request and hands
the connection over to a helper process, so that no byte of a stream passes through the agent.
"""

from __future__ import annotations

import asyncio
import json
import logging
import socket
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from windlass.kits.files import unlink_if_exists
from windlass.node.runtime import attempt_files, console
from windlass.node.runtime.helpers import ForkServer
from windlass.node.sandbox import sandbox
from windlass.node.streams import framing, port_session

_log = logging.getLogger("windlass.node")
_REQUEST_SECONDS = 5.0
_BACKLOG = 128
_NOT_FOUND, _BAD_REQUEST, _FAILED = 404, 400, 500


@dataclass(frozen=True, slots=True)
class StreamPod:
    """Facts of one pod of this node, for its streams.

    ``main``: its first container. ``attempts``: container → number of its current attempt.
    ``network``: True if the pod has a network of its own.
    """

    directory: Path
    main: str
    attempts: Mapping[str, int]
    address: str
    network: bool


class Refusal(Exception):
    """The request is refused; ``code``: status of the response."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


class StreamListener:
    """Unix socket ``path``. ``find``: ``uid/UID`` or
    ``name/NAMESPACE/NAME`` → the pod, if it is on this node."""

    def __init__(
        self,
        path: Path,
        directory: Path,
        fork_server: ForkServer,
        find: Callable[[str], StreamPod | None],
        usage: Callable[[], Awaitable[Mapping[str, Any]]],
    ) -> None:
        """``usage``: what the node and its containers use now."""
        self._usage = usage
        self._path = path
        self._errors = directory / "streams.err"
        self._fork_server = fork_server
        self._find = find
        self._tasks: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        """Serve until cancelled. Raises ``OSError`` if the socket cannot be bound."""
        loop = asyncio.get_running_loop()
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
            unlink_if_exists(self._path)
            listener.bind(str(self._path))
            self._path.chmod(0o600)
            listener.listen(_BACKLOG)
            listener.setblocking(False)
            try:
                while True:
                    connection, _ = await loop.sock_accept(listener)
                    task = loop.create_task(self._serve(connection))
                    self._tasks.add(task)
                    task.add_done_callback(self._tasks.discard)
            finally:
                for task in tuple(self._tasks):
                    task.cancel()
                unlink_if_exists(self._path)

    async def _serve(self, connection: socket.socket) -> None:
        connection.setblocking(False)
        with connection:
            try:
                async with asyncio.timeout(_REQUEST_SECONDS):
                    request = await _read_request(connection)
                    await self._answer(connection, request)
            except Refusal as refusal:
                await _respond(connection, {"error": str(refusal), "code": refusal.code})
            except (OSError, ValueError, KeyError, TimeoutError) as error:
                _log.warning("a stream was not served: %s", error)

    async def _answer(self, connection: socket.socket, request: dict[str, Any]) -> None:
        if request["kind"] == "usage":
            await _respond(connection, await self._usage())
            return
        uid = request.get("uid")
        pod = self._find(f"uid/{uid}" if uid else f"name/{request['namespace']}/{request['name']}")
        if pod is None:
            raise Refusal(_NOT_FOUND, "the pod is not on this node, or no longer")
        if request["kind"] == "exec":
            directory = running_attempt(pod, request.get("container") or pod.main)
            await _respond(connection, {})
            self._hand_over("windlass.node.streams.exec_session", str(directory), connection)
        elif request["kind"] == "attach":
            directory = running_attempt(pod, request.get("container") or pod.main)
            await self._attach(directory, request, connection)
        elif request["kind"] == "port":
            detail = port_request(pod, int(request["port"]))
            self._hand_over("windlass.node.streams.port_session", json.dumps(detail), connection)
        else:
            raise Refusal(_BAD_REQUEST, f"this agent has no streams of kind {request['kind']}")

    async def _attach(self, directory: Path, request: Mapping[str, Any], connection: socket.socket) -> None:
        if not (directory / console.SOCKET).exists():
            raise Refusal(_BAD_REQUEST, "the container was started without stdin and without a terminal")
        await _respond(connection, {})
        wanted = {name: bool(request.get(name)) for name in ("stdin", "stdout", "stderr")}
        try:
            console.pass_connection(str(directory), wanted, connection.fileno())
        except OSError as error:  # the container has just ended
            _log.info("a client was not attached in %s: %s", directory, error)

    def _hand_over(self, module: str, argument: str, connection: socket.socket) -> None:
        try:
            self._fork_server.start_on(module, argument, connection.fileno(), self._errors)
        except OSError as error:
            raise Refusal(_FAILED, f"the helper process was not started: {error}") from error


def running_attempt(pod: StreamPod, container: str) -> Path:
    """Return the directory of the container's attempt. Raises :class:`Refusal` unless it is running."""
    number = pod.attempts.get(container)
    if number is None:
        raise Refusal(_BAD_REQUEST, f"the pod has no container {container}")
    directory = pod.directory / "containers" / container / str(number)
    if not attempt_files.is_running(attempt_files.read(str(directory), attempt_files.PROCESS)):
        raise Refusal(_BAD_REQUEST, f"container {container} is not running")
    return directory


def port_request(pod: StreamPod, port: int) -> dict[str, Any]:
    """Return the argument of :mod:`~windlass.node.streams.port_session`. Raises :class:`Refusal`."""
    if not pod.network:
        return {
            "holder": None,
            "namespaces": [],
            "addresses": [*([pod.address] if pod.address else []), port_session.LOOPBACK],
            "port": port,
        }
    holder = attempt_files.read(str(pod.directory), sandbox.RECORD)
    if holder is None or not attempt_files.is_running(holder):
        raise Refusal(_BAD_REQUEST, "the pod's network does not exist: no container of it is running")
    return {
        "holder": {"pid": holder["pid"], "start_time": holder["start_time"]},
        "namespaces": [name for name in holder["namespaces"] if name in ("user", "net")],
        "addresses": [port_session.LOOPBACK, *([pod.address] if pod.address else [])],
        "port": port,
    }


async def _read_request(connection: socket.socket) -> dict[str, Any]:
    """Read exactly one frame: what follows is for the helper. Raises ``OSError`` and ``ValueError``."""
    header = await _read(connection, framing.HEADER_BYTES)
    request = json.loads(await _read(connection, framing.length_of(header)))
    if not isinstance(request, dict):
        raise ValueError("the request is not an object")
    return request


async def _read(connection: socket.socket, count: int) -> bytes:
    loop = asyncio.get_running_loop()
    data = b""
    while len(data) < count:
        block = await loop.sock_recv(connection, count - len(data))
        if not block:
            raise ConnectionResetError("the API server closed the connection")
        data += block
    return data


async def _respond(connection: socket.socket, response: Mapping[str, Any]) -> None:
    content = framing.encode(json.dumps(response).encode())
    await asyncio.get_running_loop().sock_sendall(connection, content)
