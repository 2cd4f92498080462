"""Files of a stage before the last: its ledger, and the journal that the next stage reads."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from pathlib import Path

from windlass.items.driver.storage import Storage
from windlass.items.ledger.changes import ItemChange, ItemState, LedgerEffects
from windlass.items.ledger.database import VERSION, LedgerFile
from windlass.items.ledger.journal import RowJournal
from windlass.items.places import Places
from windlass.kits.clock import Clock

TOKEN = "stages"
"""Key of the ledgers: ledgers of all stages that were made together have the same value."""

_NEW = (0, 0, None, None, None, None, None, None)
"""Columns of an item without attempts and output, from ``attempts`` on."""


class StageStorage(Storage):
    """Storage of one stage. ``died`` and ``left`` are called with items that the stage gave up
    and, once their rows are stored, with number, offset and length of items that it has done."""

    def __init__(
        self,
        places: Places,
        ledger: LedgerFile,
        journal: RowJournal,
        clock: Clock,
        died: Callable[[list[ItemChange]], None],
        left: Callable[[list[tuple[int, int, int]]], None],
    ) -> None:
        super().__init__(places, ledger, journal, clock)
        self._died, self._left = died, left

    def add(self, effects: LedgerEffects) -> None:
        super().add(effects)
        dead = [change for change in effects.items if change.state == ItemState.DEAD]
        if dead:
            self._died(dead)

    def stored(self, placed: list[tuple[int, int, int]]) -> None:
        if placed:
            self._left(placed)


def ledger_path(places: Places, stage: str) -> Path:
    return places.state / f"ledger.{stage}.sqlite"


def journal_path(places: Places, stage: str) -> Path:
    return places.state / f"rows.{stage}.journal"


def are_complete(places: Places, last: LedgerFile, stages: Sequence[str]) -> bool:
    """Return whether the files of all stages before the last belong to this ledger of the last."""
    token = last.meta(TOKEN)
    return bool(token) and all(_belongs(places, stage, token) for stage in stages)


def _belongs(places: Places, stage: str, token: str) -> bool:
    path, journal = ledger_path(places, stage), journal_path(places, stage)
    if not path.exists() or not journal.exists():
        return False
    try:
        ledger = LedgerFile(path)
        try:
            end = int(ledger.meta("journal_end") or 0)
            return ledger.meta(TOKEN) == token and journal.stat().st_size >= end
        finally:
            ledger.close()
    except sqlite3.DatabaseError:
        return False


def create_all(places: Places, last: LedgerFile, stages: Sequence[str], token: str) -> None:
    """Make the files of the stages before the last from the admitted items.

    An item with an end, such as a row that an earlier job has left, passes no stage. The last
    ledger gets the token at the end: after a stop in between all files are made again.
    """
    for index, stage in enumerate(stages):
        path = ledger_path(places, stage)
        ledger = LedgerFile(path.with_suffix(".new"), create=True)
        try:
            rows = (
                (number, None, group, length if index == 0 else 0, sort, _open_or_done(state), *_NEW)
                for number, group, length, sort, state in last.admitted()
            )
            ledger.add_items(rows)
            ledger.set_meta(**{TOKEN: token, "version": VERSION, "journal_end": 0})
            journal_path(places, stage).write_bytes(b"")
            ledger.seal(path)
        finally:
            ledger.close()
    last.set_meta(**{TOKEN: token})


def _open_or_done(state: int) -> int:
    return int(ItemState.PENDING if state == ItemState.PENDING else ItemState.DONE)


def remove_all(places: Places, stages: Sequence[str]) -> None:
    """Remove the files of the stages before the last."""
    for stage in stages:
        path = ledger_path(places, stage)
        for found in (path, Path(f"{path}-wal"), Path(f"{path}-shm"), journal_path(places, stage)):
            found.unlink(missing_ok=True)
