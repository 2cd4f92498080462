"""Resizing of a torchrun job: with the announced world, and next to it a torchrun that guesses.

``python -m benchmarks.elastic`` runs PyTorch DDP over gloo under ``torchrun`` on one box
and scales the job 4 → 3 → 2 → 4 → 6. It prints the time from the change to the first
step of the new world. The second job has the same commands, and its rendezvous is not
told anything. Needs a Python with torch (Debian:
python3-torch).
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import os
import subprocess
import time
from pathlib import Path
from typing import Any

from benchmarks.jobs import box, client
from benchmarks.report import add_output, show
from windlass.api.annotations import RENDEZVOUS, RENDEZVOUS_OFF
from windlass.api.resources import PYTORCH_JOBS
from windlass.client.client import Client

PYTHON = "/usr/bin/python3"
SIZES = (4, 3, 2, 4, 6)
PATIENCE_SECONDS = 100.0
"""Maximum time to wait for one new world."""
TRAIN = """
import os, sys, time
import torch, torch.distributed as dist
folder = sys.argv[1]
saved = folder + "/checkpoint.pt"
dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
step = torch.load(saved)["step"] if os.path.exists(saved) else 0
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
        with open(folder + "/log", "a") as log:
            print(step, world, file=log)
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
"""torchrun of Debian's torch 1.13 without its fault on Python 3.11."""


def job(name: str, folder: Path, *, told: bool) -> dict[str, Any]:
    container = {
        "name": "pytorch",
        "image": "python",
        "command": ["torchrun", str(folder / "train.py"), str(folder / name)],
        "env": [
            {"name": "PATH", "value": f"{folder}/bin:/usr/bin:/bin"},
            {"name": "OMP_NUM_THREADS", "value": "1"},
        ],
    }
    policy: dict[str, Any] = {"minReplicas": 2, "maxReplicas": 8, "maxRestarts": 100, "nProcPerNode": 1}
    template = {"spec": {"terminationGracePeriodSeconds": 5, "containers": [container]}}
    worker = {"replicas": SIZES[0], "restartPolicy": "OnFailure", "template": template}
    return {
        "apiVersion": PYTORCH_JOBS.api_version,
        "kind": PYTORCH_JOBS.kind,
        "metadata": {
            "name": name,
            "namespace": "default",
            "annotations": {} if told else {RENDEZVOUS: RENDEZVOUS_OFF},
        },
        "spec": {"elasticPolicy": policy, "pytorchReplicaSpecs": {"Worker": worker}},
    }


def steps(folder: Path) -> list[tuple[int, int]]:
    """Return step and world size of each step so far."""
    log = folder / "log"
    lines = log.read_text().splitlines() if log.exists() else []
    return [(int(step), int(world)) for step, world in map(str.split, lines)]


async def resized(api: Client, name: str, folder: Path, size: int) -> str:
    """Scale the job and return the time until the first step of its new world."""
    known = len(steps(folder))
    begun = time.monotonic()
    patch = {"spec": {"pytorchReplicaSpecs": {"Worker": {"replicas": size}}}}
    await api.patch(PYTORCH_JOBS, name, patch, "default")
    while not any(world == size for _, world in steps(folder)[known:]):
        if time.monotonic() - begun > PATIENCE_SECONDS:
            return f"not within {PATIENCE_SECONDS:.0f}"
        await asyncio.sleep(0.1)
    return f"{time.monotonic() - begun:.1f}"


async def play(api: Client, folder: Path, name: str, *, told: bool) -> dict[str, Any]:
    (folder / name).mkdir()
    begun = time.monotonic()
    await api.create(PYTORCH_JOBS, job(name, folder, told=told))
    while not any(world == SIZES[0] for _, world in steps(folder / name)):
        if time.monotonic() - begun > PATIENCE_SECONDS:
            break
        await asyncio.sleep(0.1)
    figures: dict[str, Any] = {"rendezvous": "told" if told else "torchrun alone"}
    figures[f"start with {SIZES[0]}, s"] = f"{time.monotonic() - begun:.1f}"
    for number, size in enumerate(SIZES[1:]):
        figures[f"{SIZES[number]} to {size}, s"] = await resized(api, name, folder / name, size)
    counted = [step for step, _ in steps(folder / name)]
    figures["steps behind the checkpoint"] = sum(
        after < before for before, after in itertools.pairwise(counted)
    )
    await api.delete(PYTORCH_JOBS, name, "default")
    return figures


async def measure(output: str) -> None:
    with box("--gpus", "none") as (state, folder):
        (folder / "bin").mkdir()
        (folder / "bin/torchrun").write_text(TORCHRUN)
        (folder / "bin/torchrun").chmod(0o755)
        (folder / "train.py").write_text(TRAIN)
        api = client(state)
        for name, told in (("alone", False), ("told", True)):
            show(await play(api, folder, name, told=told), output)
        await api.close()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_output(parser)
    given = parser.parse_args()
    found = (
        os.path.exists(PYTHON)
        and not subprocess.run(
            [PYTHON, "-c", "import torch.distributed"], check=False, capture_output=True
        ).returncode
    )
    if not found:
        raise SystemExit(f"{PYTHON} has no torch: apt-get install python3-torch")
    asyncio.run(measure(given.output))


if __name__ == "__main__":
    main()
