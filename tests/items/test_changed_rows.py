"""Rows of the input that have changed since an earlier job: processed again, their outputs replaced once."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from windlass.items.admission import Admitted, BatchAdmission
from windlass.items.driver.finish import Outputs
from windlass.items.driver.opening import stored_state
from windlass.items.ledger.changes import ItemChange, ItemState, LedgerEffects
from windlass.items.ledger.database import LedgerFile, PendingWrites
from windlass.items.ledger.journal import RowJournal, RowSpool
from windlass.items.overlap import prepare
from windlass.items.places import places_of
from windlass.items.row_digests import digest_of
from windlass.items.spec import BatchSpec, parse_batch
from windlass.kits.files import FileLock

VERSION_1 = """
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT) WITHOUT ROWID;
CREATE TABLE groups (number INTEGER PRIMARY KEY, name TEXT, weight REAL, priority INTEGER,
    parallelism INTEGER, deadline REAL, model TEXT);
CREATE TABLE items (number INTEGER PRIMARY KEY, id, grp INTEGER, place INTEGER, length INTEGER,
    sort INTEGER, state INTEGER, attempts INTEGER, losses INTEGER, row_place INTEGER,
    row_length INTEGER, score REAL, seconds REAL, flag INTEGER, reason TEXT, message TEXT);
CREATE TABLE leases (id TEXT PRIMARY KEY, worker TEXT, instance TEXT, grp INTEGER, items BLOB)
    WITHOUT ROWID;
