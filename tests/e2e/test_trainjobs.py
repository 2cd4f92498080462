"""TrainJobs and JobSets on one box, with real programs: order, restarts, DDP, progress, suspension, quotas."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from single_node import Box

PYTHON = "/usr/bin/python3"
REPORT = """
import json, os, ssl, urllib.request

def report(percent, left):
    url, ca, token = (os.environ["KUBEFLOW_TRAINER_STATUS_" + name] for name in ("URL", "CA_CERT", "TOKEN"))
    status = {"progressPercentage": percent, "estimatedRemainingSeconds": left,
              "metrics": [{"name": "loss", "value": "0.5"}], "lastUpdatedTime": "2026-03-01T00:00:00Z"}
    headers = {"Authorization": "Bearer " + open(token).read(), "Content-Type": "application/json"}
    request = urllib.request.Request(url, json.dumps({"trainerStatus": status}).encode(), headers, method="POST")
    urllib.request.urlopen(request, context=ssl.create_default_context(cafile=ca), timeout=30)
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
"""Debian's torch 1.13 has a torchrun that fails on Python 3.11."""
TRAIN = (
    REPORT
    + """
import torch, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()
torch.manual_seed(rank)
model = DistributedDataParallel(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(20):
    optimizer.zero_grad()
    loss = model(torch.randn(64, 4)).pow(2).mean()
    loss.backward()
    optimizer.step()
total = torch.tensor([float(rank + 1)])
dist.all_reduce(total)
weights = ",".join(f"{w:.6f}" for w in model.module.weight.detach().flatten().tolist())
print(f"rank {rank}/{size} sum {total.item():.0f} weights {weights}")
if rank == 0:
    report(100, 0)
dist.destroy_process_group()
"""
)


@pytest.fixture(scope="module")
def box() -> Iterator[Box]:
    with Box("--gpus", "none") as one:
        yield one


def apply(box: Box, *objects: Any) -> None:
    text = "\n---\n".join(json.dumps(obj) for obj in objects)
    box.windlass("apply", "-f", "-", stdin=text)


def train_job(name: str, command: list[str], runtime: str = "plain", nodes: int = 1, **more: Any) -> Any:
    trainer = {"numNodes": nodes, "command": command, **more}
    return {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainJob",
        "metadata": {"name": name},
        "spec": {"runtimeRef": {"name": runtime}, "trainer": trainer},
    }


def state(box: Box, name: str, namespace: str = "default") -> str:
    status = box.get("trainjobs", name, namespace=namespace).get("status") or {}
    return (status.get("conditions") or [{}])[-1].get("type", "")


def suspend(box: Box, name: str, value: bool) -> None:
    patch = json.dumps({"spec": {"suspend": value}})
    box.kubectl("patch", "trainjob", name, "--type=merge", "-p", patch)


def replicated(name: str, script: str, pods: int = 1, **container: Any) -> Any:
    main = {"name": "main", "image": "busybox", "command": ["sh", "-c", script], **container}
    pod = {"restartPolicy": "Never", "containers": [main]}
    spec = {"parallelism": pods, "completions": pods, "backoffLimit": 0, "template": {"spec": pod}}
    return {"name": name, "template": {"spec": spec}}


def test_driver_starts_first_and_a_failed_worker_restarts_the_set(box: Box, tmp_path: Path) -> None:
    marks = tmp_path / "marks"
    marks.mkdir()
    driver = replicated(
        "driver",
        f"sleep 1; touch {marks}/ready; sleep 300",
        readinessProbe={"exec": {"command": ["test", "-e", f"{marks}/ready"]}, "periodSeconds": 1},
    )
    script = (
        f"test -e {marks}/ready || exit 9; getent hosts ladder-driver-0-0.ladder || exit 8; "
        f"echo worker $JOB_COMPLETION_INDEX; "
        f"if [ $JOB_COMPLETION_INDEX = 1 ] && mkdir {marks}/failed 2>/dev/null; then exit 3; fi; sleep 2"
    )
    apply(
        box,
        {
            "apiVersion": "jobset.x-k8s.io/v1alpha2",
            "kind": "JobSet",
            "metadata": {"name": "ladder"},
            "spec": {
                "startupPolicy": {"startupPolicyOrder": "InOrder"},
                "successPolicy": {"operator": "All", "targetReplicatedJobs": ["workers"]},
                "failurePolicy": {"maxRestarts": 1},
                "replicatedJobs": [driver, replicated("workers", script, pods=2)],
            },
        },
    )

    def ended() -> bool:
        return bool((box.get("jobsets", "ladder").get("status") or {}).get("terminalState"))

    box.wait_for("the JobSet ends", ended, 120)
    status = box.get("jobsets", "ladder")["status"]
    assert status["terminalState"] == "Completed", status
    assert status["restarts"] == status["restartsCountTowardsMax"] == 1
    logs = box.windlass("logs", "ladder", "--all").stdout
    assert "worker 0" in logs
    assert "worker 1" in logs
    rows = box.windlass("ps").stdout.splitlines()
    assert [line.split()[0] for line in rows if "ladder" in line] == ["ladder"]


