"""Ranks of a worker of several pods: their programs, their exit codes, and the end of rank 0."""

from __future__ import annotations

import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from windlass.items.runtimes.base import (
    PEER_SECONDS,
    LeasedRow,
    ReplicaEnded,
    RuntimeContext,
    WorkBatch,
    create,
)
from windlass.items.spec import SHARD, BatchSpec, parse_batch
from windlass.items.worker import shard
from windlass.items.worker.shard import Shard

RANK = {"PATH": "/usr/bin:/bin", SHARD: "1", "RANK": "1"}


def batch_of(command: str = "", **spec: Any) -> BatchSpec:
    if command:
        container = {"name": "w", "command": ["/bin/sh", "-c", command]}
        spec = {"runtimeRef": {"name": "process"}, "template": {"spec": {"containers": [container]}}}
    return parse_batch({"metadata": {"name": "j"}, "spec": spec})


def test_exit_code_of_a_rank_tells_who_ended_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(shard, "FAILED_SECONDS", 0.0)
    monkeypatch.setattr(shard, "_POLL_SECONDS", 0.01)
    assert Shard(batch_of("exit 3"), RANK).run() == 3
    assert "rank 1: the command ended with exit code 3" in capsys.readouterr().err
    assert Shard(batch_of("kill -9 $$"), RANK).run() == 137
    told = Shard(batch_of("exit 3"), RANK)
    told.stop()  # rank 0 was first
    assert told.run() == shard.STOPPED


def test_command_of_a_rank_runs_until_it_is_told_to_end(tmp_path: Path) -> None:
    begun, ended = tmp_path / "begun", tmp_path / "ended"
    for command in (f"touch {begun}; cat; touch {ended}", f"touch {begun}"):
        rank = Shard(batch_of(command), RANK)

        def stop(rank: Shard = rank) -> None:
            while not begun.exists():
                time.sleep(0.01)
            rank.stop()

        thread = threading.Thread(target=stop)
        thread.start()
        assert rank.run() == shard.STOPPED
        thread.join()
        begun.unlink()


def test_class_of_a_rank_is_set_up_and_follows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = """
        import os, pathlib
        class Model:
            def setup(self): self.said = ["setup", os.environ["RANK"]]
            def process(self, rows): raise AssertionError("rank 0 alone processes rows")
            def follow(self):
                pathlib.Path(os.environ["SAID"]).write_text(" ".join([*self.said, "follow"]))
                raise ConnectionError("rank 0 is gone")
        """
    (tmp_path / "sharded_model.py").write_text("\n".join(line[8:] for line in text.splitlines()))
    monkeypatch.setattr(shard, "FAILED_SECONDS", 0.0)
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path)])
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("SAID", str(tmp_path / "said"))
    batch = batch_of(runtimeRef={"name": "python", "function": "sharded_model:Model"})
    assert Shard(batch, RANK).run() == 1
    assert (tmp_path / "said").read_text() == "setup 1 follow"


def test_program_of_rank_0_does_not_start_again_alone() -> None:
    pauses: list[float] = []
    clock = time.monotonic
    context = RuntimeContext(
        batch_of("read row; echo '{}'; read row; exit 7"), {**RANK, SHARD: "0"}, clock, pauses.append
    )
    runtime = create(context)
    runtime.setup()
    outcomes = runtime.process(WorkBatch([LeasedRow(n, {"id": str(n)}, 1) for n in range(3)]))
    assert next(outcomes).output == {"id": "0"}
    assert (next(outcomes).reason, pauses) == ("ProcessExited", [PEER_SECONDS])
    with pytest.raises(ReplicaEnded):
        next(outcomes)
    runtime.teardown()
