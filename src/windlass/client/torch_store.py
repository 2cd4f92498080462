"""Client of a TCPStore of PyTorch, the key-value store of a c10d rendezvous.

Two forms of the protocol are spoken: that of PyTorch up to 2.0, and that with a
validated connection since 2.1. The first request finds out which of them a server
speaks: a newer server closes a connection that begins without validation.
"""

from __future__ import annotations

import asyncio
import base64
import struct
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

MAGIC = 0x3C85F7CE
_MAX_VALUE = 32 * 1024 * 1024
"""Maximum size of a value in bytes."""

Dial = Callable[[], Awaitable[tuple[asyncio.StreamReader, asyncio.StreamWriter]]]
"""Function that opens a connection to the store."""


@dataclass(frozen=True, slots=True)
class _Codes:
    """Numbers of the requests in one form of the protocol."""

    compare_set: int
    get: int
    check: int
    count: int


_OLD = _Codes(compare_set=1, get=2, check=4, count=6)
_NEW = _Codes(compare_set=2, get=3, check=5, count=7)


class TorchStore:
    """Open connection to a TCPStore. Use :func:`connect`. Raises ``OSError`` after a loss."""

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, codes: _Codes, timeout: float
    ) -> None:
        self._reader, self._writer, self._codes, self._timeout = reader, writer, codes, timeout

    async def get(self, key: str) -> bytes | None:
        """Return a value; ``None`` if the key does not exist."""
        await self._send(self._codes.check, struct.pack("<Q", 1) + _text(key))
        if (await self._read(1)) != b"\x00":
            return None
        await self._send(self._codes.get, _text(key))
        return await self._value()

    async def compare_set(self, key: str, expected: bytes, desired: bytes) -> bytes:
        """Store ``desired`` if the value is ``expected``. Return the value after that."""
        await self._send(self._codes.compare_set, _text(key) + _bytes(expected) + _bytes(desired))
        return await self._value()

    def close(self) -> None:
        self._writer.close()

    async def count(self) -> int:
        """Return the number of keys."""
        await self._send(self._codes.count, b"")
        return struct.unpack("<q", await self._read(8))[0]

    async def _send(self, code: int, body: bytes) -> None:
        self._writer.write(bytes((code,)) + body)
        await self._writer.drain()

    async def _value(self) -> bytes:
        (size,) = struct.unpack("<Q", await self._read(8))
        if size > _MAX_VALUE:
            raise ConnectionError(f"the store sent a value of {size} bytes")
        return await self._read(size)

    async def _read(self, size: int) -> bytes:
        try:
            async with asyncio.timeout(self._timeout):
                return await self._reader.readexactly(size)
        except asyncio.IncompleteReadError as error:
            raise ConnectionError("the store closed the connection") from error


async def connect(dial: Dial, timeout: float = 3.0) -> TorchStore:
    """Connect to a store. Raises ``OSError``, also if it is not a TCPStore.

    ``timeout``: seconds for each response.
    """
    for codes in (_OLD, _NEW):
        reader, writer = await dial()
        if codes is _NEW:
            writer.write(b"\x00" + struct.pack("<I", MAGIC))
        store = TorchStore(reader, writer, codes, timeout)
        try:
            await store.count()
            return store
        except OSError:
            store.close()
            if codes is _NEW:
                raise
    raise ConnectionError("the server is not a TCPStore")


def _text(text: str) -> bytes:
    return _bytes(text.encode())


def _bytes(data: bytes) -> bytes:
    return struct.pack("<Q", len(data)) + data


def state_key(run_id: str) -> str:
    """Return the key of the state of a c10d rendezvous."""
    return f"/torch.rendezvous.{run_id or 'none'}"


def from_value(value: bytes) -> bytes:
    """Return the state in a value of :func:`state_key`. Raises ``ValueError``."""
    return base64.b64decode(value, validate=True)


def to_value(state: bytes) -> bytes:
    return base64.b64encode(state)
