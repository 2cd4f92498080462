"""Batches with real drivers and workers: complete, killed, repeated, failing."""

from __future__ import annotations

import csv
import json
import signal
import sqlite3
import sys
import time
from pathlib import Path

import pytest
from batch_run import BatchRun, digest, jsonl, rows_of

from windlass.items import parquet

POISON = """
import json, os, sys, time
calls = open(sys.argv[1], "a")
for line in sys.stdin:
    row = json.loads(line)
    while row["n"] >= int(sys.argv[3]) and not os.path.exists(sys.argv[2] + "-go"):
        time.sleep(0.02)
    calls.write(str(row["id"]) + "\\n"); calls.flush()
    if row["n"] % 50 == 7 and not os.path.exists(sys.argv[2]):
        print(json.dumps({"id": row["id"], "error": "poisoned"}))
    elif row["n"] == 33 and not os.path.exists(sys.argv[2]):
        os._exit(3)
    else:
        print(json.dumps({"id": row["id"], "text": row["name"].upper(), "score": row["n"] % 100}))
"""

ONCE = {"mode": "Fixed", "size": 10}
"""Batching in which no worker takes rows of another one: the command of that one may have begun them."""


def process_spec(tmp_path: Path, rows: int, held: int = 1000, **items: object) -> dict[str, object]:
    """Return a batch with the runtime ``process`` and a command with 1 in 50 rows that fail.

    ``held``: first of the rows that wait for the file ``fixed-go``.
    """
    (tmp_path / "command.py").write_text(POISON)
    command = [sys.executable, "command.py", str(tmp_path / "calls"), str(tmp_path / "fixed"), str(held)]
    lines = jsonl([{"id": number, "n": number, "name": f"n{number}"} for number in range(rows)])
    return {
        "input": {"source": "inline", "format": "jsonl", "idField": "id", "inline": lines},
        "runtimeRef": {"name": "process"},
        "template": {"spec": {"containers": [{"command": command, "workingDir": str(tmp_path)}]}},
        "items": {"retries": 1, "retryBackoff": 0.05, "maxFailedPercent": 10, **items},
        "outputs": {"path": str(tmp_path / "out"), "quality": {"min": 90}},
    }


def test_bad_rows_are_data_and_a_second_run_costs_nothing(tmp_path: Path) -> None:
    spec = process_spec(tmp_path, 100)
    spec["batching"] = ONCE
    run = BatchRun(tmp_path / "run", spec)
    assert run.run() == 0, run.text()
    rows = {row["id"]: row for row in rows_of(tmp_path / "out" / "outputs.jsonl")}
    assert list(rows) == list(range(100))
    bad = {name: row for name, row in rows.items() if "error" in row}
    assert {name: (row["reason"], row["attempts"]) for name, row in bad.items()} == {
        7: ("ProgramError", 2),
        57: ("ProgramError", 2),
        33: ("ProcessExited", 2),
    }
    assert bad[7]["error"] == "poisoned"
    assert rows[99] == {"id": 99, "text": "N99", "score": 99}
    assert rows[5]["quality"] == "low"
    calls = (tmp_path / "calls").read_text().split()
    assert sorted(calls, key=int) == sorted([*map(str, range(100)), "7", "57", "33"], key=int)
    status = json.loads((tmp_path / "out/.windlass/status.json").read_text())
    wanted = {"total": 100, "done": 97, "failed": 3, "deadLetter": 3, "inFlight": 0}
    assert {name: status["items"][name] for name in wanted} == wanted
    assert status["quality"]["below"] == 87  # 90 rows below the minimum, 3 of them failed
    assert status["reasons"] == {"ProgramError": 2, "ProcessExited": 1}

    (tmp_path / "fixed").touch()
    restarted = BatchRun(tmp_path / "run", spec)
    assert restarted.run() == 0, restarted.text()
    assert (tmp_path / "calls").read_text().split() == calls

    again = BatchRun(tmp_path / "run", spec, uid="u2")
    assert again.run() == 0, again.text()
    later = (tmp_path / "calls").read_text().split()[len(calls) :]
    assert sorted(later, key=int) == ["7", "33", "57"]
    rows = rows_of(tmp_path / "out" / "outputs.jsonl")
    assert [row["id"] for row in rows] == list(range(100))
    assert not any("error" in row for row in rows)


