"""What the store says when it cannot work, and that nothing is acknowledged then."""

from __future__ import annotations

import asyncio
import errno
import os
import sqlite3
from pathlib import Path

import pytest
from store_helpers import crash, pod

from windlass.api.errors import WindlassError
from windlass.kits.clock import FakeClock
from windlass.store import database, errors, schema
from windlass.store.families import StoreOptions
from windlass.store.store import Store


def refused(path: Path, clock: FakeClock, **options: object) -> WindlassError:
    with pytest.raises(WindlassError) as told:
        Store.open(path, clock=clock, options=StoreOptions(**options))  # type: ignore[arg-type]
    assert told.value.remedies
    assert told.value.evidence
    assert str(path) in told.value.message
    return told.value


async def test_two_processes_cannot_share_a_database(tmp_path: Path, fake_clock: FakeClock) -> None:
    path = tmp_path / "w.db"
    store = Store.open(path, clock=fake_clock)
    assert refused(path, fake_clock).code == errors.LOCKED
    await store.create("pods", "d", "a", pod("a"))
    await store.close()
    await Store.open(path, clock=fake_clock).close()


async def test_another_program_that_locks_the_file(tmp_path: Path, fake_clock: FakeClock) -> None:
    path = tmp_path / "w.db"
    await Store.open(path, clock=fake_clock).close()
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")
    error = refused(path, fake_clock, busy_seconds=0.05)
    assert (error.code, error.remedies[0]) == (errors.LOCKED, f"fuser -v {path}")
    assert "SQLITE_BUSY" in error.evidence
    other.close()
    await Store.open(path, clock=fake_clock).close()


