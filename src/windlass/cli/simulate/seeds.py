"""Seeds as command lines give them."""

from __future__ import annotations

import re

from windlass.api.errors import WindlassError

MOST_SEEDS = 10_000
_SEEDS = re.compile(r"(\d{1,9})(?:-(\d{1,9}))?")


def chosen_seeds(text: str, remedy: str) -> list[int]:
    """``42``, ``42-51``, ``1,5,7-9``, each once. ``remedy``: a command as it should be. Raises
    :class:`WindlassError`."""
    found: dict[int, None] = {}
    for part in text.split(","):
        match = _SEEDS.fullmatch(part.strip())
        first = int(match[1]) if match else 0
        last = int(match[2]) if match and match[2] else first
        if match is None or last < first:
            raise _wrong(f'"{part.strip()}" is no seed and no range of seeds', remedy)
        if last - first >= MOST_SEEDS - len(found):
            raise _wrong(f'"{text}" are too many seeds: {MOST_SEEDS} at most', remedy)
        found |= dict.fromkeys(range(first, last + 1))
    return list(found)


def _wrong(why: str, remedy: str) -> WindlassError:
    return WindlassError("WL-USE-400", why, remedies=(remedy,))
