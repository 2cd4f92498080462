"""Client of PyTorch's TCPStore, against a small store of both forms of the protocol."""

from __future__ import annotations

import asyncio

import pytest
from torch_store_server import Store

from windlass.client import torch_store


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
