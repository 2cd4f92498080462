"""Analysis of the times at which gangs were bound. Times in seconds."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence


def by_gang(pods: Iterable[str], binds: Mapping[str, float]) -> dict[str, list[float]]:
    """Gang → the moments of its binds. Pods are named ``GANG-RANK``; gangs of which nothing is bound are left out."""
    found: dict[str, list[float]] = {}
    for name in pods:
        if name in binds:
            found.setdefault(name.rpartition("-")[0], []).append(binds[name])
    return found


def most_incomplete(gangs: Sequence[Sequence[float]], size: int) -> int:
    """The most pods that gangs of which something was not bound yet held at a time."""
    changes: list[tuple[float, int]] = []
    for binds in gangs:
        changes += [(moment, 1) for moment in binds]
        if len(binds) == size:
            changes.append((max(binds), -size))
    most = held = 0
    for _, change in sorted(changes):
        held += change
        most = max(most, held)
    return most


def incomplete_seconds(gangs: Sequence[Sequence[float]], size: int, until: float) -> float:
    """Pod-seconds from a bind to that of the last pod of its gang, or to ``until`` where that never came."""
    return sum((max(binds) if len(binds) == size else until) - moment for binds in gangs for moment in binds)