FUNCTIONS = """
def describe(row):
    if row["name"] == "bad":
        raise ValueError("no name")
    return {"text": row["name"] * int(row["n"]), "tags": ["a", 1], "fine": True}
"""


def test_tables_with_scores_branches_and_dead_letters(tmp_path: Path) -> None:
    (tmp_path / "texts.py").write_text(FUNCTIONS)
    table = 'sku,name,n\nA,x,30\nB,bad,1\nC,y,3\nD,"z,""q",10\nE,only two\n'
    spec = {
        "input": {"inline": table, "format": "csv", "idField": "sku"},
        "runtimeRef": {"name": "python", "function": "texts:describe"},
        "template": {"spec": {"containers": [{"workingDir": str(tmp_path)}]}},
        "items": {"retries": 0, "maxFailedPercent": 50, "deadLetter": {"path": str(tmp_path / "dead.csv")}},
        "outputs": {
            "path": str(tmp_path / "out.csv"),
            "quality": {"scorer": "length:20-99", "min": 90, "onLow": "Branch"},
        },
    }
    run = BatchRun(tmp_path / "run", spec, workers=1)
    assert run.run() == 0, run.text()
    with (tmp_path / "out.csv").open(newline="") as stream:
        rows = list(csv.DictReader(stream))
    assert list(rows[0]) == ["id", "text", "tags", "fine", "score", "error", "reason", "attempts"]
    assert [row["id"] for row in rows] == ["A", "B", "D", "row-5"]
    assert rows[0] == {
        **{"id": "A", "text": "x" * 30, "tags": '["a",1]', "fine": "true", "score": "100.0"},
        **{"error": "", "reason": "", "attempts": ""},
    }
    assert (rows[1]["error"], rows[1]["reason"]) == ("ValueError: no name", "ValueError")
    assert rows[2]["text"] == 'z,"q' * 10
    assert rows[3]["reason"] == "InvalidRow"
    below = (tmp_path / "out.below.csv").read_text().splitlines()
    assert below[1].startswith("C,yyy")
    assert len(below) == 2
    assert [line.split(",")[0] for line in (tmp_path / "dead.csv").read_text().splitlines()] == [
        "id",
        "B",
        "row-5",
    ]

    again = BatchRun(tmp_path / "run", spec, workers=1, uid="u2")
    assert again.run() == 0, again.text()
    assert (tmp_path / "out.below.csv").read_text().splitlines() == below
    status = json.loads((tmp_path / ".out.csv.windlass/status.json").read_text())
    assert (status["items"]["done"], status["quality"]["below"]) == (3, 1)


BIGGER = """
def write(row):
    again = row.get("model") == "big"
    return {"text": row["n"], "model": row.get("model", "small"), "score": 95 if again and row["n"] != 4 else row["n"]}
"""


def test_low_rows_are_done_again_by_the_other_model(tmp_path: Path) -> None:
    (tmp_path / "bigger.py").write_text(BIGGER)
    quality = {"min": 90, "onLow": "Branch", "branch": {"model": "big"}}
    spec = {
        "input": {"inline": jsonl([{"id": n, "n": n} for n in (4, 50, 91, 99)]), "idField": "id"},
        "model": {"name": "small"},
        "runtimeRef": {"name": "python", "function": "bigger:write"},
        "template": {"spec": {"containers": [{"workingDir": str(tmp_path)}]}},
        "outputs": {"path": str(tmp_path / "out.jsonl"), "quality": quality},
    }
    run = BatchRun(tmp_path / "run", spec, workers=1)
    assert run.run() == 0, run.text()
    models = {row["id"]: row["model"] for row in rows_of(tmp_path / "out.jsonl")}
    assert models == {50: "big", 91: "small", 99: "small"}
    assert [row["id"] for row in rows_of(tmp_path / "out.below.jsonl")] == [4]
    status = json.loads((tmp_path / ".out.jsonl.windlass/status.json").read_text())
    assert (status["quality"]["again"], status["quality"]["below"]) == (2, 1)
    assert {group["name"]: group["done"] for group in status["groups"]} == {"default": 2, "below 90: big": 2}


