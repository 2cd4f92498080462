"""Delays before failed pods are replaced again at the same place, such as a node or a name."""

from __future__ import annotations


class ReplacementDelays:
    """Times before which a failed pod is not replaced. The first failure at a place has none.

    ``first``: delay in seconds after the first replacement; each further one doubles it, up to
    ``most``. A place without a failure for twice the longest delay is forgotten.
    """

    def __init__(self, first: float, most: float) -> None:
        self._first, self._most = first, most
        self._places: dict[str, dict[str, tuple[float, float]]] = {}

    def not_before(self, key: str) -> dict[str, float]:
        """Return place → time in Unix seconds, for the owner ``key``."""
        return {place: until for place, (until, _) in self._places.get(key, {}).items()}

    def note(self, key: str, place: str, now: float) -> None:
        """Delay the next replacement at a place, as the pod there is replaced now."""
        known = self._places.setdefault(key, {})
        until, delay = known.get(place, (0.0, 0.0))
        forgotten = now > until + 2 * self._most
        delay = self._first if forgotten or not delay else min(delay * 2, self._most)
        known[place] = (now + delay, delay)

    def forget(self, key: str) -> None:
        self._places.pop(key, None)
