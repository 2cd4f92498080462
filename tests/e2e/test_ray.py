"""Ray's kinds on one box, with Ray itself: a job in a cluster of two nodes, and one that fails."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from single_node import Box

from windlass.api.resources import PODS, RAY_CLUSTERS, RAY_JOBS

pytestmark = pytest.mark.timeout(600)
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "windlass" / "ray" / "bin"
SECONDS = 400
PROGRAM = """
import os, sys, time, ray
ray.init()

@ray.remote(num_cpus=1, scheduling_strategy="SPREAD")
def where(number):
    time.sleep(0.5)
    return ray.util.get_node_ip_address()

found = set(ray.get([where.remote(number) for number in range(6)]))
print("counter", os.environ["counter_name"], "nodes", len(found))
sys.exit(int(sys.argv[1]))
"""


@pytest.fixture(scope="module")
def ray_folder() -> str:
    found = shutil.which("ray", path=f"{CACHE}:{os.environ.get('PATH', '')}")
    if found is None:
        pytest.skip("no Ray here: tools/test_tools.sh ray")
    return str(Path(found).parent)


@pytest.fixture(scope="module")
def box(ray_folder: str) -> Iterator[Box]:
    with Box("--gpus", "none") as one:
        (one.folder / "count.py").write_text(PROGRAM)
        yield one


def group(box: Box, ray_folder: str) -> dict[str, Any]:
    container = {
        "name": "ray",
        "image": "rayproject/ray",
        "env": [{"name": "PATH", "value": f"{ray_folder}:/usr/bin:/bin"}],
        "resources": {"requests": {"cpu": "100m"}},
    }
    return {"rayStartParams": {"num-cpus": "1"}, "template": {"spec": {"containers": [container]}}}


def job(box: Box, ray_folder: str, name: str, status: int, workers: int) -> dict[str, Any]:
    workers_group = {"groupName": "small", "replicas": workers, **group(box, ray_folder)}
    return {
        "apiVersion": "ray.io/v1",
        "kind": "RayJob",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "entrypoint": f"python {box.folder}/count.py {status}",
            "runtimeEnvYAML": "env_vars: {counter_name: test_counter}",
            "shutdownAfterJobFinishes": True,
            "rayClusterSpec": {"headGroupSpec": group(box, ray_folder), "workerGroupSpecs": [workers_group]},
        },
    }


def ended(box: Box, name: str) -> dict[str, Any]:
    deadline = time.monotonic() + SECONDS
    while True:
        with box.client() as client:
            status = client.get(RAY_JOBS, name, "default").get("status") or {}
        if status.get("jobDeploymentStatus") in ("Complete", "Failed"):
            return status
        assert time.monotonic() < deadline, status
        time.sleep(0.5)


def test_a_job_runs_on_the_nodes_of_its_own_cluster(box: Box, ray_folder: str) -> None:
    box.windlass("apply", "-f", "-", stdin=yaml.safe_dump(job(box, ray_folder, "count", 0, 1)))
    status = ended(box, "count")
    assert (status["jobDeploymentStatus"], status["jobStatus"]) == ("Complete", "SUCCEEDED")
    assert "counter test_counter nodes 2" in box.windlass("logs", "count").stdout
    deadline = time.monotonic() + SECONDS
    while _left(box):
        assert time.monotonic() < deadline, "the cluster is deleted with its pods"
        time.sleep(0.2)
    table = box.windlass("ps", "-a").stdout
    assert [line.split()[2] for line in table.splitlines() if line.startswith("count")] == ["Completed"]
    assert "RayJob" in box.windlass("show", "count").stdout.splitlines()[1]


def _left(box: Box) -> list[str]:
    with box.client() as client:
        clusters = client.list(RAY_CLUSTERS, "default").items
        pods = client.list(PODS, "default", labels="ray.io/is-ray-node=yes").items
    return [found["metadata"]["name"] for found in (*clusters, *pods)]


def test_a_job_that_fails_says_so(box: Box, ray_folder: str) -> None:
    box.windlass("apply", "-f", "-", stdin=yaml.safe_dump(job(box, ray_folder, "broken", 3, 0)))
    status = ended(box, "broken")
    assert (status["jobDeploymentStatus"], status["jobStatus"], status["reason"]) == (
        "Failed",
        "FAILED",
        "AppFailed",
    )
