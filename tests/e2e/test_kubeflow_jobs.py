"""Kubeflow's job kinds on one box: pods, environment, restarts, suspension, the users' manifests."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from typing import Any

import acceptance_manifests
import pytest
import yaml
from single_node import Box

from windlass.api.fields.kubeflow import FIELDS
from windlass.api.resources import (
    JAX_JOBS,
    MPI_JOBS,
    PADDLE_JOBS,
    PYTORCH_JOBS,
    TF_JOBS,
    XGBOOST_JOBS,
    Resource,
)

CONNECT = """
import os, socket, sys
env = os.environ
rank, port = int(sys.argv[1]), 29599
host = sys.argv[2]
if rank == 0:
    with socket.create_server(("", port)) as server:
        server.settimeout(60)
        peer = server.accept()[0]
        print("connected", peer.recv(20).decode())
else:
    import time
    for _ in range(600):
        try:
            peer = socket.create_connection((host, port), 5)
            break
        except OSError:
            time.sleep(0.1)
    peer.sendall(b"from-the-worker")
    print("sent")
"""
"""Program: ranks 0 and 1 connect at the address in the environment of their kind."""

PROGRAMS = {
    PYTORCH_JOBS: ({"Master": 1, "Worker": 1}, 'env["RANK"]', 'env["MASTER_ADDR"]'),
    TF_JOBS: (
        {"Worker": 2},
        'config["task"]["index"]',
        'config["cluster"]["worker"][0].split(":")[0]',
    ),
    XGBOOST_JOBS: ({"Master": 1, "Worker": 1}, 'env["RANK"]', 'env["MASTER_ADDR"]'),
    PADDLE_JOBS: (
        {"Worker": 2},
        '0 if "worker-0" in socket.gethostname() else 1',
        'env["PADDLE_MASTER"].split(":")[0]',
    ),
    JAX_JOBS: ({"Worker": 2}, 'env["PROCESS_ID"]', 'env["COORDINATOR_ADDRESS"]'),
}


@pytest.fixture(scope="module")
def box() -> Iterator[Box]:
    with Box("--gpus", "none") as one:
        yield one


def manifest(resource: Resource, name: str, roles: dict[str, int], command: list[str], **spec: Any) -> Any:
    fields = FIELDS[resource]
    container = {"name": fields.container, "image": "python", "command": command}
    return {
        "apiVersion": resource.api_version,
        "kind": resource.kind,
        "metadata": {"name": name},
        "spec": {
            fields.field: {
                role: {"replicas": count, "template": {"spec": {"containers": [container]}}}
                for role, count in roles.items()
            },
            **spec,
        },
    }


def state(box: Box, resource: Resource, name: str) -> str:
    conditions = box.get(resource.plural, name).get("status", {}).get("conditions") or [{}]
    return conditions[-1].get("type", "")


@pytest.mark.parametrize("resource", list(PROGRAMS), ids=lambda resource: resource.kind)
def test_ranks_meet_at_the_address_of_their_environment(box: Box, resource: Resource) -> None:
    """F27: each kind ends in Succeeded, and its environment joins the ranks."""
    roles, rank, host = PROGRAMS[resource]
    program = CONNECT.replace("int(sys.argv[1])", f"int({rank})").replace("sys.argv[2]", host)
    program = "import json, os\nconfig = json.loads(os.environ.get('TF_CONFIG') or '{}')\n" + program
    name = resource.singular
    text = json.dumps(manifest(resource, name, roles, ["python3", "-c", program]))
    box.windlass("apply", "-f", "-", stdin=text)
    box.wait_for(f"{name} ends", lambda: state(box, resource, name) in ("Succeeded", "Failed"))
    logs = box.windlass("logs", name, "--all").stdout
    assert state(box, resource, name) == "Succeeded", logs
    box.wait_for("the worker wrote its line", lambda: "sent" in box.windlass("logs", name, "--all").stdout)
    assert "connected from-the-worker" in box.windlass("logs", name, "--all").stdout


ALL_REDUCE = """
import ctypes, os
mpi = ctypes.CDLL("libmpi.so.40", mode=ctypes.RTLD_GLOBAL)
mpi.MPI_Init(None, None)
def handle(name):
    return ctypes.c_void_p(ctypes.addressof(ctypes.c_char.in_dll(mpi, name)))
