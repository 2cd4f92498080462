"""HTTP/1.1 without input or output: requests to bytes, bytes to responses.

The asyncio transport and the blocking client share it, so that the protocol is
implemented once. The parser is httptools (llhttp). Repeated header fields are joined by
``", "``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import httptools

from windlass.client.transport import Request

_BODYLESS = frozenset({"GET", "HEAD"})


class ProtocolError(Exception):
    """The peer's bytes are not an HTTP/1.1 response."""


def encode(request: Request, fixed_headers: bytes, authorization: str = "") -> bytes:
    """Return the request as one buffer.

    ``fixed_headers``: whole lines that every request carries.
    """
    target = f"{request.path}?{request.query}" if request.query else request.path
    lines = [f"{request.method} {target} HTTP/1.1\r\n"]
    for name, value in request.headers.items():
        lines.append(f"{name}: {value}\r\n")
    if authorization:
        lines.append(f"authorization: {authorization}\r\n")
    body = request.body
    if body or request.method not in _BODYLESS:
        lines.append(f"content-length: {len(body)}\r\n")
    head = "".join(lines)
    if " " in target or head.count("\n") != len(lines) or head.count("\r") != len(lines):
        raise ValueError(f"a header or the path of the request contains a line break or a space: {target!r}")
    return b"".join((head.encode("latin-1"), fixed_headers, b"\r\n", body))


def fixed_headers(host: str, more: Sequence[tuple[str, str]] = ()) -> bytes:
    """Return header lines that are the same for each request of a connection.

    ``more``: further names and values. Raises ``ValueError`` if they are invalid.
    """
    lines = [f"host: {host}", "accept-encoding: identity", *(f"{name}: {value}" for name, value in more)]
    if any("\r" in line or "\n" in line for line in lines):
        raise ValueError("a header contains a line break")
    return "".join(f"{line}\r\n" for line in lines).encode("latin-1")


class ResponseParser:
    """Incremental parser that calls back with the head, parts of the body, and the end.

    One parser serves one connection. ``reset`` is not needed between responses. Interim
    (1xx) responses are skipped. After an exception the connection is unusable.
    """

    __slots__ = (
        "_headers",
        "_interim",
        "_on_body",
        "_on_done",
        "_on_head",
        "_parser",
        "complete",
        "framed",
        "keep_alive",
    )

    def __init__(
        self,
        on_head: Callable[[int, Mapping[str, str]], None],
        on_body: Callable[[bytes], None],
        on_done: Callable[[], None],
    ) -> None:
        self._on_head = on_head
        self._on_body = on_body
        self._on_done = on_done
        self._parser = httptools.HttpResponseParser(self)
        self._headers: dict[str, str] = {}
        self._interim = False
        self.complete = False
        self.framed = True
        """True if a length or chunks delimit the body; False if the end of the connection does."""
        self.keep_alive = False

    def feed(self, data: bytes) -> None:
        """Parse received bytes. Raises :class:`ProtocolError`.

        Ctrl-C during a callback stays a ``KeyboardInterrupt``, which the parser wraps.
        """
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            if isinstance(error.__context__, KeyboardInterrupt):
                raise error.__context__ from None
            raise ProtocolError(f"{type(error).__name__}: {error}; received {data[:60]!r}") from error

    def end_of_stream(self) -> bool:
        """Record that the peer closed.

        Return whether the response is complete by that (a body without a length).
        """
        if self.complete:
            return True
        if not self.framed:
            self.complete = True
            self.keep_alive = False
            self._on_done()
            return True
        return False

    # Called by httptools.
    def on_message_begin(self) -> None:
        self._headers = {}
        self.complete = False
        self.framed = True

    def on_header(self, name: bytes, value: bytes) -> None:
        key = name.decode("latin-1").lower()
        text = value.decode("latin-1")
        headers = self._headers
        headers[key] = f"{headers[key]}, {text}" if key in headers else text

    def on_headers_complete(self) -> None:
        status = self._parser.get_status_code()
        self._interim = status < 200
        if self._interim:
            return
        headers = self._headers
        self.keep_alive = self._parser.should_keep_alive()
        self.framed = "content-length" in headers or "transfer-encoding" in headers or status in (204, 304)
        self._on_head(status, headers)

    def on_body(self, body: bytes) -> None:
        self._on_body(body)

    def on_message_complete(self) -> None:
        if self._interim:
            self._interim = False
            return
        self.complete = True
        self._on_done()
