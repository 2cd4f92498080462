"""Digests of input rows, by which a later job recognises the rows that have changed."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

DIGEST_BYTES = 6
"""Size of a digest in bytes. A changed row goes unnoticed once in 2.8e14 changes."""
NO_DIGEST = bytes(DIGEST_BYTES)
"""Digest of a row that is not valid: it has no output."""
_encode = msgspec.json.Encoder(order="deterministic").encode


def digest_of(values: Mapping[str, Any]) -> bytes:
    """Return the digest of a row as workers get it, with all of its fields.

    The order of the fields does not count. Their types do: ``1`` and ``"1"`` are different.
    """
    return hashlib.blake2b(_encode(values), digest_size=DIGEST_BYTES).digest()


def unpack(data: bytes) -> Iterator[bytes]:
    """Return the digests of rows that were joined."""
    for start in range(0, len(data), DIGEST_BYTES):
        yield data[start : start + DIGEST_BYTES]
