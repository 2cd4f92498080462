"""A TLS proxy in front of an API server that does to its clients what networks and servers do, by a seed.

It speaks HTTP/1.1 on both sides and runs an event loop in a thread of its own. What it does is told by
:class:`Faults`, at any time; with its defaults it passes everything on. Watch events that were held back are
delivered before the stream ends, so disorder never loses an event: no server does.
"""

from __future__ import annotations

import asyncio
import json
import random
import ssl
import tempfile
import threading
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from realkube import RealKube

_REASONS = {
    401: "Unauthorized",
    403: "Forbidden",
    409: "Conflict",
    410: "Expired",
    429: "TooManyRequests",
    500: "InternalError",
    502: "Bad Gateway",
    503: "ServiceUnavailable",
    504: "Timeout",
}
_LIMIT = 1 << 26


@dataclass
class Faults:
    """Shares are of requests or of watch events, from 0 to 1; times in seconds.

    ``refused``: answered with one of ``statuses`` and not passed on (409 only to writes, 410 only to reads of
    collections; in an open watch as an ERROR event). ``unanswered``: passed on, and the answer lost: half as a
    502 or 504, half as a dropped connection. ``dropped``: the connection ends before the request is passed on.
    ``late``: up to so long are events of a watch held back, those of one watch together; ``doubled`` and
    ``swapped``: events that come twice, or after a later one of another object or an older one of the same.
    """

    refused: float = 0.0
    statuses: tuple[int, ...] = tuple(_REASONS)
    unanswered: float = 0.0
    dropped: float = 0.0
    late_seconds: float = 0.0
    doubled: float = 0.0
    swapped: float = 0.0
    cut: bool = False
    """Every connection ends, and new ones end at once."""
    silent: bool = False
    """Nothing is passed on in either direction until it is false again."""


