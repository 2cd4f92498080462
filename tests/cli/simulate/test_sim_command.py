"""``windlass sim``: what it reads, prints and refuses."""

from __future__ import annotations

import bz2
import csv
import gzip
import io
import json
import lzma
import os
import re
import subprocess
import sys
import tarfile
import threading
import zipfile
from pathlib import Path
from statistics import mean, stdev
from typing import Any, TypeAlias

import pytest

from windlass.sim.replay.replay import Replay

Run: TypeAlias = Any
"""Of the fixture ``windlass``."""
OWN = "id,submit_seconds,duration_seconds,gpus\n"
TRACE = "submit_s,duration_s,gpus,vc\n0,100,6,a\n1,10,4,b\n2,10,2,a\n"


@pytest.fixture
def trace(tmp_path: Path) -> str:
    path = tmp_path / "t.csv.gz"
    path.write_bytes(gzip.compress(TRACE.encode()))
    return str(path)


def ran(windlass: Run, trace: str, *arguments: str) -> dict[str, dict[str, Any]]:
    done = windlass("sim", "run", "--trace", trace, "--nodes", "1x8", "-o", "json", *arguments)
    assert done.code == 0, done.err
    return {result["policy"]: result for result in json.loads(done.out)["results"]}


def test_policies_stand_side_by_side(windlass: Run, trace: str) -> None:
    found = ran(windlass, trace, "--policy", "fifo,fifo-backfill", "--policy", "kube")
    assert list(found) == ["fifo", "fifo-backfill", "kube"]
    assert found["fifo"]["queue_seconds"]["mean"] == pytest.approx((0 + 99 + 98) / 3, abs=0.1)
    assert found["fifo-backfill"]["queue_seconds"]["mean"] == pytest.approx(99 / 3, abs=0.1)


def test_a_table_for_people_says_what_a_restart_costs(windlass: Run, trace: str) -> None:
    done = windlass(
        "sim", "run", "--trace", trace, "--nodes", "1x8", "--policy", "fifo", "--restart-cost", "7/30/60"
    )
    assert done.code == 0, done.err
    assert "a restart costs 7/30/60 s" in done.out
    assert "queue mean" in done.out
    assert "memory" in done.out


def test_csv_has_a_line_for_each_policy(windlass: Run, trace: str) -> None:
    done = windlass("sim", "run", "--trace", trace, "--nodes", "1x8", "--policy", "fifo,kube", "-o", "csv")
    rows = list(csv.DictReader(io.StringIO(done.out)))
    assert [row["policy"] for row in rows] == ["fifo", "kube"]
    assert float(rows[0]["queue_seconds.mean"]) == pytest.approx(65.7, abs=0.1)


def test_nodes_may_come_from_a_file(windlass: Run, trace: str, tmp_path: Path) -> None:
    nodes = tmp_path / "nodes.csv"
    nodes.write_text("sn,cpu_milli,memory_mib,gpu,model\nn1,64000,1024,8,G2\nn2,64000,1024,8,T4\n")
    done = windlass("sim", "run", "--trace", trace, "--nodes", str(nodes), "--policy", "fifo", "-o", "json")
    assert json.loads(done.out)["results"][0]["queue_seconds"]["mean"] == 0.0


def test_jobs_stand_in_the_queues_of_the_trace_if_asked_to(windlass: Run, trace: str) -> None:
    """Nobody passes the first of his own queue; the other queue's may."""
    found = ran(windlass, trace, "--policy", "fifo", "--by-queue")
    assert found["fifo"]["queue_seconds"]["mean"] == pytest.approx(99 / 3, abs=0.1)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--policy", "nonsense"), 'policy "nonsense" does not exist'),
        (("--policy", "fifo", "--format", "nonsense"), 'format "nonsense" does not exist'),
        (("--policy", "fifo", "--nodes", "lots"), "not COUNTxGPUS"),
        (("--policy", "fifo", "--restart-cost", "1/2"), "no cost of a restart"),
        (
            ("--policy", "fifo", "--speed", "H100=2"),
            "--speed: no node has GPUs of model 'H100'; the nodes have GPUs without",
        ),
        (("--policy", "fifo", "--mtbf", "soon"), "--mtbf: 'soon' is not a duration"),
        (("--policy", "fifo", "--mtbf", "0s"), "--mtbf: '0s' is not greater than 0s"),
        (("--policy", "fifo", "--batch", "0s"), "--batch: '0s' is not greater than 0s"),
        (("--policy", "fifo", "--repair", "-1h"), "--repair: '-1h' is negative"),
        (("--policy", "fifo", "--spread-slowdown", "nan"), "'nan' is not a finite number"),
        (("--policy", "fifo", "--nodes", "999999x999"), "more than the 1048576 nodes or 1048576 GPUs"),
        (("--policy", " , "), "--policy is empty"),
        (("--policy", "fifo", "--nodes", "none.csv"), "none.csv does not exist"),
        (("--policy", "fifo", "--time-share", "perhaps"), "not one of 'yes', 'no', 'both'"),
        (
            ("--policy", "las", "--time-share", "yes", "--no-time-share"),
            "--no-time-share contradict each other",
        ),
        (
            ("--policy", "las", "--no-time-share", "--time-share", "both"),
            "--no-time-share contradict each other",
        ),
    ],
)
def test_what_is_wrong_on_the_command_line_is_refused_with_2(
    windlass: Run, trace: str, arguments: tuple[str, ...], words: str
) -> None:
    nodes = () if "--nodes" in arguments else ("--nodes", "1x8")
    done = windlass("sim", "run", "--trace", trace, *nodes, *arguments)
    assert done.code == 2
    assert words in done.err


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("submit_s,duration_s,gpus,vc\n0,x,1,a\n", "line 2, column duration_s"),
        ("what,ever\n1,2\n", "line 1"),
        ("", "the file is empty"),
    ],
)
def test_a_trace_that_is_wrong_is_refused_with_65_and_its_place(
    windlass: Run, tmp_path: Path, text: str, place: str
) -> None:
    path = tmp_path / "bad.csv"
    path.write_text(text)
    done = windlass("sim", "run", "--trace", str(path), "--nodes", "1x8", "--policy", "fifo")
    assert done.code == 65
    assert str(path) in done.err
    assert place in done.err


