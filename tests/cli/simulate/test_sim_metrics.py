"""What ``windlass sim run`` prints: figures that some runs do not have, and columns that are called alike."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any, TypeAlias

import pytest

Run: TypeAlias = Any
"""Of the fixture ``windlass``."""
OWN = "id,submit_seconds,duration_seconds,gpus\n"


@pytest.mark.parametrize("others", ["", "b,0,10,4\n"])
def test_what_one_seed_does_not_tell_the_mean_of_all_does_not_either(
    windlass: Run, tmp_path: Path, others: str
) -> None:
    """Ten hours without a checkpoint on a node that fails every two: one of the seeds has the job given up."""
    (tmp_path / "t.csv").write_text(f"{OWN}a,0,36000,8\n{others}")
    given = ("sim", "run", "--trace", str(tmp_path / "t.csv"), "--nodes", "1x8", "--policy", "fifo")
    failing = (*given, "--mtbf", "2h", "--repair", "1m", "--checkpoint", "never", "--seeds", "1-4")
    runs = json.loads(windlass(*failing, "-o", "json").out)["runs"]
    assert {run["queue_seconds_ge8_gpus"]["jobs"] for run in runs} == {0, 1}
    done = windlass(*failing, "--report", str(tmp_path / "r.html"))
    assert done.code == 0, done.err
    told = {line[:27].strip(): line.split()[-1] for line in done.out.splitlines()[2:]}
    assert told["queue >=8 GPUs"] == "-"
    assert (told["queue mean"] == "-", told["makespan"] == "-") == (not others, not others)
    (row,) = csv.DictReader(io.StringIO(windlass(*failing, "-o", "csv").out))
    assert row["queue_seconds_ge8_gpus.mean"] == ""


def test_configurations_of_one_name_have_a_column_each(windlass: Run, tmp_path: Path) -> None:
    """Also one that is called as a policy is."""
    (tmp_path / "t.csv").write_text(OWN + "a,0,10,8\n")
    names = [str(tmp_path / name) for name in ("old/my.conf", "new/my.conf", "fifo", "other.conf")]
    for name in names:
        Path(name).parent.mkdir(exist_ok=True)
        Path(name).write_text('actions: "allocate"\n')
    given = ("sim", "run", "--trace", str(tmp_path / "t.csv"), "--nodes", "1x8", "--policy", "fifo")
    done = windlass(*given, "--policy", ",".join(names), "-o", "json")
    assert (done.code, "Ctrl-C" in done.err) == (0, False), done.err
    told = [result["policy"] for result in json.loads(done.out)["results"]]
    assert told == ["fifo", *names[:3], "other.conf"]


def test_what_one_policy_can_run_is_not_said_to_run_never(windlass: Run, tmp_path: Path) -> None:
    """``kube1`` has a pod for each GPU, the others one of eight, of which there is room for one."""
    (tmp_path / "t.csv").write_text(OWN + "a,0,10,16\n")
    given = ("sim", "run", "--trace", str(tmp_path / "t.csv"), "--nodes", "1x8,2x4", "--policy")
    assert "1 of 1 job can never run" in windlass(*given, "kube,fifo").err
    both = windlass(*given, "kube1,fifo").err
    assert "can never run" not in both
    assert "fifo: 1 of 1 job never ended; there are no times" in both


def test_who_never_runs_for_want_of_a_quota_is_told_before(windlass: Run, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text(
        OWN.replace("\n", ",queue,priority\n") + "a,0,9,1,x,100\nb,0,9,1,y,99\nc,0,9,1,y,\n"
    )
    given = ("sim", "run", "--trace", str(tmp_path / "t.csv"), "--nodes", "1x8", "--policy", "kai-like,kube")
    assert (
        "1 job of priority 100 or higher can never run under kai-like" in windlass(*given, "--by-queue").err
    )
    assert "never" not in windlass(*given).err


def test_who_never_ran_is_told_with_the_reason(windlass: Run, tmp_path: Path) -> None:
    """For people below the table and on the page, for programs beside the figures."""
    (tmp_path / "t.csv").write_text(
        OWN.replace("\n", ",queue\n") + "a,0,9,8,x\nb,0,9,8,y\nc,0,9,1,y\nd,0,9,8,y\n"
    )
    report = str(tmp_path / "r.html")
    given = ("sim", "run", "--trace", str(tmp_path / "t.csv"), "--nodes", "1x8", "--by-queue", "--policy")
    done = windlass(*given, "volcano-like,fifo", "--report", report)
    assert done.code == 0, done.err
    said = "volcano-like: job b of 8 GPUs (and 1 other) never ended: It needs 8 nvidia.com/gpu"
    assert said in done.err
    assert said in Path(report).read_text()
    assert "fifo: job" not in done.err
    stuck, fine = json.loads(windlass(*given, "volcano-like,fifo", "-o", "json").out)["results"]
    assert [(one["job"], one["queue"], one["jobs"]) for one in stuck["never_ended"]] == [
        ("b", "y", 2),
        ("a", "x", 1),
    ]
    assert "never_ended" not in fine
    seeds = json.loads(windlass(*given, "volcano-like", "--seeds", "1-2", "--mtbf", "9h", "-o", "json").out)
    assert [one["job"] for one in seeds["results"][0]["never_ended"]] == ["b", "a"]


def test_nobody_waits_less_than_nothing_by_a_rounding(windlass: Run, tmp_path: Path) -> None:
    """In floating point 0.1 + 4.0 - 0.1 is less than 4.0; and on a card that is a little faster a job takes 0.4 s less
    than it says, which is no -0s."""
    (tmp_path / "t.csv").write_text(OWN + "a,0.1,4.0,8\n")
    given = ("sim", "run", "--trace", str(tmp_path / "t.csv"), "--nodes", "1xH100:8", "--policy", "fifo")
    assert '"mean": -0.0' not in windlass(*given, "-o", "json").out
    for speed in ((), ("--speed", "H100=1.1")):
        assert "-0s" not in windlass(*given, *speed).out
