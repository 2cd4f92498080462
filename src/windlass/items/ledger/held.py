"""Items that have not left the stage before yet: how a ledger gets them, loses them, holds them again."""

from __future__ import annotations

from collections.abc import Iterable

from windlass.items.ledger.changes import ItemChange, ItemState, LedgerEffects
from windlass.items.ledger.core import Ledger


def release(ledger: Ledger, number: int, offset: int, length: int, now: float) -> None:
    """Make a held item pending. ``offset``, ``length``: its row, the output of the stage before."""
    if ledger.table.state[number] != ItemState.HELD:
        return
    ledger.table.offset[number], ledger.table.length[number] = offset, length
    ledger.table.move(number, ItemState.PENDING)
    ledger.queues.push(number)
    ledger.gathering.arrive(number, now)


def bury(ledger: Ledger, changes: Iterable[ItemChange]) -> LedgerEffects:
    """Give up held items that a stage before has given up."""
    effects = LedgerEffects()
    for change in changes:
        if ledger.table.state[change.number] == ItemState.HELD:
            ledger.table.move(change.number, ItemState.DEAD)
            effects.items.append(change)
    ledger.check_failures()
    return effects


def hold(ledger: Ledger, numbers: Iterable[int]) -> LedgerEffects:
    """Hold items again that a stage before had given up and tries again."""
    effects = LedgerEffects()
    for number in numbers:
        if ledger.table.state[number] == ItemState.DEAD:
            ledger.table.move(number, ItemState.HELD)
            effects.items.append(ItemChange(number, ItemState.PENDING, 0, 0))
    ledger.failure = None
    ledger.check_failures()
    return effects
