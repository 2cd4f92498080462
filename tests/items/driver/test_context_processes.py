"""Contexts with real drivers and workers: parallel rows, chains of results, kills and retries."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from batch_run import BatchRun, jsonl, rows_of

PROGRAM = """
import json, os, sys, time
for line in sys.stdin:
    row = json.loads(line)
    if row.get("bad") and not os.path.exists(sys.argv[1]):
        print(json.dumps({"id": row["id"], "error": "bad"}), flush=True)
        continue
    time.sleep(0.01)
    context = row["context"]
    seen = [one["id"] for one in context["segments"]]
    chain = context["segments"][-1].get("chain", 0) + 1 if seen else 1
    print(json.dumps({"id": row["id"], "range": [context["start"], context["end"]], "seen": seen,
        "text": f"{row['id']} after {context['text'][:60]}", "chain": chain,
        "missing": context.get("missing", [])}), flush=True)
"""
STREAMS, SEGMENTS, LENGTH = 3, 12, 15


def spec_of(folder: Path, mode: str, **context: object) -> dict[str, object]:
    rows = [
        {"id": f"{name}{n}", "stream": name, "start": n * LENGTH, "end": (n + 1) * LENGTH, "text": f"raw {n}"}
        for n in range(SEGMENTS)
        for name in "xyz"
    ]
    rows[7 * STREAMS]["bad"] = True  # x7
    (folder / "program.py").write_text(PROGRAM)
    command = [sys.executable, "program.py", str(folder / "mended")]
    return {
        "input": {"source": "inline", "format": "jsonl", "inline": jsonl(rows)},
        "runtimeRef": {"name": "process"},
        "template": {"spec": {"containers": [{"command": command, "workingDir": str(folder)}]}},
        "items": {"retries": 0, "maxFailedPercent": 10, "leaseSeconds": 2},
        "contextCache": {"mode": mode, "window": "30s", **context},
        "outputs": {"path": str(folder / "out.jsonl")},
    }


def test_results_pass_along_each_stream_through_kills_and_retries(tmp_path: Path) -> None:
    spec = spec_of(tmp_path, "Output", maxBytes=200, ttlSeconds=0)
    run = BatchRun(tmp_path / "run", spec, workers=2)
    assert run.run_with_kills(seed=3, kills=6) == 0, run.text()
    rows = {row["id"]: row for row in rows_of(tmp_path / "out.jsonl")}
    assert rows["x7"]["error"] == "bad"
    for name in "xyz":
        for n in range(SEGMENTS):
            row = rows[f"{name}{n}"]
            if "error" in row:
                continue
            before = [f"{name}{m}" for m in range(max(0, n - 2), n)]
            lost = [one for one in before if "error" in rows[one]]
            assert row["range"] == [max(0, n * LENGTH - 30), n * LENGTH]
            assert (row["seen"], row["missing"]) == ([one for one in before if one not in lost], lost)
            # A result counts how many results it builds on: it had the committed ones before it.
            assert row["chain"] == (rows[row["seen"][-1]]["chain"] + 1 if row["seen"] else 1)
            told = " ".join(rows[one]["text"] for one in row["seen"])
            assert row["text"] == f"{row['id']} after {told[:60]}"
    records = rows_of(tmp_path / ".out.jsonl.windlass/contexts.jsonl")
    (ninth,) = [one for one in records if one["id"] == "x8"]
    assert ninth["context"] == {"start": 90, "end": 120, "segments": ["x6"], "missing": ["x7"]}
    assert (ninth["key"], ninth["start"], ninth["state"]) == ("job/x/x8", 120, "Done")

    # A late retry finds the results before it, though their time has passed and others were evicted.
    (tmp_path / "mended").touch()
    assert BatchRun(tmp_path / "run", spec, workers=1).run(WINDLASS_BATCH_RETRY_DEAD="true") == 0
    later = {row["id"]: row for row in rows_of(tmp_path / "out.jsonl")}
    assert later["x7"]["seen"] == ["x5", "x6"]
    assert later["x7"]["chain"] == later["x6"]["chain"] + 1
    assert {name: row for name, row in later.items() if name != "x7"} == {
        name: row for name, row in rows.items() if name != "x7"
    }


def test_rows_before_a_segment_leave_segments_parallel(tmp_path: Path) -> None:
    spec = spec_of(tmp_path, "Overlap")
    (tmp_path / "mended").touch()
    spec["batching"] = {"mode": "Fixed", "size": 40}
    run = BatchRun(tmp_path / "run", spec, workers=1)
    assert run.run() == 0, run.text()
    rows = {row["id"]: row for row in rows_of(tmp_path / "out.jsonl")}
    assert rows["y8"]["text"] == "y8 after raw 6 raw 7"
    assert (rows["y8"]["range"], rows["y8"]["seen"]) == ([90, 120], ["y6", "y7"])
    assert all(row["chain"] <= 2 for row in rows.values()), "nothing waits for a result"
    status = json.loads((tmp_path / ".out.jsonl.windlass/status.json").read_text())["contextCache"]
    assert (status["mode"], status["windowSeconds"], status["streams"]) == ("Overlap", 30, 3)
    assert status["hits"] > 0