world, integer, plus = map(handle, ("ompi_mpi_comm_world", "ompi_mpi_int", "ompi_mpi_op_sum"))
rank, size, total = ctypes.c_int(), ctypes.c_int(), ctypes.c_int()
mpi.MPI_Comm_rank(world, ctypes.byref(rank))
mpi.MPI_Comm_size(world, ctypes.byref(size))
mpi.MPI_Allreduce(ctypes.byref(rank), ctypes.byref(total), 1, integer, plus, world)
print(f"rank {rank.value} of {size.value} on {os.uname().nodename} sum {total.value}", flush=True)
mpi.MPI_Finalize()
"""
"""Program: ranks of an MPI job add their numbers. It calls Open MPI's library itself."""


@pytest.mark.skipif(shutil.which("mpirun") is None, reason="mpirun (Debian: openmpi-bin) is not installed")
@pytest.mark.parametrize("version", ["v1", "v2beta1"])
def test_mpirun_reaches_the_workers_of_an_mpi_job(box: Box, version: str) -> None:
    """F27: mpirun of the machine starts a rank in each worker, by exec or by ssh, as users wrote it."""
    name = f"sum-{version}"
    program = box.folder / "all_reduce.py"
    program.write_text(ALL_REDUCE)
    command = ["mpirun", "-n", "2", "python3", str(program)]
    worker: dict[str, Any] = {"name": "mpi-worker", "image": "i"}
    if version == "v2beta1":
        worker["command"] = ["/usr/sbin/sshd", "-De", "-f", "/home/mpiuser/.sshd_config"]
    roles = {
        "Launcher": {
            "template": {"spec": {"containers": [{"name": "mpi", "image": "i", "command": command}]}}
        },
        "Worker": {"replicas": 2, "template": {"spec": {"containers": [worker]}}},
    }
    job = {
        "apiVersion": f"kubeflow.org/{version}",
        "kind": "MPIJob",
        "metadata": {"name": name},
        "spec": {"slotsPerWorker": 1, "runPolicy": {"cleanPodPolicy": "Running"}, "mpiReplicaSpecs": roles},
    }
    if version == "v2beta1":  # it starts suspended, and is resumed
        job["spec"]["runPolicy"]["suspend"] = True
        box.windlass("apply", "-f", "-", stdin=json.dumps(job))
        box.wait_for("it is suspended", lambda: state(box, MPI_JOBS, name) == "Suspended")
        job["spec"]["runPolicy"]["suspend"] = False
    box.windlass("apply", "-f", "-", stdin=json.dumps(job))
    box.wait_for(f"{name} ends", lambda: state(box, MPI_JOBS, name) in ("Succeeded", "Failed"))
    log = box.windlass("logs", name, "--rank", "launcher-0").stdout
    assert state(box, MPI_JOBS, name) == "Succeeded", log
    for rank in (0, 1):
        assert f"rank {rank} of 2 on {name}-worker-{rank} sum 1" in log
    box.wait_for(
        "the workers are deleted",
        lambda: (
            [pod["metadata"]["name"] for pod in box.items("pods") if pod["metadata"]["name"].startswith(name)]
            == [f"{name}-launcher"]
        ),
    )


