"""The stages of the job matrix with real frameworks: PyTorch DDP, mpi4py, JAX and distributed XGBoost.

``python -m tests.chaos.frameworks`` starts a job of each on one box, preempts, suspends
and resumes all of them, and lets a rank fail. The light programs of
``tests/e2e/test_job_matrix.py`` do the same in ``make test``. Frameworks that are missing
are named and left out: ``tools/test_tools.sh large frameworks`` installs them.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.extend(map(str, Path(__file__).resolve().parents[1].glob("support/*/")))

from job_matrix import Family
from single_node import Box
from tests.e2e import test_job_matrix as stages

from windlass.api.fields.kubeflow import FIELDS
from windlass.api.resources import JAX_JOBS, MPI_JOBS_V2BETA1, PYTORCH_JOBS, XGBOOST_JOBS, Resource

Json = dict[str, Any]
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "windlass"
PYTHON = str(CACHE / "frameworks" / "bin" / "python")
TORCH = "/usr/bin/python3"

COMMON = """
import os, socket, sys, time
env, folder, family = os.environ, sys.argv[1], sys.argv[2]

def tell(rank, size):
    with open(f"{folder}/{family}.log", "a") as log:
        log.write(f"{rank} {size} {socket.gethostname()}\\n")

def check(rank):
    try:
        with open(f"{folder}/{family}.fail-{rank}") as file:
            code = int(file.read())
        os.unlink(file.name)
        os._exit(code)
    except FileNotFoundError:
        time.sleep(0.2)
"""
"""Begin of each program: what a rank writes about its world, and the file by which it fails."""
DDP = """
import torch, torch.distributed as dist
dist.init_process_group("gloo")
rank, one = dist.get_rank(), torch.ones(1)
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
dist.all_reduce(one)
tell(rank, int(one.item()))
while True:
    optimizer.zero_grad()
    model(torch.randn(8, 4)).sum().backward()
    optimizer.step()
    check(rank)
"""
JAX = """
import jax
address = env["COORDINATOR_ADDRESS"] + ":" + env["COORDINATOR_PORT"]
jax.distributed.initialize(address, int(env["NUM_PROCESSES"]), int(env["PROCESS_ID"]))
from jax.experimental import multihost_utils
rank = jax.process_index()
found = multihost_utils.process_allgather(jax.numpy.ones(1))
tell(rank, int(found.sum()))
while True:
    check(rank)
"""
MPI4PY = """
from mpi4py import MPI
world = MPI.COMM_WORLD
tell(world.rank, world.allreduce(1))
while True:
    check(world.rank)
"""
XGBOOST = """
import numpy as np, xgboost as xgb
from xgboost import collective
from xgboost.tracker import RabitTracker
rank, size = int(env["RANK"]), int(env["WORLD_SIZE"])
port = int(env["MASTER_PORT"])
if rank == 0:
    tracker = RabitTracker(n_workers=size, host_ip=socket.gethostbyname(socket.gethostname()), port=port)
    tracker.start()
    arguments = tracker.worker_args()
else:
    for _ in range(600):
        try:
            address = socket.gethostbyname(env["MASTER_ADDR"])
            socket.create_connection((address, port), 5).close()
            break
        except OSError:
            time.sleep(0.2)
    arguments = {"dmlc_tracker_uri": address, "dmlc_tracker_port": port}
with collective.CommunicatorContext(**arguments, dmlc_task_id=str(rank)):
    total = collective.allreduce(np.ones(1), collective.Op.SUM)
    data = np.random.RandomState(rank).rand(64, 4)
    xgb.train({"objective": "reg:squarederror"}, xgb.DMatrix(data, data.sum(axis=1)), num_boost_round=3)
    tell(rank, int(total[0]))
    while True:
        check(rank)
