"""A log of row numbers that many readers follow, each at its own pace."""

from __future__ import annotations


class ChangeLog:
    """Append-only; readers keep a mark. Old entries are dropped once the log is long: a reader that
    lags behind the dropped part is told so (``None``) and looks at everything again."""

    __slots__ = ("base", "entries", "limit")

    def __init__(self, limit: int = 65_536) -> None:
        self.entries: list[int] = []
        self.base = 0
        self.limit = limit

    @property
    def mark(self) -> int:
        """The position after the newest entry."""
        return self.base + len(self.entries)

    def add(self, row: int) -> None:
        self.entries.append(row)

    def since(self, mark: int) -> list[int] | None:
        """The rows logged after ``mark``, with repetitions; ``None`` if part of them was dropped."""
        if mark < self.base:
            return None
        return self.entries[mark - self.base :]

    def trim(self) -> None:
        """Drop the older half once the log is over its limit."""
        if len(self.entries) > self.limit:
            dropped = len(self.entries) // 2
            del self.entries[:dropped]
            self.base += dropped
