"""Removal of the files of a batch: all of this job's, and none of another's."""

from __future__ import annotations

from pathlib import Path

import pytest

from windlass.items.driver.removal import remove
from windlass.items.ledger.database import LedgerFile
from windlass.items.places import places_of, prepare
from windlass.items.spec import BatchSpec, parse_batch
from windlass.kits.files import FileLock


def batch_of(path: Path, uid: str) -> BatchSpec:
    metadata = {"namespace": "ns", "name": "job", "uid": uid}
    return parse_batch({"metadata": metadata, "spec": {"outputs": {"path": str(path)}}})


def write_files(path: Path, uid: str) -> BatchSpec:
    """Write outputs and ledger as a driver leaves them."""
    batch = batch_of(path, uid)
    places = places_of(batch, {})
    prepare(places)
    ledger = LedgerFile(places.ledger.with_name("ledger.new"), create=True)
    ledger.set_meta(uid=uid)
    ledger.seal(places.ledger)
    ledger.close()
    for one in (places.output, places.branch, places.status):
        one.write_text("{}\n")
    return batch


@pytest.mark.parametrize("name", ["rows.jsonl", "rows"])
def test_files_of_the_job_are_removed_and_others_stay(tmp_path: Path, name: str):
    (tmp_path / "other.txt").write_text("stays")
    batch = write_files(tmp_path / name, "u1")
    assert remove(batch, {}) == ""
    assert [one.name for one in tmp_path.iterdir()] == ["other.txt"]
    assert remove(batch, {}) == ""


def test_outputs_that_another_job_has_or_writes_stay(tmp_path: Path):
    batch = write_files(tmp_path / "rows.jsonl", "u2")
    assert remove(batch_of(tmp_path / "rows.jsonl", "u1"), {}) == "another job has written the outputs"
    lock = FileLock(places_of(batch, {}).state / "lock")
    assert lock.acquire()
    assert remove(batch, {}) == "another job writes to the outputs"
    lock.release()
    assert (tmp_path / "rows.jsonl").exists()
