"""Families of jobs for the matrix of interruptions: a manifest of two ranks each, and programs that connect them.

Each rank has one simulated GPU. The ranks find each other by the environment of their
kind alone. They append a line to a file for each world that they form: rank, size, host.
A rank exits with the code that the file ``FAMILY.fail-RANK`` holds.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from windlass.api.fields.kubeflow import FIELDS
from windlass.api.resources import (
    BATCH_JOBS,
    JAX_JOBS,
    JOB_SETS,
    LEADER_WORKER_SETS,
    MPI_JOBS,
    MPI_JOBS_V2BETA1,
    PADDLE_JOBS,
    PYTORCH_JOBS,
    TF_JOBS,
    TRAIN_JOBS,
    VOLCANO_JOBS,
    XGBOOST_JOBS,
    Resource,
)

Json = dict[str, Any]

CONNECT = """
import json, os, socket, sys, threading, time
env, folder, family = os.environ, sys.argv[1], sys.argv[2]
config = json.loads(env.get("TF_CONFIG") or "{}")

def torch(rank="RANK", size="WORLD_SIZE", host="MASTER_ADDR", port="MASTER_PORT"):
    return env[rank], env[size], env[host], env[port]

def tensorflow():
    workers = config["cluster"]["worker"]
    return (config["task"]["index"], len(workers), *workers[0].rsplit(":", 1))

def paddle():
    index = socket.gethostname().rsplit("-", 1)[1]
    return (index, env["PADDLE_NNODES"], *env["PADDLE_MASTER"].rsplit(":", 1))

def jax():
    return torch("PROCESS_ID", "NUM_PROCESSES", "COORDINATOR_ADDRESS", "COORDINATOR_PORT")

def torchrun():
    return torch("PET_NODE_RANK", "PET_NNODES", "PET_MASTER_ADDR", "PET_MASTER_PORT")

def index():
    return env["JOB_COMPLETION_INDEX"], 2, sys.argv[4], 7601

def leader():
    return env["LWS_WORKER_INDEX"], env["LWS_GROUP_SIZE"], env["LWS_LEADER_ADDRESS"], 7602

rank, size, host, port = locals()[sys.argv[3]]()
rank, size, port = int(rank), int(size), int(port)

def joined():
    with open(f"{folder}/{family}.log", "a") as log:
        log.write(f"{rank} {size} {socket.gethostname()}\\n")

def serve():
    links, server = {}, socket.create_server(("", port))
    def read(peer, other):
        while peer.recv(100):
            pass
        if links.get(other) is peer:
            del links[other]
    while True:
        peer = server.accept()[0]
        other = int(peer.recv(10))
        links[other] = peer
        threading.Thread(target=read, args=(peer, other), daemon=True).start()
        if len(links) == size - 1:
            joined()
            for link in links.values():
                link.sendall(b"go")

def join():
    while True:
        try:
            peer = socket.create_connection((host, port), 5)
            peer.settimeout(None)
            peer.sendall(str(rank).encode())
            while peer.recv(100):
                joined()
        except OSError:
            pass
        time.sleep(0.1)

threading.Thread(target=join if rank else serve, daemon=True).start()
while True:
    try:
        with open(f"{folder}/{family}.fail-{rank}") as file:
            code = int(file.read())
        os.unlink(file.name)
        os._exit(code)
    except FileNotFoundError:
        time.sleep(0.1)
"""
"""Program: rank 0 tells each world that is whole. Arguments: folder, family, environment, host."""

MPI = """
import ctypes, os, sys, time
folder, family = sys.argv[1:]
mpi = ctypes.CDLL("libmpi.so.40", mode=ctypes.RTLD_GLOBAL)
mpi.MPI_Init(None, None)
def handle(name):
    return ctypes.c_void_p(ctypes.addressof(ctypes.c_char.in_dll(mpi, name)))
world, integer, plus = map(handle, ("ompi_mpi_comm_world", "ompi_mpi_int", "ompi_mpi_op_sum"))
rank, size, total = ctypes.c_int(), ctypes.c_int(), ctypes.c_int()
mpi.MPI_Comm_rank(world, ctypes.byref(rank))
mpi.MPI_Comm_size(world, ctypes.byref(size))
one = ctypes.c_int(1)
mpi.MPI_Allreduce(ctypes.byref(one), ctypes.byref(total), 1, integer, plus, world)
with open(f"{folder}/{family}.log", "a") as log:
    log.write(f"{rank.value} {total.value} {os.uname().nodename}\\n")
while True:
    try:
        with open(f"{folder}/{family}.fail-{rank.value}") as file:
            code = int(file.read())
        os.unlink(file.name)
        os._exit(code)
    except FileNotFoundError:
        time.sleep(0.1)
