"""Elastic PyTorch DDP under an unmodified torchrun: the scheduler decides the world size, and the rendezvous is told.

Needs a Python with torch (Debian: python3-torch), skipped by name elsewhere.
"""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from single_node import Box

pytestmark = pytest.mark.torch
PYTHON = "/usr/bin/python3"

TRAIN = """
import os, sys, time
import torch, torch.distributed as dist
folder = sys.argv[1]
saved = f"{folder}/checkpoint.pt"
dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
step = torch.load(saved)["step"] if os.path.exists(saved) else 0

def say(words):
    with open(f"{folder}/log", "a") as log:
        log.write(f"{time.time():.2f} {words}\\n")

say(f"rank {rank} of {world} in {os.environ['HOSTNAME']} from step {step}")
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
while True:
    optimizer.zero_grad()
    model(torch.randn(8, 4)).sum().backward()
    optimizer.step()
    step += 1
    if rank == 0:
        torch.save({"step": step}, saved + ".new")
        os.replace(saved + ".new", saved)
        say(f"step {step} world {world}")
    if os.path.exists(f"{folder}/kill-{rank}"):
        os.remove(f"{folder}/kill-{rank}")
        os.kill(os.getpid(), 9)
    stop = torch.tensor([float(os.path.exists(f"{folder}/stop"))])
    dist.all_reduce(stop)
    if stop.item():
        break
    time.sleep(0.1)
"""
TORCHRUN = """#!/usr/bin/python3
import torch.distributed.elastic.multiprocessing.api as api

def from_str(value):
    if "," not in value and ":" not in value:
        return api.Std(int(value))
    return {int(rank): api.Std(int(std)) for rank, std in (part.split(":") for part in value.split(","))}

api.Std.from_str = staticmethod(from_str)
from torch.distributed.run import main
main()
"""
"""Debian's torch 1.13 has a torchrun that fails on Python 3.11 at an option: this is torchrun without that fault."""


def _has_torch() -> bool:
    if not os.path.exists(PYTHON):
        return False
    done = subprocess.run([PYTHON, "-c", "import torch.distributed"], capture_output=True, check=False)
    return done.returncode == 0


@pytest.fixture(scope="module")
def box() -> Iterator[Box]:
    if not _has_torch():
        pytest.skip(f"{PYTHON} has no torch (Debian: apt-get install python3-torch)")
    with Box("--gpus", "simulated:4") as one:
        yield one


def _job(folder: Path) -> dict[str, Any]:
    container = {
        "name": "pytorch",
        "image": "python",
        "command": ["torchrun", str(folder / "train.py"), str(folder)],
        "env": [
            {"name": "PATH", "value": f"{folder}/bin:/usr/bin:/bin"},
            {"name": "OMP_NUM_THREADS", "value": "1"},
        ],
        "resources": {"limits": {"nvidia.com/gpu": 1}},
    }
    worker = {"replicas": 4, "restartPolicy": "OnFailure", "template": {"spec": {"containers": [container]}}}
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": {"name": "elastic"},
        "spec": {
            "elasticPolicy": {"minReplicas": 2, "maxReplicas": 6, "maxRestarts": 10, "nProcPerNode": 1},
            "pytorchReplicaSpecs": {"Worker": worker},
        },
    }


def condition(box: Box) -> str:
    """Return the last condition of the job."""
    return box.get("pytorchjobs", "elastic")["status"]["conditions"][-1]["type"]


class Training:
    """Lines that the ranks write."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def lines(self) -> list[list[str]]:
        log = self.folder / "log"
        return [line.split() for line in log.read_text().splitlines()] if log.exists() else []

    def steps(self) -> list[tuple[int, int]]:
        """Return step and world size of each step."""
        return [(int(line[2]), int(line[4])) for line in self.lines() if line[1] == "step"]

    def world(self) -> int:
        steps = self.steps()
        return steps[-1][1] if steps else 0

    def hosts(self) -> dict[int, str]:
        """Return rank → pod of the newest world."""
        starts = [line for line in self.lines() if line[1] == "rank"]
        return {int(line[2]): line[6] for line in starts[-self.world() :]}


@pytest.mark.slow
@pytest.mark.timeout(500)
def test_a_torchrun_job_follows_the_decisions_of_the_scheduler(box: Box, tmp_path: Path) -> None:
    """4 workers, a killed process, 2 workers for a more important job, and 4 again."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/torchrun").write_text(TORCHRUN)
    (tmp_path / "bin/torchrun").chmod(0o755)
    (tmp_path / "train.py").write_text(TRAIN)
    training = Training(tmp_path)
    box.windlass("apply", "-f", "-", stdin=json.dumps(_job(tmp_path)))

    def reaches(size: int, words: str) -> float:
        begun = time.monotonic()
        known = training.lines()

        def there() -> bool:
            new = training.lines()[len(known) :]
            begins = [at for at, line in enumerate(new) if line[1:5:3] == ["rank", str(size)]]
            return len(begins) >= size and any(line[1] == "step" for line in new[begins[size - 1] :])

        box.wait_for(words, there, 150)
        seconds = time.monotonic() - begun
        print(f"{words}: {seconds:.1f} s")
        return seconds

    reaches(4, "the job starts with four workers")
    pods = {pod["metadata"]["name"]: pod["metadata"]["uid"] for pod in box.items("pods")}
    assert training.hosts() == {rank: f"elastic-worker-{rank}" for rank in range(4)}

    (tmp_path / "kill-3").touch()
    reaches(4, "a killed process is started again")
    assert {pod["metadata"]["name"]: pod["metadata"]["uid"] for pod in box.items("pods")} == pods

    box.windlass(
        "submit", "--gpus", "2", "--name", "urgent", "--priority", "high-priority", "--", "sleep", "600"
    )
    reaches(2, "the job shrinks for a more important job")
    assert training.hosts() == {0: "elastic-worker-0", 1: "elastic-worker-1"}
    now = {pod["metadata"]["name"]: pod["metadata"]["uid"] for pod in box.items("pods")}
    assert {name: now[name] for name in ("elastic-worker-0", "elastic-worker-1")} == {
        name: pods[name] for name in ("elastic-worker-0", "elastic-worker-1")
    }
    box.wait_for("the job runs", lambda: condition(box) == "Running")

    box.windlass("cancel", "urgent")
    reaches(4, "the job grows when room is found")
    assert training.hosts() == {rank: f"elastic-worker-{rank}" for rank in range(4)}

    (tmp_path / "stop").touch()
    box.wait_for("it succeeds", lambda: condition(box) == "Succeeded")
    steps = [step for step, _ in training.steps()]
    assert all(after >= before for before, after in itertools.pairwise(steps))

    def attempts() -> list[dict[str, Any]]:
        return json.loads(box.windlass("show", "elastic", "-o", "json").stdout)["attempts"]

    box.wait_for("its end is recorded", lambda: [one["cause"] for one in attempts()] == ["completed"])
    (only,) = attempts()
    assert only["lostSeconds"] == 0.0
    counts = [change["count"] for change in only["pods"]]
    assert [size for size in counts if size != 3][-3:] == [4, 2, 4]
