"""Asyncio transport: HTTP/1.1 over TLS, TCP or a Unix socket, with a keep-alive pool.

With 32 bindings in flight, a general-purpose client costs 160-460 µs of CPU per
request, this one about 55. Watches also need exact control of back-pressure and of the
state that a cancelled request leaves behind.

Invariants:

- A connection is idle, or serves exactly one exchange. After an exchange that was
  cancelled, broke or was not read to its end, it is closed and never reused.
- At most ``limit`` exchanges run at once. Watches and followed logs do not count once
  their head has arrived.
- A watch reads frequent events in batches: after each piece, reading pauses briefly. A
  single event, or one of a few, is read at once.
- A request is sent a second time only if nothing of it can have been processed, or if
  its method is idempotent and a reused connection broke before the first byte of the
  response.
"""

from __future__ import annotations

import asyncio
import select
import socket
import ssl
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass

from windlass.client import errors, http11, proxies
from windlass.client.connection import KEEP_ALIVE, Connection, ssl_context
from windlass.client.credentials import Credentials
from windlass.client.transport import Request, Response
from windlass.client.watch_batching import WatchBatching
from windlass.kits.clock import Clock, SystemClock

_REPEATABLE = frozenset({"GET", "HEAD", "PUT", "DELETE"})
_HIGH_WATER = 1 << 20
_SURELY_OPEN_SECONDS = 0.01
"""Maximum idle time (seconds) after which a connection is used without a check.

The loop may have been busy (a scheduling cycle) while the server restarted, and a POST
on a closed connection is not repeated.
"""


@dataclass(frozen=True, slots=True)
class HttpOptions:
    """Limits; times in seconds. ``idle_seconds`` is below the keep-alive time of servers."""

    limit: int = 64
    connect_seconds: float = 10.0
    response_seconds: float = 60.0
    idle_seconds: float = 50.0
    sweep_seconds: float = 1.0
    """Interval between checks of the time limits above, in seconds."""
    breath_seconds: float = 0.05
    """Maximum pause (seconds) of a watch after each piece while pieces arrive frequently.

    A watch does not pause after a few pieces (``watch_batching.FEW_PIECES``), or later
    than twice this time after the previous piece. 0: it never pauses.
    """


class _Dropped(Exception):
    """The connection ended before the first byte of the answer."""


class BodyStream:
    """Response body that is still arriving. Unread bytes hold the sender back."""

    __slots__ = ("_chunks", "_closed", "_connection", "_done", "_error", "_size", "_waiter")

    def __init__(self, connection: _HttpConnection) -> None:
        self._connection = connection
        self._chunks: list[bytes] = []
        self._size = 0
        self._done = False
        self._closed = False
        self._error: Exception | None = None
        self._waiter: asyncio.Future[None] | None = None

    def __aiter__(self) -> BodyStream:
        return self

    async def __anext__(self) -> bytes:
        while not self._chunks:
            if self._error is not None:
                raise self._error
            if self._done or self._closed:
                raise StopAsyncIteration
            if self._waiter is not None:
                raise RuntimeError("two readers of one stream")
            self._waiter = asyncio.get_running_loop().create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None
        chunks = self._chunks
        self._chunks = []
        if self._size > _HIGH_WATER:
            self._connection.resume()
        self._size = 0
        return chunks[0] if len(chunks) == 1 else b"".join(chunks)

    async def aclose(self) -> None:
        """Stop reading; the connection is closed unless the body had ended."""
        self._closed = True
        self._chunks.clear()
        if not self._done:
            self._connection.abort()
        self._wake()

    def feed(self, data: bytes) -> None:
        if self._closed:
            return
        before = self._size
        self._chunks.append(data)
        self._size = before + len(data)
        if before <= _HIGH_WATER < self._size:
            self._connection.hold()
        self._wake()

    def finish(self, error: Exception | None = None) -> None:
        self._done = True
        self._error = error
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


