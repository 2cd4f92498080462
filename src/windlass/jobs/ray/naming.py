"""Suffixes of names that are the same each time."""

from __future__ import annotations

import hashlib

from windlass.kits.rng import NAME_ALPHABET


def suffix_of(text: str, length: int = 5) -> str:
    """Return ``length`` characters that look random and follow from the text."""
    digest = hashlib.sha256(text.encode()).digest()
    return "".join(NAME_ALPHABET[byte % len(NAME_ALPHABET)] for byte in digest[:length])
