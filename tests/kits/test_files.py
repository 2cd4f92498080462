import os
from pathlib import Path

import pytest

from windlass.kits.files import FileLock, is_stream, write_atomic, write_named


def test_replaces_the_whole_file_and_sets_its_mode(tmp_path: Path):
    target = tmp_path / "token"
    write_atomic(target, "old")
    write_atomic(target, b"new", mode=0o640)
    assert target.read_bytes() == b"new"
    assert target.stat().st_mode & 0o777 == 0o640
    assert os.listdir(tmp_path) == ["token"]


def test_a_write_that_fails_leaves_the_old_file_and_no_rest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    target = tmp_path / "token"
    write_atomic(target, "old")

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        write_atomic(target, "new")
    assert target.read_text() == "old"
    assert os.listdir(tmp_path) == ["token"]


def test_what_a_user_named_is_written_whole_and_through_a_link(tmp_path: Path):
    plain, link = tmp_path / "plain", tmp_path / "link"
    plain.write_text("old")
    link.symlink_to(plain)
    write_named(link, "new")
    assert (link.is_symlink(), plain.read_text()) == (True, "new")
    write_named(tmp_path / "fresh", "x")
    assert (tmp_path / "fresh").read_text() == "x"
    assert not is_stream(tmp_path / "fresh")


def test_a_pipe_and_a_device_stay_what_they_are(tmp_path: Path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    write_named(pipe, "told")
    assert (os.read(reader, 9), pipe.is_fifo()) == (b"told", True)
    os.close(reader)
    read_end, write_end = os.pipe()
    write_named(Path(f"/dev/fd/{write_end}"), "told")
    assert os.read(read_end, 9) == b"told"
    os.close(read_end)
    os.close(write_end)
    write_named(Path(os.devnull), "gone")
    assert Path(os.devnull).is_char_device()


def test_an_open_file_gets_what_is_written_behind_what_it_has(tmp_path: Path):
    """As where standard output leads to a file, and a list is to go to ``/dev/stdout``."""
    with open(tmp_path / "out", "w+") as out:
        out.write("table\n")
        out.flush()
        write_named(Path(f"/dev/fd/{out.fileno()}"), "list\n")
        out.seek(0)
        assert out.read() == "table\nlist\n"


def test_a_lock_excludes_others_until_released(tmp_path: Path):
    first, second = FileLock(tmp_path / "lock"), FileLock(tmp_path / "lock")
    assert first.acquire()
    assert not second.acquire()
    first.release()
    assert second.acquire()
    second.release()


def test_a_lock_dies_with_its_holder(tmp_path: Path):
    path = tmp_path / "lock"
    read_end, write_end = os.pipe()
    child = os.fork()
    if child == 0:
        FileLock(path).acquire()
        os.write(write_end, b"held")
        os._exit(0)
    assert os.read(read_end, 4) == b"held"
    os.waitpid(child, 0)
    os.close(read_end)
    os.close(write_end)
    with FileLock(path):
        assert not FileLock(path).acquire()
