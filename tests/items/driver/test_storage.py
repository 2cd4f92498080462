"""Storage of a running batch while its disk is full, and what a crash leaves behind."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from windlass.items.admission import BatchAdmission
from windlass.items.driver.service import Driver
from windlass.items.driver.storage import Storage
from windlass.items.ledger.changes import ItemChange, ItemState, LedgerEffects
from windlass.items.ledger.database import LedgerFile
from windlass.items.ledger.journal import RowJournal
from windlass.items.places import PlaceError, Places, places_of, prepare
from windlass.items.spec import parse_batch
from windlass.kits.clock import FakeClock, SystemClock


def admitted(tmp_path: Path, rows: int) -> Places:
    lines = "".join(f'{{"id": {n}}}\n' for n in range(rows))
    spec = {"input": {"inline": lines}, "outputs": {"path": str(tmp_path / "out.jsonl")}}
    batch = parse_batch({"metadata": {"uid": "u"}, "spec": spec})
    places = places_of(batch, {})
    prepare(places)
    BatchAdmission(batch, places, {}).run()
    return places


def done(number: int) -> LedgerEffects:
    row = b'{"id":%d}' % number
    return LedgerEffects([ItemChange(number, ItemState.DONE, 0, 0, row=row)])


class FullJournal(RowJournal):
    """Journal on a disk that is full for the first writes."""

    failures = 3

    def append(self, rows: Sequence[bytes], *, durable: bool = True) -> list[int]:
        if self.failures:
            self.failures -= 1
            raise OSError(errno.ENOSPC, "No space left on device")
        return super().append(rows, durable=durable)


class SkippingClock(FakeClock):
    """Clock that moves by itself when the code sleeps."""

    async def sleep(self, seconds: float) -> None:
        self.jump(seconds)
        await asyncio.sleep(0.001)


async def test_a_full_disk_is_told_and_nothing_is_lost(tmp_path: Path) -> None:
    places = admitted(tmp_path, 3)
    storage = Storage(places, LedgerFile(places.ledger), FullJournal(places.journal), SkippingClock())
    told = []

    async def watch() -> None:
        while True:
            if storage.blocked is not None:
                told.append(storage.blocked)
            await asyncio.sleep(0)

    watcher, writer = asyncio.create_task(watch()), asyncio.create_task(storage.run())
    storage.add(done(1))
    await storage.durable()
    assert storage.blocked is None
    assert {one.reason for one in told} == {"DiskFull"}
    assert "free space, then it continues" in str(told[0])
    await storage.close()
    watcher.cancel()
    writer.cancel()
    ledger = LedgerFile(places.ledger)
    assert [state for _, state, _, _ in ledger.rows()] == [0, 2, 0]
    ledger.close()


async def test_writes_are_joined_and_rows_behind_the_end_are_cut_off(tmp_path: Path) -> None:
    places = admitted(tmp_path, 200)
    storage = Storage(places, LedgerFile(places.ledger), RowJournal(places.journal), SystemClock())
    writer = asyncio.create_task(storage.run())
    writes = []
    original = storage._write
    storage._write = lambda one: (writes.append(one), original(one))[1]  # type: ignore[method-assign]

    async def commit(number: int) -> None:
        storage.add(done(number))
        await storage.durable()

    await asyncio.gather(*(commit(n) for n in range(200)))
    assert len(writes) < 20
    await storage.close()
    writer.cancel()
    with places.journal.open("ab") as stream:
        stream.write(b'{"id":7}\n{"id":')  # written by a driver that was killed before its ledger was
    ledger, journal = LedgerFile(places.ledger), RowJournal(places.journal)
    journal.cut(int(ledger.meta("journal_end")))
    view = journal.view()
    rows = [bytes(view[place : place + length]) for _, state, place, length in ledger.rows() if state == 2]
    assert rows == [b'{"id":%d}' % n for n in range(200)]
    assert len(bytes(view[:])) == sum(len(row) + 1 for row in rows)
    del view
    journal.close()
    ledger.close()


def test_a_failed_transaction_leaves_neither_states_nor_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    places = admitted(tmp_path, 2)
    ledger, journal = LedgerFile(places.ledger), RowJournal(places.journal)
    storage = Storage(places, ledger, journal, SystemClock())
    storage.add(done(0))

    def full(**values: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(ledger, "set_meta", full)
    with pytest.raises(OSError, match="No space"):
        storage._write(storage._writes)
    assert journal.end == 0
    assert places.journal.stat().st_size == 0
    assert [state for _, state, _, _ in ledger.rows()] == [0, 0]
    journal.close()
    ledger.close()
    storage._thread.shutdown()


@pytest.mark.parametrize("error", [OSError(errno.ENOSPC, "full"), PlaceError("DiskFull", "the disk is full")])
async def test_a_driver_waits_for_space_before_it_has_rows(
    tmp_path: Path, fake_clock: FakeClock, error: Exception
) -> None:
    document = {"metadata": {}, "spec": {"outputs": {"path": str(tmp_path / "out.jsonl")}}}
    driver = Driver(parse_batch(document), {}, fake_clock)
    outcomes: list[Any] = [error, error, 5]

    def work() -> int:
        found = outcomes.pop(0)
        if isinstance(found, Exception):
            raise found
        return found

    places = places_of(driver.batch, {})
    waiting = asyncio.create_task(driver._with_space(places, work))
    while len(outcomes) == 3 or "blocked" not in await driver.status():
        await asyncio.sleep(0.01)
    assert (await driver.status())["blocked"]["reason"] == "DiskFull"
    while not waiting.done():
        await fake_clock.advance(2.0)
        await asyncio.sleep(0.01)
    assert waiting.result() == 5
    assert "blocked" not in await driver.status()
    outcomes.append(OSError(errno.EACCES, "no"))
    with pytest.raises(OSError, match="no"):
        await driver._with_space(places, work)
