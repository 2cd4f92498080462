"""Randomness as a parameter: a seeded ``random.Random`` in tests, the system's otherwise."""

from __future__ import annotations

import random
import uuid
from random import Random

# Consonants and digits that cannot spell words: the alphabet of Kubernetes' generated names.
NAME_ALPHABET = "bcdfghjklmnpqrstvwxz2456789"


def system() -> Random:
    """A generator seeded by the operating system."""
    return random.Random(random.SystemRandom().getrandbits(64))


def name_suffix(rng: Random, length: int = 5) -> str:
    return "".join(rng.choice(NAME_ALPHABET) for _ in range(length))


def uid(rng: Random) -> str:
    """A version 4 UUID drawn from ``rng``."""
    return str(uuid.UUID(int=rng.getrandbits(128), version=4))
