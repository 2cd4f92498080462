"""HTTP proxy in threads of its own: tunnels (``CONNECT``) and requests with absolute targets."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from urllib.parse import urlsplit


class SmallProxy:
    """A proxy that knows the names in ``hosts`` only: ``NAME:PORT`` → the address that it connects to.

    ``answer``: status line with which every request is refused. ``authorization``: expected header value.
    ``heads`` are the request heads that it has received.
    """

    def __init__(
        self, hosts: Mapping[str, tuple[str, int]], answer: str = "", authorization: str = ""
    ) -> None:
        self.hosts = hosts
        self.answer = answer
        self.authorization = authorization
        self.heads: list[str] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self._open: set[socket.socket] = set()
        self._threads: list[threading.Thread] = []

    def start(self) -> None:
        self._thread(self._accept)

    def stop(self) -> None:
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for connection in list(self._open):
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(10)

    def _thread(self, run: object, *arguments: socket.socket) -> None:
        thread = threading.Thread(target=run, args=arguments, daemon=True)  # type: ignore[arg-type]
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            self._thread(self._serve, client)

    def _serve(self, client: socket.socket) -> None:
        self._open.add(client)
        with client, suppress(OSError):
            head, rest = _read_head(client)
            if not head:
                return
            self.heads.append(head)
            if refusal := self._refusal(head):
                client.sendall(
                    f"HTTP/1.1 {refusal}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n".encode()
                )
                return
            method, target, _ = head.split("\r\n", 1)[0].split(" ")
            place = target if method == "CONNECT" else urlsplit(target).netloc
            with socket.create_connection(self.hosts[place]) as server:
                self._open.add(server)
                if method == "CONNECT":
                    client.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
                else:
                    server.sendall(head.replace(f"http://{place}", "", 1).encode() + rest)
                self._thread(_pump, server, client)
                _pump(client, server)
        self._open.discard(client)

    def _refusal(self, head: str) -> str:
        if self.authorization and f"proxy-authorization: {self.authorization}\r\n" not in head:
            return "407 Proxy Authentication Required"
        return self.answer


def _read_head(client: socket.socket) -> tuple[str, bytes]:
    data = b""
    while b"\r\n\r\n" not in data:
        piece = client.recv(65536)
        if not piece:
            return "", b""
        data += piece
    head, _, rest = data.partition(b"\r\n\r\n")
    return head.decode() + "\r\n\r\n", rest


def _pump(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(65536):
            target.sendall(data)
    with suppress(OSError):
        target.shutdown(socket.SHUT_WR)


@contextmanager
def proxying(
    hosts: Mapping[str, tuple[str, int]], *, answer: str = "", authorization: str = ""
) -> Iterator[SmallProxy]:
    proxy = SmallProxy(hosts, answer, authorization)
    proxy.start()
    try:
        yield proxy
    finally:
        proxy.stop()