def _has_torch() -> bool:
    done = subprocess.run([PYTHON, "-c", "import torch.distributed"], capture_output=True, check=False)
    return done.returncode == 0


@pytest.mark.torch
@pytest.mark.slow
@pytest.mark.timeout(400)
def test_torchrun_trains_on_two_nodes_and_reports_its_progress(box: Box, tmp_path: Path) -> None:
    """F66: torchrun reads the environment of the runtime without an argument."""
    if not os.path.exists(PYTHON) or not _has_torch():
        pytest.skip(f"{PYTHON} has no torch (Debian: apt-get install python3-torch)")
    (tmp_path / "torchrun").write_text(TORCHRUN)
    (tmp_path / "torchrun").chmod(0o755)
    (tmp_path / "train.py").write_text(TRAIN)
    env = [{"name": "OMP_NUM_THREADS", "value": "1"}]
    command = [str(tmp_path / "torchrun"), str(tmp_path / "train.py")]
    apply(box, train_job("ddp", command, "torch-distributed", 2, numProcPerNode=1, env=env))
    box.wait_for("the TrainJob ends", lambda: state(box, "ddp") in ("Complete", "Failed"), 240)
    logs = box.windlass("logs", "ddp", "--all").stdout
    assert state(box, "ddp") == "Complete", logs
    lines = sorted(line[line.index("rank ") :] for line in logs.splitlines() if "rank " in line)
    assert [line.split(" weights ")[0] for line in lines] == ["rank 0/2 sum 3", "rank 1/2 sum 3"]
    assert len({line.split(" weights ")[1] for line in lines}) == 1
    status = box.get("trainjobs", "ddp")["status"]["trainerStatus"]
    assert (status["progressPercentage"], status["estimatedRemainingSeconds"]) == (100, 0)


def test_mpirun_starts_ranks_on_the_nodes_of_a_train_job(box: Box) -> None:
    """The launcher is a node itself, and the node agent is the remote shell."""
    if shutil.which("mpirun") is None:
        pytest.skip("mpirun is missing (Debian: apt-get install openmpi-bin)")
    script = "mpirun -n 2 sh -c 'echo rank $OMPI_COMM_WORLD_RANK on $(hostname)'"
    apply(box, train_job("mpi", ["sh", "-c", script], "deepspeed-distributed", 2))
    box.wait_for("the TrainJob ends", lambda: state(box, "mpi") in ("Complete", "Failed"))
    logs = box.windlass("logs", "mpi", "--all").stdout
    assert state(box, "mpi") == "Complete", logs
    assert "rank 0 on mpi-" in logs
    assert "rank 1 on mpi-" in logs
    assert all(f" on mpi-{host}-0-0" in logs for host in ("launcher", "node")), logs


def test_suspended_job_gives_its_nodes_back_and_is_shown_as_running_after_the_resume(box: Box) -> None:
    """W7: neither the condition nor the column says Suspended after the resume."""
    apply(box, train_job("pause", ["sleep", "300"], nodes=2))
    box.wait_for("it runs", lambda: state(box, "pause") == "Running")

    def pods() -> int:
        found = box.items("pods")
        return sum(pod["metadata"]["name"].startswith("pause-") for pod in found)

    suspend(box, "pause", True)
    box.wait_for("it is suspended", lambda: state(box, "pause") == "Suspended" and pods() == 0)
    suspend(box, "pause", False)
    box.wait_for("it runs again", lambda: state(box, "pause") == "Running" and pods() == 2)
    box.windlass("cancel", "pause")


def test_refused_job_set_is_told_in_the_status(box: Box) -> None:
    """W6: the condition names the quota and the command that raises it."""
    quota = {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "small", "namespace": "tight"},
        "spec": {"hard": {"count/jobsets.jobset.x-k8s.io": "0"}},
    }
    apply(box, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "tight"}}, quota)
    job = train_job("big", ["true"])
    job["metadata"]["namespace"] = "tight"
    apply(box, job)
    box.wait_for("it is told", lambda: state(box, "big", "tight") == "CreationFailed")
    message = box.get("trainjobs", "big", namespace="tight")["status"]["conditions"][-1]["message"]
    assert "exceeded quota: small" in message
    assert "kubectl edit resourcequota small -n tight" in message