"""


def main() -> int:
    folder = Path(tempfile.mkdtemp(prefix="windlass-frameworks-"))
    families = tuple(family for family, needed in _families(folder) if _has(family.name, needed))
    if not families:
        return 1
    with Box("--gpus", f"simulated:{2 * len(families)}") as box:
        matrix = stages.Matrix(box, folder, families)
        for stage in STAGES:
            begun = time.monotonic()
            stage(matrix)
            words = stage.__name__.removeprefix("test_").replace("_", " ")
            print(f"{time.monotonic() - begun:6.1f} s  {words}", flush=True)
    print(f"held: {', '.join(family.name for family in families)}")
    return 0


STAGES: tuple[Callable[[stages.Matrix], None], ...] = (
    stages.test_the_ranks_of_every_kind_meet,
    stages.test_preempted_gangs_come_back_whole_with_their_ranks_and_their_age,
    stages.test_suspended_jobs_give_their_gpus_back_and_come_back_after_the_resume,
    stages.test_a_rank_that_fails_again_ends_each_job_with_its_cause,
)


def _has(name: str, check: list[str]) -> bool:
    done = (
        subprocess.run(check, capture_output=True, text=True, check=False)
        if Path(check[0]).exists()
        else None
    )
    if done is not None and done.returncode == 0:
        return True
    print(f"left out: {name}: {' '.join(check)} does not succeed (tools/test_tools.sh large frameworks)")
    return False


def _families(folder: Path) -> list[tuple[Family, list[str]]]:
    for name, body in (("pytorch", DDP), ("jax", JAX), ("mpi4py", MPI4PY), ("xgboost", XGBOOST)):
        (folder / f"train_{name}.py").write_text(COMMON + body)
    both, workers = {"Master": 1, "Worker": 1}, {"Worker": 2}
    return [
        (Family("pytorch", PYTORCH_JOBS, _make(PYTORCH_JOBS, TORCH, both)), [TORCH, "-c", "import torch"]),
        (Family("jax", JAX_JOBS, _make(JAX_JOBS, PYTHON, workers)), [PYTHON, "-c", "import jax"]),
        (
            Family("xgboost", XGBOOST_JOBS, _make(XGBOOST_JOBS, PYTHON, both)),
            [PYTHON, "-c", "import xgboost.tracker"],
        ),
        (Family("mpi4py", MPI_JOBS_V2BETA1, _mpi), [PYTHON, "-c", "from mpi4py import MPI"]),
    ]


def _container(name: str, command: list[str], gpus: int = 1) -> Json:
    env = [{"name": "OMP_NUM_THREADS", "value": "1"}, {"name": "JAX_PLATFORMS", "value": "cpu"}]
    body: Json = {"name": name, "image": "python", "command": command, "env": env}
    if gpus:
        body["resources"] = {"limits": {"nvidia.com/gpu": gpus}}
    return {"spec": {"terminationGracePeriodSeconds": 2, "containers": [body]}}


def _make(resource: Resource, python: str, roles: dict[str, int]) -> Callable[[Path, str], Json]:
    fields = FIELDS[resource]

    def make(folder: Path, name: str) -> Json:
        command = [python, str(folder / f"train_{name}.py"), str(folder), name]
        template = _container(fields.container, command)
        specs = {
            role: {"replicas": count, "restartPolicy": "Never", "template": template}
            for role, count in roles.items()
        }
        return {"spec": {fields.field: specs}}

    return make


def _mpi(folder: Path, name: str) -> Json:
    command = ["mpirun", "-n", "2", PYTHON, str(folder / f"train_{name}.py"), str(folder), name]
    launcher = {"restartPolicy": "Never", "template": _container("mpi", command, gpus=0)}
    worker = {"replicas": 2, "template": _container("worker", ["/usr/sbin/sshd", "-De"])}
    run = {"backoffLimit": 0, "cleanPodPolicy": "Running"}
    return {
        "spec": {
            "slotsPerWorker": 1,
            "runPolicy": run,
            "mpiReplicaSpecs": {"Launcher": launcher, "Worker": worker},
        }
    }


if __name__ == "__main__":
    sys.exit(main())
