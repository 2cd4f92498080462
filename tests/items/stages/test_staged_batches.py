"""Batches with stages by real drivers and workers: exactly once through kills, bounded spool, dead letters."""

from __future__ import annotations

import json
import random
import sys
import time
from pathlib import Path
from typing import Any

from batch_run import BatchRun, jsonl, rows_of

STAGE = """
import json, os, sys
name, folder = sys.argv[1:3]
calls = open(os.path.join(folder, name), "a")
for line in sys.stdin:
    row = json.loads(line)
    calls.write(str(row["id"]) + "\\n"); calls.flush()
    if row["id"] in (int(text) for text in sys.argv[3:]) and not os.path.exists(os.path.join(folder, "mended")):
        print(json.dumps({"id": row["id"], "error": f"{name} rejects it"}), flush=True)
    elif name == "generate":
        print(json.dumps({"id": row["id"], "text": row["words"] * row["factor"]}), flush=True)
    elif name == "prepare":
        print(json.dumps({"id": row["id"], "words": row["name"].upper()}), flush=True)
    else:
        print(json.dumps({"id": row["id"], "length": len(row["text"])}), flush=True)
"""


def stage(folder: Path, name: str, kind: str, *bad: int, **more: Any) -> dict[str, Any]:
    command = [sys.executable, str(folder / "stage.py"), name, str(folder), *map(str, bad)]
    template = {"spec": {"containers": [{"command": command}]}}
    return {"name": name, "kind": kind, "runtimeRef": {"name": "process"}, "template": template, **more}


def spec_of(folder: Path, rows: int, *stages: dict[str, Any], **items: Any) -> dict[str, Any]:
    (folder / "stage.py").write_text(STAGE)
    lines = jsonl([{"id": number, "name": f"n{number}", "factor": 2} for number in range(rows)])
    return {
        "input": {"source": "inline", "format": "jsonl", "idField": "id", "inline": lines},
        "items": {"retries": 1, "retryBackoff": 0.05, "maxFailedPercent": 20, **items},
        "batching": {"size": 8, "targetSeconds": 0.5},
        "outputs": {"path": str(folder / "out.jsonl")},
        "stages": list(stages),
    }


class StagedRun(BatchRun):
    """Batch with workers of all stages. ``names`` are ``STAGE-NUMBER``."""

    def __init__(self, folder: Path, spec: dict[str, Any], names: list[str], uid: str = "u1") -> None:
        super().__init__(folder, spec, uid=uid)
        self.names = names

    def start_worker(self, name: str, **environment: str):
        return super().start_worker(name, **environment, WINDLASS_BATCH_STAGE=name.rpartition("-")[0])


def calls(folder: Path, name: str) -> list[str]:
    return (folder / name).read_text().split()


def test_rows_pass_all_stages_and_a_second_job_costs_nothing(tmp_path: Path):
    stages = [
        stage(tmp_path, "prepare", "cpu"),
        stage(tmp_path, "generate", "gpu"),
        stage(tmp_path, "measure", "cpu"),
    ]
    spec = spec_of(tmp_path, 40, *stages)
    names = ["prepare-0", "generate-0", "measure-0"]
    run = StagedRun(tmp_path / "run", spec, names)
    assert run.run() == 0, run.text()
    rows = rows_of(tmp_path / "out.jsonl")
    assert rows == [{"id": n, "length": 2 * len(f"n{n}")} for n in range(40)]
    for name in ("prepare", "generate", "measure"):
        assert sorted(map(int, calls(tmp_path, name))) == list(range(40))
    status = json.loads((tmp_path / ".out.jsonl.windlass/status.json").read_text())
    assert [(one["name"], one["kind"], one["done"], one["finished"]) for one in status["stages"]] == [
        ("prepare", "cpu", 40, True),
        ("generate", "gpu", 40, True),
        ("measure", "cpu", 40, True),
    ]
    left = sorted(path.name for path in (tmp_path / ".out.jsonl.windlass").iterdir())
    assert not [name for name in left if "prepare" in name or "generate" in name], left
    again = StagedRun(tmp_path / "run", spec, names, uid="u2")
    assert again.run() == 0, again.text()
    assert len(calls(tmp_path, "prepare")) == 40
    spec["input"]["inline"] = spec["input"]["inline"].replace('"n7"', '"longer"')
    changed = StagedRun(tmp_path / "run", spec, names, uid="u3")
    assert changed.run() == 0, changed.text()
    for name in ("prepare", "generate", "measure"):
        assert calls(tmp_path, name)[40:] == ["7"]
    rows[7]["length"] = 2 * len("longer")
    assert rows_of(tmp_path / "out.jsonl") == rows


