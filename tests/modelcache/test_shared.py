"""Models in memory: loaded by one worker, attached by the others, removed by the last."""

from __future__ import annotations

import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from windlass.modelcache.folder import ModelCacheError
from windlass.modelcache.shared import attach, memory_of


def test_one_worker_loads_and_three_attach(tmp_path: Path) -> None:
    files = tmp_path / "files"
    files.mkdir()
    (files / "w").write_bytes(b"x" * 1000)
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda _: attach(files, "m-1", tmp_path), range(4)))
    assert sorted(each.loaded for each in found) == [False, False, False, True]
    assert {each.bytes for each in found} == {1000}
    for each in found[:3]:
        each.close()
        assert (found[3].files / "w").read_bytes() == b"x" * 1000
    found[3].close()
    assert not found[3].files.exists()


def test_a_model_above_the_limit_is_refused_and_nothing_stays(tmp_path: Path) -> None:
    files = tmp_path / "files"
    files.mkdir()
    (files / "w").write_bytes(b"x" * 1000)
    with pytest.raises(ModelCacheError, match="sizeLimit allows 10"):
        attach(files, "m-1", tmp_path, limit=10)
    attached = attach(files, "m-1", tmp_path, limit=1000)
    assert attached.loaded
    attached.close()


def test_two_boxes_on_one_machine_have_their_own_copies() -> None:
    one, other = memory_of("/home/a/.windlass/node/models"), memory_of("/home/b/.windlass/node/models")
    assert one != other
    assert one == memory_of(Path("/home/a/.windlass/node/models"))
    assert one.startswith("/dev/shm/windlass-models-")


def test_a_removal_that_is_killed_leaves_no_part_of_a_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = tmp_path / "files"
    files.mkdir()
    for name in "ab":
        (files / name).write_bytes(b"x" * 1000)
    first = attach(files, "m-1", tmp_path)
    (first.files / "c").write_bytes(b"only in this copy")

    def killed(place: Path, **_: object) -> None:
        if place.exists():
            next(place.rglob("a")).unlink()
            raise KeyboardInterrupt

    monkeypatch.setattr(shutil, "rmtree", killed)
    with pytest.raises(KeyboardInterrupt):
        first.close()
    monkeypatch.undo()
    first._users.release()  # as the kernel does for a process that is killed
    second = attach(files, "m-1", tmp_path)
    assert second.loaded
    assert sorted(each.name for each in second.files.iterdir()) == ["a", "b"]
    second.close()
