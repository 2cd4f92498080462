"""A server that speaks raw bytes: what a client meets when things go wrong."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Awaitable, Callable
from pathlib import Path

Behaviour = Callable[["Peer"], Awaitable[None]]


class Peer:
    """One accepted connection. ``number`` counts from 0; ``heads`` are the request heads it sent."""

    def __init__(self, number: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.number = number
        self.reader = reader
        self.writer = writer
        self.heads: list[str] = []
        self.gone = asyncio.Event()

    async def request(self) -> tuple[str, bytes]:
        """The next request: head and body. Raises ``IncompleteReadError`` when the client left."""
        head = (await self.reader.readuntil(b"\r\n\r\n")).decode()
        length = 0
        for line in head.split("\r\n"):
            if line.lower().startswith("content-length:"):
                length = int(line.partition(":")[2])
        self.heads.append(head)
        return head, await self.reader.readexactly(length)

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def answer(self, body: bytes = b"{}", status: str = "200 OK", extra: str = "") -> None:
        head = f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\n{extra}\r\n"
        await self.send(head.encode() + body)

    async def chunk(self, data: bytes) -> None:
        await self.send(f"{len(data):x}\r\n".encode() + data + b"\r\n")

    async def until_gone(self) -> None:
        """Wait until the client closes."""
        while await self.reader.read(65536):
            pass


CHUNKED_HEAD = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


class RawServer:
    """``async with RawServer(behaviour) as server``: each connection runs ``behaviour`` and is closed."""

    def __init__(self, behaviour: Behaviour, *, path: Path | None = None, tls: ssl.SSLContext | None = None):
        self._behaviour = behaviour
        self._path = path
        self._tls = tls
        self._tasks: set[asyncio.Task[None]] = set()
        self.peers: list[Peer] = []
        self.errors: list[BaseException] = []
        self.port = 0

    async def __aenter__(self) -> RawServer:
        if self._path is not None:
            self._server = await asyncio.start_unix_server(self._accept, self._path)
        else:
            self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0, ssl=self._tls)
            self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._server.wait_closed()
        assert not self.errors, self.errors

    @property
    def url(self) -> str:
        return f"{'https' if self._tls else 'http'}://127.0.0.1:{self.port}"

    @property
    def requests(self) -> int:
        return sum(len(peer.heads) for peer in self.peers)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        peer = Peer(len(self.peers), reader, writer)
        self.peers.append(peer)
        try:
            await self._behaviour(peer)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        except asyncio.CancelledError:
            pass
        except Exception as error:
            self.errors.append(error)
        finally:
            peer.gone.set()
            writer.transport.abort()
