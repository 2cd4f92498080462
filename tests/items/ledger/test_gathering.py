"""Batches of a stage wait until they are full, at most ``maxWaitSeconds``."""

from __future__ import annotations

import itertools

from windlass.items.ledger.changes import ItemGroup, ItemState
from windlass.items.ledger.core import Ledger
from windlass.items.ledger.held import release
from windlass.items.ledger.table import ItemTable
from windlass.items.spec import parse_batch


def held_ledger(rows: int, groups: int = 1, **batching: object) -> Ledger:
    """Return a ledger of rows that have not left the stage before."""
    spec = {"batching": {"mode": "Fixed", "size": 4, "maxWaitSeconds": 5, **batching}}
    table = ItemTable()
    for number in range(rows):
        table.add(number % groups, 0, 10)
        table.move(number, ItemState.HELD)
    ids = itertools.count()
    records = [ItemGroup(number, f"g{number}") for number in range(groups)]
    ledger = Ledger(
        parse_batch({"metadata": {"name": "job"}, "spec": spec}), table, records, lambda: f"lease-{next(ids)}"
    )
    ledger.gathering.more = lambda: table.counts[ItemState.HELD] > 0
    return ledger


def lease(ledger: Ledger, now: float) -> list[int]:
    found, _ = ledger.lease("w", "i", now)
    return list(found.items) if found is not None else []


def test_a_batch_is_sent_when_it_is_full_or_its_first_row_has_waited():
    ledger = held_ledger(20)
    for number in range(3):
        release(ledger, number, 0, 10, 10.0 + number)
    assert lease(ledger, 12.5) == []
    assert ledger.gathering.until == 15.0
    release(ledger, 3, 0, 10, 13.0)
    release(ledger, 4, 0, 10, 13.0)
    assert lease(ledger, 13.0) == [0, 1, 2, 3]  # full
    assert lease(ledger, 17.9) == []  # the wait is counted from the row that is first now
    assert lease(ledger, 18.0) == [4]


def test_a_batch_waits_for_nothing_that_cannot_come():
    ledger = held_ledger(8)
    release(ledger, 0, 0, 10, 10.0)
    ledger.gathering.more = lambda: False  # the stage before has ended, or has no room
    assert lease(ledger, 10.0) == [0]
    ledger.gathering.more = lambda: True
    release(ledger, 1, 0, 10, 11.0)
    ledger.commit("lease-0", [], 0, 11.0)
    ledger.give_back("lease-0", "i", 11.0)  # a row that is leased again does not wait
    assert lease(ledger, 16.0) == [1, 0]
    at_once = held_ledger(8, maxWaitSeconds=0)
    release(at_once, 0, 0, 10, 10.0)
    assert lease(at_once, 10.0) == [0]


def test_other_groups_are_served_while_one_waits():
    ledger = held_ledger(20, groups=2)
    for number in (0, 1, 3, 5, 7):
        release(ledger, number, 0, 10, 10.0)
    assert lease(ledger, 10.0) == [1, 3, 5, 7]
    assert lease(ledger, 10.0) == []
    assert lease(ledger, 15.0) == [0]


def test_limits_of_bytes_and_tokens_make_a_batch_full():
    for limit in ({"maxBytes": 20}, {"maxTokens": 5}):
        ledger = held_ledger(20, **limit)
        release(ledger, 0, 0, 10, 10.0)
        assert lease(ledger, 10.0) == []
        release(ledger, 1, 0, 10, 10.0)
        assert lease(ledger, 10.0) == [0, 1]
