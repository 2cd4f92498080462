"""Which rows have changed, for many readers that follow at their own pace."""

from __future__ import annotations


class ChangeLog:
    """Every row once, with the number of its latest change, the latest last. Readers keep a mark; what
    they read is as long as the number of rows that changed, however often each did."""

    __slots__ = ("_last", "mark", "stamps")

    def __init__(self) -> None:
        self.mark = 0
        """The number of changes so far."""
        self.stamps: dict[int, int] = {}
        """Row → the number of its latest change."""
        self._last = -1

    def add(self, row: int) -> None:
        """The row has changed."""
        self.mark += 1
        if row != self._last:
            self._last = row
            self.stamps.pop(row, None)
        self.stamps[row] = self.mark

    def since(self, mark: int) -> list[int]:
        """The rows that changed after ``mark``, the latest first."""
        if self.mark - mark == 1:
            return [self._last]
        found = []
        for row, stamp in reversed(self.stamps.items()):
            if stamp <= mark:
                break
            found.append(row)
        return found
