"""Texts for annotations: plain if short, else deflated, in base64 after ``z:``. Pure."""

from __future__ import annotations

import base64
import binascii
import zlib

PLAIN_BYTES = 4096
"""Maximum size (bytes) of a text that is stored uncompressed."""
MAX_BYTES = 200_000
"""Maximum size (bytes) of a packed text. All annotations of an object have 256 KiB."""
_PACKED = "z:"


def pack(text: bytes) -> str | None:
    """Return the packed text; ``None`` if it is too large for an annotation."""
    if len(text) <= PLAIN_BYTES:
        return text.decode()
    packed = _PACKED + base64.b64encode(zlib.compress(text, 6)).decode()
    return packed if len(packed) <= MAX_BYTES else None


def unpack(text: str) -> bytes:
    """Return the packed bytes. Raises ``ValueError`` on a text that :func:`pack` did not create."""
    if not text.startswith(_PACKED):
        return text.encode()
    unpacker = zlib.decompressobj()
    try:
        raw = unpacker.decompress(base64.b64decode(text[len(_PACKED) :], validate=True), 64 * MAX_BYTES)
    except (zlib.error, binascii.Error) as error:
        raise ValueError(f"the text is not packed as it should be: {error}") from error
    if not unpacker.eof:
        raise ValueError("the text is truncated or too long")
    return raw
