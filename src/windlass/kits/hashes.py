"""Hashes that names of other programs contain."""

from __future__ import annotations

_FNV_OFFSET, _FNV_PRIME = 2166136261, 16777619


def fnv32a(text: str) -> int:
    """Return the 32-bit FNV-1a hash of a text."""
    value = _FNV_OFFSET
    for byte in text.encode():
        value = ((value ^ byte) * _FNV_PRIME) & 0xFFFFFFFF
    return value
