"""Reconciliation of a RayJob: its cluster, its submitter, and its deployment state.

A state is written before what follows from it is created or deleted, and names of clusters and submissions follow
from the number of failed attempts. A controller that stops in between does the same again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from windlass.api.fields import ray
from windlass.api.resources import BATCH_JOBS, RAY_CLUSTERS, RAY_JOBS
from windlass.client.ray_dashboard import RayJobInfo
from windlass.controllers.effects import (
    NOTHING,
    Create,
    Delete,
    EffectPlan,
    Effects,
    EmitEvent,
    Patch,
    Update,
    reference,
)
from windlass.jobs.ray import job as kinds
from windlass.jobs.ray.job import RayJob, read_ray_job
from windlass.kits.timestamps import parse_rfc3339, rfc3339

Json = dict[str, Any]
POLL_SECONDS = 3.0
"""Interval between two looks at Ray's dashboard."""


@dataclass(frozen=True, slots=True)
class RayJobSnapshot:
    """Observed surroundings of a RayJob.

    ``cluster``: the RayCluster that the status or the selector names. ``submitter``: the Job with the RayJob's name.
    ``info``: the job in the dashboard, ``None`` if it is not there or the dashboard cannot be reached. ``now``: Unix
    seconds.
    """

    cluster: Json | None
    submitter: Json | None
    info: RayJobInfo | None
    now: float


def reconcile_ray_job(obj: Json, observed: RayJobSnapshot) -> Effects:
    """Reconcile one RayJob. Pure."""
    if obj["metadata"].get("deletionTimestamp"):
        return NOTHING
    about = reference(RAY_JOBS, obj)
    plan = EffectPlan(about=about)
    try:
        job = read_ray_job(obj)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        return _invalid(obj, str(error), plan)
    return _RayJobReconciliation(job, obj, observed, plan).effects()


def _invalid(obj: Json, message: str, plan: EffectPlan) -> Effects:
    assert plan.about is not None
    status = {
        **(obj.get("status") or {}),
        "jobDeploymentStatus": kinds.VALIDATION_FAILED,
        "reason": kinds.VALIDATION_FAILED,
        "message": message,
    }
    if status != (obj.get("status") or {}):
        plan.stage(Update(RAY_JOBS, {**obj, "status": status}, "status"))
        plan.event(EmitEvent(plan.about, "Warning", "InvalidRayJobSpec", message, lasting=True))
    return plan.done()


