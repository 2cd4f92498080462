"""``windlass sim claims``: what it refuses, what it says where traces are missing, and how it prints."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any, TypeAlias

from windlass_lab.experiments.registry import attempt

Run: TypeAlias = Any
"""Of the fixture ``windlass``."""
GENAI = "gmt_create,predict_status,exec_time_seconds,groupId,checkpoint_model_version_id\n" + "".join(
    f"2024-11-15 16:{minute:02d}:00,SUCCEED,30.0,G,M{minute % 3}\n" for minute in range(12)
)


def shelf(folder: Path, text: str = GENAI) -> Path:
    (folder / "genai").mkdir()
    (folder / "genai" / "lora_requests.csv.gz").write_bytes(gzip.compress(text.encode()))
    return folder


def test_a_directory_without_traces_is_no_success(windlass: Run, tmp_path: Path) -> None:
    done = windlass("sim", "claims", "E2", "E13", "--traces", str(tmp_path), "-o", "json")
    assert done.code == 2
    claims = json.loads(done.out)["claims"]
    assert {claim["verdict"] for claim in claims} == {"not run"}
    assert all(claim["missing"] for claim in claims)
    assert "2/2 E13: not run" in done.err
    assert "2 of 2 experiments not run: E2, E13" in done.err
    assert "does not contain philly/philly_oct.csv.gz" in done.err
    assert "windlass sim claims E2 E13" in done.err, "a remedy that works"


def test_without_a_directory_generated_traces_are_played(windlass: Run) -> None:
    done = windlass("sim", "claims", "E13")
    assert done.code == 0, done.err
    assert "generated" in done.out
    done = windlass("sim", "claims", "E13", "-o", "json")
    found = json.loads(done.out)
    assert (found["source"], found["claims"][0]["verdict"] != "not run") == ("generated", True)


def test_n3_n4_n5_are_shown_beside_their_claim_with_prices_and_nodes(windlass: Run, monkeypatch: Any) -> None:
    monkeypatch.setattr("windlass_lab.experiments.item_workers.ITEMS", 20_000)
    done = windlass("sim", "claims", "N3", "N4", "N5")
    assert done.code == 0, done.err
    assert "take 4 instead of 24 h" in done.out
    for line in (
        "ratio to the static group",
        "price table: spot GPU-hour",
        "nodes after 6 h",
        "peak of nodes",
    ):
        assert line in done.out
    assert "reached" in done.out


def test_an_unknown_experiment_or_folder_is_refused(windlass: Run, tmp_path: Path) -> None:
    done = windlass("sim", "claims", "--traces", str(tmp_path), "--only", "E2,E99")
    assert done.code == 2
    assert 'there is no experiment "E99"' in done.err
    done = windlass("sim", "claims", "--traces", str(tmp_path), "--only", " , ")
    assert (done.code, "no experiment is named" in done.err) == (2, True)
    done = windlass("sim", "claims", "--traces", str(tmp_path / "x"))
    assert done.code == 2
    assert "is not a directory" in done.err


def test_claims_are_asked_for_by_their_numbers_too(windlass: Run, tmp_path: Path) -> None:
    done = windlass("sim", "claims", "n15", "E2", "--only", "N14", "--traces", str(tmp_path), "-o", "json")
    assert done.code == 2, done.err
    claims = {claim["id"]: claim["numbers"] for claim in json.loads(done.out)["claims"]}
    assert claims == {"E1": ["N1", "N10", "N15"], "E2": ["N14"], "E6": ["N15", "N20"]}
    untried = windlass("sim", "claims", "N6")
    assert (untried.code, "no experiment can try N6" in untried.err) == (2, True)
    assert "a property of the model" in untried.err


def test_a_broken_trace_is_named_by_line_and_column(windlass: Run, tmp_path: Path) -> None:
    folder = shelf(tmp_path, GENAI.replace("16:03:00,SUCCEED,30.0", "16:03:00,SUCCEED,soon"))
    done = windlass("sim", "claims", "--traces", str(folder), "--only", "e8")
    assert done.code == 65
    assert "lora_requests.csv.gz" in done.err
    assert "exec_time_seconds" in done.err


def test_an_experiment_prints_both_sides(windlass: Run, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr("windlass_lab.experiments.image_generation.MANY", 24)
    folder = str(shelf(tmp_path))
    done = windlass("sim", "claims", "--traces", folder, "--only", "E8")
    assert done.code == 0, done.err
    assert "GPU-hours saved by grouping" in done.out
    page = windlass("sim", "claims", "--traces", folder, "--only", "E8", "-o", "markdown")
    assert "| model loads, 33 GPUs | 12 | 3 |" in page.out
    assert "Alibaba" in page.out


def test_what_was_tried_before_ctrl_c_is_told(windlass: Run, tmp_path: Path, monkeypatch: Any) -> None:
    def stopped(tried: Any, *more: Any) -> Any:
        if tried.id == "E3":
            raise KeyboardInterrupt
        return attempt(tried, *more)

    monkeypatch.setattr("windlass_lab.commands.experiment_runs.attempt", stopped)
    done = windlass("sim", "claims", "--traces", str(tmp_path), "--only", "E1,E2,E3,E4", "-o", "json")
    assert done.code == 130
    assert [claim["id"] for claim in json.loads(done.out)["claims"]] == ["E1", "E2"]
    assert "stopped by Ctrl-C; not finished: E3, E4" in done.err
