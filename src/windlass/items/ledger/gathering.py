"""Wait of a batch that is not full while further rows come (``batching.maxWaitSeconds``)."""

from __future__ import annotations

from collections.abc import Callable

from windlass.items.ledger.groups import GroupQueue
from windlass.items.ledger.sizes import BYTES_PER_TOKEN
from windlass.items.ledger.table import ItemTable
from windlass.items.spec import BatchingSpec


class Gathering:
    """Times at which rows arrived, and the rule by which the next batch of a group waits for more.

    ``more``: return whether further rows may come while these wait. Rows that were there from
    the start, and rows that are tried again, have no arrival: their batch waits for nothing.
    """

    def __init__(self, batching: BatchingSpec) -> None:
        self._batching = batching
        self._arrived: dict[int, float] = {}
        self.more: Callable[[], bool] = lambda: False
        self.until: float | None = None
        """Time at which the first batch that waits is sent; ``None`` if none waits."""

    def arrive(self, number: int, now: float) -> None:
        """Record a row that has come from the stage before."""
        if self._batching.max_wait_seconds > 0:
            self._arrived[number] = now

    def leave(self, number: int) -> None:
        """Forget a row that is in a batch."""
        self._arrived.pop(number, None)

    def waits(self, group: GroupQueue, table: ItemTable, size: int, now: float) -> bool:
        """Return whether a group waits for a batch of ``size`` items."""
        if not self._arrived or table.pending[group.record.number] >= size or not self.more():
            return False
        arrived = self._arrived.get(group.front())
        if arrived is None or now >= (due := arrived + self._batching.max_wait_seconds):
            return False
        if self._is_full(group, table):
            return False
        self.until = due if self.until is None else min(self.until, due)
        return True

    def _is_full(self, group: GroupQueue, table: ItemTable) -> bool:
        """Return whether the rows that are there reach a limit of bytes or tokens."""
        rule = self._batching
        limits = [limit for limit in (rule.max_bytes, rule.max_tokens * BYTES_PER_TOKEN) if limit]
        return bool(limits) and sum(table.length[number] for number in group.again) >= min(limits)
