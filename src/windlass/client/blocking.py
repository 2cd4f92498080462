"""Client without an event loop, for the command line: same verbs, quick to import.

It uses a plain socket and the shared HTTP codec. ``http.client`` would import ``ssl``
and ``email`` (20 ms) even for a Unix socket. ``asyncio`` is never imported, and ``ssl``
only for TLS. The client is not thread-safe: each thread needs its own.
"""

from __future__ import annotations

import select
import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import wraps
from types import TracebackType
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec

from msgspec.structs import replace

from windlass.api.errors import StatusError
from windlass.api.resources import Resource
from windlass.client import errors, http11, proxies, responses, verbs
from windlass.client.connection import KEEP_ALIVE, Connection, ssl_context
from windlass.client.credentials import Credentials
from windlass.client.errors import Unreachable
from windlass.client.responses import ListResult
from windlass.client.retries import RetryPolicy, wait_after
from windlass.client.transport import Request, Response
from windlass.kits import rng as kits_rng
from windlass.kits.backoff import Backoff
from windlass.kits.clock import SystemClock

if TYPE_CHECKING:
    from windlass.kits.rng import Random

P = ParamSpec("P")
_READ = 1 << 18
_REPEATABLE = frozenset({"GET", "HEAD", "PUT", "DELETE"})
PAGE = 500
"""Number of objects per request of a whole list, so that the first page is shown early."""


class _Channel:
    """Connected socket with the parser of its responses."""

    def __init__(self, sock: socket.socket, where: str) -> None:
        self.sock = sock
        self.where = where
        self.parser = http11.ResponseParser(self._on_head, self._on_body, self._on_done)
        self.status = 0
        self.headers: Mapping[str, str] = {}
        self.chunks: list[bytes] = []
        self.head = False
        self.done = True

    def _on_head(self, status: int, headers: Mapping[str, str]) -> None:
        self.status, self.headers, self.head = status, headers, True

    def _on_body(self, data: bytes) -> None:
        self.chunks.append(data)

    def _on_done(self) -> None:
        self.done = True

    def begin(self) -> None:
        self.head = self.done = self.parser.complete = False
        self.chunks = []

    def stale(self) -> bool:
        """True if the peer has closed, or has sent unrequested data, while the connection was idle."""
        readable, _, _ = select.select([self.sock], [], [], 0)
        return bool(readable)

    def read(self) -> bool:
        """Read what arrives next. Return False if the peer closed.

        Raises ``OSError`` and ``Unreachable``.
        """
        data = self.sock.recv(_READ)
        if not data:
            return False
        try:
            self.parser.feed(data)
        except http11.ProtocolError as error:
            raise errors.garbled(self.where, str(error)) from error
        return True

    def close(self) -> None:
        self.sock.close()


def _answered(build: Callable[P, Request]) -> Callable[Concatenate[BlockingClient, P], dict[str, Any]]:
    """Return a method that sends the request of ``build`` and decodes the response."""

    @wraps(build)
    def verb(self: BlockingClient, /, *args: P.args, **options: P.kwargs) -> dict[str, Any]:
        return responses.decoded(dict, self.call(build(*args, **options)))

    return verb


def _done(build: Callable[P, Request]) -> Callable[Concatenate[BlockingClient, P], None]:
    """Return a method that sends the request of ``build`` and ignores the response body."""

    @wraps(build)
    def verb(self: BlockingClient, /, *args: P.args, **options: P.kwargs) -> None:
        self.call(build(*args, **options))

    return verb


