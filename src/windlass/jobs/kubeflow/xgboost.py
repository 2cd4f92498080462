"""XGBoostJob: addresses of the master (Rabit tracker) and of the workers.

Source: training operator 1.9, ``pkg/controller.v1/xgboost/xgboost.go``.
"""

from __future__ import annotations

from collections.abc import Mapping

from windlass.api.fields.kubeflow import FIELDS, MASTER, WORKER
from windlass.api.resources import XGBOOST_JOBS
from windlass.jobs.definition import Json, Role, SuccessRule
from windlass.jobs.kubeflow.job import Environment, KubeflowJob, KubeflowKind, rank_of


def _success(roles: Mapping[str, Role], _spec: Json) -> tuple[SuccessRule, ...]:
    return (SuccessRule((MASTER if MASTER in roles else WORKER,)),)


def _environment(job: KubeflowJob, role: Role, index: int) -> Environment:
    first = job.role(MASTER) or role
    env: Environment = [
        ("MASTER_PORT", str(job.port(first))),
        ("MASTER_ADDR", job.host(first, 0)),
        ("WORLD_SIZE", str(job.definition.replicas)),
        ("RANK", str(rank_of(job, role, index))),
        ("PYTHONUNBUFFERED", "1"),
    ]
    worker = job.role(WORKER)
    if job.definition.replicas > 1 and worker is not None:
        env += [
            ("WORKER_PORT", str(job.port(worker))),
            ("WORKER_ADDRS", ",".join(job.host(worker, place) for place in range(worker.replicas))),
        ]
    return env


XGBOOST_JOB = KubeflowKind(
    fields=FIELDS[XGBOOST_JOBS],
    success=_success,
    environment=_environment,
)