def test_an_archive_is_said_to_be_one_with_what_unpacks_it(windlass: Run, tmp_path: Path) -> None:
    trace = tmp_path / "jobs.csv"
    trace.write_text(TRACE)
    archives = {name: tmp_path / name for name in ("a.zip", "a.tar", "a.tar.gz", "a.csv.xz", "a.csv.bz2")}
    with zipfile.ZipFile(archives["a.zip"], "w") as packed:
        packed.write(trace, "jobs.csv")
    for name, mode in (("a.tar", "w"), ("a.tar.gz", "w:gz")):
        with tarfile.open(archives[name], mode) as packed:
            packed.add(trace, "jobs.csv")
    archives["a.csv.xz"].write_bytes(lzma.compress(TRACE.encode()))
    archives["a.csv.bz2"].write_bytes(bz2.compress(TRACE.encode()))
    unpack = ("unzip ", "tar -xf ", "tar -xf ", "unxz -k ", "bunzip2 -k ")
    for path, remedy in zip(archives.values(), unpack, strict=True):
        done = windlass("sim", "run", "--trace", str(path), "--nodes", "1x8", "--policy", "fifo")
        assert (done.code, f"try: {remedy}{path}" in done.err) == (65, True), done.err


def test_a_packed_file_that_is_cut_short_or_damaged_is_said_to_be_that(windlass: Run, tmp_path: Path) -> None:
    whole = gzip.compress(TRACE.encode() * 1000)
    damaged = whole[:40] + b"\xff" * 20 + whole[60:]
    for name, content, words in (("a.gz", whole[:-30], "is truncated"), ("b.gz", damaged, "is damaged gzip")):
        path = tmp_path / name
        path.write_bytes(content)
        done = windlass("sim", "run", "--trace", str(path), "--nodes", "1x8", "--policy", "fifo")
        assert (done.code, words in done.err) == (65, True), done.err


def test_a_line_that_is_wrong_is_shown(windlass: Run, tmp_path: Path) -> None:
    path = tmp_path / "bad.csv"
    path.write_text("submit_s,duration_s,gpus,vc\n0,1,1,a\n0,x,1,a\n")
    done = windlass("sim", "run", "--trace", str(path), "--nodes", "1x8", "--policy", "fifo")
    assert "line 3 is: 0,x,1,a" in done.err


def test_with_and_without_time_sharing_side_by_side(windlass: Run, trace: str) -> None:
    found = ran(windlass, trace, "--policy", "fifo,las", "--time-share", "both")
    assert list(found) == ["fifo", "las", "las (unshared)"]
    assert found["las (unshared)"]["preemptions"] == 0
    alone = ran(windlass, trace, "--policy", "las", "--no-time-share")["las"]
    assert alone["queue_seconds"] == found["las (unshared)"]["queue_seconds"]
    twice = ran(windlass, trace, "--policy", "las", "--no-time-share", "--time-share", "no")["las"]
    assert twice["preemptions"] == 0


def test_jobs_that_never_end_are_told_and_are_in_no_mean(windlass: Run, trace: str) -> None:
    done = windlass("sim", "run", "--trace", trace, "--nodes", "1x4", "--policy", "fifo-backfill")
    assert done.code == 0
    assert "1 of 3 jobs can never run: it needs more than the 4 GPUs there are" in done.err
    assert "fifo-backfill: 1 of 3 jobs never ended; the times cover only the others" in done.err
    above = next(line for line in done.out.splitlines() if "above the bound" in line)
    assert above.split()[-1] == "-"


def test_where_nothing_ends_no_mean_is_told(windlass: Run, trace: str) -> None:
    done = windlass("sim", "run", "--trace", trace, "--nodes", "1x1", "--policy", "fifo")
    lines = {line[:27].strip(): line.split()[-1] for line in done.out.splitlines()}
    for name in ("queue mean", "completion p99", "makespan", "fairness (Jain)"):
        assert lines[name] == "-"
    assert lines["jobs that never ended"] == "3"


