"""Interruption of training on one box: SIGTERM in time, checkpoint hook, watched checkpoints, the attempt ledger."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from single_node import Box

PROGRAM = """
import os, pathlib, signal, sys, time
folder, rank = pathlib.Path(sys.argv[1]), os.environ["HOSTNAME"][-1]
def stop(*_):
    (folder / f"term-{rank}").write_text(str(time.time()))
    if sys.argv[2] == "saves":
        (folder / "saved" / rank).write_text("step 7")
    sys.exit(0)
signal.signal(signal.SIGTERM, stop)
if sys.argv[2] == "serves":
    import http.server, threading
    class Save(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            (folder / f"hook-{rank}").write_text(self.path)
            self.send_response(200)
            self.end_headers()
    threading.Thread(target=http.server.HTTPServer(("", 8099), Save).serve_forever, daemon=True).start()
with open(folder / f"starts-{rank}", "a") as file:
    file.write(f"{rank}\\n")
while not (folder / "done").exists():
    time.sleep(0.05)
"""


@pytest.fixture(scope="module")
def box() -> Iterator[Box]:
    with Box("--gpus", "simulated:2") as one:
        yield one


def submit(box: Box, folder: Path, name: str, behaviour: str, **annotations: str) -> None:
    (folder / "saved").mkdir(parents=True)
    (folder / "program.py").write_text(PROGRAM)
    container = {
        "name": "pytorch",
        "image": "python",
        "command": ["sh", "-c", f"python3 {folder}/program.py {folder} {behaviour}; code=$?; exit $code"],
        "resources": {"limits": {"nvidia.com/gpu": 1}},
    }
    worker = {"replicas": 2, "template": {"spec": {"containers": [container]}}}
    marks = {f"windlass.dev/{key.replace('_', '-')}": value for key, value in annotations.items()}
    job = {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": {"name": name, "annotations": marks},
        "spec": {"pytorchReplicaSpecs": {"Worker": worker}},
    }
    box.windlass("apply", "-f", "-", stdin=json.dumps(job))
    box.wait_for("both ranks run", lambda: all((folder / f"starts-{rank}").exists() for rank in (0, 1)))


def attempts(box: Box, name: str) -> list[dict[str, Any]]:
    return json.loads(box.windlass("show", name, "-o", "json").stdout).get("attempts") or []


def preempt_and_finish(box: Box, folder: Path, name: str) -> dict[str, Any]:
    """Preempt the job, let it run again to its end, and return its first attempt."""
    box.windlass(
        "submit",
        "--gpus",
        "2",
        "--name",
        f"{name}-urgent",
        "--priority",
        "high-priority",
        "--",
        "sleep",
        "600",
    )
    box.wait_for("SIGTERM arrived", lambda: (folder / "term-1").exists())
    box.wait_for("the attempt has ended", lambda: any(one["ended"] for one in attempts(box, name)[:1]))
    box.windlass("cancel", f"{name}-urgent")

    def again() -> bool:
        return all((folder / f"starts-{rank}").read_text().split() == [str(rank)] * 2 for rank in (0, 1))

    box.wait_for("both ranks run again", again)
    (folder / "done").touch()
    box.wait_for("it is done", lambda: any(one["cause"] == "completed" for one in attempts(box, name)))
    first, second = attempts(box, name)
    assert first["cause"] == "preemption"
    assert second["number"] == 2
    return first


def test_a_checkpoint_after_sigterm_is_told(box: Box, tmp_path: Path) -> None:
    submit(box, tmp_path, "saves", "saves", checkpoint_path=f"{tmp_path}/saved")
    first = preempt_and_finish(box, tmp_path, "saves")
    assert first["checkpoint"] >= first["signalled"]
    assert (first["checkpointMissed"], first["lostSeconds"] < first["runningSeconds"]) == (False, True)
    assert "a checkpoint landed" in box.windlass("show", "saves").stdout


def test_sigterm_without_a_checkpoint_is_told(box: Box, tmp_path: Path) -> None:
    submit(box, tmp_path, "loses", "loses", checkpoint_path=f"{tmp_path}/saved")
    first = preempt_and_finish(box, tmp_path, "loses")
    assert (first["checkpoint"], first["checkpointMissed"]) == (None, True)
    assert first["lostSeconds"] == first["runningSeconds"]
    assert "SIGTERM arrived, no checkpoint landed" in box.windlass("show", "loses").stdout


def test_the_hook_saves_before_sigterm(box: Box, tmp_path: Path) -> None:
    rank = "${HOSTNAME##*-}"
    hook = f"test ! -e {tmp_path}/term-{rank} && sleep 0.3 && touch {tmp_path}/hook-{rank}"
    submit(box, tmp_path, "hooked", "loses", checkpoint_hook=hook)
    first = preempt_and_finish(box, tmp_path, "hooked")
    assert (tmp_path / "hook-0").exists()
    assert (tmp_path / "hook-1").exists()
    assert 0.3 <= first["checkpointSeconds"] < 60
    assert first["lostSeconds"] < first["runningSeconds"]
    assert json.loads(box.windlass("show", "hooked", "-o", "json").stdout)["bestCheckpointSeconds"] > 0


def test_a_hook_is_also_an_http_request(box: Box, tmp_path: Path) -> None:
    submit(box, tmp_path, "served", "serves", checkpoint_hook="http://:8099/save?now=1")
    first = preempt_and_finish(box, tmp_path, "served")
    assert [(tmp_path / f"hook-{rank}").read_text() for rank in (0, 1)] == ["/save?now=1"] * 2
    assert (first["checkpointMissed"], first["lostSeconds"] < first["runningSeconds"]) == (False, True)


def test_elastic_ranks_fill_the_room_there_is(box: Box) -> None:
    command = ["sh", "-c", "echo ranks $PET_NNODES; sleep 600"]
    box.windlass("submit", "--elastic", "1:4", "--gpus", "1", "--name", "wide", "--", *command)

    def running() -> list[str]:
        ranks = json.loads(box.windlass("show", "wide", "-o", "json").stdout)["ranks"]
        return [rank["rank"] for rank in ranks if rank["phase"] == "Running"]

    box.wait_for("two of four ranks run", lambda: running() == ["worker-0", "worker-1"])
    box.wait_for(
        "their number is told",
        lambda: "ranks 1:4" in box.windlass("logs", "wide", "--rank", "worker-0").stdout,
    )
    box.windlass("cancel", "wide")


def test_a_failed_job_is_continued_from_its_checkpoint(box: Box, tmp_path: Path) -> None:
    """``--resume``: the same name, command, environment and checkpoints; the attempts are counted on."""
    step = tmp_path / "step"
    script = (
        f"n=$(cat {step} || echo 0); echo $LABEL from $n; echo $((n + 5)) > {step}; test $n -gt 0 || exit 3"
    )
    for kind, plural in (("vcjob", "vcjob"), ("jaxjob", "jaxjobs")):
        name = f"again-{kind}"
        step.unlink(missing_ok=True)
        flags = ["--kind", kind, "--name", name, "--checkpoint-path", str(step), "-e", "LABEL=run"]
        assert box.windlass("run", *flags, "--", "sh", "-c", script, check=False).returncode == 3

        def causes(name: str = name) -> list[str]:
            return [one["cause"] for one in attempts(box, name)]

        box.wait_for("the end is recorded", lambda: causes() == ["program"])
        resumed = box.windlass("run", "--resume", name)
        assert "run from 5" in resumed.stdout
        assert f"attempt 2 of {name} (end of the last one: program)" in resumed.stderr
        box.wait_for("both are told", lambda: causes() == ["program", "completed"])
        refused = box.windlass("submit", "--resume", name, check=False)
        assert "it has completed" in refused.stderr
        again = box.windlass("run", "--kind", kind, "--resume", name, "--", "cat", str(step))
        assert again.stdout.split()[-1] == "10"
        assert json.dumps(str(step)) in json.dumps(box.get(plural, name))  # it stays declared
