"""Match of a requested GPU model with the model name of a device."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache

_MEMORY = re.compile(r"(\d+)g(?:i?b)?")


@lru_cache(maxsize=4096)
def model_matches(wanted: str, model: str) -> bool:
    """Return whether ``wanted`` names the model.

    It is a part of the model name in any case, or all of its words are words of the name:
    ``A100-80G`` names ``NVIDIA-A100-SXM4-80GB``. Words of memory are equal with any unit
    (``80G``, ``80GB``, ``80GiB``).
    """
    text, name = wanted.casefold(), model.casefold()
    if text in name:
        return True
    words = _words(text)
    return bool(words) and words <= _words(name)


def names_any(wanted: Iterable[str], model: str) -> bool:
    """Return whether any of the requested models names this one."""
    return any(model_matches(word, model) for word in wanted)


def _words(text: str) -> frozenset[str]:
    words = re.split(r"[^a-z0-9]+", text)
    return frozenset(
        f"{match[1]}gb" if (match := _MEMORY.fullmatch(word)) else word for word in words if word
    )
