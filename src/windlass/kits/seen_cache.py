"""Remembering which byte strings passed a pure check, so that equal ones need not be checked again.

Only digests are kept (256 bits of BLAKE2b: no two byte strings that anybody can make share one), so the
memory is small and does not depend on how long the strings are.
"""

from __future__ import annotations

from hashlib import blake2b

_DIGEST_BYTES = 32


class Passed:
    """A bounded set of byte strings; beyond ``limit`` the oldest are forgotten.

    Good for checks that depend on the bytes and on nothing else.
    """

    __slots__ = ("_limit", "_seen")

    def __init__(self, limit: int = 16_384) -> None:
        self._limit = limit
        self._seen: dict[bytes, None] = {}

    @staticmethod
    def mark(data: bytes) -> bytes:
        """What stands for ``data`` here."""
        return blake2b(data, digest_size=_DIGEST_BYTES).digest()

    def __contains__(self, mark: bytes) -> bool:
        return mark in self._seen

    def __len__(self) -> int:
        return len(self._seen)

    def add(self, mark: bytes) -> None:
        seen = self._seen
        if mark not in seen and len(seen) >= self._limit:
            del seen[next(iter(seen))]
        seen[mark] = None
