"""HTTP GET as the kubelet's probes and hooks do it: one request, no certificate checked, redirects within a host.

Standard library only: a few lines of HTTP/1.1 over a socket that somebody else has connected.
"""

from __future__ import annotations

import asyncio
import ipaddress
import re
import socket
import ssl
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import SplitResult, quote, urljoin, urlsplit

from windlass.api.nodes import KUBELET_VERSION

Connect = Callable[[str, int], Awaitable[socket.socket]]
"""Host and port → a connected socket. Raises ``OSError``."""

AGENT_VERSION = ".".join(KUBELET_VERSION.lstrip("v").split(".")[:2])
"""Of what probes and hooks say they are."""
BODY_BYTES = 10 * 1024
"""So much of an answer is read, as the kubelet does."""
_REDIRECTS = (301, 302, 303, 307, 308)
_MOST_REDIRECTS = 10
_STATUS = re.compile(rb"HTTP/\d\.\d (\d{3})(?: |$)")
_PATH_SAFE = "/%:@!$&'()*+,;=~-._"
_TIMED_OUT = "context deadline exceeded"
PLAIN_ANSWER = "http: server gave HTTP response to HTTPS client"


class HttpFailure(Exception):
    """No answer, in the words of Go's client, which are those of the kubelet's events."""


class BodyFailure(Exception):
    """An answer that broke off."""


@dataclass(frozen=True, slots=True)
class Answer:
    code: int
    body: str


@dataclass(frozen=True, slots=True)
class _Response:
    code: int
    headers: Mapping[str, str]
    body: bytes


def url_of(scheme: str, host: str, port: int, path: str) -> str:
    """``path`` may carry a query; anything before it in a whole URL is dropped."""
    parts = urlsplit(path)
    place = quote(parts.path if parts.path.startswith("/") else f"/{parts.path}", safe=_PATH_SAFE)
    query = f"?{quote(parts.query, safe=_PATH_SAFE + '?')}" if parts.query else ""
    return f"{scheme.lower()}://{host}:{port}{place}{query}"


def headers_of(given: Sequence[Mapping[str, str]], agent: str) -> list[tuple[str, str]]:
    """The manifest's ``httpHeaders`` with the kubelet's own; an empty ``Accept`` takes that away."""
    found = [(header["name"], header.get("value") or "") for header in given]
    names = {name.lower() for name, _ in found}
    if "user-agent" not in names:
        found.append(("User-Agent", f"kube-{agent}/{AGENT_VERSION}"))
    if "accept" not in names:
        found.append(("Accept", "*/*"))
    return [(name, value) for name, value in found if name.lower() != "accept" or value]


async def get(
    url: str, headers: list[tuple[str, str]], connect: Connect, timeout_seconds: float | None = None
) -> Answer:
    """Follow redirects as long as they stay on the host. Raises :class:`HttpFailure`, :class:`BodyFailure`."""
    first = urlsplit(url)
    due = None if timeout_seconds is None else asyncio.get_running_loop().time() + timeout_seconds
    for _ in range(_MOST_REDIRECTS):
        response = await _exchange(url, headers, connect, due)
        location = response.headers.get("location", "")
        if response.code not in _REDIRECTS or not location:
            break
        following = urljoin(url, location)
        if urlsplit(following).hostname != first.hostname:
            break
        if urlsplit(location).netloc:
            headers = [(name, value) for name, value in headers if name.lower() != "host"]
        url = following
    else:
        raise HttpFailure(f'Get "{url}": stopped after {_MOST_REDIRECTS} redirects')
    return Answer(response.code, response.body.decode(errors="replace"))


async def _exchange(
    where: str, headers: list[tuple[str, str]], connect: Connect, due: float | None
) -> _Response:
    writer = None
    try:
        async with asyncio.timeout_at(due):
            url = urlsplit(where)
            request = _request(url, headers)
            reader, writer = await _open(url, connect)
            writer.write(request)
            code, answered = await _head(reader)
    except (OSError, EOFError, ValueError) as error:
        if writer is not None:
            writer.transport.abort()
        raise HttpFailure(f'Get "{where}": {_why(error)}') from error
    try:
        async with asyncio.timeout_at(due):
            body = b"" if code in (101, 204, 304) else await _body(reader, answered)
    except TimeoutError as error:
        raise BodyFailure(
            f"{_TIMED_OUT} (Client.Timeout or context cancellation while reading body)"
        ) from error
    except (OSError, EOFError, ValueError) as error:
        raise BodyFailure("unexpected EOF" if isinstance(error, EOFError) else str(error)) from error
    finally:
        writer.transport.abort()
    return _Response(code, answered, body)


async def _open(url: SplitResult, connect: Connect) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    host, secure = url.hostname or "", url.scheme == "https"
    connection = await connect(host, url.port or (443 if secure else 80))
    return await streams(connection, _server_name(host) if secure else None)


async def streams(
    connection: socket.socket, tls_name: str | None = None
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Of a connection, which is closed where that fails. ``tls_name``: with TLS, to a server of that name, if any."""
    try:
        connection.setblocking(False)
        tls = {} if tls_name is None else {"ssl": _context(), "server_hostname": tls_name}
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


async def _head(reader: asyncio.StreamReader) -> tuple[int, dict[str, str]]:
    """Status and headers of the answer; what comes before it (1xx) is passed over."""
    while True:
        line = (await reader.readline()).rstrip(b"\r\n")
        if not line and reader.at_eof():
            raise EOFError
        found = _STATUS.match(line)
        if found is None:
            raise ValueError(f'malformed HTTP response "{line[:80].decode(errors="replace")}"')
        headers: dict[str, str] = {}
        while line := (await reader.readline()).strip():
            name, _, value = line.decode("latin-1").partition(":")
            headers.setdefault(name.strip().lower(), value.strip())
        code = int(found[1])
        if code == 101 or not 100 <= code < 200:
            return code, headers


async def _body(reader: asyncio.StreamReader, headers: Mapping[str, str]) -> bytes:
    if headers.get("transfer-encoding", "").lower() == "chunked":
        return await _chunks(reader)
    length = headers.get("content-length")
    if length is not None:
        return await reader.readexactly(min(int(length), BODY_BYTES))
    said = b""
    while len(said) < BODY_BYTES and (block := await reader.read(BODY_BYTES - len(said))):
        said += block
    return said


async def _chunks(reader: asyncio.StreamReader) -> bytes:
    said = b""
    while len(said) < BODY_BYTES:
        size = int((await reader.readline()).split(b";")[0], 16)
        if not size:
            break
        said += await reader.readexactly(min(size, BODY_BYTES))
        await reader.readexactly(max(0, size - BODY_BYTES) + 2)
    return said[:BODY_BYTES]


def _why(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return f"{_TIMED_OUT} (Client.Timeout exceeded while awaiting headers)"
    if isinstance(error, ssl.SSLError):
        return PLAIN_ANSWER if "WRONG_VERSION_NUMBER" in str(error) else f"remote error: tls: {error.reason}"
    if isinstance(error, ConnectionResetError | BrokenPipeError):
        return "read: connection reset by peer"
    if isinstance(error, EOFError):
        return "EOF"
    return str(error)