def test_outputs_equal_those_of_an_undisturbed_run_whatever_is_killed(tmp_path: Path) -> None:
    rows = [{"id": f"r{n}", "category": f"c{n % 5}", "prompt": f"thing {n}"} for n in range(1500)]

    def spec(folder: Path) -> dict[str, object]:
        folder.mkdir()
        (folder / "rows.jsonl").write_text(jsonl(rows))
        return {
            "input": {"path": str(folder / "rows.jsonl")},
            "grouping": {"by": "category"},
            "runtimeRef": {"parameters": {"secondsPerItem": 0.002}},
            "items": {"leaseSeconds": 1, "infrastructureRetries": 100},
            "outputs": {"path": str(folder / "out.jsonl")},
        }

    calm = BatchRun(tmp_path / "calm-run", spec(tmp_path / "calm"))
    assert calm.run() == 0, calm.text()
    expected = digest(tmp_path / "calm/out.jsonl")
    assert len(rows_of(tmp_path / "calm/out.jsonl")) == 1500
    for seed in (1, 2):
        folder = tmp_path / f"seed-{seed}"
        run = BatchRun(tmp_path / f"run-{seed}", spec(folder), workers=3)
        assert run.run_with_kills(seed, 5) == 0, run.text()
        assert digest(folder / "out.jsonl") == expected


def test_changed_rows_replace_their_outputs_once_whatever_is_killed(tmp_path: Path) -> None:
    rows = [{"id": f"r{n}", "prompt": f"thing {n}"} for n in range(900)]

    def spec(folder: Path) -> dict[str, object]:
        folder.mkdir(exist_ok=True)
        (folder / "rows.jsonl").write_text(jsonl(rows))
        return {
            "input": {"path": str(folder / "rows.jsonl")},
            "runtimeRef": {"parameters": {"secondsPerItem": 0.002}},
            "items": {"leaseSeconds": 1, "infrastructureRetries": 100},
            "outputs": {"path": str(folder / "out.jsonl")},
        }

    first = BatchRun(tmp_path / "run", spec(tmp_path / "out"))
    assert first.run() == 0, first.text()
    for row in rows[::3]:
        row["prompt"] = f"other {row['prompt']}"
    calm = BatchRun(tmp_path / "calm-run", spec(tmp_path / "calm"))
    assert calm.run() == 0, calm.text()
    again = BatchRun(tmp_path / "run", spec(tmp_path / "out"), workers=3, uid="u2")
    assert again.run_with_kills(3, 4) == 0, again.text()
    assert digest(tmp_path / "out/out.jsonl") == digest(tmp_path / "calm/out.jsonl")
    status = json.loads((tmp_path / "out/.out.jsonl.windlass/status.json").read_text())
    assert (status["takenOver"]["rows"], status["takenOver"]["changedRows"]) == (600, 300)


SLOW = """
import json, sys, time
calls = open(sys.argv[1], "a")
for line in sys.stdin:
    row = json.loads(line)
    time.sleep(0.01)
    calls.write("1\\n"); calls.flush()
    print(json.dumps({"id": row["id"]}))
"""


