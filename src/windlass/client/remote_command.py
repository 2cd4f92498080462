"""A command in a running container, over a WebSocket (``v5.channel.k8s.io``)."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Sequence
from typing import Any
from urllib.parse import urlencode

from windlass.api.errors import StatusError, failure
from windlass.api.resources import PODS
from windlass.client.blocking import BlockingClient

STDIN, STDOUT, STDERR, ERROR, RESIZE, CLOSE = 0, 1, 2, 3, 4, 255
PROTOCOLS = ("v5.channel.k8s.io", "v4.channel.k8s.io")
_MAX_MESSAGE_BYTES = 8 * 2**20
_NO_CODE = 1


class RemoteCommand:
    """One command; iterate over it for ``(channel, data)`` of its output, then read :attr:`code`.

    Raises StatusError if the server refuses it. Methods may be called from other threads.
    """

    def __init__(
        self,
        client: BlockingClient,
        namespace: str,
        pod: str,
        command: Sequence[str],
        *,
        container: str = "",
        stdin: bool = False,
        tty: bool = False,
    ) -> None:
        from websockets.exceptions import InvalidStatus

        chosen = {"container": container} if container else {}
        query: list[tuple[str, str]] = [("command", word) for word in command]
        query += [("stdin", str(stdin).lower()), ("stdout", "true"), ("stderr", str(not tty).lower())]
        query += [("tty", str(tty).lower()), *chosen.items()]
        path = client.connection.path_prefix + PODS.path(namespace, pod, "exec")
        try:
            address = f"ws://{client.connection.host_header}{path}?{urlencode(query)}"
            self._socket = open_websocket(client, address, PROTOCOLS)
        except InvalidStatus as error:
            raise refusal(error.response.status_code, bytes(error.response.body or b"")) from None
        self._lock = threading.Lock()
        self.code = _NO_CODE
        self.message = "the connection ended before the command"
        """Error of a command that did not run; empty if it ended by itself."""

    def __iter__(self) -> Iterator[tuple[int, bytes]]:
        from websockets.exceptions import ConnectionClosed

        try:
            for message in self._socket:
                data = message if isinstance(message, bytes) else message.encode()
                if data[:1] == bytes([ERROR]):
                    self._end(json.loads(data[1:]))
                elif data:
                    yield data[0], data[1:]
        except ConnectionClosed:
            return
        finally:
            self._socket.close()

    def _end(self, status: dict[str, Any]) -> None:
        if status.get("status") == "Success":
            self.code, self.message = 0, ""
            return
        self.message = str(status.get("message") or "")
        for cause in (status.get("details") or {}).get("causes") or ():
            if cause.get("reason") == "ExitCode":
                self.code, self.message = int(cause["message"]), ""

    def send(self, data: bytes) -> None:
        """Send input; empty data ends it."""
        self._send(bytes([STDIN]) + data if data else bytes([CLOSE, STDIN]))

    def resize(self, columns: int, rows: int) -> None:
        self._send(bytes([RESIZE]) + json.dumps({"Width": columns, "Height": rows}).encode())

    def _send(self, message: bytes) -> None:
        from websockets.exceptions import ConnectionClosed

        try:
            with self._lock:
                self._socket.send(message)
        except ConnectionClosed:
            return


def open_websocket(client: BlockingClient, address: str, protocols: Sequence[str]) -> Any:
    """Return a WebSocket. Raises ``InvalidStatus`` and :class:`Unreachable`."""
    from websockets.sync.client import connect, unix_connect

    options: dict[str, Any] = {
        "subprotocols": list(protocols),
        "user_agent_header": None,
        "compression": None,
        "max_size": _MAX_MESSAGE_BYTES,
    }
    sock, headers = client.open_socket()
    try:
        if client.connection.unix_socket:
            sock.close()  # the package sets options of TCP on a socket that it is given
            path = client.connection.unix_socket
            return unix_connect(path, address, additional_headers=headers, **options)
        return connect(address, sock=sock, additional_headers=headers, proxy=None, **options)
    except BaseException:
        sock.close()
        raise


def refusal(code: int, body: bytes) -> StatusError:
    """Return the error of a server that refused a WebSocket."""
    try:
        status = json.loads(body)
    except ValueError:
        status = None
    if isinstance(status, dict) and status.get("kind") == "Status":
        return StatusError(status)
    return failure(
        code, "", body.decode(errors="replace").strip() or f"the server answered with status {code}"
    )