def test_a_trace_may_come_by_a_pipe(windlass: Run, trace: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As it is, or packed; a pipe can be read but once."""
    given = gzip.decompress(Path(trace).read_bytes())
    for piped in (given, gzip.compress(given)):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(piped)))
        assert ran(windlass, "-", "--policy", "fifo")["fifo"]["jobs"] == 3
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"")))
    done = windlass("sim", "run", "--trace", "-", "--nodes", "1x8")
    assert "standard input: the file is empty" in done.err


def test_a_pipe_may_have_a_name(windlass: Run, trace: str, tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=pipe.write_bytes, args=(Path(trace).read_bytes(),), daemon=True)
    writer.start()
    try:
        assert ran(windlass, str(pipe), "--policy", "fifo")["fifo"]["jobs"] == 3
    finally:
        writer.join(10.0)


def test_by_itself_it_is_windlass_that_is_played(windlass: Run, trace: str) -> None:
    assert list(ran(windlass, trace)) == ["windlass", "windlass (unshared)"]  # a trace does not name opt-ins
    assert list(ran(windlass, trace, "--time-share", "yes")) == ["windlass"]


def test_whatever_the_figures_depend_on_is_told(windlass: Run, trace: str) -> None:
    given = (
        "--mtbf",
        "30d",
        "--checkpoint",
        "1h",
        "--pod-gpus",
        "4",
        "--spread-slowdown",
        "1.2",
        "--by-queue",
    )
    done = windlass("sim", "run", "--trace", trace, "--nodes", "1xH100:8", "--speed", "H100=2", *given)
    assert done.out.splitlines()[0] == (
        "3 jobs on 1xH100:8; a restart costs 7/30/60 s; checkpoints every 1h; each node fails every 30d, for 4h;"
        " speed of H100 2; pods of up to 4 GPUs; spread jobs take 1.2 times as long; by queue; seed 0"
    )


def test_a_policy_of_pack_is_told_where_it_belongs(windlass: Run, trace: str) -> None:
    done = windlass("sim", "run", "--trace", trace, "--nodes", "1x8", "--policy", "fgd")
    assert done.code == 2
    assert "is a policy of sim pack" in done.err
    assert "windlass sim pack --policy fgd" in done.err
    listed = windlass("sim", "policies").out
    assert "kube-most" in listed


def test_what_is_missing_has_a_remedy(windlass: Run, trace: str, tmp_path: Path) -> None:
    near = windlass("sim", "run", "--trace", trace.replace("t.csv", "tt.csv"), "--nodes", "1x8")
    assert near.code == 2
    assert f"try: did you mean {trace}?" in near.err
    assert f"try: ls {tmp_path}" in near.err
    misspelt = windlass("sim", "run", "--trace", trace, "--nodes", "1x8", "--policy", "windlas")
    assert "try: did you mean windlass?" in misspelt.err


def test_options_that_change_nothing_are_told(windlass: Run, trace: str, tmp_path: Path) -> None:
    given = ("sim", "run", "--trace", trace, "--nodes", "1x8", "--policy", "fifo")
    done = windlass(*given, "--run-times", "learned", "--model-load", "5s", "--time-share", "both")
    assert done.code == 0
    for words in (
        "--run-times has no effect",
        "--model-load has no effect",
        "none of these policies uses time-sharing",
    ):
        assert words in done.err
    assert "--batch has no effect" in windlass(*given, "--batch", "5m").err
    assert "--by-queue" not in windlass(*given, "--by-queue").err
    one = tmp_path / "one.csv"
    one.write_text(OWN + "a,0,1,1\n")
    given = ("sim", "run", "--trace", str(one), "--nodes", "1x8", "--policy", "fifo", "--by-queue")
    assert "one queue: --by-queue has no effect" in windlass(*given).err


def test_a_table_is_no_wider_than_100_cells(windlass: Run, trace: str) -> None:
    names = "fifo,fifo-backfill,model-grouping,conservative,kube,kube-pack,kube1,las,sjf,srtf,srsf"
    done = windlass("sim", "run", "--trace", trace, "--nodes", "1x8", "--policy", names)
    assert max(map(len, done.out.splitlines())) <= 100
    heads = " ".join(line for line in done.out.splitlines() if line.startswith("  ") and "s" in line)
    assert all(name in heads for name in names.split(","))
    assert done.out.count("queue mean") == 3


def test_what_is_given_once_is_refused_twice(windlass: Run, trace: str) -> None:
    done = windlass("sim", "run", "--trace", trace, "--nodes", "2x8", "--nodes", "3x8")
    assert done.code == 2
    assert "--nodes is given 2 times: shapes by comma" in done.err


def test_that_jobs_are_given_up_is_said_before_where_nothing_is_saved_and_nodes_fail(
    windlass: Run, trace: str
) -> None:
    given = ("sim", "run", "--trace", trace, "--nodes", "2x8", "--mtbf", "1d")
    assert "stays unfinished" in windlass(*given, "--checkpoint", "never").err
    assert "stays unfinished" not in windlass(*given).err


def test_that_nodes_are_away_most_of_the_time_is_told_before(windlass: Run, trace: str) -> None:
    given = (
        "sim",
        "run",
        "--trace",
        trace,
        "--nodes",
        "1x8",
        "--policy",
        "fifo",
        "--mtbf",
        "30m",
        "--repair",
    )
    assert "a node is available for only 25 % of the time" in windlass(*given, "90m").err
    assert "of the time" not in windlass(*given, "30m").err


def test_a_file_that_is_not_there_is_a_matter_of_the_command_line(windlass: Run) -> None:
    done = windlass("sim", "run", "--trace", "/no/such", "--nodes", "1x8", "--policy", "fifo")
    assert (done.code, "does not exist" in done.err) == (2, True)


def test_lines_of_a_history_that_are_no_job_are_told(windlass: Run, trace: str, tmp_path: Path) -> None:
    """One that waits, and a step of one that ran."""
    (tmp_path / "jobs.txt").write_text(
        "JobID|Submit|Start|End|Partition|AllocTRES\n"
        "1|2026-01-01T00:00:00|2026-01-01T00:01:00|2026-01-01T01:00:00|gpu|cpu=8,gres/gpu=2\n"
        "1.batch|2026-01-01T00:00:00|2026-01-01T00:01:00|2026-01-01T01:00:00|gpu|cpu=8\n"
        "2|2026-01-01T00:00:10|Unknown|Unknown|gpu|\n"
    )
    done = windlass("sim", "run", "--trace", str(tmp_path / "jobs.txt"), "--nodes", "1x8", "--policy", "fifo")
    assert done.code == 0
    assert "1 job on 1x8" in done.out
    assert done.err.splitlines()[0] == "omitted: 1 pending job (--unfinished includes them)"
    whole = windlass("sim", "run", "--trace", trace, "--nodes", "2x8", "--policy", "fifo")
    assert "omitted" not in whole.err


def test_pods_of_a_dump_that_have_not_ended_are_told(windlass: Run, tmp_path: Path) -> None:
    def pod(name: str, status: str) -> str:
        spec = "{nodeName: n1, containers: [{name: m, image: x, resources: {limits: {nvidia.com/gpu: 1}}}]}"
        made = "creationTimestamp: '2026-06-01T10:00:00Z'"
        meta = f"{{name: {name}, namespace: lab, uid: {name}, {made}}}"
        return f"apiVersion: v1\nkind: Pod\nmetadata: {meta}\nspec: {spec}\nstatus: {status}\n"

    over = "startedAt: '2026-06-01T10:01:00Z', finishedAt: '2026-06-01T10:03:00Z', exitCode: 0"
    containers = f"[{{name: m, state: {{terminated: {{{over}}}}}}}]"
    ended = f"{{phase: Succeeded, startTime: '2026-06-01T10:01:00Z', containerStatuses: {containers}}}"
    (tmp_path / "pods.yaml").write_text("---\n".join([pod("a", ended), pod("b", "{phase: Pending}")]))
    done = windlass(
        "sim", "run", "--trace", str(tmp_path / "pods.yaml"), "--nodes", "1x8", "--policy", "fifo"
    )
    assert (done.code, "1 job on 1x8" in done.out) == (0, True), done.err
    assert "omitted: 1 pending job (--unfinished includes them)" in done.err


def test_cells_over_several_lines_are_no_jobs_that_are_left_out(windlass: Run, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text(OWN.replace("\n", ",name\n") + 'a,0,1,1,"one\ntwo"\nb,0,1,1,x\n')
    done = windlass("sim", "run", "--trace", str(tmp_path / "t.csv"), "--nodes", "1x8", "--policy", "fifo")
    assert (done.code, "2 jobs on 1x8" in done.out, "left out" in done.err) == (0, True, False)


def test_a_file_of_nodes_without_one_is_refused(windlass: Run, trace: str, tmp_path: Path) -> None:
    (tmp_path / "nodes.csv").write_text("sn,cpu_milli,memory_mib,gpu,model\n")
    done = windlass("sim", "run", "--trace", trace, "--nodes", str(tmp_path / "nodes.csv"))
    assert (done.code, "nodes.csv: there is no node in it" in done.err) == (65, True), done.err


def test_jobs_of_one_id_are_told_of_and_played(windlass: Run, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text(OWN + "a,0,1,1\nb,0,1,1\na,5,1,1\nb,5,1,1\nb,6,1,1\nc,9,1,1\n")
    done = windlass("sim", "run", "--trace", str(tmp_path / "t.csv"), "--nodes", "1x8", "--policy", "fifo")
    assert "6 jobs on 1x8" in done.out
    assert 't.csv has 2 jobs with id "a" (and duplicates of 1 other id); each is simulated' in done.err


@pytest.mark.parametrize(("encoding", "remedy"), [("utf-16", "utf-16"), ("latin-1", "latin1")])
def test_what_is_not_in_utf_8_is_told_how_it_may_be_read(
    windlass: Run, tmp_path: Path, encoding: str, remedy: str
) -> None:
    """Windows' shell and spreadsheets write UTF-16."""
    path = tmp_path / "t.csv"
    path.write_bytes((OWN + "J\u00f6rg,0,1,1\n").encode(encoding))
    done = windlass("sim", "run", "--trace", str(path), "--nodes", "1x8", "--policy", "fifo")
    assert (done.code, f"try: iconv -f {remedy} -t utf-8 {path}" in done.err) == (65, True), done.err


def test_a_log_of_a_parallel_machine_is_played_and_says_what_it_lacks(windlass: Run, tmp_path: Path) -> None:
    """Two jobs of 16 and 32 processors on a machine of 32, eight of them a card."""
    (tmp_path / "m.swf").write_text(
        "; MaxNodes: 4\n; MaxProcs: 32\n"
        "1 0 0 100 16 -1 -1 16 200 -1 1 1 1 1 1 1 -1 -1\n"
        "2 10 0 50 32 -1 -1 32 200 -1 1 1 1 1 1 1 -1 -1\n"
        "3 20 0 -1 32 -1 -1 32 200 -1 5 1 1 1 1 1 1 60\n"
        "4 30 0 10 1 -1 -1 1 200 -1 1 1 1 1 1 1 2 60\n"
    )
    log = ("sim", "run", "--trace", str(tmp_path / "m.swf"), "--policy", "fifo", "-o", "json")
    done = windlass(*log, "--nodes", "4x1", "--procs-per-gpu", "8")
    assert "m.swf has no GPUs: 8 processors count as one (--procs-per-gpu)" in done.err
    assert "the machine of the log had 32 processors: --nodes 4x1\n" in done.err
    assert "omitted: 1 job cancelled before they ran" in done.err
    assert "1 job depended on the end of another" in done.err
    (result,) = json.loads(done.out)["results"]
    assert result["queue_seconds"]["mean"] == pytest.approx((0 + 90 + 120) / 3, abs=0.1)
    by_processor = windlass(*log, "--nodes", "4x8")
    assert "each processor counts as one" in by_processor.err
    assert "--nodes 4x8\n" in by_processor.err
    assert json.loads(by_processor.out)["results"][0]["gpu_hours"] == pytest.approx(3210 / 3600, abs=0.01)


def test_processors_of_a_trace_that_counts_gpus_are_refused(windlass: Run, trace: str) -> None:
    done = windlass("sim", "run", "--trace", trace, "--nodes", "1x8", "--procs-per-gpu", "4")
    assert done.code == 2
    assert "--procs-per-gpu is only for logs of processors (swf)" in done.err


def test_policies_by_learned_run_times_stand_beside_the_exact(windlass: Run, trace: str) -> None:
    args = ("sim", "run", "--trace", trace, "--nodes", "2x8", "--policy", "fifo,easy", "-o", "json")
    done = windlass(*args, "--run-times", "oracle,learned")
    names = [result["policy"] for result in json.loads(done.out)["results"]]
    assert names == ["fifo", "easy (oracle)", "easy (learned)"]
    wrong = windlass(*args, "--run-times", "guess")
    assert wrong.code == 2
    assert "known: oracle, user, learned" in wrong.err


def test_policies_and_formats_are_listed(windlass: Run) -> None:
    policies = windlass("sim", "policies")
    assert all(name in policies.out for name in ("fifo", "kube", "easy", "sjf", "windlass", "las"))
    assert "yes" in next(line for line in policies.out.splitlines() if line.startswith("sjf"))
    formats = json.loads(windlass("sim", "formats", "-o", "json").out)
    assert {item["name"] for item in formats["items"]} >= {"philly", "muri", "openb", "sacct", "csv"}


def test_a_report_and_pictures_are_written_whole(windlass: Run, trace: str, tmp_path: Path) -> None:
    report, plots = tmp_path / "new" / "r.html", tmp_path / "plots"
    given = ("--trace", trace, "--nodes", "1x8", "--policy", "fifo,kube")
    done = windlass("sim", "run", *given, "--report", str(report), "--plots", str(plots))
    assert done.code == 0, done.err
    assert f"report in {report}" in done.err
    text = report.read_text()
    assert "<h2>GPUs by job: kube</h2>" in text
    assert "<td>queue mean</td>" in text
    assert {path.stem for path in plots.glob("*.svg")} == {path.stem for path in plots.glob("*.png")}
    assert (plots / "utilisation.png").read_bytes().startswith(b"\x89PNG")


def test_several_seeds_are_told_by_their_mean_and_spread(windlass: Run, tmp_path: Path) -> None:
    """One job of five hours on a node that fails every two: what a failure costs goes by chance, and the means and
    the spread are those of the runs."""
    (tmp_path / "t.csv").write_text("id,submit_seconds,duration_seconds,gpus\na,0,18000,8\nb,10,3600,4\n")
    given = ("sim", "run", "--trace", str(tmp_path / "t.csv"), "--nodes", "1x8", "--policy", "fifo,kube")
    failing = (*given, "--mtbf", "2h", "--repair", "10m", "--checkpoint", "10m")
    found = json.loads(windlass(*failing, "--seeds", "1-3,7", "-o", "json").out)
    assert [(run["policy"], run["seed"]) for run in found["runs"]] == [
        (policy, seed) for policy in ("fifo", "kube") for seed in (1, 2, 3, 7)
    ]
    result = found["results"][0]
    waits = [run["queue_seconds"]["mean"] for run in found["runs"][:4]]
    assert len(set(waits)) > 1
    assert result["seeds"] == [1, 2, 3, 7]
    assert result["queue_seconds"]["mean"] == pytest.approx(mean(waits), abs=1e-3)
    assert result["spread"]["queue_seconds"]["mean"] == pytest.approx(stdev(waits), abs=1e-3)
    assert (result["jobs"], result["queue_seconds_ge32_gpus"]["mean"]) == (2, None)
    alone = json.loads(windlass(*failing, "--seed", "7", "-o", "json").out)
    assert alone["results"][0]["queue_seconds"] == found["runs"][3]["queue_seconds"]
    assert "spread" not in alone["results"][0]
    assert "runs" not in alone


def test_a_table_and_csv_of_several_seeds(windlass: Run, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("id,submit_seconds,duration_seconds,gpus\na,0,18000,8\nb,10,3600,4\n")
    given = ("sim", "run", "--trace", str(tmp_path / "t.csv"), "--nodes", "1x8", "--policy", "fifo")
    failing = (*given, "--mtbf", "2h", "--repair", "10m", "--checkpoint", "10m", "--seeds", "1-3")
    per_job = tmp_path / "each.csv"
    done = windlass(*failing, "--per-job", str(per_job), "--report", str(tmp_path / "r.html"))
    assert "seeds 1-3: mean ± standard deviation" in done.out
    lines = {line.split("  ")[0].strip(): line for line in done.out.splitlines()}
    assert re.search(r"[\d,]+s ±[\d,]+s$", lines["queue mean"])
    assert "±" not in lines["failed gang starts"]
    rows = list(csv.DictReader(io.StringIO(per_job.read_text())))
    assert [(row["id"], row["seed"]) for row in rows] == [(name, seed) for seed in "123" for name in "ab"]
    report = (tmp_path / "r.html").read_text()
    assert "The pictures are of seed 1." in report
    assert report.count("<h2>GPUs by job: fifo</h2>") == 1
    (row,) = csv.DictReader(io.StringIO(windlass(*failing, "-o", "csv").out))
    assert row["seeds"] == "1 2 3"
    assert float(row["spread.queue_seconds.mean"]) > 0


def test_seeds_that_change_nothing_or_contradict_are_told(windlass: Run, trace: str) -> None:
    given = ("sim", "run", "--trace", trace, "--nodes", "1x8", "--policy", "fifo")
    done = windlass(*given, "--seeds", "1,2")
    assert "without --mtbf only the pauses" in done.err
    steady = [line for line in done.out.splitlines()[1:] if not line.startswith("scheduling pass")]
    assert "±" not in "".join(steady)
    both = windlass(*given, "--seed", "1", "--seeds", "1-2")
    assert (both.code, "--seed and --seeds contradict each other" in both.err) == (2, True)
    wrong = windlass(*given, "--seeds", "5-1")
    assert (wrong.code, "is not a seed or a range of seeds" in wrong.err) == (2, True)


def test_the_scores_by_which_a_job_was_placed(windlass: Run, trace: str) -> None:
    """Job 1 waits for job 0, and is placed on the only node."""
    given = ("sim", "run", "--trace", trace, "--nodes", "1x8", "--policy", "fifo,kube")
    done = windlass(*given, "--scores", "1")
    assert done.code == 0, done.err
    assert (
        "\njob 1 under fifo, placed at 100s on node-0000\nscores for 1 pod, weight times points:\n"
        in done.out
    )
    assert "binpack ×1" in done.out
    assert "job 1 under kube, placed at 100s on node-0000\n" in done.out
    found = json.loads(windlass(*given, "--scores", "1", "-o", "json").out)
    assert [(one["policy"], one["seconds"], one["nodes"]) for one in found["scores"]] == [
        ("fifo", 100.0, ["node-0000"]),
        ("kube", 100.0, ["node-0000"]),
    ]
    (table,) = found["scores"][0]["tables"]
    assert [(row["node"], row["fits"]) for row in table["nodes"]] == [("node-0000", True)]
    assert "scores" not in json.loads(windlass(*given, "-o", "json").out)


def test_the_scores_of_nobody_are_refused_before_the_work(windlass: Run, trace: str) -> None:
    given = ("sim", "run", "--trace", trace, "--nodes", "1x2", "--policy", "fifo")
    nobody = windlass(*given, "--scores", "17")
    assert (nobody.code, 'the trace has no job "17"' in nobody.err) == (2, True)
    table = windlass(*given, "--scores", "1", "-o", "csv")
    assert (table.code, "--scores does not work with -o csv" in table.err) == (2, True)
    seeds = windlass(*given, "--scores", "1", "--seeds", "4-5")
    assert (seeds.code, "--scores needs a single run" in seeds.err, "--seed 4" in seeds.err) == (
        2,
        True,
        True,
    )
    assert "job 0 was never placed" in windlass(*given, "--scores", "0").out


def test_what_became_of_each_job_is_written_as_csv(windlass: Run, trace: str, tmp_path: Path) -> None:
    path = tmp_path / "new" / "jobs.csv"
    given = ("--trace", trace, "--nodes", "1x8", "--policy", "fifo,kube", "--per-job", str(path))
    done = windlass("sim", "run", *given)
    assert done.code == 0, done.err
    assert f"6 lines in {path}" in done.err
    rows = list(csv.DictReader(io.StringIO(path.read_text())))
    assert [row["policy"] for row in rows] == ["fifo"] * 3 + ["kube"] * 3
    second = {"queue": "b", "submit_seconds": "1", "start_seconds": "100", "end_seconds": "110", "gpus": "4"}
    assert (
        rows[1].items() >= {**second, "queue_seconds": "99", "slowdown": "10.9", "nodes": "node-0000"}.items()
    )
    figures = ran(windlass, trace, "--policy", "fifo")["fifo"]
    waits = [float(row["queue_seconds"]) for row in rows if row["policy"] == "fifo"]
    assert sum(waits) / 3 == pytest.approx(figures["queue_seconds"]["mean"], abs=0.1)


def test_what_became_of_each_job_may_go_to_a_pipe_and_a_full_device_is_told(
    windlass: Run, trace: str
) -> None:
    given = ("sim", "run", "--trace", trace, "--nodes", "1x8", "--policy", "fifo", "--per-job")
    read_end, write_end = os.pipe()
    assert windlass(*given, f"/dev/fd/{write_end}").code == 0
    os.close(write_end)
    with open(read_end) as pipe:
        assert len(pipe.readlines()) == 4
    full = windlass(*given, "/dev/full")
    assert full.code == 2
    assert "/dev/full cannot be written" in full.err
    assert "df -h /dev" in full.err
    assert "queue mean" in full.out, "what was played is told nevertheless"
    assert Path("/dev/full").is_char_device()


def test_files_are_written_though_nobody_reads_the_words(trace: str, tmp_path: Path) -> None:
    """``windlass sim run … | true``, and where standard output is full."""
    run = [sys.executable, "-m", "windlass", "sim", "run", "--trace", trace, "--nodes", "1x8"]
    for name, code, stdout in (("gone", 141, os.pipe()), ("full", 1, None)):
        path = tmp_path / name
        if stdout is not None:
            os.close(stdout[0])
        number = stdout[1] if stdout is not None else os.open("/dev/full", os.O_WRONLY)
        done = subprocess.run([*run, "--policy", "fifo", "--per-job", str(path)], stdout=number, check=False)
        os.close(number)
        assert (done.returncode, len(path.read_text().splitlines())) == (code, 4)


def test_what_was_played_before_ctrl_c_is_told(
    windlass: Run, trace: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "jobs.csv"
    given = (
        "sim",
        "run",
        "--trace",
        trace,
        "--nodes",
        "1x8",
        "--per-job",
        str(path),
        "-o",
        "json",
        "--policy",
    )

    def stopped(jobs: Any, nodes: Any, policy: Any, *more: Any) -> Any:
        if policy.name == "sjf":
            raise KeyboardInterrupt
        return Replay(jobs, nodes, policy, *more)

    monkeypatch.setattr("windlass.cli.simulate.sim_parallel.Replay", stopped)
    done = windlass(*given, "fifo,sjf,kube")
    assert done.code == 130
    assert [figures["policy"] for figures in json.loads(done.out)["results"]] == ["fifo"]
    assert "stopped by Ctrl-C; not finished: sjf, kube" in done.err
    assert len(path.read_text().splitlines()) == 4
    nothing = windlass(*given, "sjf,fifo")
    assert (nothing.code, nothing.out) == (130, "")

    def second(jobs: Any, nodes: Any, policy: Any, options: Any, *more: Any) -> Any:
        if options.seed == 2:
            raise KeyboardInterrupt
        return Replay(jobs, nodes, policy, options, *more)

    monkeypatch.setattr("windlass.cli.simulate.sim_parallel.Replay", second)
    part = windlass(*given, "fifo", "--seeds", "1-2", "--mtbf", "10h")
    assert (part.code, part.out, "not finished: fifo" in part.err) == (130, "", True)


def test_of_a_job_that_never_ends_nothing_is_written_that_never_happened(
    windlass: Run, tmp_path: Path
) -> None:
    jobs, path = tmp_path / "t.csv", tmp_path / "jobs.csv"
    jobs.write_text("submit_s,duration_s,gpus,vc\n0,100,6,a\n1,10,40,b\n")
    given = ("--trace", str(jobs), "--nodes", "1x8", "--policy", "fifo", "--per-job", str(path))
    assert windlass("sim", "run", *given).code == 0
    never = list(csv.DictReader(io.StringIO(path.read_text())))[1]
    empty = ("start_seconds", "end_seconds", "queue_seconds", "completion_seconds", "slowdown", "nodes")
    assert [never[name] for name in empty] == [""] * 6


def test_a_report_that_cannot_be_written_is_refused_before_the_work(
    windlass: Run, trace: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = ("sim", "run", "--trace", trace, "--nodes", "1x8", "--policy", "fifo")
    for arguments in (
        ("--report", str(tmp_path)),
        ("--report", f"{trace}/r.html"),
        ("--plots", trace),
        ("--per-job", str(tmp_path)),
        ("--per-job", "-"),
        ("--report", "-"),
    ):
        done = windlass(*given, *arguments)
        assert (
            done.code,
            done.out,
            "cannot be written" in done.err or "is not a valid file name" in done.err,
        ) == (
            2,
            "",
            True,
        ), done.err
    assert "it is a file, not a directory" in windlass(*given, "--plots", trace).err
    monkeypatch.setattr("os.access", lambda *_: False)
    done = windlass(*given, "--report", str(tmp_path / "r.html"))
    assert (done.code, f"{tmp_path} cannot be written" in done.err) == (2, True)


def test_pictures_without_the_library_are_refused_before_the_work(
    windlass: Run, trace: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    report = tmp_path / "r.html"
    done = windlass(
        "sim", "run", "--trace", trace, "--nodes", "1x8", "--policy", "fifo", "--report", str(report)
    )
    assert done.code == 2
    assert "pip install 'matplotlib>=3.9'" in done.err
    assert not report.exists()


@pytest.mark.parametrize("days", ["nan", "inf", "1e9", "0"])
def test_a_trace_is_drawn_over_days_that_can_be_counted(windlass: Run, days: str) -> None:
    done = windlass("sim", "generate", "--jobs", "2", "--days", days)
    assert (done.code, done.out) == (2, "")
    assert "--days" in done.err


URGENT = "id,submit_seconds,duration_seconds,gpus,priority,queue\na,0,1000,8,0,x\nc,400,100,8,10,x\n"


def waits(windlass: Run, path: Path, *arguments: str) -> dict[str, float]:
    """The greatest wait by policy."""
    done = windlass("sim", "run", "--trace", str(path), "--nodes", "1x8", "-o", "json", *arguments)
    assert done.code == 0, done.err
    return {found["policy"]: found["queue_seconds"]["p99"] for found in json.loads(done.out)["results"]}


def test_the_configuration_as_installed_and_one_of_a_file_are_policies(windlass: Run, tmp_path: Path) -> None:
    """Time-sharing alone lets work of a higher priority wait until its turn; the configuration preempts for it."""
    trace, conf = tmp_path / "jobs.csv", tmp_path / "mine.conf"
    trace.write_text(URGENT)
    conf.write_text('actions: "allocate"\n')
    found = waits(windlass, trace, "--policy", f"default,{conf}", "--restart-cost", "0/0/0")
    assert found == {"default": 100.0, "default (unshared)": 100.0, "mine.conf": 600.0}
    conf.write_text('actions: "allocate, preempt"\n')
    assert waits(windlass, trace, "--policy", str(conf), "--restart-cost", "0/0/0") == {"mine.conf": 100.0}


def test_the_configuration_as_installed_gives_queues_what_they_are_due(windlass: Run, tmp_path: Path) -> None:
    trace = tmp_path / "jobs.csv"
    greedy = "".join(f"a{at},0,50000,4,greedy\n" for at in range(2))
    trace.write_text(f"id,submit_seconds,duration_seconds,gpus,queue\n{greedy}b,5000,100,4,modest\n")
    found = {
        name: waits(windlass, trace, "--policy", "default", "--no-time-share", *more)["default"]
        for name, more in (("apart", ("--by-queue",)), ("together", ()))
    }
    assert found["together"] == 45000.0
    assert found["apart"] < 6000.0


@pytest.mark.parametrize(
    ("text", "code", "words"),
    [
        ('actions: "allocate, fly"\n', 65, "actions: names 'fly', which is not an action"),
        ("", 65, "the file is empty"),
        (None, 2, "does not exist"),
    ],
)
def test_a_configuration_that_is_none_is_refused(
    windlass: Run, tmp_path: Path, text: str | None, code: int, words: str
) -> None:
    trace, conf = tmp_path / "jobs.csv", tmp_path / "mine.conf"
    trace.write_text(URGENT)
    if text is not None:
        conf.write_text(text)
    done = windlass("sim", "run", "--trace", str(trace), "--nodes", "1x8", "--policy", str(conf))
    assert (done.code, words in done.err) == (code, True), done.err


@pytest.mark.parametrize(
    "arguments", [("pack", "--nodes", "1x8", "--pods", "p.csv"), ("claims", "E2", "--jobs", "2")]
)
def test_commands_of_windlass_lab_name_the_package_where_it_is_missing(
    windlass: Run, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...]
) -> None:
    monkeypatch.setattr("importlib.metadata.entry_points", lambda **_: ())
    done = windlass("sim", *arguments)
    assert done.code == 2
    assert f"windlass sim {arguments[0]} is part of windlass-lab, which is not installed" in done.err
    assert "try: pip install ./lab" in done.err


TWO_GANGS = "id,submit_seconds,duration_seconds,gpus\na,0,600,4\nb,0,600,4\n"


def test_f23_two_gangs_deadlock_pod_by_pod_and_finish_with_windlass(windlass: Run, tmp_path: Path) -> None:
    trace = tmp_path / "two.csv"
    trace.write_text(TWO_GANGS)
    given = ("sim", "run", "--trace", str(trace), "--nodes", "1x6", "--policy", "kube-wait,windlass")
    done = windlass(*given, "--time-share", "no")
    assert done.code == 0, done.err
    (line,) = [line for line in done.out.splitlines() if line.startswith("finished jobs")]
    assert line.split()[2:] == ["0", "2"]
    assert "kube-wait: 2 of 2 jobs never ended" in done.err


def test_f46_the_p99_of_a_scheduling_pass_is_printed(windlass: Run, trace: str) -> None:
    done = windlass("sim", "run", "--trace", trace, "--nodes", "1x8")
    assert "scheduling pass p99" in done.out
    done = windlass("sim", "run", "--trace", trace, "--nodes", "1x8", "-o", "json")
    for found in json.loads(done.out)["results"]:
        passes = found["pass_milliseconds"]
        assert 0 < passes["p50"] <= passes["p99"] <= passes["max"]


def test_f78_a_learned_forecast_is_shown_next_to_the_last_value_and_off_by_default(
    windlass: Run, tmp_path: Path
) -> None:
    past, now = tmp_path / "past.csv", tmp_path / "now.csv"
    for path, seed in ((past, "1"), (now, "2")):
        path.write_text(windlass("sim", "generate", "--jobs", "300", "--days", "3", "--seed", seed).out)
    given = ("sim", "run", "--trace", str(now), "--nodes", "8x8", "--policy", "fifo")
    assert "DEMAND FORECAST" not in windlass(*given).out
    done = windlass(*given, "--forecast-from", str(past))
    assert done.code == 0, done.err
    for line in ("DEMAND FORECAST", "mean error, GPUs", "mean wait", "expected use of capacity"):
        assert line in done.out
    found = json.loads(windlass(*given, "--forecast-from", str(past), "-o", "json").out)["demandForecast"]
    assert set(found["forecasts"]) == {"learned", "last value"}
    assert all(one["errorGpus"] > 0 and one["waitSeconds"] >= 0 for one in found["forecasts"].values())
    short = tmp_path / "short.csv"
    short.write_text(TWO_GANGS)
    done = windlass(*given, "--forecast-from", str(short))
    assert (done.code, "a day is needed" in done.err) == (2, True)
