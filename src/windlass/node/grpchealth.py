"""One health check by gRPC (``grpc.health.v1.Health/Check``), as the kubelet's probes make it.

A single call over HTTP/2 in clear text needs little of either: one stream, no flow to control, no table of headers
(our settings forbid the other side to keep one, RFC 7541 §4.2). What is read of the answer is its message and the
status in its trailers.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Iterator
from urllib.parse import unquote

from windlass.node.httpget import AGENT_VERSION

_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_DATA, _HEADERS, _RESET, _SETTINGS, _PING, _GOAWAY, _CONTINUATION = 0, 1, 3, 4, 6, 7, 9
_END_STREAM, _ACK, _END_HEADERS, _PADDED, _PRIORITY = 1, 1, 4, 8, 32
_NO_TABLE = struct.pack(">HI", 1, 0)
"""SETTINGS_HEADER_TABLE_SIZE 0."""
_LONGEST = 1 << 20
STATUSES = ("UNKNOWN", "SERVING", "NOT_SERVING", "SERVICE_UNKNOWN")
CODES = (
    *("OK", "Canceled", "Unknown", "InvalidArgument", "DeadlineExceeded", "NotFound", "AlreadyExists"),
    *(
        "PermissionDenied",
        "ResourceExhausted",
        "FailedPrecondition",
        "Aborted",
        "OutOfRange",
        "Unimplemented",
    ),
    *("Internal", "Unavailable", "DataLoss", "Unauthenticated"),
)
"""Names of gRPC's codes, as Go prints them."""