class BlockingClient:
    """Client for one server. ``timeout_seconds``: maximum wait for the next bytes of a response.

    Streams have no such limit.
    """

    def __init__(
        self,
        connection: Connection,
        *,
        user_agent: str = "windlass",
        timeout_seconds: float = 60.0,
        retries: RetryPolicy | None = None,
        rng: Random | None = None,
    ) -> None:
        self.connection = connection
        self.on_warning: Callable[[str], None] | None = None
        self._clock = SystemClock()
        self._rng = rng or kits_rng.system()
        self._user_agent = user_agent
        self._timeout = timeout_seconds
        self._retries = retries or RetryPolicy(attempts=4, retry_refused=False)
        self._credentials = Credentials(connection, self._clock)
        self._proxy = proxies.choose(connection)
        more, self._prefix = connection.impersonate, connection.path_prefix
        if self._proxy is not None and not connection.secure:
            more = (*more, *proxies.headers(self._proxy))
            self._prefix = proxies.absolute_prefix(connection) + self._prefix
        self._fixed = http11.fixed_headers(connection.host_header, more)
        self._channel: _Channel | None = None

    def close(self) -> None:
        if self._channel is not None:
            self._channel.close()
            self._channel = None

    def __enter__(self) -> BlockingClient:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # Below the verbs.

    def request(self, request: Request) -> Response:
        """Send a request once and return its whole response. Raises :class:`Unreachable`."""
        channel = self._send(request)
        return Response(channel.status, channel.headers, self._read_body(channel))

    def call(self, request: Request) -> bytes:
        """Send a request, with retries, and return the body of a successful response.

        Raises :class:`StatusError`; :class:`Unreachable`, also if the server rejects
        the credentials (401).
        """
        policy = self._retries
        backoff = Backoff(self._rng, policy.initial_seconds, 2.0, policy.cap_seconds, 1.0)
        attempt = 1
        while True:
            try:
                channel = self._send(request)
                body = self._read_body(channel)
                return self._judge(channel, body)
            except (StatusError, Unreachable) as problem:
                again = attempt < policy.attempts
                seconds = wait_after(problem, request, policy, backoff) if again else None
                if seconds is None:
                    raise
                attempt += 1
                self._clock.pause(seconds)

    def stream(
        self, path: str, query: str = "", *, accept: str = "*/*", silence_seconds: float | None = None
    ) -> Iterator[bytes]:
        """Send a GET with an open-ended response (logs, watches) and yield its chunks.

        There is no time limit. With ``silence_seconds`` it yields ``b""`` whenever
        nothing arrived for that time. The request is sent at the first ``next``.
        Closing the generator closes the connection. Raises :class:`StatusError` and
        :class:`Unreachable` (also when the stream breaks).
        """
        request = Request("GET", path, query, {"accept": accept})
        channel = self._send(request)
        if channel.status >= 300:
            self._judge(channel, self._read_body(channel))
        self._hand_on_warnings(channel.headers)
        self._channel = None  # the stream's own from here on
        try:
            channel.sock.settimeout(silence_seconds)
            while True:
                yield from self._taken(channel)
                if channel.done:
                    return
                try:
                    self._fill(channel)
                except TimeoutError:
                    yield b""
        finally:
            channel.close()

    @staticmethod
    def _taken(channel: _Channel) -> Sequence[bytes]:
        chunks, channel.chunks = channel.chunks, []
        return chunks

    def _fill(self, channel: _Channel) -> None:
        try:
            alive = channel.read()
        except TimeoutError:
            raise
        except OSError as error:
            channel.close()
            raise self._broken(error) from error
        if not alive and not channel.parser.end_of_stream():
            channel.close()
            raise errors.disconnected(
                self.connection.where, "the server closed it in the middle of the response", processed=True
            )

    def _broken(self, error: OSError) -> Unreachable:
        where = self.connection.where
        if isinstance(error, TimeoutError):
            return errors.timed_out(where, "an answer", self._timeout, processed=True)
        return errors.disconnected(where, str(error), processed=True)

    def _read_body(self, channel: _Channel) -> bytes:
        try:
            while not channel.done:
                self._fill(channel)
        except TimeoutError as error:
            self.close()
            raise self._broken(error) from error
        except BaseException:
            self.close()
            raise
        if not channel.parser.keep_alive:
            self.close()
        return b"".join(self._taken(channel))

    def _judge(self, channel: _Channel, body: bytes) -> bytes:
        self._hand_on_warnings(channel.headers)
        if channel.status < 300:
            return body
        problem = responses.error(channel.status, channel.headers, body)
        if channel.status == 401:
            raise self._unauthorized(problem)
        raise problem

    def _unauthorized(self, problem: StatusError) -> Unreachable:
        connection = self.connection
        origin = (
            f"{connection.source} (context {connection.context!r})" if connection.source else "none given"
        )
        return Unreachable(
            errors.UNAUTHORIZED,
            f"{connection.where} does not accept the credentials",
            evidence=f"{problem.message or 'Unauthorized'}; credentials from: {origin}",
            remedies=(
                "log in to the cluster again, as you got this kubeconfig: its token may have expired",
                "for this machine's control plane, use its current kubeconfig: windlass status",
                "kubectl config view --minify",
            ),
        )

    def _hand_on_warnings(self, headers: Mapping[str, str]) -> None:
        if self.on_warning is not None and "warning" in headers:
            for text in responses.warnings(headers):
                self.on_warning(text)

    # Sending.

    def _send(self, request: Request) -> _Channel:
        """Send a request and read the head of its response.

        If the server rejects the credentials, they are refreshed and the request is
        sent once more.
        """
        channel = self._exchange(request)
        if channel.status == 401 and self._credentials.reject():
            self.close()
            channel = self._exchange(request)
        if channel.status == 407 and self._proxy is not None:
            self.close()
            where, detail = self.connection.where, "407 Proxy Authentication Required"
            raise proxies.refused(self._proxy, where, detail, status="407")
        return channel

    def _exchange(self, request: Request) -> _Channel:
        if self._credentials.header() is None and self._credentials.refresh():
            self.close()
        headers = {**request.headers, "user-agent": self._user_agent}
        path = self._prefix + request.path
        data = http11.encode(
            replace(request, path=path, headers=headers), self._fixed, self._credentials.header() or ""
        )
        if self._channel is not None and self._channel.stale():
            self.close()
        reused = self._channel is not None
        while True:
            channel = self._channel or self._connect()
            self._channel = channel
            try:
                self._until_head(channel, data)
                return channel
            except OSError as error:
                self.close()
                if reused and request.method in _REPEATABLE and not isinstance(error, TimeoutError):
                    reused = False
                    continue
                raise self._broken(error) from error
            except BaseException:
                self.close()
                raise

    def _until_head(self, channel: _Channel, data: bytes) -> None:
        channel.begin()
        channel.sock.settimeout(self._timeout)
        rejection: OSError | None = None
        try:
            channel.sock.sendall(data)
        except (BrokenPipeError, ConnectionResetError) as error:
            rejection = error  # a server that will not read it all has answered why, and closed
        while not channel.head:
            try:
                more = channel.read()
            except ConnectionResetError as error:
                raise rejection or error from None
            if not more:
                raise rejection or ConnectionResetError("the server closed it before it answered")

    def _connect(self) -> _Channel:
        connection = self.connection
        unix = bool(connection.unix_socket)
        try:
            if unix:
                sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
                try:
                    sock.settimeout(min(10.0, self._timeout))
                    sock.connect(connection.unix_socket)
                except BaseException:
                    sock.close()
                    raise
            else:
                sock = self._dial()
        except TimeoutError as error:
            raise errors.timed_out(connection.where, "connecting", 10.0, processed=False) from error
        except OSError as error:
            raise errors.connect_failed(error, connection.where, unix=unix) from error
        return _Channel(self._wrap(sock) if connection.secure else sock, connection.where)

    def open_socket(self) -> tuple[socket.socket, dict[str, str]]:
        """Return a connection of its own for another protocol, and the headers of its first request.

        Raises :class:`Unreachable`.
        """
        if self._credentials.header() is None:
            self._credentials.refresh()
        authorization = self._credentials.header()
        headers = {"Authorization": authorization} if authorization else {}
        sock = self._connect().sock
        sock.settimeout(None)
        return sock, {**headers, "User-Agent": self._user_agent}

    def _dial(self) -> socket.socket:
        """Return a TCP connection to the server, or to its proxy. Raises ``OSError`` and ``Unreachable``."""
        connection, proxy = self.connection, self._proxy
        address = connection.address if proxy is None else (proxy.host, proxy.port)
        try:
            sock = socket.create_connection(address, min(10.0, self._timeout))
        except OSError as error:
            if proxy is None:
                raise
            raise proxies.not_reached(proxy, connection.where, error) from error
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for level, name, value in KEEP_ALIVE:
            sock.setsockopt(level, name, value)
        if proxy is not None and connection.secure:
            self._open_tunnel(sock, proxy)
        return sock

    def _open_tunnel(self, sock: socket.socket, proxy: proxies.Proxy) -> None:
        """Have the proxy connect ``sock`` to the server.

        Raises :class:`Unreachable`, with ``sock`` closed.
        """
        connection = self.connection
        try:
            sock.sendall(proxies.tunnel_request(proxy, *connection.address))
            head = proxies.TunnelAnswer(proxy, connection.where)
            while not head.feed(sock.recv(_READ)):
                pass
        except OSError as error:
            sock.close()
            raise proxies.refused(proxy, connection.where, error.strerror or str(error)) from error
        except BaseException:
            sock.close()
            raise

    def _wrap(self, sock: socket.socket) -> socket.socket:
        import ssl

        from windlass.client.tlssocket import ClientSocket

        connection, credentials = self.connection, self._credentials
        try:
            context = ssl_context(connection, credentials.client_cert, credentials.client_key)
            context.sslsocket_class = ClientSocket
            name = connection.tls_server_name or connection.address[0]
            return context.wrap_socket(sock, server_hostname=name)
        except ssl.SSLError as error:
            sock.close()
            raise errors.tls_failed(error, connection.where) from error
        except OSError as error:
            sock.close()
            raise errors.connect_failed(error, connection.where, unix=False) from error
        except BaseException:
            sock.close()
            raise

    # Verbs.

    def get(
        self,
        resource: Resource,
        name: str,
        namespace: str | None = None,
        *,
        subresource: str | None = None,
        type: type[Any] = dict,
    ) -> Any:
        return responses.decoded(type, self.call(verbs.get(resource, name, namespace, subresource)))

    def find(self, resource: Resource, name: str, namespace: str | None = None) -> dict[str, Any] | None:
        """Like :meth:`get`, but return ``None`` if the object does not exist."""
        try:
            return self.get(resource, name, namespace)
        except StatusError as problem:
            if problem.code == 404 and problem.details.get("name") == name:
                return None
            raise

    def list(
        self,
        resource: Resource,
        namespace: str | None = None,
        *,
        labels: str = "",
        fields: str = "",
        limit: int = 0,
        type: type[Any] = dict,
    ) -> ListResult[Any]:
        """Return all objects, or the first ``limit``.

        They are read in pages. The list restarts if the snapshot of its pages has
        expired.
        """
        restarts = 0
        while True:
            items = []
            token = ""
            try:
                while True:
                    page = self._page(resource, namespace, labels, fields, limit or PAGE, token, type)
                    items += page.items
                    token = page.continue_token
                    if limit or not token:
                        return ListResult(items, page.resource_version, token, page.remaining)
            except StatusError as problem:
                restarts += 1
                if not token or not responses.is_expired(problem) or restarts > 3:
                    raise

    def _page(
        self,
        resource: Resource,
        namespace: str | None,
        labels: str,
        fields: str,
        limit: int,
        token: str,
        type: type[Any],
    ) -> ListResult[Any]:
        request = verbs.list_(
            resource, namespace, labels=labels, fields=fields, limit=limit, continue_token=token
        )
        return responses.list_result(resource, type, self.call(request))

    def watch(
        self,
        resource: Resource,
        namespace: str | None = None,
        *,
        labels: str = "",
        fields: str = "",
        resource_version: str = "",
        timeout_seconds: int | None = None,
        bookmarks: bool = False,
        initial_events: bool = False,
        type: type[Any] = dict,
    ) -> Iterator[tuple[str, Any]]:
        """Yield events as (type, object) until the server ends the watch. An ERROR event is raised."""
        request = verbs.watch(
            resource,
            namespace,
            labels=labels,
            fields=fields,
            resource_version=resource_version,
            timeout_seconds=timeout_seconds,
            bookmarks=bookmarks,
            initial_events=initial_events,
        )
        lines = responses.LineSplitter()
        decode = responses.decoder(type)
        chunks = self.stream(request.path, request.query, accept="application/json")
        for chunk in chunks:
            for event in lines.feed(chunk):
                yield responses.watched(event, decode)

    def logs(self, namespace: str, name: str, **options: Any) -> Iterator[bytes]:
        """Yield a container's output; options as in ``verbs.logs``."""
        request = verbs.logs(namespace, name, **options)
        return self.stream(request.path, request.query)

    create = _answered(verbs.create)
    update = _answered(verbs.update)
    patch = _answered(verbs.patch)
    delete = _answered(verbs.delete)
    bind = _done(verbs.bind)
    evict = _done(verbs.evict)
