"""Splitter of a list response that is still arriving: large lists need little memory.

API servers write a list object by object (``StreamingCollectionEncodingToJSON``, on
since Kubernetes 1.33). The start of its items is known early, but not the end of each:
the separator between two items may also occur within one. So a cut is tried at the
likely end of an object. It is valid if the bytes before it are complete JSON: then the
cut is neither within an object nor within a string. A body that begins differently is
decoded as a whole at its end.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from windlass.client import errors
from windlass.client.responses import ListMeta

_ITEMS = b'"items":['
_HEAD_BYTES = 64 * 1024
"""Maximum number of bytes before ``items``; beyond it, the body is decoded as a whole."""
PIECE_BYTES = 256 * 1024
"""Minimum number of bytes to collect before a cut is tried."""
_TRIES = 4
"""Maximum number of places tried for one cut before waiting for more bytes."""


class _Part(msgspec.Struct):
    """Head or tail of a list: ``metadata`` comes before the items or after them."""

    metadata: ListMeta | None = None
    items: list[msgspec.Raw] | None = None


_decode_part = msgspec.json.Decoder(_Part).decode
_decode_items = msgspec.json.Decoder(list[msgspec.Raw]).decode


class ListSplitter:
    """Splitter of a list response into undecoded objects, as its bytes arrive.

    ``metadata`` is valid once :meth:`finish` has been called.
    """

    __slots__ = (
        "_begun",
        "_enough",
        "_kept",
        "_metadata",
        "_separator",
        "_size",
        "_what",
        "_whole",
        "metadata",
    )

    def __init__(self, what: str) -> None:
        """``what`` names the list in messages."""
        self._what = what
        self._kept: list[bytes] = []
        self._size = 0
        self._enough = 0
        self._begun = self._whole = False
        self._separator = b""
        self._metadata: ListMeta | None = None
        self.metadata = ListMeta()

    def feed(self, chunk: bytes) -> Sequence[msgspec.Raw]:
        """Return the objects that became complete with these bytes."""
        self._kept.append(chunk)
        self._size += len(chunk)
        if self._whole or self._size < self._enough:
            return ()
        data = self._joined()
        if not self._begun:
            data = self._begin(data)
        objects = self._cut(data) if self._begun and self._size >= PIECE_BYTES else ()
        self._enough = PIECE_BYTES if objects or self._size < PIECE_BYTES else self._size + PIECE_BYTES
        return objects

    def finish(self) -> Sequence[msgspec.Raw]:
        """Return the remaining objects at the end of the body.

        Raises :class:`Unreachable` if it is not a list.
        """
        data = self._joined()
        try:
            part = _decode_part(b"{" + _ITEMS + data if self._begun else data)
        except msgspec.DecodeError as problem:
            raise errors.garbled(self._what, str(problem)) from problem
        metadata = part.metadata or self._metadata
        if metadata is None:
            raise errors.garbled(self._what, "it has no metadata")
        self.metadata = metadata
        self._kept.clear()
        return part.items or ()

    def _joined(self) -> bytes:
        if len(self._kept) > 1:
            self._kept = [b"".join(self._kept)]
        return self._kept[0] if self._kept else b""

    def _keep(self, data: bytes) -> bytes:
        self._kept = [data]
        self._size = len(data)
        return data

    def _begin(self, data: bytes) -> bytes:
        """Find the first object. Return what follows the head."""
        at = data.find(_ITEMS, 0, _HEAD_BYTES)
        if at < 0:
            self._whole = len(data) >= _HEAD_BYTES
            return data
        at += len(_ITEMS)
        try:
            self._metadata = _decode_part(data[:at] + b"]}").metadata
        except msgspec.DecodeError:  # these bytes stand within something else
            self._whole = True
            return data
        self._begun = True
        return self._keep(data[at:])

    def _cut(self, data: bytes) -> Sequence[msgspec.Raw]:
        """Return the objects before the last position between two objects."""
        if not self._separator:
            # All of them begin with the same key.
            self._separator = b"}," + data[: data.find(b'"', data.find(b'"') + 1) + 1]
        end = len(data)
        for _ in range(_TRIES):
            end = data.rfind(self._separator, 0, end)
            if end < 0:
                break
            try:
                objects = _decode_items(b"[" + data[: end + 1] + b"]")
            except msgspec.DecodeError:
                continue
            self._keep(data[end + 2 :])
            return objects
        return ()
