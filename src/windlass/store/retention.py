"""Retention of the watch log: marks of (time, version, count) limit how much is kept.

Age is measured by the monotonic clock, so a jump of the wall clock neither drops the
history nor keeps it forever. Rows older than the process count as written at its start.
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from windlass.store.families import StoreFamily

_MARK_EVERY_ROWS = 100


class _Mark(NamedTuple):
    at: float
    rv: int
    total: int


class Retention:
    """Retention state of one family.

    ``total`` counts the rows logged by this process and those found at its start.
    """

    def __init__(self, family: StoreFamily, now: float, last_rv: int, rows: int, compacted: int) -> None:
        self.family = family
        self.compacted = compacted
        """The log up to this version is forgotten."""
        self.total = rows
        self.last_rv = last_rv
        self._marks: deque[_Mark] = deque([_Mark(now, last_rv, rows)])

    def logged(self, rv: int, now: float) -> None:
        self.total += 1
        self.last_rv = rv
        last = self._marks[-1] if self._marks else None
        if last is None or self.total - last.total >= _MARK_EVERY_ROWS:
            self._marks.append(_Mark(now, rv, self.total))

    def tick(self, now: float) -> None:
        """Record the current end of the log. Call it every few seconds."""
        last = self._marks[-1] if self._marks else None
        if last is None or last.total != self.total:
            self._marks.append(_Mark(now, self.last_rv, self.total))

    def target(self, now: float) -> int:
        """Return the version up to which the log may be dropped now, at least ``compacted``."""
        family, chosen = self.family, self.compacted
        while self._marks:
            mark = self._marks[0]
            behind = self.total - mark.total
            old = now - mark.at >= family.log_age_seconds
            if behind < family.log_keep_rows or not (old or behind >= family.log_rows):
                break
            chosen = max(chosen, mark.rv)
            self._marks.popleft()
        return chosen
