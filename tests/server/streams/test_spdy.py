"""SPDY frames of kubectl port-forward, written by a client of this test."""

from __future__ import annotations

import struct
import zlib

import pytest

from windlass.server.streams.spdy import (
    DICTIONARY,
    ConnectionEnd,
    SpdyConnection,
    SpdyError,
    StreamData,
    StreamOpened,
    StreamReset,
    data_frames,
)


class Client:
    """Client's side, with the compression of headers over the whole connection."""

    def __init__(self) -> None:
        self.deflate = zlib.compressobj(zdict=DICTIONARY)
        self.inflate = zlib.decompressobj(zdict=DICTIONARY)

    def open(self, stream: int, **headers: str) -> bytes:
        block = struct.pack(">I", len(headers))
        for name, value in headers.items():
            for text in (name.encode(), value.encode()):
                block += struct.pack(">I", len(text)) + text
        packed = self.deflate.compress(block) + self.deflate.flush(zlib.Z_SYNC_FLUSH)
        return control(1, struct.pack(">IIH", stream, 0, 0) + packed)


def control(kind: int, content: bytes, flags: int = 0) -> bytes:
    return struct.pack(">II", 1 << 31 | 3 << 16 | kind, flags << 24 | len(content)) + content


def test_streams_are_opened_with_headers_of_one_compression() -> None:
    client, server = Client(), SpdyConnection()
    sent = client.open(1, streamtype="error", port="80", requestid="0")
    sent += client.open(3, streamtype="data", port="80", requestid="0")
    assert server.receive(sent) == [
        StreamOpened(1, {"streamtype": "error", "port": "80", "requestid": "0"}, finished=False),
        StreamOpened(3, {"streamtype": "data", "port": "80", "requestid": "0"}, finished=False),
    ]
    for stream in (1, 3):
        reply = server.accept(stream)
        assert reply[:4] == struct.pack(">I", 1 << 31 | 3 << 16 | 2)
        assert reply[8:12] == struct.pack(">I", stream)
        assert client.inflate.decompress(reply[12:]) == b"\0\0\0\0"


def test_frames_may_arrive_in_any_pieces() -> None:
    client, server = Client(), SpdyConnection()
    sent = client.open(5, port="1") + data_frames(5, b"x" * 40_000) + data_frames(5, b"end", finish=True)
    sent += control(3, struct.pack(">II", 5, 5)) + control(7, bytes(8))
    events = [event for byte in sent for event in server.receive(bytes([byte]))]
    data = [event for event in events if isinstance(event, StreamData)]
    assert b"".join(event.data for event in data) == b"x" * 40_000 + b"end"
    assert [event.finished for event in data] == [False, False, False, True]
    assert events[-2:] == [StreamReset(5), ConnectionEnd()]


def test_ping_is_answered() -> None:
    server = SpdyConnection()
    assert server.receive(control(6, b"\0\0\0\7")) == []
    assert server.replies() == control(6, b"\0\0\0\7")
    assert server.replies() == b""


@pytest.mark.parametrize(
    "sent",
    [
        struct.pack(">II", 1 << 31 | 2 << 16 | 1, 0),
        control(1, b"short"),
        control(1, struct.pack(">IIH", 1, 0, 0) + b"not compressed"),
        struct.pack(">II", 1, 0xFFFFFF),
    ],
)
def test_violation_of_the_protocol_is_an_error(sent: bytes) -> None:
    with pytest.raises(SpdyError):
        SpdyConnection().receive(sent)
