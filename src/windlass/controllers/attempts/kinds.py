"""Kinds of jobs with an attempt ledger: how each kind states its minimum and its end."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from windlass.api import annotations as names
from windlass.api.fields import aigc
from windlass.api.fields.jobset import JOB_SET_NAME
from windlass.api.fields.ray import ORIGINATED_FROM
from windlass.api.resources import (
    AIGC_JOBS,
    BATCH_JOBS,
    JOB_SETS,
    RAY_JOBS,
    TRAIN_JOBS,
    VOLCANO_JOBS,
    Resource,
)
from windlass.jobs.attempts import JobOutcome
from windlass.jobs.decision import DEADLINE_EXCEEDED
from windlass.jobs.kubeflow.job import KubeflowKind, read_job
from windlass.jobs.kubeflow.kinds import KINDS
from windlass.jobs.ray.cluster import read_cluster

Json = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class JobEnd:
    """Outcome of a job, with the words for it."""

    outcome: JobOutcome
    message: str = ""
    time_limit: bool = False


@dataclass(frozen=True, slots=True)
class AttemptKind:
    """One kind of job.

    ``minimum``: number of pods without which a job does not run.
    ``pod_label``: label of a pod with the name of its job; empty: the job controls its pods.
    ``signals_disrupt``: whether a pod that a signal ended has not failed by itself.
    """

    resource: Resource
    minimum: Callable[[Json], int]
    end: Callable[[Json], JobEnd]
    pod_label: str = ""
    signals_disrupt: bool = False


_ACTIVE = JobEnd(JobOutcome.ACTIVE)
_VOLCANO_ENDS = {
    "Completing": JobEnd(JobOutcome.SUCCEEDED),
    "Completed": JobEnd(JobOutcome.SUCCEEDED),
    "Failed": JobEnd(JobOutcome.FAILED),
    "Aborting": JobEnd(JobOutcome.STOPPED, "aborted"),
    "Aborted": JobEnd(JobOutcome.STOPPED, "aborted"),
    "Terminating": JobEnd(JobOutcome.STOPPED, "terminated"),
    "Terminated": JobEnd(JobOutcome.STOPPED, "terminated"),
}


def _volcano_minimum(obj: Json) -> int:
    spec = obj.get("spec") or {}
    tasks = spec.get("tasks") or ()
    return int(spec.get("minAvailable") or 0) or sum(int(task.get("replicas", 1)) for task in tasks)


def _volcano_end(obj: Json) -> JobEnd:
    state = (obj.get("status") or {}).get("state") or {}
    return _VOLCANO_ENDS.get(state.get("phase") or "", _ACTIVE)


def _kubeflow(kind: KubeflowKind) -> AttemptKind:
    def minimum(obj: Json) -> int:
        return read_job(kind, obj).definition.min_available

    return AttemptKind(kind.resource, minimum, _kubeflow_end)


def _kubeflow_end(obj: Json) -> JobEnd:
    conditions = (obj.get("status") or {}).get("conditions") or ()
    true = {str(one.get("type")): one for one in conditions if one.get("status") == "True"}
    if "Succeeded" in true:
        return JobEnd(JobOutcome.SUCCEEDED)
    if "Failed" in true:
        late = _recorded_cause(obj) == DEADLINE_EXCEEDED
        return JobEnd(JobOutcome.FAILED, str(true["Failed"].get("message") or ""), time_limit=late)
    if "Suspended" in true or ((obj.get("spec") or {}).get("runPolicy") or {}).get("suspend"):
        return JobEnd(JobOutcome.STOPPED, "suspended")
    return _ACTIVE


def _recorded_cause(obj: Json) -> str:
    text = (obj["metadata"].get("annotations") or {}).get(names.JOB_RECORD) or "{}"
    try:
        return str(msgspec.json.decode(text, type=dict[str, Any]).get("cause") or "")
    except (msgspec.DecodeError, msgspec.ValidationError):
        return ""


def _by_conditions(succeeded: str) -> Callable[[Json], JobEnd]:
    """Return how a job with the conditions ``succeeded``, ``Failed`` and ``Suspended`` ends."""

    def end(obj: Json) -> JobEnd:
        conditions = (obj.get("status") or {}).get("conditions") or ()
        true = {str(one.get("type")): one for one in conditions if one.get("status") == "True"}
        if succeeded in true:
            return JobEnd(JobOutcome.SUCCEEDED)
        if "Failed" in true:
            failed = true["Failed"]
            late = failed.get("reason") == DEADLINE_EXCEEDED
            return JobEnd(JobOutcome.FAILED, str(failed.get("message") or ""), time_limit=late)
        if "Suspended" in true or (obj.get("spec") or {}).get("suspend"):
            return JobEnd(JobOutcome.STOPPED, "suspended")
        return _ACTIVE

    return end


def _jobset_minimum(obj: Json) -> int:
    """Return the number of pods that run at the same time: a JobSet starts as a whole."""
    total = 0
    for replicated in (obj.get("spec") or {}).get("replicatedJobs") or ():
        spec = (replicated.get("template") or {}).get("spec") or {}
        parallelism = spec.get("parallelism", 1)
        completions = spec.get("completions", parallelism)
        total += int(replicated.get("replicas", 1)) * min(int(parallelism or 0), int(completions or 0))
    return total


def _trainjob_minimum(obj: Json) -> int:
    """Return the number of nodes that the job states; 1 if its runtime states it."""
    trainer = (obj.get("spec") or {}).get("trainer") or {}
    return int(trainer.get("numNodes") or 1)


def _ray_minimum(obj: Json) -> int:
    """Return the number of pods of the job's cluster that start together; 1 for a cluster that exists."""
    cluster = (obj.get("spec") or {}).get("rayClusterSpec")
    return read_cluster({"metadata": obj["metadata"], "spec": cluster}).min_available if cluster else 1


