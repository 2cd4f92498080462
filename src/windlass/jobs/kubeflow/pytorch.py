"""PyTorchJob: environment of ``torch.distributed`` and of ``torchrun``.

Source: training operator 1.9, ``pkg/controller.v1/pytorch`` (``envvar.go``,
``master.go``, ``elastic.go``). In addition ``NODE_RANK`` is set, which many published
manifests use.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from windlass.api import annotations as names
from windlass.api.fields.kubeflow import FIELDS, MASTER, WORKER, replicas_of
from windlass.api.resources import PYTORCH_JOBS
from windlass.jobs.definition import Json, Quorum, Role, SuccessRule
from windlass.jobs.kubeflow.job import (
    Environment,
    HeldRendezvous,
    KubeflowJob,
    KubeflowKind,
    rank_of,
)
from windlass.jobs.kubeflow.master_port import port_in_arguments
from windlass.jobs.members import RolePod
from windlass.jobs.rendezvous.announce import MASTER as RANK_ZERO

MONITOR_INTERVAL, MONITOR_SECONDS = "PET_MONITOR_INTERVAL", "0.5"
"""Interval (seconds) in which ``torchrun`` looks for a new round; 5 by default before PyTorch 2.3."""


def elastic_bounds(spec: Json) -> tuple[int, int] | None:
    """Return the least and the largest number of workers; ``None`` if the job is not elastic.

    One bound that is not set equals the other, and both equal the replicas of Worker.
    """
    policy = spec.get("elasticPolicy")
    if policy is None:
        return None
    default = replicas_of(FIELDS[PYTORCH_JOBS].replica_specs(spec).get(WORKER) or {})
    least, largest = policy.get("minReplicas"), policy.get("maxReplicas")
    if least is None:
        least = default if largest is None else largest
    if largest is None:
        largest = least
    return int(least), int(largest)


def _minimum(role: str, replicas: int, spec: Json) -> int:
    bounds = elastic_bounds(spec)
    if bounds is None or role != WORKER:
        return replicas
    return min(replicas, bounds[0])


def _success(roles: Mapping[str, Role], spec: Json) -> tuple[SuccessRule, ...]:
    if MASTER in roles:
        return (SuccessRule((MASTER,)),)
    return (SuccessRule((WORKER,), Quorum.ALL if spec.get("elasticPolicy") is None else Quorum.ANY),)


def processes_per_node(spec: Json) -> str:
    """Return ``nprocPerNode``: a number, or ``auto``, ``cpu``, ``gpu``."""
    policy = spec.get("elasticPolicy") or {}
    return str(spec.get("nprocPerNode") or policy.get("nProcPerNode") or "auto")


def master_port(job: KubeflowJob) -> int:
    """Return the port of the rendezvous.

    A port that the arguments of the workers name (``--master_port``) is taken if the
    template of the master declares none, since the two have to agree.
    """
    master = job.role(MASTER)
    first = master or job.role(WORKER)
    assert first is not None
    port = job.port(first)
    if port != job.kind.fields.port:
        return port
    return port_in_arguments(job) or port


def _environment(job: KubeflowJob, role: Role, index: int) -> Environment:
    processes = processes_per_node(job.spec)
    rank = str(rank_of(job, role, index))
    env: Environment = [("PYTHONUNBUFFERED", "1")]
    master = job.role(MASTER)
    if master is not None:
        port, address = str(master_port(job)), job.host(master, 0)
        each = int(processes) if processes.isdecimal() else 1
        env += [
            ("MASTER_PORT", port),
            ("PET_MASTER_PORT", port),
            ("MASTER_ADDR", address),
            ("PET_MASTER_ADDR", address),
            ("WORLD_SIZE", str(job.definition.replicas * each)),
            ("RANK", rank),
            ("PET_NODE_RANK", rank),
            ("NODE_RANK", rank),
        ]
    env.append(("PET_NPROC_PER_NODE", processes))
    bounds = elastic_bounds(job.spec)
    if bounds is None:
        env.append(("PET_NNODES", str(job.definition.replicas)))
        return env
    return env + _elastic(job, bounds)


def _elastic(job: KubeflowJob, bounds: tuple[int, int]) -> Environment:
    policy = job.spec.get("elasticPolicy") or {}
    worker = job.role(WORKER)
    host, port = policy.get("rdzvHost"), policy.get("rdzvPort")
    if worker is not None:
        host = host or job.host(worker, 0)
        port = port or job.port(worker)
    env: Environment = [("PET_RDZV_BACKEND", policy.get("rdzvBackend") or "c10d")]
    if host:
        env.append(("PET_RDZV_ENDPOINT", f"{host}:{port}"))
    env.append(("PET_NNODES", f"{bounds[0]}:{bounds[1]}"))
    if policy.get("maxRestarts") is not None:
        env.append(("PET_MAX_RESTARTS", str(policy["maxRestarts"])))
    if policy.get("rdzvId"):
        env.append(("PET_RDZV_ID", str(policy["rdzvId"])))
    if policy.get("rdzvConf"):
        pairs = (f"{entry.get('key')}={entry.get('value')}" for entry in policy["rdzvConf"])
        env.append(("PET_RDZV_CONF", ",".join(pairs)))
    if policy.get("standalone"):
        env.append(("PET_STANDALONE", ""))
    if rendezvous_of(job) is not None:
        env.append((MONITOR_INTERVAL, MONITOR_SECONDS))
    return env


def rendezvous_of(job: KubeflowJob) -> HeldRendezvous | None:
    """Return the c10d rendezvous that a pod of the job holds; ``None`` if there is none.

    It is in worker 0, or in the pod that ``rdzvHost`` names. A rendezvous of another
    backend or on another host belongs to the user: its rounds are not announced.
    """
    policy = job.spec.get("elasticPolicy")
    worker = job.role(WORKER)
    if policy is None or worker is None or policy.get("standalone"):
        return None
    if job.definition.annotations.get(names.RENDEZVOUS) == names.RENDEZVOUS_OFF:
        return None
    place = rendezvous_place(job)
    if (policy.get("rdzvBackend") or "c10d") != "c10d" or place is None:
        return None
    port = int(policy.get("rdzvPort") or job.port(worker))
    return HeldRendezvous(port, str(policy.get("rdzvId") or ""), *place)


def rendezvous_place(job: KubeflowJob) -> tuple[str, int] | None:
    """Return role and index of the pod at ``rdzvHost``; ``None`` if no pod of the job has this name."""
    host = str((job.spec.get("elasticPolicy") or {}).get("rdzvHost") or "")
    if not host:
        return WORKER, 0
    for name in (MASTER, WORKER):
        role = job.role(name)
        for index in range(role.replicas if role is not None else 0):
            if role is not None and host.partition(".")[0] == job.host(role, index):
                return name, index
    return None


def world_of(job: KubeflowJob, pods: Sequence[RolePod]) -> frozenset[int]:
    """Return the members that take part: they have a node and have not ended.

    ``torchrun`` admits at most ``maxReplicas`` agents. A Master is one of them, so the
    last workers stay out if there are that many.
    """
    worker = job.role(WORKER)
    size = worker.replicas if worker is not None else 0
    living = [pod for pod in pods if pod.node and not pod.deleting and not pod.finished]
    workers = sorted(pod.index for pod in living if pod.role == WORKER and 0 <= pod.index < size)
    members = [RANK_ZERO] if any(pod.role == MASTER for pod in living) else []
    bounds = elastic_bounds(job.spec)
    return frozenset([*members, *workers][: bounds[1] if bounds is not None else None])


PYTORCH_JOB = KubeflowKind(
    fields=FIELDS[PYTORCH_JOBS],
    success=_success,
    environment=_environment,
    minimum=_minimum,
    rendezvous=rendezvous_of,
    world=world_of,
)
