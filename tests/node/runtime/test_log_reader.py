"""Writing, rotating and reading container logs."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from node_agent_server import Options

from windlass.kits.clock import FakeClock, SystemClock
from windlass.node.paths import NodePaths
from windlass.node.runtime import attempt_files, syscalls
from windlass.node.runtime.log_file import CHUNK, LogFile, RecordEncoder, record
from windlass.node.runtime.log_reader import (
    Cursor,
    LogDecoder,
    LogNotFound,
    LogReader,
    last_text,
    prune,
    tail_offset,
)

METADATA = {"namespace": "ns", "name": "p", "uid": "u"}
POD: dict[str, Any] = {"metadata": METADATA}
T0 = 1_767_268_800  # 2026-01-01T12:00:00Z


def lines(*texts: str, start: int = 0) -> bytes:
    """Whole records, one a second."""
    return b"".join(
        record("stdout", True, text.encode(), (T0 + start + n) * 10**9) for n, text in enumerate(texts)
    )


def write(folder: Path, number: int, content: bytes, name: str = "main") -> Path:
    path = NodePaths(folder).container_logs(METADATA, name) / f"{number}.log"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


async def read(folder: Path, clock: Any = None, **options: Any) -> str:
    reader = LogReader(folder, clock=clock or FakeClock(T0 + 100))
    return b"".join([c async for c in reader.open(POD, Options("main", **options))]).decode()


# -- writing ---------------------------------------------------------------------------------------


def test_the_format_is_that_of_the_container_runtimes() -> None:
    assert record("stderr", False, b"half", 1_767_268_800_000_000_005) == (
        b"2026-01-01T12:00:00.000000005Z stderr P half\n"
    )


def test_long_lines_are_split_and_unfinished_ones_can_be_seen() -> None:
    cutter = RecordEncoder("stdout")
    out = cutter.feed(b"x" * (CHUNK + 5) + b"\nab")
    tags = [line.split(b" ")[2] for line in out.splitlines()]
    assert tags == [b"P", b"F"]
    assert cutter.has_partial_line
    assert cutter.flush().endswith(b" P ab\n")
    assert not cutter.has_partial_line
    assert cutter.feed(b"c\n").endswith(b" F c\n")


@settings(max_examples=60, deadline=None)
@given(st.binary(max_size=300), st.lists(st.integers(1, 40), max_size=12), st.integers(120, 4000))
def test_what_goes_in_comes_out(
    tmp_path_factory: pytest.TempPathFactory, data: bytes, cuts: list[int], cap: int
) -> None:
    """Any bytes in any pieces with flushes between, over rotations, are read back as they were."""
    folder = tmp_path_factory.mktemp("log")
    log = LogFile(str(folder / "0.log"), max_bytes=cap, max_files=1000)
    cutter = RecordEncoder("stdout")
    position = 0
    for cut in cuts:
        if text := cutter.feed(data[position : position + cut]):
            log.write(text)
        if cut % 3 == 0 and (text := cutter.flush()):
            log.write(text)
        position += cut
    for text in (cutter.feed(data[position:]), cutter.finish()):
        if text:
            log.write(text)
    log.close()
    cursor = Cursor(folder / "0.log")
    decoder = LogDecoder(timestamps=False)
    assert b"".join(decoder.decode(block) for block in cursor.blocks()) == data
    cursor.close()


def test_rotation_keeps_so_many_files(tmp_path: Path) -> None:
    log = LogFile(str(tmp_path / "0.log"), max_bytes=200, max_files=3)
    for number in range(50):
        log.write(lines(f"line {number}"))
    log.close()
    assert sorted(os.listdir(tmp_path)) == ["0.log", "0.log.1", "0.log.2", "0.log.dropped"]
    assert all((tmp_path / name).stat().st_size <= 200 for name in os.listdir(tmp_path))
    assert last_text(tmp_path, 0, lines=2) == "line 48\nline 49\n"


def slowly_read(tmp_path: Path, meanwhile: int) -> str:
    """A log of one line a file, of which four are kept; ``meanwhile`` lines are written while the second is read."""
    log = LogFile(str(tmp_path / "0.log"), max_bytes=50, max_files=4)
    for number in range(3):
        log.write(lines(f"line {number}", start=number))
    cursor, decoder = Cursor(tmp_path / "0.log"), LogDecoder(timestamps=True)
    found = []
    for at, block in enumerate(cursor.blocks()):
        found.append(decoder.decode(block))
        for number in range(3, 3 + meanwhile) if at == 1 else ():
            log.write(lines(f"line {number}", start=number))
    cursor.close()
    log.close()
    return b"".join(found).decode()


@pytest.mark.parametrize("meanwhile", range(4))
def test_a_reader_that_is_slower_than_the_writer_misses_nothing_that_is_kept(
    tmp_path: Path, meanwhile: int
) -> None:
    said = slowly_read(tmp_path, meanwhile)
    assert [line.partition(" ")[2] for line in said.splitlines()] == [
        f"line {n}" for n in range(3 + meanwhile)
    ]


def test_a_reader_that_the_writer_overtakes_says_where_lines_may_be_missing(tmp_path: Path) -> None:
    said = slowly_read(tmp_path, 7)
    assert [line.partition(" ")[2] for line in said.splitlines()] == [
        "line 0",
        "line 1",
        "line 2",
        "[windlass: lines may be missing here: the log grew faster than it was read]",
        "line 6",
        "line 7",
        "line 8",
        "line 9",
    ]
    stamps = [line.partition(" ")[0] for line in said.splitlines()]
    assert stamps == sorted(stamps)


def test_a_full_disk_loses_lines_but_says_so_and_leaves_no_halves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = LogFile(str(tmp_path / "0.log"), max_bytes=10_000, max_files=2)
    log.write(lines("one"))
    real = os.write

    def full(descriptor: int, data: Any) -> int:
        real(descriptor, bytes(data)[:7])
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "write", full)
    log.write(lines("two"))
    monkeypatch.setattr(os, "write", real)
    log.write(lines("three"))
    log.close()
    text = last_text(tmp_path, 0)
    assert text.startswith("one\n[windlass: ")
    assert text.endswith("bytes of log were lost]\nthree\n")
    assert log.lost_bytes > 0


# -- reading ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("files", [1, 3])
async def test_a_log_whose_beginning_is_gone_says_so_to_who_reads_it_from_there(
    tmp_path: Path, files: int
) -> None:
    path = write(tmp_path, 0, b"")
    log = LogFile(str(path), max_bytes=100, max_files=files)
    said = [lines(f"line {number}", start=number) for number in range(9)]
    for one in said[:files]:
        log.write(one)
    assert await read(tmp_path) == "".join(f"line {number}\n" for number in range(files)), "nothing is gone"
    for one in said[files:]:
        log.write(one)
    log.close()
    first, *kept = (await read(tmp_path)).splitlines()
    gone = len(b"".join(said[: 9 - len(kept)]))
    assert kept == [f"line {number}" for number in range(9 - len(kept), 9)]
    assert first == f"[windlass: {gone} earlier bytes of the log were removed]"
    assert await read(tmp_path, tail_lines=1) == "line 8\n"
    assert (await read(tmp_path, timestamps=True)).startswith("2026-01-01T12:00:0")


async def test_whole_tail_since_and_timestamps(tmp_path: Path) -> None:
    write(tmp_path, 0, lines("a", "b", "c", "d"))
    assert await read(tmp_path) == "a\nb\nc\nd\n"
    assert await read(tmp_path, tail_lines=2) == "c\nd\n"
    assert await read(tmp_path, tail_lines=0) == ""
    assert await read(tmp_path, tail_lines=99) == "a\nb\nc\nd\n"
    assert await read(tmp_path, since="2026-01-01T12:00:02") == "c\nd\n"
    assert await read(tmp_path, since="2026-01-01T12:00:01.000000001") == "c\nd\n"
    assert await read(tmp_path, tail_lines=1, timestamps=True) == "2026-01-01T12:00:03.000000000Z d\n"


async def test_one_stream_is_read(tmp_path: Path) -> None:
    at = 1_767_268_800_000_000_000
    written = (
        ("stdout", True, b"a"),
        ("stderr", False, b"b"),
        ("stdout", True, b"c"),
        ("stderr", True, b"d"),
    )
    write(tmp_path, 0, b"".join(record(*entry, at) for entry in written))
    assert await read(tmp_path, stream="stdout") == "a\nc\n"
    assert await read(tmp_path, stream="stderr") == "bd\n"


async def test_the_tail_reaches_back_over_rotated_files(tmp_path: Path) -> None:
    path = write(tmp_path, 0, lines("e", "f"))
    path.with_name("0.log.1").write_bytes(lines("c", "d"))
    path.with_name("0.log.2").write_bytes(lines("a", "b"))
    assert await read(tmp_path) == "a\nb\nc\nd\ne\nf\n"
    for count in range(8):
        assert await read(tmp_path, tail_lines=count) == "".join(
            f"{c}\n" for c in "abcdef"[max(0, 6 - count) :]
        )


async def test_previous_is_the_attempt_before(tmp_path: Path) -> None:
    write(tmp_path, 0, lines("first"))
    with pytest.raises(LogNotFound, match='previous terminated container "main" in pod "p" not found'):
        await read(tmp_path, previous=True)
    write(tmp_path, 1, lines("second"))
    assert await read(tmp_path) == "second\n"
    assert await read(tmp_path, previous=True) == "first\n"


async def test_no_log_is_told_in_the_callers_own_exception(tmp_path: Path) -> None:
    class Mine(Exception):
        pass

    reader = LogReader(tmp_path, clock=FakeClock(), missing=Mine)
    with pytest.raises(Mine, match="has no log"):
        await anext(aiter(reader.open(POD, Options("main"))))


async def test_following_goes_over_rotations_until_the_container_ended(tmp_path: Path) -> None:
    path = write(tmp_path, 0, b"")
    attempt = NodePaths(tmp_path).attempt("u", "main", 0)
    attempt.mkdir(parents=True)
    attempt_files.create(str(attempt), attempt_files.CLAIM, attempt_files.identity(os.getpid()))
    log = LogFile(str(path), max_bytes=300, max_files=100)

    async def produce() -> None:
        for number in range(60):
            log.write(lines(f"n{number}"))
            if number % 7 == 0:
                await asyncio.sleep(0.02)
        attempt_files.write(str(attempt), attempt_files.EXIT, {"code": 0})

    task = asyncio.ensure_future(produce())
    async with asyncio.timeout(60):
        text = await read(tmp_path, SystemClock(), follow=True)
    await task
    log.close()
    assert text == "".join(f"n{number}\n" for number in range(60))


async def test_following_ends_when_the_supervisor_is_gone(tmp_path: Path) -> None:
    write(tmp_path, 0, lines("x"))
    attempt = NodePaths(tmp_path).attempt("u", "main", 0)
    attempt.mkdir(parents=True)
    gone = {"pid": 1, "start_time": 1, "boot_id": syscalls.boot_id()}
    attempt_files.create(str(attempt), attempt_files.CLAIM, gone)
    async with asyncio.timeout(30):
        assert await read(tmp_path, SystemClock(), follow=True) == "x\n"


@settings(max_examples=80, deadline=None)
@given(st.lists(st.tuples(st.sampled_from("PF"), st.integers(0, 30)), max_size=40), st.integers(1, 45))
def test_tail_offset_counts_lines_not_records(
    tmp_path_factory: pytest.TempPathFactory, shape: list[tuple[str, int]], wanted: int
) -> None:
    path = tmp_path_factory.mktemp("tail") / "l"
    stored = [record("stdout", tag == "F", b"t" * size, T0 * 10**9) for tag, size in shape]
    path.write_bytes(b"".join(stored))
    begins, offset, fresh = [], 0, True  # naive: a line begins after an F record
    for (tag, _), one in zip(shape, stored, strict=True):
        if fresh:
            begins.append(offset)
        fresh = tag == "F"
        offset += len(one)
    expected = begins[-wanted] if len(begins) >= wanted else 0
    assert tail_offset(path, wanted) == (expected, min(wanted, len(begins)))


def test_old_logs_of_ended_pods_go_first(tmp_path: Path) -> None:
    for number, uid in enumerate(("live", "old", "mid", "new")):
        path = tmp_path / f"ns_p_{uid}" / "main" / "0.log"
        path.parent.mkdir(parents=True)
        path.write_bytes(b"x" * 1000)
        for where in (path, path.parent, path.parent.parent):
            os.utime(where, (T0 + number, T0 + number))
    arguments: dict[str, Any] = {"now": T0 + 10, "max_total_bytes": 2500}
    assert prune(tmp_path, {"live"}, max_age_seconds=1000, **arguments) == ["ns_p_old", "ns_p_mid"]
    arguments["max_total_bytes"] = 10**9
    assert prune(tmp_path, {"live"}, max_age_seconds=5, **arguments) == ["ns_p_new"]
    assert os.listdir(tmp_path) == ["ns_p_live"]
    assert prune(tmp_path / "none", (), max_age_seconds=1, **arguments) == []
