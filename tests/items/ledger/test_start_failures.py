"""A program that cannot start fails its batch before all rows have spent their retries."""

from __future__ import annotations

import itertools

import pytest

from windlass.items.ledger.changes import ItemGroup, ItemResult
from windlass.items.ledger.core import Ledger
from windlass.items.ledger.start_failures import EXITS, PROGRAM_DOES_NOT_START
from windlass.items.ledger.table import ItemTable
from windlass.items.spec import parse_batch

_ENDED = "the command ended with exit code "
NO_FILE = f"{_ENDED}2 before it answered: python3: can't open file '/x/nofile.py': [Errno 2] No such file"


def batch(rows: int) -> Ledger:
    table, ids = ItemTable(), itertools.count()
    for _ in range(rows):
        table.add(0, 0, 10)
    spec = parse_batch({"metadata": {"name": "job"}, "spec": {"items": {"retries": 3, "retryBackoff": 0}}})
    ledger = Ledger(spec, table, [ItemGroup(0, "g")], lambda: f"lease-{next(ids)}")
    for number in range(rows):
        ledger.queues.push(number)
    return ledger


def exits(ledger: Ledger, count: int, message: str, answered: bool = False) -> None:
    for number in range(count):
        lease, _ = ledger.lease("w", "i", float(number))
        assert lease is not None
        (first, *_) = lease.items
        row = b"{}" if answered and number == 0 else b""
        failed = ItemResult(first, row, kind="program", reason="ProcessExited", message=message)
        ledger.commit(lease.id, [failed], 0.0, float(number))
        ledger.give_back(lease.id, "i", float(number))


def test_program_that_cannot_be_opened_fails_the_batch_with_its_error():
    ledger = batch(100)
    exits(ledger, EXITS - 1, NO_FILE)
    assert ledger.failure is None
    exits(ledger, 1, NO_FILE)
    assert ledger.failure == (PROGRAM_DOES_NOT_START, f"{NO_FILE} (5 times, and it answered no row)")
    ledger.retry_dead()
    assert ledger.failure is None
    few = batch(1)
    exits(few, 2, NO_FILE)
    assert few.failure is None


@pytest.mark.parametrize(
    "message",
    [
        f"{_ENDED}1 before it answered: ConnectionRefusedError: [Errno 111] Connection refused",
        "the command ended with signal SIGKILL before it answered",
    ],
)
def test_ends_that_may_pass_and_a_program_that_answered_fail_no_batch(message: str):
    ledger = batch(100)
    exits(ledger, 2 * EXITS, message)
    assert ledger.failure is None
    answered = batch(100)
    exits(answered, 2 * EXITS, NO_FILE, answered=True)
    assert answered.failure is None