def test_pod_that_ended_by_a_signal_is_replaced(box: Box, tmp_path: Any) -> None:
    once = tmp_path / "once"
    command = ["sh", "-c", f"[ -e {once} ] || {{ touch {once}; exit 137; }}"]
    job = manifest(TF_JOBS, "once", {"Worker": 1}, command)
    job["spec"]["tfReplicaSpecs"]["Worker"]["restartPolicy"] = "ExitCode"
    box.windlass("apply", "-f", "-", stdin=json.dumps(job))
    box.wait_for("it ends", lambda: state(box, TF_JOBS, "once") in ("Succeeded", "Failed"))
    assert state(box, TF_JOBS, "once") == "Succeeded"
    found = box.get("tfjobs", "once")
    assert '"program":1' in found["metadata"]["annotations"]["windlass.dev/job-record"]
    box.wait_for(
        "its restart is told", lambda: "TFJobRestarting" in {event["reason"] for event in box.items("events")}
    )

    def attempts() -> list[dict[str, Any]]:
        return json.loads(box.windlass("show", "once", "-o", "json").stdout).get("attempts") or []

    box.wait_for(
        "both attempts are recorded", lambda: [one["cause"] for one in attempts()][1:] == ["completed"]
    )
    first = attempts()[0]
    assert (first["cause"], first["lostSeconds"]) == ("program", None)
    assert "failed with exit code 137" in first["detail"]
    shown = box.windlass("show", "once").stdout
    assert "Restarts:    1 by program" in shown


def test_suspended_job_runs_after_its_resume(box: Box) -> None:
    job = manifest(JAX_JOBS, "later", {"Worker": 2}, ["true"], runPolicy={"suspend": True})
    box.windlass("apply", "-f", "-", stdin=json.dumps(job))
    box.wait_for("it is suspended", lambda: state(box, JAX_JOBS, "later") == "Suspended")
    assert not [pod for pod in box.items("pods") if pod["metadata"]["name"].startswith("later-")]
    job["spec"]["runPolicy"]["suspend"] = False
    box.windlass("apply", "-f", "-", stdin=json.dumps(job))
    box.wait_for("it succeeds", lambda: state(box, JAX_JOBS, "later") == "Succeeded")


def test_cancel_ends_the_job_and_its_pods(box: Box) -> None:
    job = manifest(PYTORCH_JOBS, "endless", {"Worker": 2}, ["sleep", "1000"])
    box.windlass("apply", "-f", "-", stdin=json.dumps(job))
    box.wait_for("it runs", lambda: state(box, PYTORCH_JOBS, "endless") == "Running")
    shown = json.loads(box.windlass("ps", "-o", "json").stdout)
    assert any(
        "endless" in json.dumps(entry) and "PyTorchJob" in json.dumps(entry) for entry in shown["items"]
    )
    box.windlass("cancel", "endless")
    box.wait_for(
        "its pods are gone",
        lambda: not [pod for pod in box.items("pods") if pod["metadata"]["name"].startswith("endless-")],
    )


@pytest.mark.kubectl
@pytest.mark.parametrize("number", [8, 24])
@pytest.mark.parametrize("tool", ["windlass", "kubectl"])
def test_users_manifest_starts_whole_with_exactly_the_promised_warnings(
    box: Box, number: int, tool: str
) -> None:
    """Y8, Y24, F42: manifests/08 and manifests/24."""
    entry = acceptance_manifests.expectation(number)
    (document,) = acceptance_manifests.documents(number)
    space, name = document["metadata"].get("namespace", "default"), document["metadata"]["name"]
    claim = {8: "training-data-pvc", 24: "llm-data-pvc"}[number]
    volume = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    if space != "default":
        box.windlass(
            "apply", "-f", "-", stdin=f"{{apiVersion: v1, kind: Namespace, metadata: {{name: {space}}}}}"
        )
    needed = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": claim, "namespace": space},
        "spec": volume,
    }
    box.windlass("apply", "-f", "-", stdin=yaml.safe_dump(needed))
    done = box.run([tool, "apply", "-f", str(acceptance_manifests.manifest_path(number))])
    lines = [line.strip() for line in done.stderr.splitlines() if "arning: " in line]
    warnings = [line.removeprefix("Warning: ").removeprefix("warning: ") for line in lines]
    expected = acceptance_manifests.expected_warnings(number)
    assert acceptance_manifests.all_there(warnings, expected), (warnings, expected)
    groups = entry["gang"]["podgroups"]
    group = box.wait_for("the group exists", lambda: box.get("podgroups", name, namespace=space))
    assert group["spec"]["minMember"] == groups[0]["minMember"]
    nodes = _add_nodes(box, entry["nodes"], f"y{number}-{tool}")
    try:

        def members() -> list[Any]:
            return box.items("pods", namespace=space, labels=f"training.kubeflow.org/job-name={name}")

        def placed() -> list[Any]:
            return [pod for pod in members() if pod["spec"].get("nodeName")]

        box.wait_for("all pods have a node", lambda: len(placed()) == groups[0]["pods"])
        assert sum(_gpus(pod) for pod in placed()) == groups[0]["gpus"]
        first = next(pod for pod in placed() if pod["metadata"]["name"] == f"{name}-master-0")
        env = {item["name"]: item.get("value") for item in first["spec"]["containers"][0]["env"]}
        assert (env["MASTER_PORT"], env["NODE_RANK"]) == ("29500", env["RANK"])
    finally:
        box.windlass("delete", "pytorchjob", name, "-n", space)
        box.wait_for("no pods are left", lambda: not members())
        for node in nodes:
            box.windlass("delete", "node", node)


