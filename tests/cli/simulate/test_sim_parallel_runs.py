"""``windlass sim run --jobs``: policies and seeds in processes of their own come to what they come to in turn."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, TypeAlias

import pytest

Run: TypeAlias = Any
"""Of the fixture ``windlass``."""
TRACE = "submit_s,duration_s,gpus,vc\n0,100,6,a\n1,10,4,b\n2,10,2,a\n"
OF_THE_MACHINE = ("seconds", "memory_mib", "pass_milliseconds")


@pytest.fixture
def given(tmp_path: Path) -> tuple[str, ...]:
    trace, policy = tmp_path / "t.csv", tmp_path / "mine.conf"
    trace.write_text(TRACE)
    policy.write_text('actions: "allocate"\n')
    policies = f"windlass,fifo,sjf,{policy}"
    return ("sim", "run", "--trace", str(trace), "--nodes", "1x8", "--policy", policies)


def told(windlass: Run, *given: str) -> dict[str, Any]:
    """What is printed for programs, but for what the machine makes of it."""
    done = windlass(*given, "-o", "json")
    assert done.code == 0, done.err
    found = json.loads(done.out)
    for figures in found["results"] + found.get("runs", []):
        for name in OF_THE_MACHINE:
            assert figures.pop(name) is not None
            figures.get("spread", {}).pop(name, None)
    return found


def test_several_at_once_come_to_the_same_in_the_same_order(
    windlass: Run, given: tuple[str, ...], tmp_path: Path
) -> None:
    variants = ("--time-share", "both", "--run-times", "user,learned", "--seeds", "3-4", "--mtbf", "1h")
    files = [tmp_path / "in_turn.csv", tmp_path / "at_once.csv"]
    in_turn = told(windlass, *given, *variants, "--per-job", str(files[0]))
    at_once = told(windlass, *given, *variants, "--per-job", str(files[1]), "--jobs", "3")
    assert at_once == in_turn
    assert [figures["policy"] for figures in at_once["results"]] == [
        "windlass",
        "windlass (unshared)",
        "fifo",
        "sjf (user)",
        "sjf (learned)",
        "mine.conf",
    ]
    assert files[0].read_text() == files[1].read_text()
    assert len(files[0].read_text().splitlines()) == 1 + 6 * 2 * 3


def test_scores_and_pictures_come_from_all_processes(
    windlass: Run, given: tuple[str, ...], tmp_path: Path
) -> None:
    pytest.importorskip("matplotlib")
    plots = tmp_path / "plots"
    at_once = told(windlass, *given, "--scores", "1", "--plots", str(plots), "--jobs", "4")
    assert at_once == told(windlass, *given, "--scores", "1")
    assert [seen["policy"] for seen in at_once["scores"]][-3:] == ["fifo", "sjf", "mine.conf"]
    assert {path.suffix for path in plots.iterdir()} == {".png", ".svg"}


def test_as_many_at_once_as_there_may_be(windlass: Run, given: tuple[str, ...]) -> None:
    none = windlass(*given, "--jobs", "0")
    assert (none.code, "0 is not in the range 1<=x<=256" in none.err) == (2, True)