class RpcError(Exception):
    """The call ended without an answer. ``code``: one of :data:`CODES`; ``Unavailable`` where the connection broke."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(f"rpc error: code = {code} desc = {message}")
        self.code = code
        self.message = message


async def check(connection: socket.socket, authority: str, service: str) -> str:
    """One of :data:`STATUSES`. The connection is closed. Raises :class:`RpcError`."""
    connection.setblocking(False)
    reader, writer = await asyncio.open_connection(sock=connection)
    try:
        writer.write(_PREFACE + _frame(_SETTINGS, 0, 0, _NO_TABLE) + _request(authority, service))
        return await _answer(reader, writer)
    except (OSError, EOFError, ValueError) as error:
        why = "error reading from server: EOF" if isinstance(error, EOFError) else str(error)
        raise RpcError("Unavailable", why) from error
    finally:
        writer.transport.abort()


# -- what is asked -----------------------------------------------------------------------------------


def _frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    return struct.pack(">I", len(payload))[1:] + bytes((kind, flags)) + struct.pack(">I", stream) + payload


def _text(words: str) -> bytes:
    raw = words.encode()
    return _integer(len(raw), 7) + raw


def _integer(value: int, bits: int) -> bytes:
    """An integer of HPACK whose first byte has so many bits for it (RFC 7541 §5.1)."""
    most = (1 << bits) - 1
    if value < most:
        return bytes((value,))
    out, value = bytearray((most,)), value - most
    while value >= 128:
        out.append(value % 128 + 128)
        value //= 128
    return bytes((*out, value))


def _request(authority: str, service: str) -> bytes:
    """Headers by their places in the static table where they have one; nothing is to be remembered."""
    method_post, scheme_http = b"\x83", b"\x86"
    named = (
        (4, "/grpc.health.v1.Health/Check"),
        (1, authority),
        (31, "application/grpc"),
        (58, f"kube-probe/{AGENT_VERSION}"),
    )
    fields = b"".join(_integer(place, 4) + _text(value) for place, value in named)
    block = method_post + scheme_http + fields + b"\0" + _text("te") + _text("trailers")
    raw = service.encode()
    message = b"\x0a" + _varint(len(raw)) + raw if raw else b""
    body = b"\0" + struct.pack(">I", len(message)) + message
    return _frame(_HEADERS, _END_HEADERS, 1, block) + _frame(_DATA, _END_STREAM, 1, body)


def _varint(value: int) -> bytes:
    out = bytearray()
    while value >= 128:
        out.append(value % 128 + 128)
        value //= 128
    return bytes((*out, value))


# -- what is answered --------------------------------------------------------------------------------


async def _answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> str:
    message, block, ending = b"", b"", False
    headers: dict[str, str] = {}
    while True:
        head = await reader.readexactly(9)
        length, kind, flags = int.from_bytes(head[:3], "big"), head[3], head[4]
        if length > _LONGEST or head[:4] == b"HTTP":
            raise ValueError("the server does not speak HTTP/2")
        payload = await reader.readexactly(length)
        if kind == _SETTINGS and not flags & _ACK:
            writer.write(_frame(_SETTINGS, _ACK, 0, b""))
        elif kind == _PING and not flags & _ACK:
            writer.write(_frame(_PING, _ACK, 0, payload))
        elif kind in (_RESET, _GOAWAY):
            raise ValueError(f"the server closed the {'stream' if kind == _RESET else 'connection'}")
        elif kind == _DATA:
            message += _unpadded(payload, flags)
        elif kind in (_HEADERS, _CONTINUATION):
            if kind == _HEADERS:
                payload = _unpadded(payload, flags)[5 if flags & _PRIORITY else 0 :]
                block, ending = b"", bool(flags & _END_STREAM)
            block += payload
            if flags & _END_HEADERS:
                headers.update(_headers(block))
        else:
            continue
        if (ending and kind != _DATA and flags & _END_HEADERS) or (kind == _DATA and flags & _END_STREAM):
            return _status(headers, message)


def _unpadded(payload: bytes, flags: int) -> bytes:
    return payload[1 : len(payload) - payload[0]] if flags & _PADDED and payload else payload


def _status(headers: dict[str, str], body: bytes) -> str:
    if "grpc-status" not in headers:
        raise RpcError("Unknown", "the server does not speak gRPC: its answer has no grpc-status")
    code = int(headers["grpc-status"])
    if code:
        raise RpcError(
            CODES[code] if code < len(CODES) else f"Code({code})", unquote(headers.get("grpc-message", ""))
        )
    if len(body) < 5 or body[0] or len(body) - 5 != int.from_bytes(body[1:5], "big"):
        raise RpcError("Internal", "the answer is not one plain message")
    found = _first_field(body[5:])
    return STATUSES[found] if found < len(STATUSES) else str(found)


def _first_field(message: bytes) -> int:
    """The last value of field 1 of a protobuf message, a number; 0 where it is not set."""
    found, at = 0, 0
    while at < len(message):
        key, at = _read_varint(message, at)
        if key & 7 == 0:
            value, at = _read_varint(message, at)
            found = value if key >> 3 == 1 else found
        elif key & 7 == 2:
            length, at = _read_varint(message, at)
            at += length
        else:
            at += {1: 8, 5: 4}.get(key & 7, len(message))
    return found


def _read_varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        if at >= len(data):
            raise ValueError("the answer breaks off")
        value |= (data[at] & 127) << shift
        at, shift = at + 1, shift + 7
        if data[at - 1] < 128:
            return value, at


# -- headers (RFC 7541) ------------------------------------------------------------------------------


def _headers(block: bytes) -> Iterator[tuple[str, str]]:
    """The headers of a block that are written out; those of the static table alone say nothing that counts here."""
    at = 0
    while at < len(block):
        first = block[at]
        if first & 0x80:
            _, at = _read_integer(block, at, 7)
        elif first & 0xE0 == 0x20:  # the size of the table, which we have set to nothing
            _, at = _read_integer(block, at, 5)
        else:
            place, at = _read_integer(block, at, 6 if first & 0x40 else 4)
            name = ""
            if not place:
                name, at = _read_text(block, at)
            value, at = _read_text(block, at)
            if name:
                yield name, value


def _read_integer(block: bytes, at: int, bits: int) -> tuple[int, int]:
    most = (1 << bits) - 1
    value = block[at] & most
    if value < most:
        return value, at + 1
    rest, at = _read_varint(block, at + 1)
    return value + rest, at


def _read_text(block: bytes, at: int) -> tuple[str, int]:
    if at >= len(block):
        raise ValueError("a header breaks off")
    packed = bool(block[at] & 0x80)
    length, at = _read_integer(block, at, 7)
    raw, at = block[at : at + length], at + length
    return (_unpacked(raw) if packed else raw.decode("latin-1")), at


_LENGTHS = {
    5: "012aceiost",
    6: " %-./3456789=A_bdfghlmnpru",
    7: ":BCDEFGHIJKLMNOPQRSTUVWYjkqvwxyz",
    8: "&*,;XZ",
    10: '!"()?',
    11: "'+|",
    12: "#>",
    13: "\0$@[]~",
    14: "^}",
    15: "<`{",
    19: "\\",
}
"""Bits of a letter's code. Codes follow one another by length, then by letter (RFC 7541, appendix B): from the lengths
of all letters that may stand in a header of gRPC, which is printable ASCII, their codes follow."""


def _codes() -> dict[tuple[int, int], str]:
    found: dict[tuple[int, int], str] = {}
    code = bits = 0
    for length, letters in _LENGTHS.items():
        for letter in letters:
            code <<= length - bits
            bits = length
            found[length, code] = letter
            code += 1
    return found


_CODES = _codes()


def _unpacked(raw: bytes) -> str:
    out, code, bits = [], 0, 0
    for byte in raw:
        for shift in range(7, -1, -1):
            code, bits = code << 1 | byte >> shift & 1, bits + 1
            letter = _CODES.get((bits, code))
            if letter is not None:
                out.append(letter)
                code = bits = 0
            elif bits > 30:
                raise ValueError("a header is packed in no known way")
    return "".join(out)
