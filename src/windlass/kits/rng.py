"""Randomness as a parameter: a seeded ``random.Random`` in tests, the system's otherwise."""

from __future__ import annotations

import random
from random import Random

# Consonants and digits that cannot form words: the alphabet of Kubernetes' generated
# names.
NAME_ALPHABET = "bcdfghjklmnpqrstvwxz2456789"


def system() -> Random:
    """A generator seeded by the operating system."""
    return random.Random(random.SystemRandom().getrandbits(64))


def seeded(seed: int | str) -> Random:
    """Return a generator that always yields the same sequence."""
    return random.Random(seed)


def name_suffix(rng: Random, length: int = 5) -> str:
    return "".join(rng.choice(NAME_ALPHABET) for _ in range(length))


def uid(rng: Random) -> str:
    """Return a version 4 UUID from ``rng``."""
    bits = rng.getrandbits(128)
    bits = bits & ~(0xF << 76) | 0x4 << 76  # version
    bits = bits & ~(0x3 << 62) | 0x2 << 62  # variant
    text = f"{bits:032x}"
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"
