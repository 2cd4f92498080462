"""A server in a thread of its own that answers as told, connection by connection, byte by byte."""

from __future__ import annotations

import json
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path


class Caller:
    """One accepted connection of the threaded server."""

    def __init__(self, sock: socket.socket, number: int) -> None:
        self.sock = sock
        self.number = number
        self._buffer = b""

    def request(self) -> tuple[str, bytes]:
        """Head and body of the next request. Raises ``EOFError`` when the client left."""
        while b"\r\n\r\n" not in self._buffer:
            self._more()
        head, _, self._buffer = self._buffer.partition(b"\r\n\r\n")
        length = 0
        for line in head.decode().split("\r\n"):
            if line.startswith("content-length:"):
                length = int(line.partition(":")[2])
        while len(self._buffer) < length:
            self._more()
        body, self._buffer = self._buffer[:length], self._buffer[length:]
        return head.decode(), body

    def _more(self) -> None:
        data = self.sock.recv(65536)
        if not data:
            raise EOFError
        self._buffer += data

    def answer(self, body: object, status: str = "200 OK", extra: str = "") -> None:
        raw = body if isinstance(body, bytes) else json.dumps(body).encode()
        head = f"HTTP/1.1 {status}\r\nContent-Length: {len(raw)}\r\n{extra}\r\n"
        self.sock.sendall(head.encode() + raw)

    def chunks(self, *parts: bytes, end: bool = True) -> None:
        sent = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
        for part in parts:
            sent += f"{len(part):x}\r\n".encode() + part + b"\r\n"
        self.sock.sendall(sent + (b"0\r\n\r\n" if end else b""))  # at once: nobody waits between


Behaviour = Callable[[Caller], None]


@contextmanager
def serving(
    behaviour: Behaviour, path: Path | None = None, tls: ssl.SSLContext | None = None
) -> Iterator[str]:
    """Connections are served one after the other. Yields the URL (or the socket's path)."""
    listener = socket.socket(socket.AF_UNIX if path else socket.AF_INET, socket.SOCK_STREAM)
    listener.bind(str(path) if path else ("127.0.0.1", 0))
    listener.listen()
    problems: list[Exception] = []

    def run() -> None:
        number = 0
        while True:
            try:
                sock, _ = listener.accept()
            except OSError:
                return
            try:
                if tls is not None:
                    sock = tls.wrap_socket(sock, server_side=True)
                behaviour(Caller(sock, number))
            except (EOFError, OSError):
                pass
            except Exception as problem:
                problems.append(problem)
            finally:
                sock.close()
            number += 1

    thread = threading.Thread(target=run)
    thread.start()
    try:
        where = str(path) if path else f"127.0.0.1:{listener.getsockname()[1]}"
        yield where if path else f"{'https' if tls else 'http'}://{where}"
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join(60)
        assert not problems, problems
