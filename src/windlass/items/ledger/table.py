"""Compact table of all items of a batch, and counts of their states."""

from __future__ import annotations

from array import array

from windlass.items.ledger.changes import ItemState

_WITHOUT_END = (ItemState.PENDING, ItemState.LEASED, ItemState.HELD)


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
        self.counts = [0] * len(ItemState)
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
        self.reserve(group + 1)
        self.totals[group] += 1
        self.dead[group] += state == ItemState.DEAD
        if state == ItemState.PENDING:
            self.pending[group] += 1
        self.remaining[group] += state in _WITHOUT_END
        return len(self.state) - 1

    def reserve(self, groups: int) -> None:
        """Make room for the counts of as many groups."""
        while len(self.pending) < groups:
            for counts in (self.pending, self.remaining, self.dead, self.totals):
                counts.append(0)

    def regroup(self, number: int, group: int) -> None:
        """Give an item to another group."""
        state, before = self.state[number], self.group[number]
        self.group[number] = group
        for place, change in ((before, -1), (group, 1)):
            self.totals[place] += change
            self.pending[place] += change * (state == ItemState.PENDING)
            self.remaining[place] += change * (state in _WITHOUT_END)
            self.dead[place] += change * (state == ItemState.DEAD)

    def invalid(self) -> int:
        """Return the number of rows that are not valid: they have an error and no input."""
        if not self.counts[ItemState.DEAD]:
            return 0
        pairs = zip(self.state, self.length, strict=True)
        return sum(state == ItemState.DEAD and not length for state, length in pairs)

    def move(self, number: int, state: ItemState) -> None:
        """Change the state of an item."""
        before = self.state[number]
        group = self.group[number]
        self.state[number] = state
        self.counts[before] -= 1
        self.counts[state] += 1
        self.pending[group] += (state == ItemState.PENDING) - (before == ItemState.PENDING)
        self.remaining[group] += (state in _WITHOUT_END) - (before in _WITHOUT_END)
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
        return sum(self.counts[state] for state in _WITHOUT_END)