"""
"""Program of a rank under ``mpirun``. It calls Open MPI's library itself. Arguments: folder, family."""


@dataclass(frozen=True, slots=True)
class Family:
    """One kind of job.

    ``name``: name of the job, and prefix of its pods.
    ``make``: its manifest, for the folder of the programs.
    ``first``: exit code of a failure that restarts; ``last``: of one that ends the job.
    ``failed``: type of the condition of the failed job (phase of a Volcano Job);
    empty: the kind has no end.
    ``anew``: it is created again before its failures, since Kubernetes delays a pod of a
    Job longer for each one that has ended.
    """

    name: str
    resource: Resource
    make: Callable[[Path, str], Json]
    first: int = 3
    last: int = 3
    failed: str = "Failed"
    mpi: bool = False
    anew: bool = False

    def manifest(self, folder: Path) -> Json:
        body = self.make(folder, self.name)
        metadata = {"name": self.name, **body.pop("metadata", {})}
        return {
            "apiVersion": self.resource.api_version,
            "kind": self.resource.kind,
            "metadata": metadata,
            **body,
        }


def _pod(command: list[str], container: str = "main", gpus: int = 1, **spec: Any) -> Json:
    body: Json = {"name": container, "image": "python", "command": command}
    if gpus:
        body["resources"] = {"limits": {"nvidia.com/gpu": gpus}}
    return {"spec": {"terminationGracePeriodSeconds": 2, "containers": [body], **spec}}


def _program(folder: Path, name: str, environment: str, *more: str) -> list[str]:
    return ["python3", "-S", str(folder / "connect.py"), str(folder), name, environment, *more]


def _mpirun(folder: Path, name: str, *flags: str) -> list[str]:
    return ["mpirun", *flags, "-n", "2", "python3", "-S", str(folder / "mpi.py"), str(folder), name]


def _kubeflow(resource: Resource, environment: str, roles: dict[str, int], policy: str, limit: int | None):
    fields = FIELDS[resource]

    def make(folder: Path, name: str) -> Json:
        template = _pod(_program(folder, name, environment), fields.container)
        specs = {
            role: {"replicas": count, "restartPolicy": policy, "template": copy.deepcopy(template)}
            for role, count in roles.items()
        }
        run = {} if limit is None else {"runPolicy": {"backoffLimit": limit}}
        return {"spec": {**run, fields.field: specs}}

    return make


def _mpi_job(server: bool):
    def make(folder: Path, name: str) -> Json:
        command = ["/usr/sbin/sshd", "-De"] if server else ["sleep", "1000"]
        roles = {
            "Launcher": {
                "restartPolicy": "OnFailure" if server else "ExitCode",
                "template": _pod(_mpirun(folder, name), "mpi", gpus=0),
            },
            "Worker": {"replicas": 2, "template": _pod(command, "mpi-worker")},
        }
        return {"spec": {"slotsPerWorker": 1, "runPolicy": {"backoffLimit": 2}, "mpiReplicaSpecs": roles}}

    return make


def _train_job(folder: Path, name: str) -> Json:
    resources = {"limits": {"nvidia.com/gpu": 1}}
    trainer = {
        "numNodes": 2,
        "command": _program(folder, name, "torchrun"),
        "resourcesPerNode": resources,
    }
    return {"spec": {"runtimeRef": {"kind": "TrainingRuntime", "name": "twice"}, "trainer": trainer}}


DISRUPTED = [{"type": "DisruptionTarget", "status": "True"}]
RUNTIME = {
    "apiVersion": "trainer.kubeflow.org/v1alpha1",
    "kind": "TrainingRuntime",
    "metadata": {"name": "twice"},
    "spec": {
        "mlPolicy": {"numNodes": 1, "torch": {}},
        "template": {
            "spec": {
                "replicatedJobs": [
                    {
                        "name": "node",
                        "template": {
                            "metadata": {
                                "labels": {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}
                            },
                            "spec": {
                                "backoffLimit": 1,
                                "podFailurePolicy": {
                                    "rules": [{"action": "Ignore", "onPodConditions": DISRUPTED}]
                                },
                                "template": {
                                    "spec": {
                                        "restartPolicy": "Never",
                                        "terminationGracePeriodSeconds": 2,
                                        "containers": [{"name": "node", "image": "python"}],
                                    }
                                },
                            },
                        },
                    }
                ]
            }
        },
    },
}
"""Runtime of the TrainJob: one failure of a node is restarted."""


def _indexed(folder: Path, name: str, host: str) -> Json:
    pod = _pod(_program(folder, name, "index", host), restartPolicy="Never")
    spec = {"completionMode": "Indexed", "completions": 2, "parallelism": 2, "template": pod}
    return {"backoffLimit": 0, **spec}