def test_a_driver_killed_at_half_costs_about_one_pass(tmp_path: Path) -> None:
    """W11, polar_llama#75, llm-d-batch-gateway#645: what was done is not paid for again."""
    (tmp_path / "command.py").write_text(SLOW)
    command = [sys.executable, str(tmp_path / "command.py"), str(tmp_path / "calls")]
    spec = {
        "input": {"inline": jsonl([{"id": n} for n in range(300)])},
        "template": {"spec": {"containers": [{"command": command}]}},
        "batching": ONCE,
        "outputs": {"path": str(tmp_path / "out.jsonl")},
    }
    run = BatchRun(tmp_path / "run", spec, workers=2)
    driver = run.start_driver()
    try:
        for name in run.names:
            run.start_worker(name)
        run.wait_status(lambda status: status["items"].get("done", 0) >= 150)
        driver.kill()
        driver.wait()
        again = run.start_driver(WINDLASS_BATCH_LINGER="60")
        run.wait_status(lambda status: status["finished"])
        assert again.wait(60) == 0, run.text()
        assert [worker.wait(60) for worker in run.workers.values()] == [0, 0]
    finally:
        run.end()
    assert sorted(row["id"] for row in rows_of(tmp_path / "out.jsonl")) == list(range(300))
    assert 300 <= (tmp_path / "calls").read_text().count("1") <= 330


def test_stopped_workers_return_their_items_and_stopped_drivers_go_on(tmp_path: Path) -> None:
    (tmp_path / "fixed").touch()
    spec = process_spec(tmp_path, 40, held=20, leaseSeconds=20)
    spec["batching"] = {"mode": "Fixed", "size": 40}
    spec["outputs"] = {"path": str(tmp_path / "out.jsonl")}
    run = BatchRun(tmp_path / "run", spec, workers=1)
    run.start_driver()
    first = run.start_worker("first")
    try:
        run.wait_status(lambda status: status["items"].get("done", 0) > 2)
        first.send_signal(signal.SIGTERM)
        assert first.wait(60) == 143
        status = run.wait_status(lambda status: status["items"]["inFlight"] == 0)
        assert 2 < status["items"]["done"] <= 20
        (tmp_path / "fixed-go").touch()
        assert run.driver is not None
        run.driver.send_signal(signal.SIGTERM)
        assert run.driver.wait(60) == 143
        run.start_driver()
        run.start_worker("second")
        assert run.driver.wait(60) == 0, run.text()
    finally:
        run.end()
    assert [row["id"] for row in rows_of(tmp_path / "out.jsonl")] == list(range(40))
    with sqlite3.connect(tmp_path / ".out.jsonl.windlass/ledger.sqlite") as ledger:
        assert ledger.execute("SELECT sum(attempts), sum(losses) FROM items").fetchone() == (0, 0)


def test_too_many_failed_items_end_the_batch_with_their_rows(tmp_path: Path) -> None:
    spec = process_spec(tmp_path, 100, maxFailedPercent=1)
    run = BatchRun(tmp_path / "run", spec)
    assert run.run() == 1
    status = json.loads((tmp_path / "out/.windlass/status.json").read_text())
    assert status["failure"]["reason"] == "TooManyFailedItems"
    assert "items.maxFailedPercent allows 1 %" in status["failure"]["message"]
    assert "× ProgramError" in status["failure"]["message"]
    good = [row for row in rows_of(tmp_path / "out/outputs.jsonl") if "error" not in row]
    assert len(good) == status["items"]["done"]


def test_a_batch_that_is_told_to_end_writes_the_rows_that_are_done(tmp_path: Path) -> None:
    (tmp_path / "fixed").touch()
    spec = process_spec(tmp_path, 40, held=20)
    spec["batching"] = {"mode": "Fixed", "size": 4}
    spec["outputs"] = {"path": str(tmp_path / "out.jsonl")}
    run = BatchRun(tmp_path / "run", spec, workers=1)
    run.start_driver()
    run.start_worker("first")
    try:
        run.wait_status(lambda status: status["items"].get("done", 0) > 4)
        assert run.call("/v1/end", {"message": "its workers failed"}) == {"ended": True}
        assert run.driver is not None
        run.driver.send_signal(signal.SIGTERM)  # as its pod is deleted
        assert run.driver.wait(60) == 1, run.text()
    finally:
        run.end()
    done = [row["id"] for row in rows_of(tmp_path / "out.jsonl")]
    assert 4 < len(done) <= 20
    assert done == list(range(len(done)))
    (tmp_path / "fixed-go").touch()
    status = json.loads((tmp_path / ".out.jsonl.windlass/status.json").read_text())
    assert status["stopped"] == "its workers failed"
    assert BatchRun(tmp_path / "run", spec).run(WINDLASS_BATCH_RETRY_DEAD="1") == 0
    assert [row["id"] for row in rows_of(tmp_path / "out.jsonl")] == list(range(40))


