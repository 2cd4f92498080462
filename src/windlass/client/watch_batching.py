"""Pauses of a watch while events arrive frequently: each piece wakes two processes, however small it is.

Pure: the clock is the caller's.
"""

FEW_PIECES = 8
"""Maximum number of pieces read without a pause. Responses to a waiting client have no more."""
ENOUGH_BYTES = 1 << 15
"""Maximum number of bytes that may arrive during a pause.

A peer can send about twice this amount before it blocks. So a fast sender is never held up for long: its pauses
shrink to none."""
SHORTEST_SECONDS = 0.002


class WatchBatching:
    """Pauses of one watch. ``longest``: maximum pause in seconds; 0 disables pauses."""

    def __init__(self, longest: float) -> None:
        self._longest = longest
        self._pieces = 0
        self._heard_at = self._since = float("-inf")
        self._bytes = 0.0

    def after(self, now: float, size: int) -> float:
        """Return the pause (seconds) after a piece of ``size`` bytes that arrived at ``now``."""
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
