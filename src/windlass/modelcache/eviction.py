"""Choice of the models that make room for another: the least recently used first. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from windlass.modelcache.folder import CachedModel

FREE_FLOOR = 0.15
"""Part of the file system that stays free."""


def choose(
    models: Iterable[CachedModel],
    in_use: Collection[str],
    needed: int,
    free: int,
    total: int,
    floor: float = FREE_FLOOR,
) -> list[str] | None:
    """Return the keys to remove so that ``needed`` bytes fit; ``None``: they cannot fit.

    ``free`` and ``total``: bytes of the file system. ``floor``: part of ``total`` that
    is free afterwards. A model that is pinned or in use stays.
    """
    missing = needed + int(total * floor) - free
    chosen: list[str] = []
    for model in sorted(models, key=lambda each: (each.last_used, each.key)):
        if missing <= 0:
            break
        if not model.pinned and model.key not in in_use:
            chosen.append(model.key)
            missing -= model.bytes
    return chosen if missing <= 0 else None
