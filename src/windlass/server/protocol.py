"""Uvicorn's HTTP protocol, with less work per request.

Most answers here are small and whole, and a server that makes thousands of them a second feels every
dict. So the application gets the request's headers as text and its body at once where it has come
already, and hands back an answer in one piece (:class:`windlass.server.asgi.Exchange`); and one timer
per connection, not one per request, ends idle connections. Streams and slow bodies take uvicorn's way.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any
from urllib.parse import unquote

import httptools
from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import (
    HEADER_VALUE_RE,
    STATUS_LINE,
    HttpToolsProtocol,
    RequestResponseCycle,
)
from uvicorn.server import ServerState

from windlass.server.asgi import ABORT, EXCHANGE, IDENTITY
from windlass.server.authentication import user_of_certificate
from windlass.server.users import UserInfo

_NAMES_KEPT = 256
_names: dict[bytes, tuple[bytes, str]] = {}
"""Header names as they were sent → in lower case, as bytes and as text."""


def _lowered(name: bytes) -> tuple[bytes, str]:
    lower = name.lower()
    found = lower, lower.decode("latin-1")
    if len(_names) < _NAMES_KEPT:
        _names[name] = found
    return found


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
    """One request and its answer. Implements :class:`windlass.server.asgi.Exchange`."""

    fields: dict[str, str]

    def whole_body(self) -> bytes | None:
        if self.more_body or self.disconnected or self.response_complete:
            return None
        body, self.body = bytes(self.body), bytearray()
        return body

    def respond(self, status: int, headers: Sequence[tuple[bytes, bytes]], body: bytes) -> bool:
        if self.flow.write_paused or self.response_started or self.default_headers or self.disconnected:
            return False
        pieces = [STATUS_LINE[status]]
        for name, value in headers:
            if HEADER_VALUE_RE.search(value):
                raise RuntimeError(f"header {name!r} has a value that cannot be sent")
            if name == b"connection" and value == b"close":
                self.keep_alive = False
            else:
                pieces.append(b"%b: %b\r\n" % (name, value))
        pieces.append(b"\r\n" if self.keep_alive else b"connection: close\r\n\r\n")
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

    # -- what the parser found

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._fields = {}

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