CREATE TABLE extras (place INTEGER PRIMARY KEY, length INTEGER);
INSERT INTO items VALUES (0,'a',0,0,9,0,2,0,0,NULL,NULL,NULL,NULL,0,NULL,NULL);
INSERT INTO meta VALUES ('version', '1'), ('uid', 'before'), ('finished', '1');
"""


class Trial:
    """Jobs one after the other with the same outputs."""

    def __init__(self, output: Path, **outputs: Any) -> None:
        self.outputs = {"path": str(output), **outputs}
        self.jobs = 0
        self.admit({})

    def admit(self, rows: Mapping[str, Any], *, uid: str = "", prompt: str = "") -> Admitted:
        """Make a job for rows by id, and admit them."""
        self.jobs += 1
        lines = [{"id": name} | ({"name": value} if value else {}) for name, value in rows.items()]
        self.batch = self.batch_of(lines, uid or f"u{self.jobs}", prompt)
        self.places = places_of(self.batch, {})
        prepare(self.places, self.batch, {})
        return BatchAdmission(self.batch, self.places, {}).run() if rows else Admitted()

    def batch_of(self, lines: list[dict[str, Any]], uid: str, prompt: str = "") -> BatchSpec:
        inline = "".join(json.dumps(line) + "\n" for line in lines)
        spec = {"outputs": self.outputs, "input": {"inline": inline, "prompt": prompt}}
        return parse_batch({"metadata": {"name": "job", "uid": uid}, "spec": spec})

    def work(self, *, only: str = "", end: bool = True) -> list[str]:
        """Answer the pending rows, or those of ``only``; return their ids."""
        ledger, journal = LedgerFile(self.places.ledger), RowJournal(self.places.journal)
        spool, table, writes = RowSpool(self.places.spool), ledger.load().table, PendingWrites()
        done: list[str] = []
        changes: list[ItemChange] = []
        for number, name in ledger.ids():
            if table.state[number] != ItemState.PENDING or (only and name not in only):
                continue
            row = json.loads(spool.read(table.offset[number], table.length[number]))
            assert row["id"] == name
            done.append(str(name))
            answer = json.dumps({"id": name, "text": f"{row['name']} by job {self.jobs}"}).encode()
            changes.append(ItemChange(number, ItemState.DONE, 0, 0, row=answer))
        writes.add(LedgerEffects(items=changes))
        ledger.store(writes, journal.append(writes.rows()), journal.end)
        if end:
            Outputs(self.batch, self.places, ledger, journal).write()
            ledger.set_meta(finished=1, journal_end=0)
            self.places.journal.unlink()
        for one in (spool, journal, ledger):
            one.close()
        return done

    def run(self, rows: Mapping[str, Any], **options: str) -> list[str]:
        """Run a job to its end; return the ids of the rows that were processed."""
        self.admit(rows, **options)
        return self.work()

    def texts(self) -> dict[str, str]:
        lines = [json.loads(line) for line in self.places.output.read_text().splitlines()]
        found = {line["id"]: line.get("text", "error") for line in lines}
        assert len(found) == len(lines), lines
        return found

    def record(self) -> Any:
        ledger = LedgerFile(self.places.ledger)
        try:
            return json.loads(ledger.meta("taken_over"))
        finally:
            ledger.close()


@pytest.fixture
def trial(tmp_path: Path) -> Trial:
    return Trial(tmp_path / "out.jsonl")


def test_changed_rows_are_processed_again_and_replace_their_outputs_once(trial: Trial) -> None:
    assert trial.run({"a": "x", "b": "y", "c": "z"}) == ["a", "b", "c"]
    counts = trial.admit({"a": "x", "b": "Y", "c": "z"})
    assert (counts.total, counts.taken_over, counts.changed) == (3, 2, 1)
    assert trial.work() == ["b"]
    assert trial.texts() == {"a": "x by job 2", "b": "Y by job 3", "c": "z by job 2"}
    output = str(trial.places.output)
    assert trial.record() == {"rows": 2, "from": output, "changed": [], "changedRows": 1}
    assert trial.run({"a": "x", "b": "Y", "c": "z"}) == []
    assert trial.record() == {"rows": 3, "from": output, "changed": []}
    assert trial.run({"a": "1", "b": "2", "c": "3"}) == ["a", "b", "c"]
    assert trial.record() == {"rows": 0, "from": output, "changed": [], "changedRows": 3}


def test_outputs_without_a_row_in_the_input_are_counted(trial: Trial) -> None:
    trial.run({"a": "x", "b": "y", "c": "z"})
    assert trial.run({"a": "x", "d": "v"}) == ["d"]
    output = str(trial.places.output)
    assert trial.record() == {"rows": 1, "from": output, "changed": [], "otherRows": 2}
    assert sorted(trial.texts()) == ["a", "b", "c", "d"]


def test_each_field_counts_and_the_order_of_fields_does_not() -> None:
    row = {"id": "a", "n": 1, "more": {"x": 1, "y": [1, 2]}}
    assert digest_of(row) == digest_of({"more": {"y": [1, 2], "x": 1}, "n": 1, "id": "a"})
    others = [
        {**row, "n": "1"},
        {**row, "note": ""},
        {"id": "a", "n": 1},
        {**row, "more": {"x": 1, "y": [2, 1]}},
    ]
    assert len({digest_of(one) for one in (row, *others)}) == 5


def test_another_prompt_is_told_and_keeps_the_outputs(trial: Trial) -> None:
    trial.run({"a": "x"}, prompt="Describe {name}")
    assert trial.run({"a": "x"}, prompt="Praise {name}") == []
    assert trial.record()["changed"] == ["prompt"]


def test_ledgers_without_digests_keep_their_outputs_and_later_changes_are_noticed(trial: Trial) -> None:
    with sqlite3.connect(trial.places.ledger) as ledger:
        ledger.executescript(VERSION_1)
    ledger.close()
    trial.places.output.write_text('{"id": "a", "text": "old"}\n')
    assert trial.run({"a": "perhaps changed", "b": "y"}) == ["b"]
    assert trial.record() == {"rows": 1, "from": str(trial.places.output), "changed": []}
    assert trial.texts() == {"a": "old", "b": "y by job 2"}
    assert trial.run({"a": "changed", "b": "y"}) == ["a"]


@pytest.mark.parametrize("finished", ["", "1"])
def test_a_job_that_an_earlier_version_began_goes_on_with_its_rows(trial: Trial, finished: str) -> None:
    with sqlite3.connect(trial.places.ledger) as ledger:
        ledger.executescript(VERSION_1)
        ledger.execute("UPDATE meta SET value=? WHERE key='finished'", (finished,))
    ledger.close()
    trial.places.spool.write_text('{"id":"a"}\n')
    row = trial.places.output if finished else trial.places.journal
    row.write_text('{"id": "a", "text": "old"}\n')
    assert stored_state(trial.places, "before") == ("finished" if finished else "", "")
    assert trial.run({"a": "x", "b": "y"}, uid="before") == ["b"]
    assert trial.texts()["a"] == "old"
    assert stored_state(trial.places, "before") == ("finished", "")


@pytest.mark.parametrize("ledger", ["", "no ledger", "missing"])
def test_outputs_without_a_readable_ledger_are_kept(trial: Trial, ledger: str) -> None:
    trial.run({"a": "x"})
    trial.places.ledger.write_text(ledger)
    if ledger == "missing":
        trial.places.ledger.unlink()
    assert trial.run({"a": "changed"}) == []
    assert trial.texts() == {"a": "x by job 2"}


def test_rows_that_leave_the_input_stay_and_are_compared_when_they_come_back(trial: Trial) -> None:
    trial.run({"a": "x", "b": "y"})
    assert trial.run({"a": "x"}) == []
    assert trial.texts() == {"a": "x by job 2", "b": "y by job 2"}
    trial.run({"a": "x"})
    assert trial.run({"a": "x", "b": "Y"}) == ["b"]
    assert trial.texts() == {"a": "x by job 2", "b": "Y by job 5"}


def test_a_job_that_did_not_end_leaves_the_output_of_a_changed_row_outdated(trial: Trial) -> None:
    trial.run({"a": "x", "b": "y"})
    assert trial.admit({"a": "X", "b": "Y"}).changed == 2
    assert trial.work(only="b", end=False) == ["b"]
    counts = trial.admit({"a": "X", "b": "Y"})
    assert (counts.taken_over, counts.changed) == (1, 1)  # of b the journal has the newer output
    assert trial.admit({"a": "X", "b": "Y"}).changed == 1
    assert trial.work() == ["a"]
    assert trial.texts() == {"a": "X by job 5", "b": "Y by job 3"}


def test_a_change_that_was_taken_back_costs_nothing(trial: Trial) -> None:
    trial.run({"a": "x"})
    assert trial.admit({"a": "X"}).changed == 1
    assert trial.admit({"a": "x"}).taken_over == 1
    assert trial.work() == []
    assert trial.texts() == {"a": "x by job 2"}


def test_an_admission_that_is_killed_between_its_files_is_repeated(
    trial: Trial, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(self: LedgerFile, target: Path) -> None:
        raise KeyboardInterrupt

    trial.run({"a": "x", "b": "y", "c": "z"})
    assert trial.admit({"a": "X", "b": "y", "c": "z"}).changed == 1
    for _ in range(2):
        with monkeypatch.context() as patch:
            patch.setattr(LedgerFile, "seal", killed)
            with pytest.raises(KeyboardInterrupt):
                trial.admit({"a": "X", "b": "Y"}, uid="same")
    counts = trial.admit({"a": "X", "b": "Y"}, uid="same")
    assert (counts.taken_over, counts.changed) == (0, 2)
    assert trial.work() == ["a", "b"]
    assert set(trial.texts()) == {"a", "b", "c"}
    assert trial.run({"a": "X", "b": "Y", "c": "Z"}) == ["c"]


def test_a_retry_of_the_same_job_adds_to_the_changed_rows(trial: Trial) -> None:
    trial.run({"a": "x", "b": "y"}, uid="one")
    assert trial.record() == {}
    trial.run({"a": "X", "b": "y"}, uid="one")
    trial.run({"a": "X", "b": "Y"}, uid="one")
    assert trial.record()["changedRows"] == 2
    assert trial.record()["rows"] == 0


def test_a_changed_row_that_is_not_valid_any_more_is_an_error_row(trial: Trial) -> None:
    trial.run({"a": "x", "b": "y"}, prompt="Describe {name}")
    counts = trial.admit({"a": "", "b": "y"}, prompt="Describe {name}")
    assert (counts.taken_over, counts.changed, counts.invalid) == (1, 0, 1)
    assert trial.work() == []
    assert trial.texts() == {"a": "error", "b": "y by job 2"}
    assert trial.run({"a": "x", "b": "y"}, prompt="Describe {name}") == ["a"]


def test_outputs_in_other_files_of_the_folder_are_compared_with_their_own_ledger(tmp_path: Path) -> None:
    folder = tmp_path / "out"
    folder.mkdir()
    part = Trial(folder / "part.jsonl")
    part.run({"a": "x", "b": "y"})
    whole = Trial(folder)
    assert whole.run({"a": "x", "b": "Y"}) == ["b"]
    assert whole.texts() == {"b": "Y by job 2"}
    assert whole.run({"a": "x", "b": "Y"}) == []
    assert part.texts() == {"a": "x by job 2", "b": "y by job 2"}
    whole.places.output.unlink()
    lock = FileLock(part.places.state / "lock")
    assert lock.acquire()  # its job runs: what this job has seen before counts
    assert whole.run({"a": "x", "b": "y"}) == ["b"]
    lock.release()


def test_rows_of_low_quality_are_compared_too(tmp_path: Path) -> None:
    trial = Trial(tmp_path / "out.jsonl", quality={"min": 90, "onLow": "Branch"})
    trial.run({"a": "x", "b": "y"})
    low = trial.places.branch
    low.write_text('{"id": "b", "text": "y", "quality":"low"}\n')
    trial.places.output.write_text('{"id": "a", "text": "x by job 2"}\n')
    assert trial.run({"a": "x", "b": "Y"}) == ["b"]
    assert trial.texts() == {"a": "x by job 2", "b": "Y by job 3"}
    assert low.read_text() == ""


def test_a_journal_holds_no_output_of_a_changed_row(trial: Trial) -> None:
    trial.run({"a": "x", "b": "y", "gone": "z"})
    trial.admit({"a": "x", "b": "Y"})
    rows = [json.loads(line)["id"] for line in trial.places.journal.read_text().splitlines()]
    assert rows == ["a", "gone"]
    assert not list(trial.places.state.glob("*.found"))
