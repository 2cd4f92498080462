"""HTTP API of the driver of a generation job, in a pod.

In a cluster, controllers reach pods by their addresses. The command line, and the
controllers of single-node mode, go through ``portforward`` of the API server.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

import msgspec

from windlass.api.errors import StatusError
from windlass.api.resources import PODS
from windlass.client.blocking import BlockingClient
from windlass.client.errors import Unreachable
from windlass.client.http11 import ProtocolError, ResponseParser, encode, fixed_headers
from windlass.client.remote_command import open_websocket, refusal
from windlass.client.transport import Request

CHANNELS = "v4.channel.k8s.io"
TIMEOUT_SECONDS = 5.0
"""Timeout for the next bytes of an answer."""
_BLOCK = 65_536
Dial = Callable[[], Any]


class DriverUnreachable(Exception):
    """The driver did not answer, or answered with an error."""


@dataclass(frozen=True, slots=True)
class BatchDriver:
    """Driver of one job. ``dial`` opens a connection: a context manager of ``(send, receive)``."""

    dial: Dial
    token: str

    def get(self, path: str) -> dict[str, Any]:
        """Return the answer to a GET. Raises :class:`DriverUnreachable`."""
        return self._call("GET", path, b"")

    def post(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """Return the answer to a POST. Raises :class:`DriverUnreachable`."""
        return self._call("POST", path, msgspec.json.encode(body))

    def _call(self, method: str, path: str, body: bytes) -> dict[str, Any]:
        where, _, query = path.partition("?")
        headers = {"content-type": "application/json", "connection": "close"}
        request = encode(
            Request(method, where, query, headers, body),
            fixed_headers("driver"),
            f"Bearer {self.token}",
        )
        try:
            with self.dial() as (send, receive):
                send(request)
                status, answer = _read(receive)
        except (OSError, Unreachable, StatusError, ProtocolError) as error:
            raise DriverUnreachable(str(error)) from error
        if status != 200:
            raise DriverUnreachable(f"HTTP {status}: {answer.decode(errors='replace').strip()[:200]}")
        try:
            return msgspec.json.decode(answer, type=dict[str, Any])
        except (msgspec.DecodeError, msgspec.ValidationError) as error:
            raise DriverUnreachable(f"the answer is not a JSON object: {error}") from error


def _read(receive: Callable[[], bytes]) -> tuple[int, bytes]:
    """Return status and body of one response."""
    status, chunks, done = [0], [], [False]

    def on_head(code: int, _: Mapping[str, str]) -> None:
        status[0] = code

    parser = ResponseParser(on_head, chunks.append, lambda: done.__setitem__(0, True))
    while not done[0]:
        data = receive()
        if not data:
            if status[0] and not parser.framed:
                break
            raise ConnectionError("the driver closed the connection")
        parser.feed(data)
    return status[0], b"".join(chunks)


def direct(address: str, port: int, token: str) -> BatchDriver:
    """Return the driver at an address of the pod network."""

    @contextmanager
    def dial() -> Iterator[Any]:
        with socket.create_connection((address, port), TIMEOUT_SECONDS) as connection:
            yield connection.sendall, lambda: connection.recv(_BLOCK)

    return BatchDriver(dial, token)


def forwarded(client: BlockingClient, namespace: str, pod: str, port: int, token: str) -> BatchDriver:
    """Return the driver in a pod, reached through the API server."""

    @contextmanager
    def dial() -> Iterator[Any]:
        from websockets.exceptions import ConnectionClosed, InvalidStatus

        path = client.connection.path_prefix + PODS.path(namespace, pod, "portforward")
        address = f"ws://{client.connection.host_header}{path}?{urlencode({'ports': port})}"
        try:
            found = open_websocket(client, address, (CHANNELS,))
        except InvalidStatus as error:
            raise refusal(error.response.status_code, bytes(error.response.body or b"")) from None

        greeted: set[int] = set()

        def receive() -> bytes:
            try:
                while True:
                    message = found.recv(TIMEOUT_SECONDS)
                    channel, data = message[0], bytes(message[1:])
                    if channel not in greeted:  # the first message of each channel is the port
                        greeted.add(channel)
                    elif channel == 1:
                        raise ConnectionError(data.decode(errors="replace"))
                    elif data:
                        return data
            except ConnectionClosed:
                return b""

        try:
            yield lambda data: found.send(b"\x00" + data), receive
        finally:
            found.close()

    return BatchDriver(dial, token)