def test_dead_letters_of_each_stage_are_data_and_run_again_alone(tmp_path: Path):
    stages = [stage(tmp_path, "prepare", "cpu", 3), stage(tmp_path, "generate", "gpu", 5)]
    run = StagedRun(tmp_path / "run", spec_of(tmp_path, 20, *stages), ["prepare-0", "generate-0"])
    assert run.run() == 0, run.text()
    rows = {row["id"]: row for row in rows_of(tmp_path / "out.jsonl")}
    assert len(rows) == 20
    assert rows[3]["error"] == "given up in stage prepare: prepare rejects it"
    assert rows[5]["error"] == "generate rejects it"
    assert sorted(calls(tmp_path, "generate"), key=int).count("3") == 0
    (tmp_path / "mended").touch()
    again = StagedRun(tmp_path / "run", spec_of(tmp_path, 20, *stages), ["prepare-0", "generate-0"])
    assert again.run(WINDLASS_BATCH_RETRY_DEAD="true") == 0, again.text()
    rows = {row["id"]: row for row in rows_of(tmp_path / "out.jsonl")}
    assert not any("error" in row for row in rows.values())
    assert calls(tmp_path, "prepare").count("4") == 1


def test_full_spool_holds_the_stage_before_back(tmp_path: Path):
    first = stage(tmp_path, "prepare", "cpu", output={"maxItems": 6})
    run = StagedRun(
        tmp_path / "run", spec_of(tmp_path, 30, first, stage(tmp_path, "generate", "gpu")), ["prepare-0"]
    )
    run.start_driver()
    run.start_worker("prepare-0")
    try:
        full = run.wait_status(
            lambda found: (
                found.get("stages") and found["stages"][0]["full"] and found["stages"][1]["waiting"] == 6
            )
        )
        assert full["items"]["done"] == 0
        time.sleep(0.3)
        assert len(calls(tmp_path, "prepare")) == 6
        run.start_worker("generate-0")
        assert run.driver is not None
        assert run.driver.wait(60) == 0, run.text()
        assert len(rows_of(tmp_path / "out.jsonl")) == 30
    finally:
        run.end()


def test_each_row_passes_each_stage_once_whatever_is_killed(tmp_path: Path):
    stages = [stage(tmp_path, "prepare", "cpu", output={"maxItems": 40}), stage(tmp_path, "generate", "gpu")]
    spec = spec_of(tmp_path, 300, *stages, leaseSeconds=1)
    run = StagedRun(tmp_path / "run", spec, ["prepare-0", "generate-0", "generate-1"])
    assert run.run_with_kills(random.Random(7).randrange(1000), kills=8) == 0, run.text()
    rows = rows_of(tmp_path / "out.jsonl")
    assert rows == [{"id": n, "text": f"N{n}" * 2} for n in range(300)]


GATHER = """
import time
def slow(row):
    time.sleep(0.7)  # longer than a worker keeps results: each row is passed on alone
    return row
class Batches:
    def process(self, rows):
        return [{"id": row["id"], "together": len(rows)} for row in rows]
"""


def test_rows_that_trickle_in_make_full_batches(tmp_path: Path):
    one = {"name": "prepare", "kind": "cpu", "runtimeRef": {"name": "python", "function": "gather:slow"}}
    two = {"name": "generate", "kind": "gpu", "runtimeRef": {"name": "python", "function": "gather:Batches"}}
    spec = spec_of(tmp_path, 4, one, two)
    spec["batching"] = {"mode": "Fixed", "size": 2, "maxWaitSeconds": 60}
    run = StagedRun(tmp_path / "run", spec, ["prepare-0", "generate-0"])
    (tmp_path / "run/gather.py").write_text(GATHER)
    assert run.run() == 0, run.text()
    assert [row["together"] for row in rows_of(tmp_path / "out.jsonl")] == [2, 2, 2, 2]