class FaultProxy:
    """``start()`` … ``stop()``; ``kubeconfig`` is a file for clients that are to go through it. ``account``: the one of
    who they are, if not the administrator."""

    def __init__(self, kube: RealKube, seed: int, name: str = "proxy", account: Path | None = None) -> None:
        self.faults = Faults()
        self.injected: dict[str, int] = {}
        self.kubeconfig = kube.folder / f"{name}.kubeconfig"
        self._account = account or kube.kubeconfig
        self._kube = kube
        self._rng = random.Random(seed)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name=name, daemon=True)
        self._open: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server
        target = urlsplit(kube.connection.server)
        self._target = (target.hostname or "", target.port or 0)
        self._inside = ssl.create_default_context(cadata=kube.authority.pem.decode())
        self._outside = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._load_certificate()

    def _load_certificate(self) -> None:
        pair = self._kube.authority.server("127.0.0.1")
        with tempfile.TemporaryDirectory() as folder:
            cert, key = Path(folder, "cert"), Path(folder, "key")
            cert.write_bytes(pair.cert)
            key.write_bytes(pair.key)
            self._outside.load_cert_chain(cert, key)

    def start(self) -> None:
        self._thread.start()
        self._server = self._run(
            asyncio.start_server(self._accept, "127.0.0.1", 0, ssl=self._outside, limit=_LIMIT)
        )
        port = self._server.sockets[0].getsockname()[1]
        config = json.loads(self._account.read_text())
        config["clusters"][0]["cluster"]["server"] = f"https://127.0.0.1:{port}"
        self.kubeconfig.write_text(json.dumps(config))

    def stop(self) -> None:
        self._run(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    def cut(self) -> None:
        """From now on nobody gets through; :meth:`mend` ends it."""
        self.faults.cut = True
        self._loop.call_soon_threadsafe(self._abort_all)

    def mend(self) -> None:
        """No faults any more."""
        self.faults = Faults()

    def _run(self, work: Awaitable[asyncio.Server | None]) -> asyncio.Server:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(10)  # type: ignore[arg-type,return-value]

    async def _close(self) -> None:
        self._server.close()
        self._abort_all()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _abort_all(self) -> None:
        for writer in list(self._open):
            writer.transport.abort()

    def _count(self, what: str) -> None:
        self.injected[what] = self.injected.get(what, 0) + 1

    # ------------------------------------------------------------------ one connection

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self._open.add(writer)
        exchange = _Exchange(self, reader, writer)
        try:
            if not self.faults.cut:
                while await exchange.serve():
                    pass
        except (OSError, asyncio.IncompleteReadError, ssl.SSLError, asyncio.CancelledError):
            pass  # one side has gone: the other follows
        finally:
            exchange.end()
            self._open.discard(writer)
            self._tasks.discard(task)

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        host, port = self._target
        reader, writer = await asyncio.open_connection(host, port, ssl=self._inside, limit=_LIMIT)
        self._open.add(writer)
        return reader, writer

    def forget(self, writer: asyncio.StreamWriter) -> None:
        self._open.discard(writer)
        writer.transport.abort()

    async def passage(self) -> None:
        """Return when bytes may pass. Raises ``ConnectionError`` while the network is cut."""
        while self.faults.silent:
            await asyncio.sleep(0.05)
        if self.faults.cut:
            raise ConnectionError("cut")

    def refusal(self, method: str, target: str) -> int:
        """A status to answer with instead; 0 for none."""
        faults = self.faults
        if self._rng.random() >= faults.refused:
            return 0
        collection = method == "GET" and (
            "watch=" in target or "limit=" in target or "resourceVersion=" in target
        )
        fits = [
            s
            for s in faults.statuses
            if not (s == 409 and method == "GET") and not (s == 410 and not collection)
        ]
        if not fits:
            return 0
        status = self._rng.choice(fits)
        self._count(str(status))
        return status

    def happens(self, share: float, what: str) -> bool:
        if share <= 0 or self._rng.random() >= share:
            return False
        self._count(what)
        return True

    @property
    def rng(self) -> random.Random:
        return self._rng


def status_body(status: int) -> bytes:
    """A Status as the server writes it."""
    told = {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": "injected by the fault proxy",
        "reason": _REASONS[status],
        "code": status,
    }
    return json.dumps(told).encode()


def _answer(status: int) -> bytes:
    body = status_body(status)
    extra = "Retry-After: 1\r\n" if status == 429 else ""
    head = f"HTTP/1.1 {status} {_REASONS[status]}\r\nContent-Type: application/json\r\n{extra}"
    return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body


class _Exchange:
    """The client's connection and the one to the server that belongs to it."""

    def __init__(self, proxy: FaultProxy, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._proxy = proxy
        self._reader = reader
        self._writer = writer
        self._up: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    def end(self) -> None:
        self._writer.transport.abort()
        if self._up is not None:
            self._proxy.forget(self._up[1])
            self._up = None

    async def serve(self) -> bool:
        """One request; whether the connection may serve another."""
        head = await self._reader.readuntil(b"\r\n\r\n")
        method, target = head.split(b"\r\n", 1)[0].decode().split(" ")[:2]
        body = await self._reader.readexactly(int(_header(head, b"content-length") or 0))
        proxy, faults = self._proxy, self._proxy.faults
        await proxy.passage()
        if self._reader.at_eof():
            return False  # who asked has gone meanwhile
        if proxy.happens(faults.dropped, "dropped"):
            return False
        status = proxy.refusal(method, target)
        if status:
            self._writer.write(_answer(status))
            await self._writer.drain()
            return True
        if self._up is None:
            self._up = await proxy.connect()
        up_reader, up_writer = self._up
        up_writer.write(head + body)
        await up_writer.drain()
        answer = await up_reader.readuntil(b"\r\n\r\n")
        await proxy.passage()
        watch = "watch=true" in target
        if not watch and proxy.happens(faults.unanswered, "unanswered"):
            return await self._lose(answer, up_reader)
        self._writer.write(answer)
        if watch and b" 200 " in answer.split(b"\r\n", 1)[0]:
            await self._follow(up_reader)
            return False
        await self._copy(answer, up_reader, self._writer.write)
        await self._writer.drain()
        return True

    async def _lose(self, answer: bytes, up: asyncio.StreamReader) -> bool:
        """The server did it, and the client is not told."""
        if self._proxy.rng.random() < 0.5:
            return False
        await self._copy(answer, up, lambda _: None)
        self._writer.write(_answer(self._proxy.rng.choice((502, 504))))
        await self._writer.drain()
        return True

    async def _copy(self, answer: bytes, up: asyncio.StreamReader, write: Callable[[bytes], None]) -> None:
        """The body as it comes."""
        length = _header(answer, b"content-length")
        if length:
            write(await up.readexactly(int(length)))
        elif _header(answer, b"transfer-encoding") == b"chunked":
            while True:
                line = await up.readline()
                size = int(line, 16)
                write(line + await up.readexactly(size + 2))
                if size == 0:
                    return

    async def _follow(self, up: asyncio.StreamReader) -> None:
        """The lines of a watch until either side ends it."""
        away = asyncio.ensure_future(self._reader.read(1))
        relay = asyncio.ensure_future(_Relay(self._proxy, self._writer).run(up))
        try:
            await asyncio.wait({away, relay}, return_when=asyncio.FIRST_COMPLETED)
            if relay.done():
                relay.result()
        finally:
            for task in (away, relay):
                task.cancel()
            await asyncio.gather(away, relay, return_exceptions=True)


class _Relay:
    """One watch: reads events, and writes them late, twice or in another order."""

    def __init__(self, proxy: FaultProxy, writer: asyncio.StreamWriter) -> None:
        self._proxy = proxy
        self._writer = writer
        self._held: list[bytes] = []
        self._due = 0.0
        self._rest = b""

    async def run(self, up: asyncio.StreamReader) -> None:
        pump = asyncio.ensure_future(self._read(up))
        try:
            while not pump.done():
                await asyncio.wait({pump}, timeout=0.05)
                await self._proxy.passage()
                if self._proxy.happens(self._proxy.faults.refused * 0.02, "410 in a watch"):
                    self._flush()
                    self._send(b'{"type":"ERROR","object":' + status_body(410) + b"}\n")
                    break
                if self._held and asyncio.get_running_loop().time() >= self._due:
                    self._flush()
            self._flush()
            self._writer.write(b"0\r\n\r\n")
            await self._writer.drain()
        finally:
            pump.cancel()
            with suppress(OSError, asyncio.IncompleteReadError, asyncio.CancelledError, ValueError):
                await pump

    async def _read(self, up: asyncio.StreamReader) -> None:
        while True:
            size = int(await up.readline(), 16)
            chunk = await up.readexactly(size + 2)
            if size == 0:
                return
            await self._proxy.passage()
            *lines, self._rest = (self._rest + chunk[:-2]).split(b"\n")
            for line in lines:
                self._take(line + b"\n")
            await self._writer.drain()

    def _take(self, line: bytes) -> None:
        faults = self._proxy.faults
        if line.startswith((b'{"type":"BOOKMARK"', b'{"type":"ERROR"')) or not faults.late_seconds:
            self._flush()
            self._send(line)
            return
        if not self._held:
            late = self._proxy.rng.uniform(0.0, faults.late_seconds)
            self._due = asyncio.get_running_loop().time() + late
        self._held.append(line)

    def _flush(self) -> None:
        held, self._held = self._held, []
        proxy, faults = self._proxy, self._proxy.faults
        i = 0
        while i + 1 < len(held):
            if proxy.happens(faults.swapped, "swapped"):
                held[i], held[i + 1] = held[i + 1], held[i]
                i += 1
            i += 1
        for line in held:
            self._send(line)
            if proxy.happens(faults.doubled, "doubled"):
                self._send(line)
        if held and proxy.happens(faults.doubled, "doubled"):
            self._send(proxy.rng.choice(held))  # and one that is old by now

    def _send(self, line: bytes) -> None:
        self._writer.write(b"%x\r\n%s\r\n" % (len(line), line))


def _header(head: bytes, name: bytes) -> bytes:
    for line in head.split(b"\r\n")[1:]:
        key, _, value = line.partition(b":")
        if key.strip().lower() == name:
            return value.strip().lower()
    return b""
