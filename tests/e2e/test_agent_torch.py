"""PyTorch DDP under torchrun through the agent: four pods, their names, addresses and one port, unmodified.

Needs a Python with torch (Debian: python3-torch); skipped by name elsewhere. Debian's torch 1.13 has a
torchrun that fails on Python 3.11, so the pods find a wrapper of that name first on their PATH.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from node_agent_server import NodeBox, pod, serving

from windlass.api.resources import SERVICES

pytestmark = pytest.mark.torch
PYTHON = "/usr/bin/python3"
RANKS = 4

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

TRAIN = """
import os, torch, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()
torch.manual_seed(rank)                      # every rank begins with other weights and has other data
model = torch.nn.Linear(8, 1)
x = torch.randn(256, 8)
y = x @ torch.arange(8.0).unsqueeze(1)
synced = DistributedDataParallel(model)
optimizer = torch.optim.SGD(synced.parameters(), lr=0.1)
for _ in range(60):
    optimizer.zero_grad()
    loss = torch.nn.functional.mse_loss(synced(x), y)
    loss.backward()
    optimizer.step()
total = torch.tensor([float(rank)])
dist.all_reduce(total)
weights = ",".join(f"{w:.6f}" for w in model.weight.detach().flatten().tolist())
master = os.environ["MASTER_ADDR"]
print(f"rank {rank}/{size} sum {total.item():.0f} loss {loss.item():.4f} master {master} weights {weights}")
dist.destroy_process_group()
"""


def _has_torch() -> bool:
    if not os.path.exists(PYTHON):
        return False
    done = subprocess.run([PYTHON, "-c", "import torch.distributed"], capture_output=True, check=False)
    return done.returncode == 0


@pytest.fixture(scope="module")
def torch_python() -> str:
    if not _has_torch():
        pytest.skip(f"{PYTHON} has no torch (Debian: apt-get install python3-torch)")
    return PYTHON


async def _gang(box: NodeBox, folder: Path, name: str) -> None:
    service = {
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"clusterIP": "None", "selector": {"job": name}},
    }
    await box.client.create(SERVICES, service)
    for rank in range(RANKS):
        command = [
            "torchrun",
            f"--nnodes={RANKS}",
            "--nproc_per_node=1",
            "--node_rank=$(RANK)",
            f"--master_addr={name}-0.{name}",
            "--master_port=29500",
            str(folder / "train.py"),
        ]
        env = [
            {"name": "RANK", "value": str(rank)},
            {"name": "PATH", "value": f"{folder}/bin:/usr/bin:/bin"},
            {"name": "OMP_NUM_THREADS", "value": "1"},
        ]
        labels = {"metadata": {"labels": {"job": name}}, "subdomain": name}
        await box.create(pod(f"{name}-{rank}", *command, container={"env": env}, **labels))


@pytest.mark.slow
@pytest.mark.timeout(400)
async def test_two_ddp_gangs_train_at_once_on_the_same_port(tmp_path: Path, torch_python: str) -> None:
    (tmp_path / "bin").mkdir()
    wrapper = tmp_path / "bin/torchrun"
    wrapper.write_text(TORCHRUN)
    wrapper.chmod(0o755)
    (tmp_path / "train.py").write_text(TRAIN)
    async with serving(tmp_path) as box:
        assert box.agent is not None
        if not box.agent.network.capabilities.network:
            pytest.skip(f"pods share one network here: {box.agent.network.capabilities.refused}")
        for gang in ("red", "blue"):
            await _gang(box, tmp_path, gang)
        for gang in ("red", "blue"):
            texts = []
            for rank in range(RANKS):
                found = await box.phase(f"{gang}-{rank}", "Succeeded", "Failed", seconds=150)
                text = await box.log(f"{gang}-{rank}")
                assert found["status"]["phase"] == "Succeeded", text
                texts.append(next(line for line in text.splitlines() if line.startswith("rank ")))
            assert [line.split()[1] for line in texts] == [f"{rank}/{RANKS}" for rank in range(RANKS)]
            assert all(" sum 6 " in line for line in texts)  # 0 + 1 + 2 + 3: a real all-reduce
            assert len({line.split(" weights ")[1] for line in texts}) == 1  # synchronised
            learned = [float(weight) for weight in texts[0].split(" weights ")[1].split(",")]
            assert all(abs(weight - index) < 0.1 for index, weight in enumerate(learned))
