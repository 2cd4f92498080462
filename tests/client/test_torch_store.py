"""Client of PyTorch's TCPStore, against a small store of both forms of the protocol."""

from __future__ import annotations

import asyncio
import struct

import pytest

from windlass.client import torch_store


class Store:
    """TCPStore. ``validated``: the form of the protocol since PyTorch 2.1."""

    def __init__(self, *, validated: bool) -> None:
        self.validated = validated
        self.values: dict[bytes, bytes] = {}
        offset = 1 if validated else 0
        self.compare_set, self.get, self.check, self.count = 1 + offset, 2 + offset, 4 + offset, 6 + offset

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            if self.validated and await reader.readexactly(5) != b"\x00" + struct.pack(
                "<I", torch_store.MAGIC
            ):
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


@pytest.mark.parametrize("validated", [False, True])
async def test_both_forms_of_the_protocol_are_spoken(validated: bool) -> None:
    store = Store(validated=validated)
    server = await asyncio.start_server(store.serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with server:
        client = await torch_store.connect(lambda: asyncio.open_connection("127.0.0.1", port))
        key = torch_store.state_key("")
        assert key == "/torch.rendezvous.none"
        assert await client.get(key) is None
        assert await client.compare_set(key, b"", b"one") == b"one"
        assert await client.compare_set(key, b"other", b"two") == b"one"
        assert await client.compare_set(key, b"one", b"two" * 1000) == b"two" * 1000
        assert await client.get(key) == b"two" * 1000
        client.close()


async def test_another_server_and_a_closed_port_are_errors() -> None:
    async def greet(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()

    server = await asyncio.start_server(greet, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with server:
        with pytest.raises(ConnectionError):
            await torch_store.connect(lambda: asyncio.open_connection("127.0.0.1", port))
    with pytest.raises(ConnectionError):
        await torch_store.connect(lambda: asyncio.open_connection("127.0.0.1", port))