def _job_set(folder: Path, name: str) -> Json:
    spec = _indexed(folder, name, f"{name}-w-0-0.{name}")
    spec["podFailurePolicy"] = {"rules": [{"action": "FailJob", "onPodConditions": DISRUPTED}]}
    rule = {"action": "RestartJobSetAndIgnoreMaxRestarts", "onJobFailureReasons": ["PodFailurePolicy"]}
    policy = {"maxRestarts": 1, "rules": [rule]}
    return {"spec": {"failurePolicy": policy, "replicatedJobs": [{"name": "w", "template": {"spec": spec}}]}}


def _batch_job(folder: Path, name: str) -> Json:
    spec = _indexed(folder, name, f"{name}-0.{name}")
    spec["template"]["spec"]["subdomain"] = name
    spec["podFailurePolicy"] = {"rules": [{"action": "Ignore", "onPodConditions": DISRUPTED}]}
    return {"spec": {**spec, "backoffLimit": 1}}


def _volcano(plugin: str):
    def make(folder: Path, name: str) -> Json:
        if plugin == "mpi":
            pods = {"master": _pod(_mpirun(folder, name, "--allow-run-as-root"), gpus=0)}
            pods["worker"] = _pod(["/usr/sbin/sshd", "-D"])
        else:
            program = _pod(_program(folder, name, "torch"))
            pods = {"master": program, "worker": copy.deepcopy(program)}
        for pod in pods.values():
            pod["spec"]["restartPolicy"] = "Never"
        sizes = {"master": 1, "worker": 2 if plugin == "mpi" else 1}
        tasks = [{"name": task, "replicas": sizes[task], "template": pod} for task, pod in pods.items()]
        policies = [{"events": ["PodFailed", "PodEvicted"], "action": "RestartJob"}]
        if plugin == "mpi":
            command = pods["master"]["spec"]["containers"][0]["command"]
            command[1:1] = ["--host", "$(MPI_HOST)"]
        spec = {"minAvailable": sum(sizes.values()), "maxRetry": 4, "policies": policies, "tasks": tasks}
        return {"spec": {**spec, "plugins": {plugin: []}}}

    return make


def _group(folder: Path, name: str) -> Json:
    template = {"size": 2, "workerTemplate": _pod(_program(folder, name, "leader"))}
    return {"spec": {"replicas": 1, "leaderWorkerTemplate": template}}


BOTH, WORKERS = {"Master": 1, "Worker": 1}, {"Worker": 2}
FAMILIES = (
    Family("pytorch", PYTORCH_JOBS, _kubeflow(PYTORCH_JOBS, "torch", BOTH, "OnFailure", 2)),
    Family("tf", TF_JOBS, _kubeflow(TF_JOBS, "tensorflow", WORKERS, "ExitCode", None), first=130),
    Family("xgboost", XGBOOST_JOBS, _kubeflow(XGBOOST_JOBS, "torch", BOTH, "ExitCode", None), first=130),
    Family("paddle", PADDLE_JOBS, _kubeflow(PADDLE_JOBS, "paddle", WORKERS, "OnFailure", 2)),
    Family("jax", JAX_JOBS, _kubeflow(JAX_JOBS, "jax", WORKERS, "ExitCode", None), first=130),
    Family("mpi-v1", MPI_JOBS, _mpi_job(server=False), first=130, mpi=True),
    Family("mpi-v2", MPI_JOBS_V2BETA1, _mpi_job(server=True), mpi=True),
    Family("trainjob", TRAIN_JOBS, _train_job, anew=True),
    Family("jobset", JOB_SETS, _job_set),
    Family("batch", BATCH_JOBS, _batch_job, anew=True),
    Family("vc-pytorch", VOLCANO_JOBS, _volcano("pytorch")),
    Family("vc-mpi", VOLCANO_JOBS, _volcano("mpi"), mpi=True),
    Family("lws", LEADER_WORKER_SETS, _group, failed=""),
)
SERVICE = {
    "apiVersion": "v1",
    "kind": "Service",
    "metadata": {"name": "batch"},
    "spec": {
        "clusterIP": "None",
        "publishNotReadyAddresses": True,
        "selector": {"batch.kubernetes.io/job-name": "batch"},
    },
}
"""Object that gives the pods of the Job of Kubernetes their names."""
WORKLOAD = {
    "apiVersion": "scheduling.k8s.io/v1alpha2",
    "kind": "Workload",
    "metadata": {"name": "batch"},
    "spec": {
        "controllerRef": {"apiGroup": "batch", "kind": "Job", "name": "batch"},
        "podGroupTemplates": [{"name": "w", "schedulingPolicy": {"gang": {"minCount": 2}}}],
    },
}
"""Object that makes the Job of Kubernetes a gang."""
OBJECTS = (SERVICE, WORKLOAD, RUNTIME)
"""Objects that have to exist before the jobs."""
