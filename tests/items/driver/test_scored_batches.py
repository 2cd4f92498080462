"""Batches with a scorer that fails, with real drivers and workers."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest
from batch_run import BatchRun, jsonl, rows_of

MODULE = """
import os

def make(row):
    with open(os.path.join(os.path.dirname(__file__), "made"), "a") as made:
        made.write(f"{row['id']}\\n")
    return {"text": f"about {row['name']}"}

def score(row, output):
    if row["name"] == "bad":
        raise RuntimeError("boom")
    return 95
"""


def spec(folder: Path, names: list[str], output: str, **items: Any) -> dict[str, Any]:
    (folder / "scored.py").write_text(MODULE)
    lines = jsonl([{"id": number, "name": name} for number, name in enumerate(names)])
    return {
        "input": {"source": "inline", "format": "jsonl", "inline": lines},
        "runtimeRef": {"name": "python", "function": "scored:make"},
        "template": {"spec": {"containers": [{"workingDir": str(folder)}]}},
        "items": {"retries": 2, "retryBackoff": 0, **items},
        "outputs": {"path": str(folder / output), "quality": {"scorer": "scored:score"}},
    }


def made(folder: Path) -> list[str]:
    return (folder / "made").read_text().split()


def test_error_row_of_the_scorer_keeps_the_output_and_the_model_is_asked_once(tmp_path: Path) -> None:
    dead = {"path": str(tmp_path / "dead.jsonl")}
    given = spec(tmp_path, ["a", "bad", "c"], "out.jsonl", maxFailedPercent=50, deadLetter=dead)
    run = BatchRun(tmp_path / "run", given, workers=1)
    assert run.run() == 0, run.text()
    kept = {
        **{"id": 1, "text": "about bad", "error": "RuntimeError: boom"},
        **{"reason": "ScorerFailed", "attempts": 1},
    }
    assert rows_of(tmp_path / "out.jsonl") == [
        {"id": 0, "text": "about a", "score": 95.0},
        kept,
        {"id": 2, "text": "about c", "score": 95.0},
    ]
    assert rows_of(tmp_path / "dead.jsonl") == [kept]
    assert sorted(made(tmp_path)) == ["0", "1", "2"]

    (tmp_path / "scored.py").write_text(MODULE.replace('"bad"', '"worse"'))
    again = BatchRun(tmp_path / "run", given, workers=1, uid="u2")
    assert again.run() == 0, again.text()
    assert rows_of(tmp_path / "out.jsonl")[1] == {"id": 1, "text": "about bad", "score": 95.0}
    assert sorted(made(tmp_path)) == ["0", "1", "1", "2"]


def test_error_row_of_the_scorer_has_the_columns_of_the_others_in_a_table(tmp_path: Path) -> None:
    given = spec(tmp_path, ["a", "bad"], "out.csv", maxFailedPercent=50)
    run = BatchRun(tmp_path / "run", given, workers=1)
    assert run.run() == 0, run.text()
    with (tmp_path / "out.csv").open(newline="") as stream:
        rows = list(csv.reader(stream))
    assert rows == [
        ["id", "text", "score", "error", "reason", "attempts"],
        ["0", "about a", "95.0", "", "", ""],
        ["1", "about bad", "", "RuntimeError: boom", "ScorerFailed", "1"],
    ]


@pytest.mark.parametrize("percent", [0, 1])
def test_batch_of_which_the_scorer_always_fails_tells_it_and_keeps_the_outputs(
    tmp_path: Path, percent: int
) -> None:
    given = spec(tmp_path, ["bad"], "out.jsonl", maxFailedPercent=percent)
    run = BatchRun(tmp_path / "run", given, workers=1)
    assert run.run() == 1
    status = json.loads((tmp_path / ".out.jsonl.windlass/status.json").read_text())
    assert status["failure"]["reason"] == "ScorerFailed"
    assert "their error rows keep the outputs" in status["failure"]["message"]
    assert [row["text"] for row in rows_of(tmp_path / "out.jsonl")] == ["about bad"]
    assert made(tmp_path) == ["0"]
