"""TFJob: ``TF_CONFIG``.

Source: training operator 1.9, ``pkg/controller.v1/tensorflow`` (``tensorflow.go``,
``tfjob_controller.go``).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from windlass.api.fields.kubeflow import CHIEF, FIELDS, MASTER, PS, WORKER
from windlass.api.resources import TF_JOBS
from windlass.jobs.definition import Json, Quorum, Role, SuccessRule
from windlass.jobs.kubeflow.job import Environment, KubeflowJob, KubeflowKind


def _success(roles: Mapping[str, Role], spec: Json) -> tuple[SuccessRule, ...]:
    for name in (CHIEF, MASTER):
        if name in roles:
            return (SuccessRule((name,)),)
    if spec.get("successPolicy") == "AllWorkers":
        return (SuccessRule((WORKER,)),)
    return (SuccessRule((WORKER,), Quorum.FIRST),)


def _counts(role: str, spec: Json) -> bool:
    return not (spec.get("enableDynamicWorker") and role == WORKER)


def _address(job: KubeflowJob, role: Role, index: int) -> str:
    definition = job.definition
    return f"{definition.pod_name(role, index)}.{definition.namespace}.svc:{job.port(role)}"


def _environment(job: KubeflowJob, role: Role, index: int) -> Environment:
    if job.definition.replicas <= 1:
        return []
    config = _sparse(job, role, index) if job.spec.get("enableDynamicWorker") else _full(job, role, index)
    return [("TF_CONFIG", json.dumps(config, separators=(",", ":")))]


def _full(job: KubeflowJob, role: Role, index: int) -> dict[str, Any]:
    cluster = {
        other.key: [_address(job, other, place) for place in range(other.replicas)]
        for other in job.definition.roles
    }
    return {"cluster": cluster, "task": {"type": role.key, "index": index}, "environment": "cloud"}


def _sparse(job: KubeflowJob, role: Role, index: int) -> dict[str, Any]:
    """Return the configuration of a job with a variable number of workers."""
    workers: dict[str, str] = {}
    servers: list[str] = []
    if role.name == WORKER:
        workers[str(index)] = _address(job, role, index)
        ps = job.role(PS)
        servers = [] if ps is None else [_address(job, ps, place) for place in range(ps.replicas)]
    elif role.name == PS:
        servers = [_address(job, role, index)]
    return {"cluster": {"worker": workers, "ps": servers}, "task": {"type": role.key, "index": index}}


TF_JOB = KubeflowKind(
    fields=FIELDS[TF_JOBS],
    success=_success,
    environment=_environment,
    every_container=False,
    counts=_counts,
)
