import os
from pathlib import Path

import pytest

from windlass.kits.files import FileLock, write_atomic


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
