"""HTTP GET as the kubelet's probes and hooks do it.

One request, without certificate checks, with redirects within one host. The caller connects the
socket. httptools parses the response. Error texts are those of Go's client.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
import ssl
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import SplitResult, quote, urljoin, urlsplit

import httptools

from windlass.api.nodes.simulated import KUBELET_VERSION

Connect = Callable[[str, int], Awaitable[socket.socket]]
"""Host and port → a connected socket. Raises ``OSError``."""

AGENT_VERSION = ".".join(KUBELET_VERSION.lstrip("v").split(".")[:2])
"""Version in the ``User-Agent`` of probes and hooks."""
BODY_BYTES = 10 * 1024
"""Maximum length of a response body in bytes (as in the kubelet). The rest is not read."""
_HEAD_BYTES = 10 << 20
"""Maximum length of a response head in bytes (as in Go's client)."""
_READ_BYTES = 1 << 16
_REDIRECTS = (301, 302, 303, 307, 308)
_MAX_REDIRECTS = 10
_PATH_SAFE = "/%:@!$&'()*+,;=~-._"
_TIMED_OUT = "context deadline exceeded"
PLAIN_HTTP_RESPONSE = "http: server gave HTTP response to HTTPS client"


class HttpFailure(Exception):
    """No response. The message is that of Go's client, which is also in the kubelet's events."""


class BodyFailure(Exception):
    """The response body is incomplete."""


@dataclass(frozen=True, slots=True)
class HttpResponse:
    code: int
    body: str


class IncomingResponse:
    """Response that is being received.

    ``code`` is 0 until the whole head has arrived. Informational responses (1xx) are skipped.
    """

    def __init__(self) -> None:
        self.code = 0
        self.headers: dict[str, str] = {}
        self.body = bytearray()
        self._ended = False
        self._head = bytearray()
        self._parser = httptools.HttpResponseParser(self)
        # As Go's client: lines may end in LF alone, headers may continue on the next line, and
        # chunked encoding takes precedence over a length.
        self._parser.set_dangerous_leniencies(
            lenient_headers=True,
            lenient_chunked_length=True,
            lenient_optional_cr_before_lf=True,
            lenient_spaces_after_chunk_size=True,
        )

    @property
    def complete(self) -> bool:
        """True if nothing more has to be read."""
        return self._ended or len(self.body) >= BODY_BYTES

    def feed(self, data: bytes) -> None:
        """Parse received data. Empty data means that the server has closed the connection.

        Raises ``EOFError`` for an incomplete response and ``ValueError`` for invalid HTTP.
        """
        if not data:
            self._close()
            return
        if not self.code:
            self._head += data
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self._ended = True
        except httptools.HttpParserError as error:
            if not self._ended:
                raise ValueError(self._malformed(error)) from error
        if not self.code and len(self._head) > _HEAD_BYTES:
            raise ValueError(f"net/http: server response headers exceeded {_HEAD_BYTES} bytes; aborted")

    def _close(self) -> None:
        if not self.code:
            raise EOFError("unexpected EOF" if self._head else "EOF")
        if "content-length" in self.headers or "chunked" in self.headers.get("transfer-encoding", "").lower():
            raise EOFError("unexpected EOF")
        self._ended = True

    def _malformed(self, error: httptools.HttpParserError) -> str:
        if self.code:
            return str(error)
        why = str(error)
        if not self._parser.get_status_code():
            line = self._head.splitlines()[0][:80].decode(errors="replace")
            why = f'malformed HTTP response "{line}"'
        return f"net/http: HTTP/1.x transport connection broken: {why}"

    # Called by httptools.

    def on_message_begin(self) -> None:
        if not self.code:
            self.headers = {}

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self.code:  # else it is a trailer
            self.headers.setdefault(name.decode("latin-1").lower(), value.decode("latin-1").strip())

    def on_headers_complete(self) -> None:
        code = self._parser.get_status_code()
        if not self.code and (code >= 200 or code == 101):
            self.code = code

    def on_body(self, data: bytes) -> None:
        if not self._ended:  # data after the response is ignored
            self.body += data

    def on_message_complete(self) -> None:
        self._ended = self.code != 0


def url_of(scheme: str, host: str, port: int, path: str) -> str:
    """Return the URL. ``path`` may have a query. Of a whole URL only path and query count."""
    parts = urlsplit(path)
    encoded = quote(parts.path if parts.path.startswith("/") else f"/{parts.path}", safe=_PATH_SAFE)
    query = f"?{quote(parts.query, safe=_PATH_SAFE + '?')}" if parts.query else ""
    return f"{scheme.lower()}://{host}:{port}{encoded}{query}"


def headers_of(http_headers: Sequence[Mapping[str, str]], agent: str) -> list[tuple[str, str]]:
    """Return the manifest's ``httpHeaders`` with the kubelet's own added.

    An empty ``Accept`` in the manifest removes that header.
    """
    headers = [(header["name"], header.get("value") or "") for header in http_headers]
    names = {name.lower() for name, _ in headers}
    if "user-agent" not in names:
        headers.append(("User-Agent", f"kube-{agent}/{AGENT_VERSION}"))
    if "accept" not in names:
        headers.append(("Accept", "*/*"))
    return [(name, value) for name, value in headers if name.lower() != "accept" or value]


async def get(
    url: str, headers: list[tuple[str, str]], connect: Connect, timeout_seconds: float | None = None
) -> HttpResponse:
    """Send the request and follow redirects within the host.

    Raises :class:`HttpFailure` and :class:`BodyFailure`.
    """
    first = urlsplit(url)
    due = None if timeout_seconds is None else asyncio.get_running_loop().time() + timeout_seconds
    for _ in range(_MAX_REDIRECTS):
        reply = await _exchange(url, headers, connect, due)
        location = reply.headers.get("location", "")
        if reply.code not in _REDIRECTS or not location:
            break
        following = urljoin(url, location)
        if urlsplit(following).hostname != first.hostname:
            break
        if urlsplit(location).netloc:
            headers = [(name, value) for name, value in headers if name.lower() != "host"]
        url = following
    else:
        raise HttpFailure(f'Get "{url}": stopped after {_MAX_REDIRECTS} redirects')
    return HttpResponse(reply.code, bytes(reply.body[:BODY_BYTES]).decode(errors="replace"))


async def _exchange(
    address: str, headers: list[tuple[str, str]], connect: Connect, due: float | None
) -> IncomingResponse:
    reply, writer = IncomingResponse(), None
    try:
        async with asyncio.timeout_at(due):
            url = urlsplit(address)
            request = _request(url, headers)
            reader, writer = await _open(url, connect)
            writer.write(request)
            while not reply.complete:
                reply.feed(await reader.read(_READ_BYTES))
    except (OSError, EOFError, ValueError) as error:
        if reply.code:
            raise BodyFailure(_body_message(error)) from error
        raise HttpFailure(f'Get "{address}": {_message(error)}') from error
    finally:
        if writer is not None:
            writer.transport.abort()
    return reply


async def _open(url: SplitResult, connect: Connect) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    host, secure = url.hostname or "", url.scheme == "https"
    connection = await connect(host, url.port or (443 if secure else 80))
    return await streams(connection, _server_name(host) if secure else None)


async def streams(
    connection: socket.socket, tls_name: str | None = None
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Return the streams of a connection. The connection is closed if that fails.

    ``tls_name``: use TLS, with this server name unless it is empty.
    """
    try:
        connection.setblocking(False)
        tls: dict[str, Any] = {} if tls_name is None else {"ssl": _context(), "server_hostname": tls_name}
        return await asyncio.open_connection(sock=connection, **tls)
    except BaseException:
        connection.close()
        raise


def _context() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def _server_name(host: str) -> str:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return host
    return ""


def _request(url: SplitResult, headers: list[tuple[str, str]]) -> bytes:
    named = next((value for name, value in headers if name.lower() == "host" and value), url.netloc)
    others = [(name, value) for name, value in headers if name.lower() not in ("host", "connection")]
    lines = [
        f"GET {url.path or '/'}{'?' + url.query if url.query else ''} HTTP/1.1",
        f"Host: {named}",
        *(f"{name}: {value}" for name, value in others),
        "Connection: close",
    ]
    if any("\n" in line or "\r" in line for line in lines):
        raise ValueError("net/http: invalid header field value")
    return "\r\n".join([*lines, "", ""]).encode()


def _message(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return f"{_TIMED_OUT} (Client.Timeout exceeded while awaiting headers)"
    if isinstance(error, ssl.SSLError):
        return (
            PLAIN_HTTP_RESPONSE
            if "WRONG_VERSION_NUMBER" in str(error)
            else f"remote error: tls: {error.reason}"
        )
    if isinstance(error, ConnectionResetError | BrokenPipeError):
        return "read: connection reset by peer"
    return str(error)


def _body_message(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return f"{_TIMED_OUT} (Client.Timeout or context cancellation while reading body)"
    return str(error)