def test_rows_are_shown_as_they_come_and_dead_letters_get_new_budgets_once(tmp_path: Path) -> None:
    spec = process_spec(tmp_path, 60, maxFailedPercent=100, retries=0, retryBackoff=0)
    output = tmp_path / "out.jsonl"
    spec["outputs"] = {"path": str(output), "atomic": False}
    spec["batching"] = {"mode": "Fixed", "size": 5}
    run = BatchRun(tmp_path / "run", spec)
    run.start_driver(WINDLASS_BATCH_LINGER="60")
    run.start_worker("a", WINDLASS_BATCH_WORKER="a")
    deadline = time.monotonic() + 60
    seen = 0
    while run.driver is not None and run.driver.poll() is None and time.monotonic() < deadline:
        if output.exists() and not seen:
            seen = len(output.read_bytes().splitlines())
            if seen:
                run.driver.kill()
                run.driver.wait()
                break
        time.sleep(0.005)
    assert seen, run.text()
    assert run.run() == 0, run.text()
    rows = rows_of(output)
    assert [row["id"] for row in rows] == list(range(60))
    assert {row["id"] for row in rows if "error" in row} == {7, 33, 57}
    calls = (tmp_path / "calls").read_text().split()

    later = BatchRun(tmp_path / "run", spec).run(WINDLASS_BATCH_ATTEMPT="2")
    assert later == 0  # the batch has ended: another attempt does nothing
    for expected in (3, 0):  # the same request gives new budgets once
        assert BatchRun(tmp_path / "run", spec).run(WINDLASS_BATCH_RETRY_DEAD="1") == 0
        count = len((tmp_path / "calls").read_text().split())
        assert count - len(calls) == expected
        calls = (tmp_path / "calls").read_text().split()
    groups = json.loads((tmp_path / ".out.jsonl.windlass/groups.json").read_text())
    assert groups == [{"name": "default", "total": 60, "done": 57, "failed": 3, "remaining": 0}]

    spec["items"] = {"retries": 0, "maxFailedPercent": 1}
    spec["outputs"] = {"path": str(tmp_path / "strict.parquet")}
    assert BatchRun(tmp_path / "strict", spec).run() == 1
    (tmp_path / "fixed").touch()
    assert BatchRun(tmp_path / "strict", spec).run() == 1  # a restarted driver of the same attempt
    assert BatchRun(tmp_path / "strict", spec).run(WINDLASS_BATCH_ATTEMPT="2") == 0
    with (tmp_path / "strict.parquet").open("rb") as stream:
        table = list(parquet.read_values(stream))
    assert list(table[0]) == ["id", "text", "score", "error", "reason", "attempts"]
    assert (table[5]["id"], table[5]["text"], table[5]["error"]) == (5, "N5", None)


def test_dead_letters_are_listed_and_tried_again_while_the_batch_runs(tmp_path: Path) -> None:
    spec = process_spec(tmp_path, 60, held=40, retries=0)
    spec["batching"] = {"mode": "Fixed", "size": 4}
    run = BatchRun(tmp_path / "run", spec, workers=1)
    run.start_driver()
    try:
        run.start_worker("one")
        run.wait_status(lambda status: status["items"].get("deadLetter", 0) > 0)
        letters = run.call("/v1/deadletters")
        assert letters["items"][0]["id"] == 7
        assert letters["items"][0]["message"] == "poisoned"
        assert letters["reasons"]["ProgramError"] >= 1
        (tmp_path / "fixed").touch()
        assert run.call("/v1/retry", {"ids": ["7"]}) == {"retried": 1}
        (tmp_path / "fixed-go").touch()
        assert run.driver is not None
        assert run.driver.wait(60) == 0, run.text()
    finally:
        run.end()
    rows = {row["id"]: row for row in rows_of(tmp_path / "out/outputs.jsonl")}
    assert rows[7]["text"] == "N7"