class _HttpConnection(asyncio.Protocol):
    """One connection.

    ``exchange`` sends a request and returns when the response (or its head) is there.
    """

    def __init__(self, owner: HttpTransport) -> None:
        self._owner = owner
        self._transport: asyncio.Transport | None = None
        self._parser = http11.ResponseParser(self._on_head, self._on_body, self._on_done)
        self._future: asyncio.Future[Response] | None = None
        self._stream: BodyStream | None = None
        self._body: list[bytes] = []
        self._status = 0
        self._headers: Mapping[str, str] = {}
        self._answering = False
        self._held = self._paused = False
        self._breath = WatchBatching(owner.options.breath_seconds)
        self._breathing: asyncio.TimerHandle | None = None
        self.closed = False
        self.progress = True
        self.patient = False
        """True if a streamed response may be silent for long (a watch, a followed log)."""
        self.deadline = 0.0
        self.idle_since = 0.0

    # The exchange.

    async def exchange(self, data: bytes) -> Response:
        """Send a request and return its response.

        Raises :class:`_Dropped` and :class:`Unreachable`. A cancellation closes the
        connection.
        """
        if self.closed or self._transport is None or self._transport.is_closing():
            raise _Dropped
        self._answering = False
        self._parser.complete = False
        self._body = []
        self._future = future = asyncio.get_running_loop().create_future()
        self._transport.write(data)
        try:
            return await future
        except asyncio.CancelledError:
            self.abort()
            raise
        finally:
            if self._future is future:  # else the connection may serve the next exchange already
                self._future = None

    @property
    def hurried(self) -> bool:
        """True if bytes are due: a response is outstanding, and reading is not paused on this side."""
        if self._future is not None:
            return True
        return self._stream is not None and not self.patient and not self._held

    @property
    def streaming(self) -> bool:
        return self._stream is not None

    def _on_head(self, status: int, headers: Mapping[str, str]) -> None:
        future = self._future
        if future is None or future.done():
            self.abort()
            return
        self._status, self._headers = status, headers
        if "content-length" in headers or status in (204, 304):
            return
        self._stream = BodyStream(self)
        self._future = None
        future.set_result(Response(status, headers, stream=self._stream))

    def _on_body(self, data: bytes) -> None:
        if self._stream is not None:
            self._stream.feed(data)
        else:
            self._body.append(data)

    def _on_done(self) -> None:
        if self._stream is not None:
            stream, self._stream = self._stream, None
            stream.finish()
            self._end_breath()
            self.resume()
        elif self._future is not None and not self._future.done():
            future, self._future = self._future, None
            body = self._body[0] if len(self._body) == 1 else b"".join(self._body)
            self._body = []
            future.set_result(Response(self._status, self._headers, body))
        if self._parser.keep_alive and not self.closed:
            self._owner.now_idle(self)
        else:
            self.abort()

    def fail(self, error: Exception) -> None:
        """End the exchange with ``error`` and close."""
        if self._future is not None and not self._future.done():
            self._future.set_exception(error)
        if self._stream is not None:
            stream, self._stream = self._stream, None
            stream.finish(error)
        self.abort()

    def stale(self) -> bool:
        """True if the peer has closed or sent unrequested data, and the loop has not processed it yet."""
        sock = self._transport.get_extra_info("socket") if self._transport is not None else None
        if sock is None or sock.fileno() < 0:
            return True
        poll = select.poll()
        poll.register(sock.fileno(), select.POLLIN | select.POLLHUP)
        return bool(poll.poll(0))

    # The transport.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment]
        if not self._owner.connection.unix_socket:
            sock = transport.get_extra_info("socket")
            for level, name, value in KEEP_ALIVE:
                sock.setsockopt(level, name, value)
        if isinstance(transport, asyncio.Transport) and transport.get_extra_info("ssl_object") is not None:
            # While reading is paused, nothing is read from the socket either.
            transport.set_read_buffer_limits(high=1, low=0)  # type: ignore[attr-defined]

    def data_received(self, data: bytes) -> None:
        if self._future is None and self._stream is None:
            self.abort()  # nothing was asked
            return
        self._answering = True
        self.progress = True
        try:
            self._parser.feed(data)
        except http11.ProtocolError as error:
            self.fail(errors.garbled(self._owner.where, str(error)))
            return
        if self.patient and self._stream is not None:
            self._breathe(len(data))

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self.closed = True
        self._owner.gone(self)
        if self._future is None and self._stream is None:
            return
        if self._answering and self._parser.end_of_stream():
            return
        detail = str(exc) if exc is not None else "the server closed it"
        if not self._answering:
            self.fail(_Dropped(detail))
        else:
            self.fail(
                errors.disconnected(
                    self._owner.where, f"{detail} in the middle of the response", processed=True
                )
            )

    def hold(self) -> None:
        """Stop reading: the peer's window fills and it has to wait."""
        self._held = True
        self._read_or_not()

    def resume(self) -> None:
        self._held = False
        self._read_or_not()

    def _breathe(self, size: int) -> None:
        """Pause reading briefly while events arrive frequently."""
        loop = asyncio.get_running_loop()
        seconds = self._breath.after(loop.time(), size)
        if seconds and self._breathing is None:
            self._breathing = loop.call_later(seconds, self._end_breath)
            self._read_or_not()

    def _end_breath(self) -> None:
        if self._breathing is not None:
            self._breathing.cancel()
            self._breathing = None
            self._read_or_not()

    def _read_or_not(self) -> None:
        transport, pause = self._transport, self._held or self._breathing is not None
        if transport is None or pause == self._paused or transport.is_closing():
            return
        self._paused = pause
        if pause:
            transport.pause_reading()
        else:
            transport.resume_reading()

    def abort(self) -> None:
        self.closed = True
        if self._breathing is not None:
            self._breathing.cancel()
            self._breathing = None
        self._owner.gone(self)
        if self._transport is not None:
            self._transport.abort()


