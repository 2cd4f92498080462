"""Uvicorn's HTTP protocol, with less work per request.

Most answers here are small and whole, and a server that makes thousands of them a second feels every
dict. So the application gets the request's headers as text and its body at once where it has come
already, and hands back an answer in one piece (:class:`windlass.server.http.asgi.Exchange`); one timer
per connection, not one per request, ends idle connections; and header lines that the parser has seen
before, byte for byte, are not parsed again: clients send the same ones with every request. Streams, slow
bodies and pipelined requests take uvicorn's way.

Invariant: what a request is said to be does not depend on the way that it took. So only lines which the
parser itself has accepted are remembered, and only those that say nothing about transfer or connection.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping
from typing import Any, NamedTuple
from urllib.parse import unquote

import httptools
from uvicorn._types import HTTPScope
from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import (
    HEADER_VALUE_RE,
    STATUS_LINE,
    HttpToolsProtocol,
    RequestResponseCycle,
)
from uvicorn.server import ServerState

from windlass.server.auth.authentication import user_of_certificate
from windlass.server.http.asgi import ABORT, EXCHANGE, IDENTITY, UNIQUE
from windlass.server.request.users import UserInfo

_NAMES_KEPT = 256
_LINES_KEPT = 512
_BLOCKS_KEPT = 1_024
_BLOCK_BYTES = 2_048
_CLOSE = b"connection: close\r\n"
_REQUEST_LINE = re.compile(
    rb"(GET|POST|PUT|PATCH|DELETE|HEAD) (/[A-Za-z0-9\-._~!$&'()*+,;=:@/%]*)"
    rb"(?:\?([A-Za-z0-9\-._~!$&'()*+,;=:@/%?]*))? HTTP/1\.1\r\n"
)
_NEVER_SHORT = frozenset((b"transfer-encoding", b"upgrade", b"expect", b"te", b"trailer"))
_names: dict[bytes, tuple[bytes, str]] = {}
"""Header names as they were sent → in lower case, as bytes and as text."""


def _lowered(name: bytes) -> tuple[bytes, str]:
    lower = name.lower()
    found = lower, lower.decode("latin-1")
    if len(_names) < _NAMES_KEPT:
        _names[name] = found
    return found


class _Block(NamedTuple):
    """Header lines that were parsed before, and the length of the body that they announce."""

    headers: list[tuple[bytes, bytes]]
    fields: dict[str, str]
    length: int


_blocks: dict[bytes, _Block] = {}
_lines: dict[tuple[str, str], bytes] = {}
"""Header lines of answers that were sent before."""


def _line(name: str, value: str) -> bytes:
    """A header line, remembered unless it is never the same. Raises ``RuntimeError`` for what is none."""
    # Warnings may hold any text; clients read header bytes as UTF-8 where they are not ASCII.
    encoded = value.encode("utf-8", "replace")
    if HEADER_VALUE_RE.search(encoded):
        raise RuntimeError(f"header {name!r} has a value that cannot be sent")
    line = b"%b: %b\r\n" % (name.encode("latin-1"), encoded)
    if name not in UNIQUE:
        if len(_lines) >= _LINES_KEPT:
            _lines.clear()
        _lines[name, value] = line
    return line


class JoiningTransport:
    """A transport that sends what is written in one turn of the event loop in one piece.

    An answer's head and body are written one after the other; two system calls and, under TLS, two records
    would cost more than the rest of a small answer.
    """

    __slots__ = ("_held", "_loop", "_transport")

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport = transport
        self._loop = loop
        self._held = b""

    def write(self, data: bytes) -> None:
        if self._held:
            data, self._held = self._held + data, b""
            self._transport.write(data)
        elif data:
            self._held = data
            self._loop.call_soon(self.flush)

    def flush(self) -> None:
        held, self._held = self._held, b""
        if held and not self._transport.is_closing():
            self._transport.write(held)

    def close(self) -> None:
        self.flush()
        self._transport.close()

    def abort(self) -> None:
        self._held = b""
        self._transport.abort()

    def is_closing(self) -> bool:
        return self._transport.is_closing()

    def write_now(self, data: bytes) -> None:
        """Write a piece that nothing follows in this turn."""
        held, self._held = self._held, b""
        self._transport.write(held + data if held else data)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)


class Cycle(RequestResponseCycle):
    """One request and its answer. Implements :class:`windlass.server.http.asgi.Exchange`."""

    fields: Mapping[str, str]
    # The state of a request that has just come whole, for :meth:`whole`.
    disconnected = False
    keep_alive = True
    waiting_for_100_continue = False
    more_body = False
    response_started = False
    response_complete = False
    chunked_encoding: bool | None = None
    expected_content_length = 0

    @classmethod
    def whole(cls, protocol: ApiProtocol, scope: HTTPScope, fields: Mapping[str, str], body: bytes) -> Cycle:
        """A request of which everything is here. The connection must have answered all others."""
        cycle = cls.__new__(cls)
        cycle.scope = scope
        cycle.fields = fields
        cycle.body = body  # type: ignore[assignment]
        cycle.transport, cycle.flow = protocol.transport, protocol.flow
        cycle.logger, cycle.access_logger = protocol.logger, protocol.access_logger
        cycle.access_log = protocol.access_log
        cycle.default_headers = protocol.server_state.default_headers
        cycle.message_event = event = protocol.came
        event.set()
        cycle.on_response = protocol.on_response_complete
        return cycle

    def whole_body(self) -> bytes | None:
        if self.more_body or self.disconnected or self.response_complete:
            return None
        body, self.body = self.body, bytearray()
        return bytes(body)

    def respond(self, status: int, headers: Mapping[str, str], body: bytes, *, closing: bool = False) -> bool:
        if self.flow.write_paused or self.response_started or self.default_headers or self.disconnected:
            return False
        known = _lines.get
        pieces = [STATUS_LINE[status], *[known(item) or _line(*item) for item in headers.items()]]
        if closing:
            self.keep_alive = False
            pieces.append(_CLOSE)
        if status != 204:
            pieces.append(b"content-length: %d\r\n" % len(body))
        pieces.append(b"\r\n" if self.keep_alive or closing else _CLOSE + b"\r\n")
        if self.scope["method"] != "HEAD":
            pieces.append(body)
        self.response_started = self.response_complete = True
        self.waiting_for_100_continue = False
        self.transport.write_now(b"".join(pieces))  # type: ignore[attr-defined]
        self.message_event.set()
        if not self.keep_alive:
            self.transport.close()
        self.on_response()
        return True


class ApiProtocol(HttpToolsProtocol):
    """Tells the application whose connection it is."""

    def __init__(self, config: Config, state: ServerState, owner: UserInfo | None) -> None:
        super().__init__(config=config, server_state=state, app_state={IDENTITY: owner})
        self._app: Any = self.app
        self._fields: dict[str, str] = {}
        self._between = True
        """Whether the parser is between two requests."""
        self._chunk = b""
        """What is being parsed, if it began with a request that is still the first in it."""
        self.came = asyncio.Event()
        self._idle_since: float | None = None
        self._idle_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(JoiningTransport(transport, self.loop))  # type: ignore[arg-type]
        self.app_state[ABORT] = transport.abort
        tls = transport.get_extra_info("ssl_object")
        if tls is not None:
            self.app_state[IDENTITY] = user_of_certificate(tls.getpeercert())

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self.app_state.pop(ABORT, None)
        self._idle_since = None
        if self._idle_timer is not None:
            self._idle_timer.cancel()
            self._idle_timer = None

    def data_received(self, data: bytes) -> None:
        self._idle_since = None
        if self._between:
            cycle = self.cycle
            if (cycle is None or cycle.response_complete) and self._whole(data):
                return
            self._chunk = data
        super().data_received(data)
        self._chunk = b""

    def _whole(self, data: bytes) -> bool:
        """Take ``data`` without the parser, if it is one request, all of it, with known header lines."""
        match = _REQUEST_LINE.match(data)
        if match is None:
            return False
        start = match.end() - 2
        end = data.find(b"\r\n\r\n", start)
        block = _blocks.get(data[start:end]) if end > 0 else None
        if block is None or end + 4 + block.length != len(data):
            return False
        method, path, query = match.groups(b"")
        text = path.decode("ascii")
        state = self.app_state.copy()
        scope: Any = {
            "type": "http",
            "asgi": {"version": self.asgi_version, "spec_version": "2.3"},
            "http_version": "1.1",
            "server": self.server,
            "client": self.client,
            "scheme": self.scheme or "http",
            "root_path": self.root_path,
            "headers": block.headers,
            "state": state,
            "method": method.decode("ascii"),
            "path": unquote(text) if "%" in text else text,
            "raw_path": path,
            "query_string": query,
        }
        self.cycle = state[EXCHANGE] = cycle = Cycle.whole(self, scope, block.fields, data[end + 4 :])
        self._start_asgi_task(cycle, self._app)
        return True

    def _learn(self, version: str) -> None:
        """Remember the header lines that have just been parsed, if they may be taken at their bytes."""
        data, headers = self._chunk, self.headers
        match = _REQUEST_LINE.match(data)
        if match is None or version != "1.1":
            return
        start = match.end() - 2
        end = data.find(b"\r\n\r\n", start)
        block = data[start:end]
        lines = len(headers)
        # As many ends of lines as headers: nothing folded, nothing that ends in another way.
        if (
            end < 0
            or len(block) > _BLOCK_BYTES
            or not (block.count(b"\r\n") == block.count(b"\n") == block.count(b"\r") == lines)
        ):
            return
        if any(
            name in _NEVER_SHORT or (name == b"connection" and value.lower() != b"keep-alive")
            for name, value in headers
        ):
            return
        length = self._fields.get("content-length", "0")
        if length.isascii() and length.isdigit():
            if len(_blocks) >= _BLOCKS_KEPT:
                _blocks.clear()
            _blocks[block] = _Block(headers, self._fields, int(length))

    # -- what the parser found

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._between = False
        self._fields = {}

    def on_message_complete(self) -> None:
        super().on_message_complete()
        self._between = True
        self._chunk = b""

    def on_header(self, name: bytes, value: bytes) -> None:
        lower, text = _names.get(name) or _lowered(name)
        if lower == b"expect" and value.lower() == b"100-continue":
            self.expect_100_continue = True
        self.headers.append((lower, value))
        self._fields[text] = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        parser: Any = self.parser
        scope = self.scope
        version = parser.get_http_version()
        scope["method"] = parser.get_method().decode("ascii")
        if version != "1.1":
            scope["http_version"] = version
        path, query = self._split_url()
        text = path.decode("ascii")
        scope["path"] = unquote(text) if "%" in text else text
        scope["raw_path"], scope["query_string"] = path, query
        if self._chunk:
            self._learn(version)
        before, app = self.cycle, self._app
        self.cycle = cycle = Cycle(
            scope=scope,
            transport=self.transport,
            flow=self.flow,
            logger=self.logger,
            access_logger=self.access_logger,
            access_log=self.access_log,
            default_headers=self.server_state.default_headers,
            message_event=asyncio.Event(),
            expect_100_continue=self.expect_100_continue,
            keep_alive=version != "1.0" and parser.should_keep_alive(),
            on_response=self.on_response_complete,
        )
        cycle.fields = self._fields
        scope["state"][EXCHANGE] = cycle  # type: ignore[typeddict-item]
        if before is None or before.response_complete:
            self._start_asgi_task(cycle, app)
        else:  # pipelined: its turn comes when the one before it is answered
            self.flow.pause_reading()
            self.pipeline.appendleft((cycle, app))

    def _split_url(self) -> tuple[bytes, bytes]:
        url = self.url
        if url.startswith(b"/") and b"#" not in url:
            path, _, query = url.partition(b"?")
            return path, query
        parsed = httptools.parse_url(url)
        return parsed.path or b"/", parsed.query or b""

    # -- idle connections

    def _unset_keepalive_if_required(self) -> None:
        self._idle_since = None

    def on_response_complete(self) -> None:
        self.server_state.total_requests += 1
        if self.transport.is_closing():
            return
        self.flow.resume_reading()
        if self.pipeline:
            self._start_asgi_task(*self.pipeline.pop())
            return
        self._idle_since = self.loop.time()
        if self._idle_timer is None:
            self._idle_timer = self.loop.call_later(self.timeout_keep_alive, self._end_if_idle)

    def _end_if_idle(self) -> None:
        self._idle_timer = None
        if self._idle_since is None:
            return  # the end of the request in progress starts the timer again
        left = self._idle_since + self.timeout_keep_alive - self.loop.time()
        if left > 0:
            self._idle_timer = self.loop.call_later(left, self._end_if_idle)
        else:
            self.timeout_keep_alive_handler()