class _RayJobReconciliation:
    """State of one reconciliation. Used once."""

    def __init__(self, job: RayJob, obj: Json, observed: RayJobSnapshot, plan: EffectPlan) -> None:
        self.job, self.obj, self.observed, self.plan = job, obj, observed, plan
        self.status: Json = dict(obj.get("status") or {})
        self.attempt = int(self.status.get("failed") or 0)

    def effects(self) -> Effects:
        state = self.status.get("jobDeploymentStatus") or kinds.NEW
        handlers = {
            kinds.NEW: self._new,
            kinds.INITIALIZING: self._initializing,
            kinds.WAITING: self._waiting,
            kinds.RUNNING: self._running,
            kinds.SUSPENDING: self._clearing,
            kinds.RETRYING: self._clearing,
            kinds.SUSPENDED: self._suspended,
            kinds.COMPLETE: self._ended,
            kinds.FAILED: self._ended,
        }
        handlers.get(state, self._new)()
        self._write_status()
        return self.plan.done()

    # States.

    def _new(self) -> None:
        if self.job.suspend:
            self._become(kinds.SUSPENDED)
            return
        self._become(kinds.INITIALIZING)
        self.status["jobId"] = self.job.job_id(self.attempt)
        self.status["rayClusterName"] = self.job.selector.get(ray.CLUSTER) or self.job.cluster_name(
            self.attempt
        )
        self.status["startTime"] = rfc3339(self.observed.now)
        self.status["jobStatus"] = ""

    def _initializing(self) -> None:
        if self._leaves() or self._starts_late():
            return
        cluster = self.observed.cluster
        if cluster is None:
            self._create_cluster()
            return
        if (cluster.get("status") or {}).get("state") != "ready":
            return
        name = cluster["metadata"]["name"]
        self.status["dashboardURL"] = (
            f"{ray.head_service_name(name)}.{self.job.namespace}.svc.cluster.local:{ray.DASHBOARD_PORT}"
        )
        if self.job.mode == ray.INTERACTIVE_MODE:
            self._become(kinds.WAITING)
        else:
            self._become(kinds.RUNNING)

    def _create_cluster(self) -> None:
        if self.job.selector:
            self._warn("RayClusterNotFound", f"RayCluster {self.status['rayClusterName']} does not exist")
            return
        metadata = self.obj["metadata"]
        notes = {
            key: text
            for key, text in (metadata.get("annotations") or {}).items()
            if not key.startswith("kubectl.kubernetes.io/")
        }
        name = self.status["rayClusterName"]
        self.plan.stage(
            Create(RAY_CLUSTERS, kinds.build_cluster(self.job, name, metadata.get("labels") or {}, notes))
        )
        self._report("CreatedRayCluster", f"Created RayCluster {self.job.namespace}/{name}")

    def _waiting(self) -> None:
        if self._leaves() or self._starts_late():
            return
        if self.job.spec.get("jobId"):
            self.status["jobId"] = self.job.spec["jobId"]
            self._become(kinds.RUNNING)

    def _running(self) -> None:
        if self._leaves():
            return
        self.plan.requeue(POLL_SECONDS)
        if self.job.mode == ray.K8S_JOB_MODE and self.observed.submitter is None:
            self._create_submitter()
            return
        info, submitted = self.observed.info, self._submitter_end()
        if info is not None:
            self._take_over(info)
        if self.job.mode == ray.K8S_JOB_MODE and submitted is None:
            return  # the submitter still copies the output of the job
        if info is not None and info.status in kinds.TERMINAL:
            failed = info.status == "FAILED"
            self._end(kinds.FAILED if failed else kinds.COMPLETE, "AppFailed" if failed else "")
        elif submitted == "Complete" and info is None:  # its exit status is that of the job
            self.status["jobStatus"] = "SUCCEEDED"
            self._end(kinds.COMPLETE)
        elif submitted == "Failed":
            self.status["jobStatus"] = (info.status if info else "") or "FAILED"
            self.status.setdefault("message", "the submitter has failed")
            self._end(kinds.FAILED, "SubmissionFailed" if info is None else "AppFailed")

    def _create_submitter(self) -> None:
        cluster = self.observed.cluster
        if cluster is None:
            return
        head = cluster["spec"]["headGroupSpec"]["template"]["spec"]["containers"][0]
        body = kinds.build_submitter(
            self.job,
            self.status["jobId"],
            self.status["dashboardURL"],
            head.get("image", ""),
            head.get("env") or [],
        )
        self.plan.stage(Create(BATCH_JOBS, body))
        self._report("CreatedRayJobSubmitter", f"Created submitter Job {self.job.namespace}/{self.job.name}")

    def _take_over(self, info: RayJobInfo) -> None:
        self.status["jobStatus"] = info.status
        if info.message:
            self.status["message"] = info.message
        times = {"startTime": info.started, "endTime": info.ended}
        self.status["rayJobInfo"] = {name: rfc3339(at) for name, at in times.items() if at}

    def _clearing(self) -> None:
        """Delete cluster and submitter; the next state follows when both are gone."""
        left = False
        if not self.job.selector:
            left |= self._delete(RAY_CLUSTERS, self.observed.cluster)
        left |= self._delete(BATCH_JOBS, self.observed.submitter)
        if left:
            return
        retrying = self.status.get("jobDeploymentStatus") == kinds.RETRYING
        for key in (
            "jobId",
            "rayClusterName",
            "dashboardURL",
            "message",
            "reason",
            "rayJobInfo",
            "rayClusterStatus",
        ):
            self.status.pop(key, None)
        self.status["jobStatus"] = ""
        self._become(kinds.NEW if retrying else kinds.SUSPENDED)

    def _suspended(self) -> None:
        if not self.job.suspend:
            self.status.pop("startTime", None)
            self._become(kinds.NEW)

    def _ended(self) -> None:
        if self.status.get("jobDeploymentStatus") == kinds.FAILED and self._may_retry():
            self._become(kinds.RETRYING)
            self.status.pop("endTime", None)
            return
        for policy, at in self._deletions():
            if at > self.observed.now:
                self.plan.requeue(at - self.observed.now)
            else:
                self._apply(policy)

    def _may_retry(self) -> bool:
        return self.status.get("reason") != "DeadlineExceeded" and self.attempt <= self.job.backoff_limit

    def _deletions(self) -> list[tuple[str, float]]:
        """Return the policies that follow the end, each with its time in Unix seconds."""
        end = parse_rfc3339(self.status.get("endTime") or rfc3339(self.observed.now))
        strategy = self.job.spec.get("deletionStrategy") or {}
        found: list[tuple[str, float]] = []
        for rule in strategy.get("deletionRules") or ():
            condition = rule.get("condition") or {}
            wanted = condition.get("jobStatus"), condition.get("jobDeploymentStatus")
            if self.status.get("jobStatus") in wanted or self.status.get("jobDeploymentStatus") in wanted:
                found.append((rule.get("policy") or "", end + int(condition.get("ttlSeconds") or 0)))
        side = "onSuccess" if self.status.get("jobStatus") == "SUCCEEDED" else "onFailure"
        if policy := (strategy.get(side) or {}).get("policy"):
            found.append((policy, end + self.job.ttl_seconds))
        if not strategy and self.job.shutdown and not self.job.selector:
            found.append(("DeleteCluster", end + self.job.ttl_seconds))
        return sorted(found, key=lambda item: item[1])

    def _apply(self, policy: str) -> None:
        metadata = self.obj["metadata"]
        if policy == "DeleteSelf":
            self.plan.stage(
                Delete(
                    RAY_JOBS, self.job.name, self.job.namespace, metadata.get("uid"), propagation="Background"
                )
            )
        elif self.job.selector:
            return  # the cluster belongs to its user
        elif policy == "DeleteCluster":
            self._delete(RAY_CLUSTERS, self.observed.cluster)
        elif policy == "DeleteWorkers" and self.observed.cluster is not None:
            groups = [dict(group) for group in self.observed.cluster["spec"].get("workerGroupSpecs") or ()]
            if any(not group.get("suspend") for group in groups):
                patch = {"spec": {"workerGroupSpecs": [{**group, "suspend": True} for group in groups]}}
                name = self.observed.cluster["metadata"]["name"]
                self.plan.stage(Patch(RAY_CLUSTERS, name, patch, self.job.namespace))

    # Parts of the states.

    def _leaves(self) -> bool:
        """Go over to another state by the user's wish or the deadline; return whether that is so."""
        if self.job.suspend:
            self._become(kinds.SUSPENDING)
            return True
        return self._is_late("activeDeadlineSeconds", "DeadlineExceeded")

    def _starts_late(self) -> bool:
        """Fail a job that does not run in time; return whether that is so."""
        return self._is_late("preRunningDeadlineSeconds", "PreRunningDeadlineExceeded")

    def _is_late(self, field: str, reason: str) -> bool:
        limit = self.job.spec.get(field)
        if limit is None or not self.status.get("startTime"):
            return False
        left = parse_rfc3339(self.status["startTime"]) + int(limit) - self.observed.now
        if left > 0:
            self.plan.requeue(left)
            return False
        self.status["message"] = (
            f"The RayJob has passed the {field}. StartTime: {self.status['startTime']}. "
            f"{field[0].upper()}{field[1:]}: {limit}"
        )
        self._end(kinds.FAILED, reason)
        return True

    def _submitter_end(self) -> str | None:
        """Return ``Complete`` or ``Failed`` for a finished submitter."""
        status = (self.observed.submitter or {}).get("status") or {}
        true = [one.get("type") for one in status.get("conditions") or () if one.get("status") == "True"]
        return next((kind for kind in ("Complete", "Failed") if kind in true), None)

    def _end(self, state: str, reason: str = "") -> None:
        self._become(state)
        self.status["endTime"] = rfc3339(self.observed.now)
        self.status["reason"] = reason
        counter = "failed" if state == kinds.FAILED else "succeeded"
        self.status[counter] = int(self.status.get(counter) or 0) + 1

    def _become(self, state: str) -> None:
        self.status["jobDeploymentStatus"] = state

    def _delete(self, resource: Any, found: Mapping[str, Any] | None) -> bool:
        """Delete an object with its dependents; return whether it is still there."""
        if found is None:
            return False
        metadata = found["metadata"]
        if not metadata.get("deletionTimestamp"):
            self.plan.stage(
                Delete(
                    resource,
                    metadata["name"],
                    self.job.namespace,
                    metadata.get("uid"),
                    propagation="Background",
                )
            )
            self._report(
                f"Deleted{resource.kind}", f"Deleted {resource.kind} {self.job.namespace}/{metadata['name']}"
            )
        return True

    def _write_status(self) -> None:
        if self.observed.cluster is not None and self.status.get("jobDeploymentStatus") in (
            kinds.INITIALIZING,
            kinds.RUNNING,
            kinds.WAITING,
        ):
            self.status["rayClusterStatus"] = self.observed.cluster.get("status") or {}
        self.status["observedGeneration"] = self.obj["metadata"].get("generation", 1)
        status = {key: value for key, value in self.status.items() if value not in ("", None)}
        if status != (self.obj.get("status") or {}):
            self.plan.stage(Update(RAY_JOBS, {**self.obj, "status": status}, "status"))

    def _report(self, reason: str, message: str) -> None:
        assert self.plan.about is not None
        self.plan.event(EmitEvent(self.plan.about, "Normal", reason, message))

    def _warn(self, reason: str, message: str) -> None:
        assert self.plan.about is not None
        self.plan.event(EmitEvent(self.plan.about, "Warning", reason, message, lasting=True))
