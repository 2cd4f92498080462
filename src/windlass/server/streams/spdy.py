"""SPDY/3.1 frames, as far as kubectl's port-forward uses them. No input or output.

kubectl sends them as a sequence of bytes through a WebSocket (``SPDY/3.1+portforward.k8s.io``).
Flow control is not used: neither side sends window updates. Source: draft-mbelshe-httpbis-spdy-00.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Mapping
from dataclasses import dataclass

_VERSION = 3
_SYN_STREAM, _SYN_REPLY, _RST_STREAM, _PING, _GOAWAY, _HEADERS = 1, 2, 3, 6, 7, 8
_FIN = 0x01
_HEAD = struct.Struct(">II")
_MAX_FRAME_BYTES = 2**20
_MAX_HEADER_BYTES = 64 * 1024
_DATA_BYTES = 16 * 1024
"""Maximum content of a data frame that this side sends."""


class SpdyError(ValueError):
    """The peer violates the protocol."""


@dataclass(frozen=True, slots=True)
class StreamOpened:
    stream: int
    headers: Mapping[str, str]
    finished: bool


@dataclass(frozen=True, slots=True)
class StreamData:
    """``finished``: the peer sends nothing more on this stream."""

    stream: int
    data: bytes
    finished: bool


@dataclass(frozen=True, slots=True)
class StreamReset:
    stream: int


@dataclass(frozen=True, slots=True)
class ConnectionEnd:
    """The peer closes the connection."""


SpdyEvent = StreamOpened | StreamData | StreamReset | ConnectionEnd


class SpdyConnection:
    """Server's side of one connection: bytes in, events and bytes to send out."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._inflate = zlib.decompressobj(zdict=DICTIONARY)
        self._deflate = zlib.compressobj(zdict=DICTIONARY)
        self._replies = bytearray()

    def receive(self, data: bytes) -> list[SpdyEvent]:
        """Return the events of received bytes. Raises :class:`SpdyError`."""
        self._buffer += data
        events: list[SpdyEvent] = []
        while len(self._buffer) >= _HEAD.size:
            first, second = _HEAD.unpack_from(self._buffer)
            flags, length = second >> 24, second & 0xFFFFFF
            if length > _MAX_FRAME_BYTES:
                raise SpdyError(f"a frame of {length} bytes is longer than {_MAX_FRAME_BYTES}")
            if len(self._buffer) < _HEAD.size + length:
                break
            content = bytes(self._buffer[_HEAD.size : _HEAD.size + length])
            del self._buffer[: _HEAD.size + length]
            event = (
                self._control(first, flags, content)
                if first >> 31
                else StreamData(first & 0x7FFFFFFF, content, bool(flags & _FIN))
            )
            if event is not None:
                events.append(event)
        return events

    def replies(self) -> bytes:
        """Return the bytes that answer received frames by themselves, once."""
        data = bytes(self._replies)
        self._replies.clear()
        return data

    def _control(self, first: int, flags: int, content: bytes) -> SpdyEvent | None:
        version, kind = first >> 16 & 0x7FFF, first & 0xFFFF
        if version != _VERSION:
            raise SpdyError(f"version {version} of SPDY is not served, only {_VERSION}")
        if kind == _SYN_STREAM:
            stream = _stream_of(content, 10)
            return StreamOpened(stream, self._headers(content[10:]), bool(flags & _FIN))
        if kind in (_SYN_REPLY, _HEADERS):  # the state of the compression needs them
            self._headers(content[4:])
            return StreamData(_stream_of(content, 4), b"", True) if flags & _FIN else None
        if kind == _RST_STREAM:
            return StreamReset(_stream_of(content, 8))
        if kind == _PING:
            self._replies += _control_frame(_PING, 0, content)
            return None
        return ConnectionEnd() if kind == _GOAWAY else None

    def _headers(self, block: bytes) -> dict[str, str]:
        try:
            data = self._inflate.decompress(block, _MAX_HEADER_BYTES)
            if self._inflate.unconsumed_tail:
                raise SpdyError(f"headers are longer than {_MAX_HEADER_BYTES} bytes")
            texts = _texts(data)
        except (zlib.error, struct.error) as error:
            raise SpdyError(f"headers cannot be read: {error}") from error
        return {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in texts}

    def accept(self, stream: int) -> bytes:
        """Return the frame that accepts a stream."""
        block = self._deflate.compress(struct.pack(">I", 0)) + self._deflate.flush(zlib.Z_SYNC_FLUSH)
        return _control_frame(_SYN_REPLY, 0, struct.pack(">I", stream) + block)


def data_frames(stream: int, data: bytes, *, finish: bool = False) -> bytes:
    """Return the frames that send data on a stream. ``finish``: nothing follows."""
    pieces = [data[start : start + _DATA_BYTES] for start in range(0, len(data), _DATA_BYTES)] or [b""]
    out = bytearray()
    for number, piece in enumerate(pieces):
        last = finish and number == len(pieces) - 1
        if piece or last:
            out += _HEAD.pack(stream, (_FIN if last else 0) << 24 | len(piece)) + piece
    return bytes(out)


def _control_frame(kind: int, flags: int, content: bytes) -> bytes:
    return _HEAD.pack(1 << 31 | _VERSION << 16 | kind, flags << 24 | len(content)) + content


def _stream_of(content: bytes, least: int) -> int:
    if len(content) < least:
        raise SpdyError("a control frame is too short")
    return int.from_bytes(content[:4], "big") & 0x7FFFFFFF


def _texts(data: bytes) -> list[tuple[bytes, bytes]]:
    """Return names and values of a header block."""
    (count,) = struct.unpack_from(">I", data)
    position, found = 4, []
    for _ in range(2 * count):
        (length,) = struct.unpack_from(">I", data, position)
        position += 4
        found.append(data[position : position + length])
        position += length
    if position > len(data):
        raise SpdyError("headers are truncated")
    return list(zip(found[::2], found[1::2], strict=True))


_NAMES = """
options head post put delete trace accept accept-charset accept-encoding accept-language accept-ranges
age allow authorization cache-control connection content-base content-encoding content-language
content-length content-location content-md5 content-range content-type date etag expect expires from
host if-match if-modified-since if-none-match if-range if-unmodified-since last-modified location
max-forwards pragma proxy-authenticate proxy-authorization range referer retry-after server te trailer
transfer-encoding upgrade user-agent vary via warning www-authenticate method get status
"""
_WORDS = tuple(_NAMES.split())
_MORE = ("200 OK", "version", "HTTP/1.1", "url", "public", "set-cookie", "keep-alive", "origin")
_REST = (
    "100101201202205206300302303304305306307402405406407408409410411412413414415416417502504505203 "
    "Non-Authoritative Information204 No Content301 Moved Permanently400 Bad Request401 Unauthorized403 "
    "Forbidden404 Not Found500 Internal Server Error501 Not Implemented503 Service UnavailableJan Feb Mar "
    "Apr May Jun Jul Aug Sept Oct Nov Dec 00:00:00 Mon, Tue, Wed, Thu, Fri, Sat, Sun, "
    "GMTchunked,text/html,image/png,image/jpg,image/gif,application/xml,application/xhtml+xml,text/plain,"
    "text/javascript,publicprivatemax-age=gzip,deflate,sdchcharset=utf-8charset=iso-8859-1,utf-,*,enq=0."
)
DICTIONARY = (
    b"".join(struct.pack(">I", len(word)) + word.encode() for word in (*_WORDS, *_MORE)) + _REST.encode()
)
"""Dictionary of the header compression of SPDY/3."""
