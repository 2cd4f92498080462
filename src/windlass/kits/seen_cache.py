"""Cache of byte strings that passed a pure check, so that equal ones are not checked again.

Only digests are kept (256 bits of BLAKE2b, for which no collision can be constructed).
So the memory is small and independent of the strings' length.
"""

from __future__ import annotations

from hashlib import blake2b

_DIGEST_BYTES = 32


class PassedChecks:
    """Bounded set of byte strings. Beyond ``limit`` the oldest are dropped.

    Suitable for checks that depend only on the bytes.
    """

    __slots__ = ("_digests", "_limit")

    def __init__(self, limit: int = 16_384) -> None:
        self._limit = limit
        self._digests: dict[bytes, None] = {}

    @staticmethod
    def mark(data: bytes) -> bytes:
        """Return the digest of ``data``."""
        return blake2b(data, digest_size=_DIGEST_BYTES).digest()

    def __contains__(self, mark: bytes) -> bool:
        return mark in self._digests

    def __len__(self) -> int:
        return len(self._digests)

    def add(self, mark: bytes) -> None:
        digests = self._digests
        if mark not in digests and len(digests) >= self._limit:
            del digests[next(iter(digests))]
        digests[mark] = None
