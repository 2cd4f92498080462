"""HTTP/1.1 over one kept connection, for the requests of a worker to its driver.

The standard client imports a parser of mail and TLS, which would take a third of the start
of a worker. The driver answers with a length, and never in parts.
"""

from __future__ import annotations

import socket
from collections.abc import Mapping


class DriverConnection:
    """Connection to one ``http://`` URL, for one thread. All errors are ``OSError``."""

    def __init__(self, url: str, headers: Mapping[str, str], timeout: float) -> None:
        rest = url.removeprefix("http://").rstrip("/")
        self._host, slash, path = rest.partition("/")
        self._path = slash + path
        if not url.startswith("http://") or not self._host:
            raise ConnectionError(f"{url!r} is not the URL of a driver: it begins with http://")
        self._headers = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        self._timeout = timeout
        self._socket: socket.socket | None = None
        self._rest = b""

    def post(self, path: str, body: bytes) -> tuple[int, bytes]:
        """Send a request; return status and body. A kept connection may have been closed."""
        kept = self._socket is not None
        try:
            return self._exchange(path, body)
        except TimeoutError:
            self.close()
            raise
        except OSError:
            self.close()
            if not kept:
                raise
        try:
            return self._exchange(path, body)
        except OSError:
            self.close()
            raise

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
        self._socket, self._rest = None, b""

    def _exchange(self, path: str, body: bytes) -> tuple[int, bytes]:
        if self._socket is None:
            host, _, port = self._host.rpartition(":")
            if not host:
                host, port = port, "80"
            self._socket = socket.create_connection((host.strip("[]"), int(port)), self._timeout)
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        head = (
            f"POST {self._path}{path} HTTP/1.1\r\nHost: {self._host}\r\n{self._headers}"
            f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        self._socket.sendall(head.encode() + body)
        while b"\r\n\r\n" not in self._rest:
            self._receive()
        top, _, self._rest = self._rest.partition(b"\r\n\r\n")
        lines = top.decode("latin-1").split("\r\n")
        fields = dict(line.lower().split(":", 1) for line in lines[1:] if ":" in line)
        try:
            status, length = int(lines[0].split(" ")[1]), int(fields["content-length"])
        except (IndexError, KeyError, ValueError):
            raise ConnectionError(f"the answer {lines[0]!r} is not one of a driver") from None
        parts, size = [self._rest], len(self._rest)
        self._rest = b""
        while size < length:
            self._receive()
            parts.append(self._rest)
            size += len(self._rest)
            self._rest = b""
        answer = b"".join(parts)
        if fields.get("connection", "").strip() == "close":
            self.close()
        return status, answer

    def _receive(self) -> None:
        assert self._socket is not None
        data = self._socket.recv(1 << 18)
        if not data:
            raise ConnectionError("the driver has closed the connection")
        self._rest += data
