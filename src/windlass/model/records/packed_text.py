"""Texts for annotations: plain while they are short, else deflated, in base64 behind ``z:``. Pure."""

from __future__ import annotations

import base64
import binascii
import zlib

PLAIN_BYTES = 4096
"""A text that is longer is deflated."""
MOST_BYTES = 200_000
"""An object's annotations may come to 256 KiB together."""
_PACKED = "z:"


def pack(text: bytes) -> str | None:
    """``None`` for one that no annotation holds."""
    if len(text) <= PLAIN_BYTES:
        return text.decode()
    found = _PACKED + base64.b64encode(zlib.compress(text, 6)).decode()
    return found if len(found) <= MOST_BYTES else None


def unpack(text: str) -> bytes:
    """Raises ``ValueError`` on what :func:`pack` did not make."""
    if not text.startswith(_PACKED):
        return text.encode()
    unpacker = zlib.decompressobj()
    try:
        raw = unpacker.decompress(base64.b64decode(text[len(_PACKED) :], validate=True), 64 * MOST_BYTES)
    except (zlib.error, binascii.Error) as error:
        raise ValueError(f"the text is not packed as it should be: {error}") from error
    if not unpacker.eof:
        raise ValueError("the text is cut off, or too long")
    return raw
