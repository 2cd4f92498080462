"""How long a watch is left unread where its news come thick: each piece wakes two processes, however small it is.

Pure: the clock is the caller's.
"""

FEW_PIECES = 8
"""So many pieces are read at once however fast they come: of what somebody waits for there are not more."""
ENOUGH_BYTES = 1 << 15
"""A breath is no longer than so much takes to come. A peer may have sent no more than twice as much when it has to
wait for its reader, so whoever sends a lot is never held up for long: the next breaths are ever shorter, then none."""
SHORTEST_SECONDS = 0.002


class WatchBatching:
    """Of one watch. ``longest``: seconds; 0 where nothing is ever left unread."""

    def __init__(self, longest: float) -> None:
        self._longest = longest
        self._pieces = 0
        self._heard_at = self._since = float("-inf")
        self._bytes = 0.0

    def after(self, now: float, size: int) -> float:
        """Seconds for which to read nothing after a piece of so many bytes, which came at ``now``."""
        alone = now - self._heard_at >= 2 * self._longest
        self._heard_at = now
        if alone:
            self._pieces, self._bytes, self._since = 1, 0.0, now
            return 0.0
        self._pieces += 1
        self._bytes += size
        if self._pieces <= FEW_PIECES:
            return 0.0
        taken = now - self._since
        breath = min(self._longest, ENOUGH_BYTES * taken / self._bytes)
        if breath >= SHORTEST_SECONDS:
            self._bytes, self._since = 0.0, now
            return breath
        if taken > 2 * self._longest:  # what was long ago says less
            self._bytes, self._since = self._bytes / 2, (self._since + now) / 2
        return 0.0