def test_results_before_a_long_row_survive_a_kill_of_the_worker(tmp_path: Path) -> None:
    """The row 3 waits for a file, and the rows before it are committed meanwhile."""
    (tmp_path / "long.py").write_text(LONG)
    rows = [{"id": number, "folder": str(tmp_path)} for number in range(5)]
    spec = {
        "input": {"inline": jsonl(rows)},
        "runtimeRef": {"name": "python", "function": "long:process"},
        "template": {"spec": {"containers": [{"workingDir": str(tmp_path)}]}},
        "batching": {"mode": "Fixed", "size": 5},
        "items": {"leaseSeconds": 1, "retryBackoff": 0},
        "outputs": {"path": str(tmp_path / "out.jsonl"), "atomic": False},
    }
    run = BatchRun(tmp_path / "run", spec)
    run.start_driver()
    worker = run.start_worker("a")
    try:
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            shown = tmp_path / "out.jsonl"
            if shown.exists() and len(shown.read_bytes().splitlines()) == 3:
                break
            time.sleep(0.05)
        else:
            pytest.fail(run.text())
        worker.kill()
        worker.wait()
        (tmp_path / "go").touch()
        run.start_worker("b")
        assert run.driver is not None
        assert run.driver.wait(60) == 0
    finally:
        run.end()
    assert [row["id"] for row in rows_of(tmp_path / "out.jsonl")] == list(range(5))
    calls = (tmp_path / "calls").read_text().split()
    assert sorted(calls) == ["0", "1", "2", "3", "3", "4"]


LONG = """
import os, time
def process(row):
    with open(row["folder"] + "/calls", "a") as file:
        file.write(f"{row['id']}\\n")
    while row["id"] == 3 and not os.path.exists(row["folder"] + "/go"):
        time.sleep(0.05)
    return {"text": "x"}
"""


@pytest.mark.parametrize(
    ("change", "reason", "words"),
    [
        ({"input": {"path": "/nowhere/rows.csv"}}, "InputUnreadable", "/nowhere/rows.csv cannot be read"),
        ({"input": {"inline": "\n"}}, "EmptyInput", "the input has no row"),
        (
            {"input": {"inline": '{"id": 1}\n{"id": 1}\n'}},
            "TooManyInvalidRows",
            "(1 × InvalidRow); the first is 1#2: duplicate id '1': row 1 has it, too",
        ),
        ({"outputs": {"path": "/proc/nowhere/out.jsonl"}}, "OutputUnwritable", "cannot be written"),
    ],
)
def test_what_cannot_be_read_or_written_is_told(
    tmp_path: Path, change: dict[str, object], reason: str, words: str
) -> None:
    spec = {"outputs": {"path": str(tmp_path / "out.jsonl")}, **change}
    run = BatchRun(tmp_path / "run", spec, workers=0)
    driver = run.start_driver(WINDLASS_BATCH_LINGER="60")  # it ends once its last status is read
    try:
        status = run.wait_status(lambda status: status["finished"])
        assert status["failure"]["reason"] == reason
        assert words in status["failure"]["message"]
        assert driver.wait(60) == 1
    finally:
        run.end()


def test_program_that_cannot_start_fails_the_batch_with_its_error(tmp_path: Path) -> None:
    spec = process_spec(tmp_path, 40, retries=3, retryBackoff=30)
    (tmp_path / "command.py").unlink()
    run = BatchRun(tmp_path / "run", spec)
    assert run.run() == 1, run.text()
    status = json.loads((tmp_path / "out/.windlass/status.json").read_text())
    assert status["failure"]["reason"] == "ProgramDoesNotStart"
    assert "can't open file" in status["failure"]["message"]
    assert "it answered no row" in status["failure"]["message"]
