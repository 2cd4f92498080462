"""Frames of the connection between the API server and the agent.

A frame is its length (four bytes, big endian) and its content. The first frame of a connection
is the request to the agent, the second one its response: both are JSON objects. All later frames
of a command are messages of Kubernetes' channel protocol: one byte for the channel, then the
data.

This module uses only the standard library and few imports, because helpers start with it.
"""

from __future__ import annotations

import struct

STDIN, STDOUT, STDERR, ERROR, RESIZE = range(5)
CLOSE = 255
"""Channel of the message that closes the channel in its second byte (``v5.channel.k8s.io``)."""
MAX_FRAME_BYTES = 4 * 2**20
"""Maximum content of a frame in bytes."""
_LENGTH = struct.Struct(">I")
HEADER_BYTES = _LENGTH.size


class BadFrame(ValueError):
    """A frame is longer than accepted."""


def encode(content: bytes) -> bytes:
    return _LENGTH.pack(len(content)) + content


def length_of(header: bytes) -> int:
    """Return the content length of a header. Raises :class:`BadFrame`."""
    length = int(_LENGTH.unpack(header)[0])
    if length > MAX_FRAME_BYTES:
        raise BadFrame(f"a frame of {length} bytes is longer than {MAX_FRAME_BYTES}")
    return length


class FrameReader:
    """Splits received bytes into frames."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> list[bytes]:
        """Return the frames that are complete with ``data``. Raises :class:`BadFrame`."""
        self._buffer += data
        frames = []
        while len(self._buffer) >= HEADER_BYTES:
            end = HEADER_BYTES + length_of(bytes(self._buffer[:HEADER_BYTES]))
            if len(self._buffer) < end:
                break
            frames.append(bytes(self._buffer[HEADER_BYTES:end]))
            del self._buffer[:end]
        return frames
