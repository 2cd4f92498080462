"""JAXJob: environment of ``jax.distributed.initialize``.

Source: training operator 1.9, ``pkg/controller.v1/jax/envvar.go``.
"""

from __future__ import annotations

from collections.abc import Mapping

from windlass.api.fields.kubeflow import FIELDS, WORKER
from windlass.api.resources import JAX_JOBS
from windlass.jobs.definition import Json, Role, SuccessRule
from windlass.jobs.kubeflow.job import Environment, KubeflowJob, KubeflowKind


def _success(_roles: Mapping[str, Role], _spec: Json) -> tuple[SuccessRule, ...]:
    return (SuccessRule((WORKER,)),)


def _environment(job: KubeflowJob, role: Role, index: int) -> Environment:
    return [
        ("PYTHONUNBUFFERED", "1"),
        ("COORDINATOR_PORT", str(job.port(role))),
        ("COORDINATOR_ADDRESS", job.host(role, 0)),
        ("NUM_PROCESSES", str(job.definition.replicas)),
        ("PROCESS_ID", str(index)),
    ]


JAX_JOB = KubeflowKind(
    fields=FIELDS[JAX_JOBS],
    success=_success,
    environment=_environment,
)
