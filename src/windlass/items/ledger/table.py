"""Compact table of all items of a batch, and counts of their states."""

from __future__ import annotations

from array import array

from windlass.items.ledger.changes import ItemState


class ItemTable:
    """Columns of all items. An item is the number of its row in this table.

    ``offset`` and ``length``: place of the row in the file of input rows. ``order``: key by
    which a group is processed.
    """

    def __init__(self) -> None:
        self.state = bytearray()
        self.attempts = bytearray()
        self.losses = bytearray()
        self.waiting = bytearray()
        self.group = array("i")
        self.offset = array("q")
        self.length = array("i")
        self.order = array("q")
        self.counts = [0, 0, 0, 0]
        self.pending: list[int] = []
        self.remaining: list[int] = []
        self.dead: list[int] = []
        self.totals: list[int] = []
        self.failing = 0

    def __len__(self) -> int:
        return len(self.state)

    def add(
        self,
        group: int,
        offset: int,
        length: int,
        order: int = 0,
        state: int = ItemState.PENDING,
        attempts: int = 0,
        losses: int = 0,
    ) -> int:
        """Append an item and return its number."""
        self.state.append(state)
        self.attempts.append(min(attempts, 255))
        self.losses.append(min(losses, 255))
        waits = state == ItemState.PENDING and attempts > 0
        self.waiting.append(waits)
        self.failing += waits
        self.group.append(group)
        self.offset.append(offset)
        self.length.append(length)
        self.order.append(order)
        self.counts[state] += 1
        while len(self.pending) <= group:
            self.pending.append(0)
            self.remaining.append(0)
            self.dead.append(0)
            self.totals.append(0)
        self.totals[group] += 1
        self.dead[group] += state == ItemState.DEAD
        if state == ItemState.PENDING:
            self.pending[group] += 1
        if state <= ItemState.LEASED:
            self.remaining[group] += 1
        return len(self.state) - 1

    def move(self, number: int, state: ItemState) -> None:
        """Change the state of an item."""
        before = self.state[number]
        group = self.group[number]
        self.state[number] = state
        self.counts[before] -= 1
        self.counts[state] += 1
        self.pending[group] += (state == ItemState.PENDING) - (before == ItemState.PENDING)
        self.remaining[group] += (state <= ItemState.LEASED) - (before <= ItemState.LEASED)
        self.dead[group] += (state == ItemState.DEAD) - (before == ItemState.DEAD)
        if state > ItemState.LEASED:
            self.count_failure(number, False)

    def count_failure(self, number: int, waits: bool) -> None:
        """Keep count of items that failed and wait for another attempt (``waits``)."""
        self.failing += waits - self.waiting[number]
        self.waiting[number] = waits

    @property
    def open(self) -> int:
        """Number of items without an end."""
        return self.counts[ItemState.PENDING] + self.counts[ItemState.LEASED]