async def test_an_error_that_nobody_foresaw_ends_writing_too(
    fake_clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Store.open(":memory:", clock=fake_clock)
    told: list[WindlassError] = []
    store.on_failure = told.append

    def exhausted(*_: object) -> None:
        raise MemoryError("no more")

    async with asyncio.timeout(60):
        with pytest.raises(MemoryError):
            await store.on_database(exhausted)
        await store.create("pods", "d", "a", pod("a"))
        monkeypatch.setattr(store._database, "write", exhausted)
        with pytest.raises(WindlassError, match=":memory: failed"):
            await store.create("pods", "d", "b", pod("b"))
    assert told == [store.failure]
    assert store.get("pods", "d", "b") is None
    await store.close()


def test_a_file_that_is_no_database(tmp_path: Path, fake_clock: FakeClock) -> None:
    path = tmp_path / "w.db"
    path.write_bytes(b"this is not a database at all" * 1000)
    error = refused(path, fake_clock)
    assert error.code == errors.DAMAGED
    assert any("backup" in remedy for remedy in error.remedies)
    path.unlink()
    Store.open(path, clock=fake_clock)._database.abandon()  # the lock was released


@pytest.mark.parametrize(("how", "word"), [("truncate", "empty"), ("unlink", "missing")])
async def test_a_database_that_lost_everything_does_not_start_as_a_new_one(
    tmp_path: Path, fake_clock: FakeClock, how: str, word: str
) -> None:
    path = tmp_path / "w.db"
    store = Store.open(path, clock=fake_clock)
    await store.create("pods", "d", "p", pod("p"))
    await store.close()
    kept = path.read_bytes()
    if how == "truncate":
        os.truncate(path, 0)
    else:
        path.unlink()
    error = refused(path, fake_clock)
    assert error.code == errors.DAMAGED
    assert error.message.endswith(f"is {word}")
    assert any("backup" in remedy for remedy in error.remedies)
    path.write_bytes(kept)  # the first remedy
    store = Store.open(path, clock=fake_clock)
    assert store.count("pods") == 1
    await store.close()


def test_a_file_that_was_not_filled_yet_is_a_new_database(tmp_path: Path, fake_clock: FakeClock) -> None:
    """As a crash in the first moment of the first start leaves it."""
    path = tmp_path / "w.db"
    path.touch()
    store = Store.open(path, clock=fake_clock)
    assert store.count("pods") == 0
    store._database.abandon()


async def test_a_database_of_before_the_mark_gets_it(tmp_path: Path, fake_clock: FakeClock) -> None:
    path = tmp_path / "w.db"
    await Store.open(path, clock=fake_clock).close()
    mark = path.with_name("w.db.made")
    mark.unlink()
    await Store.open(path, clock=fake_clock).close()
    assert mark.exists()


async def test_a_damaged_page(tmp_path: Path, fake_clock: FakeClock) -> None:
    path = tmp_path / "w.db"
    store = Store.open(path, clock=fake_clock)
    for n in range(300):
        await store.create("pods", "d", f"p{n}", {**pod(f"p{n}"), "pad": "x" * 2000})
    await store.close()
    raw = bytearray(path.read_bytes())
    for start in range(8 * 4096, len(raw), 4096):
        raw[start : start + 64] = os.urandom(64)
    path.write_bytes(raw)
    assert refused(path, fake_clock).code == errors.DAMAGED


@pytest.mark.parametrize(
    "data",
    [
        b"not json",
        b'{"metadata":{"name":"p"}}',
        b'{"metadata":{"resourceVersion":"99","name":"p"}}',
        b'{"metadata":{"resourceVersion":"2","labels":{"a":1}}}',
    ],
)
async def test_an_object_that_is_no_object(tmp_path: Path, fake_clock: FakeClock, data: bytes) -> None:
    path = tmp_path / "w.db"
    store = Store.open(path, clock=fake_clock)
    await store.create("pods", "d", "p", pod("p"))
    await store.close()
    connection = sqlite3.connect(path)
    connection.execute("UPDATE objects_main SET data=?", (data,))
    connection.commit()
    connection.close()
    error = refused(path, fake_clock)
    assert error.code == errors.DAMAGED
    assert "d/p" in error.evidence


async def test_two_rows_for_one_object(tmp_path: Path, fake_clock: FakeClock) -> None:
    path = tmp_path / "w.db"
    store = Store.open(path, clock=fake_clock)
    await store.create("pods", "d", "p", pod("p"))
    await store.close()
    connection = sqlite3.connect(path)
    connection.execute(
        "INSERT INTO objects_main SELECT id+7, resource, namespace, name, rv, written_at, data FROM objects_main"
    )
    connection.commit()
    connection.close()
    assert refused(path, fake_clock).code == errors.DAMAGED


def test_a_network_file_system(
    tmp_path: Path, fake_clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database, "filesystem_of", lambda path: "nfs4")
    error = refused(tmp_path / "w.db", fake_clock)
    assert error.code == errors.NETWORK
    assert "nfs4" in error.message
    Store.open(
        tmp_path / "w.db", clock=fake_clock, options=StoreOptions(allow_network=True)
    )._database.abandon()


@pytest.mark.parametrize(
    ("number", "code"),
    [(errno.EROFS, errors.READ_ONLY), (errno.EACCES, errors.READ_ONLY), (errno.ENOSPC, errors.FULL)],
)
def test_a_folder_that_cannot_be_written(
    tmp_path: Path, fake_clock: FakeClock, monkeypatch: pytest.MonkeyPatch, number: int, code: str
) -> None:
    def refuse(self: object, *, wait: bool = False) -> bool:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(database.FileLock, "acquire", refuse)
    assert refused(tmp_path / "w.db", fake_clock).code == code


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_read_only_folder(tmp_path: Path, fake_clock: FakeClock) -> None:
    tmp_path.chmod(0o500)
    try:
        assert refused(tmp_path / "db" / "w.db", fake_clock).code == errors.READ_ONLY
    finally:
        tmp_path.chmod(0o700)


async def test_a_newer_schema(tmp_path: Path, fake_clock: FakeClock) -> None:
    path = tmp_path / "w.db"
    await Store.open(path, clock=fake_clock).close()
    connection = sqlite3.connect(path)
    connection.execute(f"PRAGMA user_version={len(schema.STEPS) + 1}")
    connection.close()
    assert refused(path, fake_clock).code == errors.NEWER


async def test_schema_steps_are_applied_in_order(
    tmp_path: Path, fake_clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "w.db"
    store = Store.open(path, clock=fake_clock)
    await store.create("pods", "d", "p", pod("p"))
    await store.close()
    steps = (
        *schema.STEPS,
        "CREATE TABLE extra(a); INSERT INTO extra VALUES (1)",
        "INSERT INTO extra VALUES (2)",
    )
    monkeypatch.setattr(schema, "STEPS", steps)
    store = Store.open(path, clock=fake_clock)
    assert store.count("pods") == 1
    await store.close()
    connection = sqlite3.connect(path)
    assert connection.execute("SELECT a FROM extra").fetchall() == [(1,), (2,)]
    assert schema.version(connection) == len(steps)
    connection.close()


async def test_a_schema_step_that_fails_leaves_no_trace(
    tmp_path: Path, fake_clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "w.db"
    await Store.open(path, clock=fake_clock).close()
    bad = (*schema.STEPS, "CREATE TABLE extra(a); INSERT INTO nowhere VALUES (1)")
    with monkeypatch.context() as patch:
        patch.setattr(schema, "STEPS", bad)
        assert refused(path, fake_clock).code == errors.FAILED
    connection = sqlite3.connect(path)
    assert schema.version(connection) == len(schema.STEPS)
    assert connection.execute("SELECT count(*) FROM sqlite_master WHERE name='extra'").fetchone() == (0,)
    connection.close()
    await Store.open(path, clock=fake_clock).close()


async def test_a_full_disk_acknowledges_nothing_and_ends_all_writing(
    tmp_path: Path, fake_clock: FakeClock
) -> None:
    path = tmp_path / "w.db"
    store = Store.open(path, clock=fake_clock)
    await store.create("pods", "d", "before", pod("before"))
    told: list[WindlassError] = []
    store.on_failure = told.append
    watcher = store.watch("pods", since=store.rv)
    await store.on_database(
        lambda database: database._connection.execute("PRAGMA max_page_count=24").fetchall()
    )
    big = {"pad": "x" * 50_000}
    outcomes = await asyncio.gather(
        *(store.create("pods", "d", f"p{n}", {**pod(f"p{n}"), **big}) for n in range(20)),
        return_exceptions=True,
    )
    assert all(isinstance(outcome, WindlassError) for outcome in outcomes)
    assert store.failure is not None
    assert store.failure.code == errors.FULL
    assert told == [store.failure]
    assert store.count("pods") == 1
    watcher.interrupt()
    assert await watcher.batch() == []
    with pytest.raises(WindlassError):
        store.create("pods", "d", "after", pod("after"))
    with pytest.raises(WindlassError):
        await store.maintain()
    with pytest.raises(WindlassError):
        await store.reached(store.rv + 1)
    await store.close()
    store = Store.open(path, clock=fake_clock)
    assert [entry.name for entry in store.select("pods")] == ["before"]
    await store.close()


async def test_writes_behind_a_failed_batch_fail_too(tmp_path: Path, fake_clock: FakeClock) -> None:
    store = Store.open(tmp_path / "w.db", clock=fake_clock)
    await store.on_database(lambda database: database._connection.execute("DROP TABLE log_main"))
    first = store.create("pods", "d", "a", pod("a"))
    second = store.create("events", "d", "e", {"metadata": {"name": "e"}})
    for future in (first, second):
        with pytest.raises(WindlassError) as told:
            await future
        assert told.value.code == errors.FAILED
    crash(store)


async def test_a_closed_store_refuses(fake_clock: FakeClock) -> None:
    store = Store.open(":memory:", clock=fake_clock)
    await store.close()
    await store.close()
    with pytest.raises(WindlassError):
        store.create("pods", "d", "a", pod("a"))
