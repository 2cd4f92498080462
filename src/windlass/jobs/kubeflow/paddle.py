"""PaddleJob: environment of ``paddle.distributed.launch``.

Source: training operator 1.9, ``pkg/controller.v1/paddlepaddle`` (``envvar.go``,
``master.go``).
"""

from __future__ import annotations

from collections.abc import Mapping

from windlass.api.fields.kubeflow import FIELDS, MASTER, WORKER
from windlass.api.resources import PADDLE_JOBS
from windlass.jobs.definition import Json, Role, SuccessRule
from windlass.jobs.kubeflow.job import Environment, KubeflowJob, KubeflowKind

POD_IP = "POD_IP_DUMMY"
"""Variable with the pod's own address, from the downward API."""


def _success(roles: Mapping[str, Role], _spec: Json) -> tuple[SuccessRule, ...]:
    return (SuccessRule((MASTER if MASTER in roles else WORKER,)),)


def _minimum(role: str, replicas: int, spec: Json) -> int:
    least = (spec.get("elasticPolicy") or {}).get("minReplicas")
    return replicas if least is None or role != WORKER else min(replicas, int(least))


def is_first(job: KubeflowJob, role: Role, index: int) -> bool:
    """Return whether this pod serves the rendezvous. It names its own address, not its Service."""
    return index == 0 and (role.name == MASTER or job.role(MASTER) is None)


def _environment(job: KubeflowJob, role: Role, index: int) -> Environment:
    master = job.role(MASTER)
    first = master or job.role(WORKER) or role
    host = f"$({POD_IP})" if is_first(job, role, index) else job.host(first, 0)
    env: Environment = [
        ("PADDLE_JOB_ID", job.definition.name),
        ("PADDLE_NNODES", str(job.definition.replicas)),
        ("PADDLE_MASTER", f"{host}:{job.port(first)}"),
        ("PYTHONUNBUFFERED", "1"),
    ]
    if master is not None:
        env.append(("PADDLE_SERVER_NUM" if role.name == MASTER else "PADDLE_TRAINER_NUM", "1"))
    return env


PADDLE_JOB = KubeflowKind(
    fields=FIELDS[PADDLE_JOBS],
    success=_success,
    environment=_environment,
    minimum=_minimum,
)
