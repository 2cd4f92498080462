"""Common part of the names of similar work: the name without numbers, dates and
generated parts."""

from __future__ import annotations

import re
from functools import lru_cache

_PARTS = re.compile(r"[-_.:]+")
_GENERATED = re.compile(r"[bcdfghjklmnpqrstvwxz2456789]{5}")
"""Suffix that Kubernetes generates for ``generateName``: five of these characters."""
_HASH = re.compile(r"[0-9a-f]{4,}")
_NUMBERED = re.compile(r"\d+$")


@lru_cache(maxsize=4096)
def pattern(name: str) -> str:
    """Return ``train-llm`` for ``train-llm-20260101-7f3ab``; a name without other parts
    is unchanged."""
    kept = [_NUMBERED.sub("", part) for part in _PARTS.split(name) if part and not _changing(part)]
    return "-".join(part for part in kept if part) or name


def _changing(part: str) -> bool:
    """Return whether a part differs between runs: a number, a hash, a generated suffix."""
    digits = any(char.isdigit() for char in part)
    if part.isdigit():
        return True
    if _HASH.fullmatch(part) and digits:
        return True
    return bool(_GENERATED.fullmatch(part)) and digits
