"""The write-ahead log is folded in beside the writer: nothing is lost, errors are told, the log ends."""

from __future__ import annotations

import shutil
import sqlite3
from pathlib import Path

import pytest

from windlass.api.errors import WindlassError
from windlass.kits.clock import FakeClock
from windlass.store import checkpoint
from windlass.store.checkpoint import Checkpointer
from windlass.store.store import Store


def connect(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("PRAGMA wal_autocheckpoint=0")
    return connection


def write(connection: sqlite3.Connection, rows: int) -> None:
    connection.executemany("INSERT INTO t VALUES(?)", [(b"x" * 3000,)] * rows)


@pytest.fixture
def writer(tmp_path: Path) -> sqlite3.Connection:
    connection = connect(tmp_path / "db")
    connection.execute("CREATE TABLE t(data BLOB)")
    return connection


def log_bytes(folder: Path) -> int:
    return (folder / "db-wal").stat().st_size


def test_what_was_asked_for_is_in_the_file(tmp_path: Path, writer: sqlite3.Connection) -> None:
    checkpointer = Checkpointer(connect(tmp_path / "db"))
    write(writer, 50)
    checkpointer.written(1_000, writer)
    checkpointer.close()
    shutil.copy(tmp_path / "db", tmp_path / "copy")  # without its log
    copy = connect(tmp_path / "copy")
    assert copy.execute("SELECT count(*) FROM t").fetchone() == (50,)
    copy.close()
    writer.close()


def test_few_pages_are_left_in_the_log(tmp_path: Path, writer: sqlite3.Connection) -> None:
    checkpointer = Checkpointer(connect(tmp_path / "db"))
    write(writer, 50)
    checkpointer.written(100, writer)
    checkpointer.close()
    assert (tmp_path / "db").stat().st_size < 50 * 3000 < log_bytes(tmp_path)
    writer.close()


def test_a_log_that_has_become_long_starts_again(
    tmp_path: Path, writer: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpoint, "_LONG_LOG_PAGES", 0)
    checkpointer = Checkpointer(connect(tmp_path / "db"))
    write(writer, 50)
    before = log_bytes(tmp_path)
    for _ in range(5):
        checkpointer.written(1_000, writer)
        write(writer, 40)
    assert log_bytes(tmp_path) == before
    checkpointer.close()
    writer.close()


def test_an_error_is_raised_by_the_next_commit(tmp_path: Path, writer: sqlite3.Connection) -> None:
    second = connect(tmp_path / "db")
    checkpointer = Checkpointer(second)
    checkpointer.raise_failure()
    second.close()
    checkpointer.written(1_000, writer)
    checkpointer.close()
    with pytest.raises(sqlite3.Error):
        checkpointer.raise_failure()
    writer.close()


async def test_a_store_whose_log_cannot_be_folded_in_stops(
    tmp_path: Path, fake_clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: sqlite3.Connection) -> tuple[int, int]:
        raise sqlite3.OperationalError("disk I/O error")

    monkeypatch.setattr(checkpoint, "_PAGES_AT_ONCE", 1)
    monkeypatch.setattr(checkpoint, "_checkpoint", fail)
    store = Store.open(tmp_path / "db", clock=fake_clock)

    async def write_on() -> None:
        for number in range(10_000):
            await store.create("configmaps", "ns", f"n{number}", {"metadata": {"name": f"n{number}"}})

    with pytest.raises(WindlassError):
        await write_on()
    assert store.failure is not None
    await store.close()
