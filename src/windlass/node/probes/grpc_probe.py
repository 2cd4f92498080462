"""One health check by gRPC (``grpc.health.v1.Health/Check``), as the kubelet's probes make it: a single call over
HTTP/2 in clear text. What is read of the answer is its message and the status in its trailers."""

from __future__ import annotations

import asyncio
import socket
import struct
from dataclasses import dataclass, field
from urllib.parse import unquote

from windlass.node.probes.http_probe import AGENT_VERSION, streams

INSTALL = "pip install 'windlass[grpc]'"
_PATH = "/grpc.health.v1.Health/Check"
_LONGEST = 1 << 16
"""Of an answer, in bytes: it is a message of one small number."""
STATUSES = ("UNKNOWN", "SERVING", "NOT_SERVING", "SERVICE_UNKNOWN")
CODES = (
    *("OK", "Canceled", "Unknown", "InvalidArgument", "DeadlineExceeded", "NotFound", "AlreadyExists"),
    *("PermissionDenied", "ResourceExhausted", "FailedPrecondition", "Aborted", "OutOfRange"),
    *("Unimplemented", "Internal", "Unavailable", "DataLoss", "Unauthenticated"),
)
"""Names of gRPC's codes, as Go prints them."""


class RpcError(Exception):
    """The call ended without an answer. ``code``: one of :data:`CODES`; ``Unavailable`` where the connection broke."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(f"rpc error: code = {code} desc = {message}")
        self.code = code
        self.message = message


@dataclass(slots=True)
class _Answer:
    headers: dict[str, str] = field(default_factory=dict)
    """Those at its head and at its end."""
    body: bytes = b""
    over: bool = False


class Http2Missing(Exception):
    """h2, which speaks HTTP/2, is not installed: it is an extra."""

    def __init__(self) -> None:
        super().__init__(f"grpc probes need the package h2, which is not installed: {INSTALL}")


def require_http2() -> None:
    """Raise :class:`Http2Missing` where gRPC probes cannot be carried out."""
    try:
        import h2.connection  # noqa: F401
    except ImportError:
        raise Http2Missing from None


async def check(connection: socket.socket, authority: str, service: str) -> str:
    """One of :data:`STATUSES`. The connection is closed. Raises :class:`RpcError`."""
    from h2.exceptions import H2Error

    reader, writer = await streams(connection)
    try:
        return _status(await _call(reader, writer, authority, service))
    except (OSError, EOFError, ValueError, H2Error) as error:
        why = "error reading from server: EOF" if isinstance(error, EOFError) else str(error)
        raise RpcError("Unavailable", why) from error
    finally:
        writer.transport.abort()


async def _call(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, authority: str, service: str
) -> _Answer:
    from h2.config import H2Configuration
    from h2.connection import H2Connection

    wire = H2Connection(H2Configuration(client_side=True, header_encoding="utf-8"))
    wire.initiate_connection()
    stream = wire.get_next_available_stream_id()
    wire.send_headers(
        stream,
        [
            *((":method", "POST"), (":scheme", "http"), (":authority", authority), (":path", _PATH)),
            *(("te", "trailers"), ("content-type", "application/grpc")),
            ("user-agent", f"kube-probe/{AGENT_VERSION}"),
        ],
    )
    wire.send_data(stream, _message(service), end_stream=True)
    answer = _Answer()
    while not answer.over:
        writer.write(wire.data_to_send())
        data = await reader.read(_LONGEST)
        if not data:
            raise EOFError
        if data.startswith(b"HTTP/"):
            raise ValueError("the server does not speak HTTP/2")
        for event in wire.receive_data(data):
            _hear(event, answer)
    return answer


def _hear(event: object, answer: _Answer) -> None:
    from h2 import events

    match event:
        case events.ResponseReceived() | events.TrailersReceived():
            answer.headers.update((str(name), str(value)) for name, value in event.headers or ())
        case events.DataReceived():
            answer.body += event.data or b""
            if len(answer.body) > _LONGEST:
                raise ValueError(f"the answer is longer than {_LONGEST} bytes")
        case events.StreamReset():
            raise ValueError("the server closed the stream")
        case events.ConnectionTerminated():
            raise ValueError("the server closed the connection")
        case events.StreamEnded():
            answer.over = True
        case _:
            pass


def _message(service: str) -> bytes:
    """A ``HealthCheckRequest`` as gRPC frames it: not packed, its length, and field 1, a text."""
    raw = service.encode()
    message = b"\x0a" + _varint(len(raw)) + raw if raw else b""
    return b"\0" + struct.pack(">I", len(message)) + message


def _varint(value: int) -> bytes:
    out = bytearray()
    while value >= 128:
        out.append(value % 128 + 128)
        value //= 128
    return bytes((*out, value))


def _status(answer: _Answer) -> str:
    headers, body = answer.headers, answer.body
    if "grpc-status" not in headers:
        raise RpcError("Unknown", "the server does not speak gRPC: its answer has no grpc-status")
    code = int(headers["grpc-status"])
    if code:
        name = CODES[code] if 0 < code < len(CODES) else f"Code({code})"
        raise RpcError(name, unquote(headers.get("grpc-message", "")))
    if len(body) < 5 or body[0] or len(body) - 5 != int.from_bytes(body[1:5], "big"):
        raise RpcError("Internal", "the answer is not one plain message")
    found = _first_field(body[5:])
    return STATUSES[found] if found < len(STATUSES) else str(found)


def _first_field(message: bytes) -> int:
    """The last value of field 1 of a protobuf message, a number; 0 where it is not set."""
    from windlass.api.wire.protobuf import records

    try:
        found = [value for number, wire, value in records(message) if (number, wire) == (1, 0)]
    except (IndexError, ValueError) as error:
        raise ValueError("the answer breaks off") from error
    return found[-1] if found else 0
