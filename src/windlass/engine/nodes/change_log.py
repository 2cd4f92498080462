"""Log of changed rows for many readers, each at its own pace."""

from __future__ import annotations


class ChangeLog:
    """Every changed row once, with the number of its latest change, the latest last.

    A reader keeps a mark. What it reads is as long as the number of changed rows,
    however often each of them changed.
    """

    __slots__ = ("_last", "mark", "stamps")

    def __init__(self) -> None:
        self.mark = 0
        """Number of changes so far."""
        self.stamps: dict[int, int] = {}
        """Row → number of its latest change."""
        self._last = -1

    def add(self, row: int) -> None:
        """Record a change of the row."""
        self.mark += 1
        if row != self._last:
            self._last = row
            self.stamps.pop(row, None)
        self.stamps[row] = self.mark

    def since(self, mark: int) -> list[int]:
        """Return the rows that changed after ``mark``, the latest first."""
        if self.mark - mark == 1:
            return [self._last]
        found = []
        for row, stamp in reversed(self.stamps.items()):
            if stamp <= mark:
                break
            found.append(row)
        return found