class HttpTransport:
    """``client.transport.Transport`` of a :class:`Connection`. It belongs to one event loop."""

    def __init__(
        self, connection: Connection, *, options: HttpOptions | None = None, clock: Clock | None = None
    ) -> None:
        self.connection = connection
        self.where = connection.where
        self.options = options or HttpOptions()
        self._proxy = proxies.choose(connection)
        more, self._prefix = connection.impersonate, connection.path_prefix
        if self._proxy is not None and not connection.secure:
            more = (*more, *proxies.headers(self._proxy))
            self._prefix = proxies.absolute_prefix(connection) + self._prefix
        self._fixed = http11.fixed_headers(connection.host_header, more)
        self._credentials = Credentials(connection, clock or SystemClock())
        self._refreshing = asyncio.Lock()
        self._tls: ssl.SSLContext | None = None
        self._idle: list[_HttpConnection] = []
        self._open: set[_HttpConnection] = set()
        self._free = self.options.limit
        self._queue: deque[asyncio.Future[None]] = deque()
        self._sweeper: asyncio.TimerHandle | None = None
        self._closed = False

    async def request(self, request: Request) -> Response:
        """Send a request and return its response.

        Raises :class:`~windlass.client.errors.Unreachable` and, for credentials,
        ``WindlassError``.
        """
        authorization = self._credentials.header()
        if authorization is None:
            authorization = await self._renew()
        response = await self._send(request, authorization)
        if response.status == 401 and self._credentials.reject():
            if response.stream is not None:
                await response.stream.aclose()
            response = await self._send(request, await self._renew())
        if response.status == 407 and self._proxy is not None:
            raise proxies.refused(self._proxy, self.where, "407 Proxy Authentication Required", status="407")
        return response

    async def close(self) -> None:
        """Close all connections. Requests in flight end with :class:`Unreachable`."""
        self._closed = True
        if self._sweeper is not None:
            self._sweeper.cancel()
            self._sweeper = None
        for connection in list(self._open):
            connection.fail(errors.disconnected(self.where, "the client was closed", processed=True))
        self._idle.clear()
        await asyncio.sleep(0)

    @property
    def connections(self) -> int:
        """Number of open connections, idle ones and streams included."""
        return len(self._open)

    # Sending.

    async def _send(self, request: Request, authorization: str) -> Response:
        if self._closed:
            raise errors.disconnected(self.where, "the client was closed", processed=False)
        if self._prefix:
            request = Request(
                request.method, self._prefix + request.path, request.query, request.headers, request.body
            )
        data = http11.encode(request, self._fixed, authorization)
        await self._take_slot()
        try:
            patient = "watch=" in request.query or "follow=" in request.query
            return await self._attempt(request.method, data, patient)
        finally:
            self._give_slot()

    async def _attempt(self, method: str, data: bytes, patient: bool) -> Response:
        while True:
            connection = self._pop_idle()
            reused = connection is not None
            if connection is None:
                connection = await self._connect()
            connection.patient = patient
            self._watch_over(connection)
            sent = not connection.closed
            try:
                return await connection.exchange(data)
            except _Dropped as dropped:
                if reused and (not sent or method in _REPEATABLE):
                    continue
                detail = str(dropped) or "it was closed"
                raise errors.disconnected(self.where, detail, processed=sent) from dropped

    def _pop_idle(self) -> _HttpConnection | None:
        now = asyncio.get_running_loop().time()
        while self._idle:
            connection = self._idle.pop()
            if connection.closed:
                continue
            idle = now - connection.idle_since
            if idle < _SURELY_OPEN_SECONDS:
                return connection
            if idle < self.options.idle_seconds and not connection.stale():
                return connection
            connection.abort()
        return None

    async def _take_slot(self) -> None:
        if self._free > 0 and not self._queue:
            self._free -= 1
            return
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._queue.append(waiter)
        try:
            await waiter
        except asyncio.CancelledError:
            if waiter.done() and not waiter.cancelled():
                self._give_slot()  # it had been handed over already
            else:
                self._queue.remove(waiter)
            raise

    def _give_slot(self) -> None:
        while self._queue:
            waiter = self._queue.popleft()
            if not waiter.done():
                waiter.set_result(None)
                return
        self._free += 1

    # Connections.

    async def _connect(self) -> _HttpConnection:
        loop = asyncio.get_running_loop()
        options, connection = self.options, self.connection
        try:
            async with asyncio.timeout(options.connect_seconds):
                if connection.unix_socket:
                    _, made = await loop.create_unix_connection(
                        lambda: _HttpConnection(self), connection.unix_socket
                    )
                else:
                    made = await self._connect_tcp()
        except TimeoutError as error:
            if self._proxy is not None:
                late = TimeoutError(0, f"no answer within {options.connect_seconds:g} s")
                raise proxies.not_reached(self._proxy, self.where, late) from error
            raise errors.timed_out(
                self.where, "connecting", options.connect_seconds, processed=False
            ) from error
        except ssl.SSLError as error:
            raise errors.tls_failed(error, self.where) from error
        except OSError as error:
            raise errors.connect_failed(error, self.where, unix=bool(connection.unix_socket)) from error
        self._open.add(made)
        if self._closed:
            made.abort()
            raise errors.disconnected(self.where, "the client was closed", processed=False)
        return made

    async def _connect_tcp(self) -> _HttpConnection:
        """Return a TCP connection. Raises ``OSError``, ``TimeoutError`` and :class:`Unreachable`."""
        loop, connection, proxy = asyncio.get_running_loop(), self.connection, self._proxy
        host, port = connection.address
        tls = self._tls_context() if connection.secure else None
        name = (connection.tls_server_name or host) if tls else None

        def make() -> _HttpConnection:
            return _HttpConnection(self)

        if proxy is None:
            _, made = await loop.create_connection(make, host, port, ssl=tls, server_hostname=name)
        elif tls is None:
            try:
                _, made = await loop.create_connection(make, proxy.host, proxy.port)
            except OSError as error:
                raise proxies.not_reached(proxy, self.where, error) from error
        else:
            tunnel = await self._tunnel(proxy)
            _, made = await loop.create_connection(make, sock=tunnel, ssl=tls, server_hostname=name)
        return made

    async def _tunnel(self, proxy: proxies.Proxy) -> socket.socket:
        """Return a socket that the proxy has connected to the server. Raises :class:`Unreachable`."""
        loop = asyncio.get_running_loop()
        try:
            tunnel = await _dial(proxy.host, proxy.port)
        except OSError as error:
            raise proxies.not_reached(proxy, self.where, error) from error
        try:
            await loop.sock_sendall(tunnel, proxies.tunnel_request(proxy, *self.connection.address))
            head = proxies.TunnelAnswer(proxy, self.where)
            while not head.feed(await loop.sock_recv(tunnel, 1 << 16)):
                pass
        except OSError as error:
            tunnel.close()
            raise proxies.refused(proxy, self.where, error.strerror or str(error)) from error
        except BaseException:
            tunnel.close()
            raise
        return tunnel

    def _tls_context(self) -> ssl.SSLContext:
        if self._tls is None:
            credentials = self._credentials
            self._tls = ssl_context(self.connection, credentials.client_cert, credentials.client_key)
        return self._tls

    async def _renew(self) -> str:
        async with self._refreshing:
            header = self._credentials.header()
            if header is None:
                if await asyncio.to_thread(self._credentials.refresh):
                    self._tls = None
                    for connection in self._idle:  # the server would judge them by the former certificate
                        connection.abort()
                    self._idle.clear()
                header = self._credentials.header() or ""
        return header

    def now_idle(self, connection: _HttpConnection) -> None:
        connection.idle_since = asyncio.get_running_loop().time()
        self._idle.append(connection)

    def gone(self, connection: _HttpConnection) -> None:
        self._open.discard(connection)

    # Time: one timer for all connections, because a timer per request would cost more than its parsing.

    def _watch_over(self, connection: _HttpConnection) -> None:
        loop = asyncio.get_running_loop()
        connection.deadline = loop.time() + self.options.response_seconds
        connection.progress = False
        if self._sweeper is None and not self._closed:
            self._sweeper = loop.call_later(self.options.sweep_seconds, self._sweep)

    def _sweep(self) -> None:
        loop = asyncio.get_running_loop()
        now, seconds = loop.time(), self.options.response_seconds
        for connection in list(self._open):
            if connection.hurried:
                if connection.progress:
                    connection.progress = False
                    connection.deadline = now + seconds
                elif now >= connection.deadline:
                    connection.fail(errors.timed_out(self.where, "an answer", seconds, processed=True))
            elif not connection.streaming and now - connection.idle_since >= self.options.idle_seconds:
                connection.abort()
        self._idle = [connection for connection in self._idle if not connection.closed]
        self._sweeper = loop.call_later(self.options.sweep_seconds, self._sweep) if self._open else None


async def _dial(host: str, port: int) -> socket.socket:
    """Return a socket connected to the first address of ``host`` that accepts. Raises ``OSError``."""
    loop = asyncio.get_running_loop()
    failure = OSError(f"{host} has no address")
    for family, kind, protocol, _, address in await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM):
        connected = socket.socket(family, kind, protocol)
        connected.setblocking(False)
        try:
            await loop.sock_connect(connected, address)
        except OSError as error:
            connected.close()
            failure = error
        except BaseException:
            connected.close()
            raise
        else:
            return connected
    raise failure
