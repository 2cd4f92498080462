"""gRPC health check (``grpc.health.v1.Health/Check``) as the kubelet's probes make it.

It is a single call over HTTP/2 in clear text. Of the response it reads the message and the
status in the trailers.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from dataclasses import dataclass, field
from urllib.parse import unquote

from windlass.kits.installation import extra_command
from windlass.node.probes.http_probe import AGENT_VERSION, streams

_PATH = "/grpc.health.v1.Health/Check"
_MAX_RESPONSE_BYTES = 1 << 16
"""Maximum length of a response in bytes. The message is one small number."""
STATUSES = ("UNKNOWN", "SERVING", "NOT_SERVING", "SERVICE_UNKNOWN")
CODES = (
    *("OK", "Canceled", "Unknown", "InvalidArgument", "DeadlineExceeded", "NotFound", "AlreadyExists"),
    *("PermissionDenied", "ResourceExhausted", "FailedPrecondition", "Aborted", "OutOfRange"),
    *("Unimplemented", "Internal", "Unavailable", "DataLoss", "Unauthenticated"),
)
"""Names of gRPC's codes, as Go prints them."""


class RpcError(Exception):
    """The call failed.

    ``code``: one of :data:`CODES`. It is ``Unavailable`` if the connection broke.
    """

    def __init__(self, code: str, message: str) -> None:
        super().__init__(f"rpc error: code = {code} desc = {message}")
        self.code = code
        self.message = message


@dataclass(slots=True)
class _Response:
    headers: dict[str, str] = field(default_factory=dict)
    """Headers and trailers."""
    body: bytes = b""
    complete: bool = False


class Http2Missing(Exception):
    """The package h2 (HTTP/2) is not installed. It belongs to the extra ``grpc``."""

    def __init__(self) -> None:
        super().__init__(f"grpc probes need the package h2, which is not installed: {extra_command('grpc')}")


def require_http2() -> None:
    """Raise :class:`Http2Missing` if gRPC probes cannot run."""
    try:
        import h2.connection  # noqa: F401
    except ImportError:
        raise Http2Missing from None


async def check(connection: socket.socket, authority: str, service: str) -> str:
    """Return one of :data:`STATUSES` and close the connection. Raises :class:`RpcError`."""
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
) -> _Response:
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
    response = _Response()
    while not response.complete:
        writer.write(wire.data_to_send())
        data = await reader.read(_MAX_RESPONSE_BYTES)
        if not data:
            raise EOFError
        if data.startswith(b"HTTP/"):
            raise ValueError("the server does not speak HTTP/2")
        for event in wire.receive_data(data):
            _process_event(event, response)
    return response


def _process_event(event: object, response: _Response) -> None:
    from h2 import events

    match event:
        case events.ResponseReceived() | events.TrailersReceived():
            response.headers.update((str(name), str(value)) for name, value in event.headers or ())
        case events.DataReceived():
            response.body += event.data or b""
            if len(response.body) > _MAX_RESPONSE_BYTES:
                raise ValueError(f"the response is longer than {_MAX_RESPONSE_BYTES} bytes")
        case events.StreamReset():
            raise ValueError("the server closed the stream")
        case events.ConnectionTerminated():
            raise ValueError("the server closed the connection")
        case events.StreamEnded():
            response.complete = True
        case _:
            pass


def _message(service: str) -> bytes:
    """Return a framed ``HealthCheckRequest``: uncompressed, its length, and field 1, a string."""
    raw = service.encode()
    message = b"\x0a" + _varint(len(raw)) + raw if raw else b""
    return b"\0" + struct.pack(">I", len(message)) + message


def _varint(value: int) -> bytes:
    out = bytearray()
    while value >= 128:
        out.append(value % 128 + 128)
        value //= 128
    return bytes((*out, value))


def _status(response: _Response) -> str:
    headers, body = response.headers, response.body
    if "grpc-status" not in headers:
        raise RpcError("Unknown", "the server does not speak gRPC: its response has no grpc-status")
    code = int(headers["grpc-status"])
    if code:
        name = CODES[code] if 0 < code < len(CODES) else f"Code({code})"
        raise RpcError(name, unquote(headers.get("grpc-message", "")))
    if len(body) < 5 or body[0] or len(body) - 5 != int.from_bytes(body[1:5], "big"):
        raise RpcError("Internal", "the response is not one plain message")
    status = _first_field(body[5:])
    return STATUSES[status] if status < len(STATUSES) else str(status)


def _first_field(message: bytes) -> int:
    """Return the last value of field 1, a number, of a protobuf message. 0 if it is not set."""
    from windlass.api.wire.protobuf import records

    try:
        values = [value for number, wire, value in records(message) if (number, wire) == (1, 0)]
    except (IndexError, ValueError) as error:
        raise ValueError("the response is incomplete") from error
    return values[-1] if values else 0
