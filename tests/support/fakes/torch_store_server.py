"""TCPStore of PyTorch in both forms of its protocol, as far as clients of Windlass use it."""

from __future__ import annotations

import asyncio
import struct

MAGIC = 0x3C85F7CE


class Store:
    """TCPStore. ``validated``: the form of the protocol since PyTorch 2.1."""

    def __init__(self, *, validated: bool) -> None:
        self.validated = validated
        self.values: dict[bytes, bytes] = {}
        offset = 1 if validated else 0
        self.compare_set, self.get, self.check, self.count = 1 + offset, 2 + offset, 4 + offset, 6 + offset

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            if self.validated and await reader.readexactly(5) != b"\x00" + struct.pack("<I", MAGIC):
                return
            while True:
                code = (await reader.readexactly(1))[0]
                if code == self.count:
                    writer.write(struct.pack("<q", len(self.values)))
                elif code == self.check:
                    await reader.readexactly(8)
                    writer.write(b"\x00" if await _bytes(reader) in self.values else b"\x01")
                elif code == self.get:
                    writer.write(_sent(self.values[await _bytes(reader)]))
                elif code == self.compare_set:
                    key, expected, desired = [await _bytes(reader) for _ in range(3)]
                    if self.values.get(key, b"") == expected:
                        self.values[key] = desired
                    writer.write(_sent(self.values.get(key, expected)))
                else:
                    return
        except asyncio.IncompleteReadError:
            return
        finally:
            writer.close()


async def _bytes(reader: asyncio.StreamReader) -> bytes:
    (size,) = struct.unpack("<Q", await reader.readexactly(8))
    return await reader.readexactly(size)


def _sent(data: bytes) -> bytes:
    return struct.pack("<Q", len(data)) + data
