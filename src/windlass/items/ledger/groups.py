"""Queues of the groups, and the choice of the group that is served next.

Groups share the workers by weighted fairness: service is counted in items divided by the
weight of the group, in rounds of :data:`ROUND` items. Among groups of the same round the
order of the specification decides. A worker keeps its group for a further round, since
the model and the prefix of its prompts are loaded there.
"""

from __future__ import annotations

import heapq
from array import array
from collections import deque
from collections.abc import Collection, Iterator

from windlass.items.ledger.changes import ItemGroup, ItemState
from windlass.items.ledger.table import ItemTable

ROUND = 256
"""Number of items by which the service of two groups of equal weight may differ unnoticed."""


class GroupQueue:
    """Pending items of one group."""

    __slots__ = ("again", "first", "head", "leases", "record", "service")

    def __init__(self, record: ItemGroup) -> None:
        self.record = record
        self.first = array("i")
        self.head = 0
        self.again: deque[int] = deque()
        self.leases = 0
        self.service = 0.0

    def numbers(self, table: ItemTable) -> Iterator[int]:
        """Take pending items in order. Entries of items that have moved on are dropped."""
        while True:
            if self.again:
                number = self.again.popleft()
            elif self.head < len(self.first):
                number = self.first[self.head]
                self.head += 1
            else:
                return
            if table.state[number] == ItemState.PENDING:
                yield number

    def front(self) -> int:
        """Return the item that is taken first, or -1."""
        if self.again:
            return self.again[0]
        return self.first[self.head] if self.head < len(self.first) else -1

    def has_entries(self) -> bool:
        return bool(self.again) or self.head < len(self.first)

    def put_back(self, number: int) -> None:
        """Undo taking an item that was not leased."""
        self.again.appendleft(number)


class GroupQueues:
    """All groups of a batch."""

    def __init__(
        self, records: list[ItemGroup], table: ItemTable, order: str, waiting: Collection[int] = ()
    ) -> None:
        """``waiting``: items that are pushed later."""
        self.groups = [GroupQueue(record) for record in records]
        self._table = table
        self._order = order
        self._delayed: list[tuple[float, int]] = []
        by_group: list[list[int]] = [[] for _ in records]
        for number, state in enumerate(table.state):
            if state == ItemState.PENDING and number not in waiting:
                by_group[table.group[number]].append(number)
        for group, numbers in zip(self.groups, by_group, strict=True):
            numbers.sort(key=table.order.__getitem__)
            group.first = array("i", numbers)

    def push(self, number: int) -> None:
        """Append an item that is pending again."""
        self.groups[self._table.group[number]].again.append(number)

    def delay(self, number: int, until: float) -> None:
        """Append an item later."""
        heapq.heappush(self._delayed, (until, number))

    def release_due(self, now: float) -> None:
        """Append the delayed items that are due."""
        while self._delayed and self._delayed[0][0] <= now:
            number = heapq.heappop(self._delayed)[1]
            group = self.groups[self._table.group[number]]
            if self._table.state[number] == ItemState.PENDING:
                group.again.append(number)

    def next_due(self) -> float | None:
        """Return the time at which the next delayed item is due."""
        return self._delayed[0][0] if self._delayed else None

    def choose(self, last: int, apart: Collection[int] = ()) -> GroupQueue | None:
        """Return the group to serve next. ``last``: group of the worker before, or -1.

        ``apart``: groups that are not served now.
        """
        best: GroupQueue | None = None
        best_key: tuple[float, ...] = ()
        for number, group in enumerate(self.groups):
            if not self._table.pending[number] or not group.has_entries() or self._full(group):
                continue
            if number in apart:
                continue
            key = self._key(group, number, last)
            if best is None or key < best_key:
                best, best_key = group, key
        return best

    def serve(self, group: GroupQueue, items: int) -> None:
        """Count the service of a group. A group without earlier service starts level."""
        group.service += items / group.record.weight

    def _full(self, group: GroupQueue) -> bool:
        return 0 < group.record.parallelism <= group.leases

    def _key(self, group: GroupQueue, number: int, last: int) -> tuple[float, ...]:
        record = group.record
        strict: tuple[float, ...] = ()
        if self._order == "Priority":
            strict = (-record.priority, record.deadline or float("inf"))
        turn = group.service // ROUND
        if number == last or (last >= 0 and self._same_model(number, last)):
            turn -= 1
        size = -self._table.remaining[number] if self._order == "LargestFirst" else 0
        return (*strict, turn, number != last, size, number)

    def _same_model(self, number: int, last: int) -> bool:
        model = self.groups[number].record.model
        return bool(model) and model == self.groups[last].record.model