_RAY_ENDS = {
    "Complete": JobOutcome.SUCCEEDED,
    "Failed": JobOutcome.FAILED,
    "Suspending": JobOutcome.STOPPED,
    "Suspended": JobOutcome.STOPPED,
}


def _ray_end(obj: Json) -> JobEnd:
    status = obj.get("status") or {}
    outcome = _RAY_ENDS.get(str(status.get("jobDeploymentStatus")), JobOutcome.ACTIVE)
    if outcome is JobOutcome.STOPPED:
        return JobEnd(outcome, "suspended")
    late = outcome is JobOutcome.FAILED and status.get("reason") == DEADLINE_EXCEEDED
    return JobEnd(outcome, str(status.get("message") or ""), time_limit=late)


_AIGC_ENDS = {
    "Succeeded": JobOutcome.SUCCEEDED,
    "Failed": JobOutcome.FAILED,
    "Suspended": JobOutcome.STOPPED,
}


def _aigc_workers(obj: Json) -> int:
    spec = obj.get("spec") or {}
    return aigc.worker_bounds(spec)[0] * aigc.shards_of(spec)


def _aigc_end(obj: Json) -> JobEnd:
    status = obj.get("status") or {}
    outcome = _AIGC_ENDS.get(str(status.get("phase")), JobOutcome.ACTIVE)
    if outcome is JobOutcome.STOPPED:
        return JobEnd(outcome, "suspended")
    late = outcome is JobOutcome.FAILED and _recorded_cause(obj) == DEADLINE_EXCEEDED
    return JobEnd(outcome, str(status.get("message") or ""), time_limit=late)


VOLCANO_ATTEMPTS = AttemptKind(VOLCANO_JOBS, _volcano_minimum, _volcano_end)
KUBEFLOW_ATTEMPTS: tuple[AttemptKind, ...] = tuple(_kubeflow(kind) for kind in KINDS.values())
"""The kinds of Kubeflow."""
BATCH_ATTEMPTS = AttemptKind(BATCH_JOBS, lambda _: 1, _by_conditions("Complete"))
"""Jobs of Kubernetes: their pods start one by one."""
JOBSET_ATTEMPTS = AttemptKind(JOB_SETS, _jobset_minimum, _by_conditions("Completed"), JOB_SET_NAME)
TRAINER_ATTEMPTS = AttemptKind(TRAIN_JOBS, _trainjob_minimum, _by_conditions("Complete"), JOB_SET_NAME)
"""The JobSet of a TrainJob has its name."""
AIGC_ATTEMPTS = AttemptKind(AIGC_JOBS, lambda obj: 1 + _aigc_workers(obj), _aigc_end, signals_disrupt=True)
"""The driver and the pods of the least number of workers."""
RAY_ATTEMPTS = AttemptKind(RAY_JOBS, _ray_minimum, _ray_end, ORIGINATED_FROM)