def _gpus(pod: dict[str, Any]) -> int:
    return sum(
        int(container.get("resources", {}).get("limits", {}).get("nvidia.com/gpu", 0))
        for container in pod["spec"]["containers"]
    )


def _add_nodes(box: Box, shapes: list[dict[str, Any]], prefix: str) -> list[str]:
    before = {node["metadata"]["name"] for node in box.items("nodes")}
    for index, shape in enumerate(shapes):
        command = ["node", "add-simulated", "--count", str(shape["count"]), "--gpus", str(shape["gpus"])]
        command += ["--cpu", str(shape.get("cpu", 64)), "--memory", shape.get("memory", "256Gi")]
        for key, value in shape.get("labels", {}).items():
            command += ["--label", f"{key}={value}"]
        box.windlass(*command, "--prefix", f"{prefix}-{index}")
    return sorted({node["metadata"]["name"] for node in box.items("nodes")} - before)


def test_an_elastic_job_scaled_to_five_workers_goes_on_without_one(box: Box) -> None:
    """T15: bounds and restarts in the object and in the pods; the job has a master and four to eight workers."""
    command = ["sh", "-c", "echo $PET_NNODES, $PET_MAX_RESTARTS restarts; sleep 600"]
    policy = {"rdzvBackend": "c10d", "minReplicas": 4, "maxReplicas": 8, "maxRestarts": 10}
    job = manifest(PYTORCH_JOBS, "four", {"Master": 1, "Worker": 4}, command, elasticPolicy=policy)
    box.windlass("apply", "-f", "-", stdin=json.dumps(job))

    def running() -> dict[str, str]:
        return {
            pod["metadata"]["name"]: pod["metadata"]["uid"]
            for pod in box.items("pods")
            if pod["metadata"]["name"].startswith("four-") and pod["status"].get("phase") == "Running"
        }

    box.wait_for("master and workers run", lambda: len(running()) == 5)
    assert box.get("pytorchjobs", "four")["spec"]["elasticPolicy"] == policy
    box.wait_for(
        "a worker tells its bounds",
        lambda: "4:8, 10 restarts" in box.windlass("logs", "four", "--rank", "worker-3").stdout,
    )

    box.windlass("scale", "four", "worker=5")
    box.wait_for("the fifth worker runs", lambda: len(running()) == 6)
    before = running()
    box.windlass("delete", "pod", "four-worker-4")

    def replaced() -> set[str]:
        now = running()
        return {name for name, uid in now.items() if before[name] != uid} if len(now) == 6 else set()

    assert box.wait_for("the worker is back", replaced) == {"four-worker-4"}
    box.wait_for("the job runs", lambda: state(box, PYTORCH_JOBS, "four") == "Running")
    below = box.windlass("scale", "four", "worker=3", check=False)
    assert below.returncode != 0
    assert "minReplicas (4)" in below.stderr
    box.windlass("cancel", "four")
