"""Size of the next batch, from measured seconds for each item."""

from __future__ import annotations

from windlass.items.spec import BatchingSpec

FIRST = 8
"""Number of items of a group's first batches, before anything was measured."""
GROWTH = 4.0
"""Maximum factor by which the size of a group's batches grows with one measurement."""
_SMOOTHING = 0.5
"""Weight of a new measurement."""
MAX_BYTES = 32 * 2**20
"""Maximum size in bytes of the rows of a batch without ``batching.maxBytes``."""
BYTES_PER_TOKEN = 4
"""Bytes of a row that are estimated to be one token."""


class BatchSizes:
    """Adapts sizes so that one batch takes about ``targetSeconds``.

    The last items are shared: no batch has more than half of an equal part of all that is
    left, so that no worker ends long after the others.
    """

    def __init__(self, batching: BatchingSpec) -> None:
        self._batching = batching
        self._seconds: dict[int, float] = {}
        self._sizes: dict[int, float] = {}
        self._overall = 0.0

    def observe(self, group: int, items: int, seconds: float) -> None:
        """Record a batch, or a part of one."""
        if items <= 0 or seconds < 0:
            return
        each = max(seconds / items, 1e-6)
        before = self._seconds.get(group)
        self._seconds[group] = each if before is None else before + _SMOOTHING * (each - before)
        self._overall += _SMOOTHING * (each - self._overall) if self._overall else each
        size = self._sizes.get(group, float(min(FIRST, self._batching.size)))
        wanted = self._batching.target_seconds / self._seconds[group]
        self._sizes[group] = max(1.0, min(wanted, max(size, items) * GROWTH))

    def estimate(self, group: int) -> float:
        """Return the expected seconds of one item; 0 before any measurement."""
        return self._seconds.get(group) or self._overall

    def items(self, group: int, remaining: int, workers: int) -> int:
        """Return the maximum number of items of the next batch of a group."""
        rule = self._batching
        if rule.mode == "Fixed":
            return max(1, min(rule.size, rule.max_items))
        size = self._sizes.get(group)
        if size is None:
            size = float(min(FIRST, rule.size))
            if self._overall:
                size = max(1.0, min(rule.target_seconds / self._overall, float(rule.size)))
        share = -(-remaining // (2 * max(1, workers)))
        return max(1, min(int(size), rule.max_items, share))

    def fits(self, items: int, size: int, more: int) -> bool:
        """Return whether a row of ``more`` bytes fits into a batch of ``items`` and ``size`` bytes."""
        rule = self._batching
        if items == 0:
            return True
        if size + more > (rule.max_bytes or MAX_BYTES):
            return False
        return not rule.max_tokens or (size + more) // BYTES_PER_TOKEN <= rule.max_tokens
