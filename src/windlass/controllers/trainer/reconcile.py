"""Reconciliation of a TrainJob.

First the runtime is recorded in a ConfigMap, from which the job is built from then on.
The Secret, the host file and the PodGroup follow, and the JobSet last. A job that has
ended is left as it is: nothing is created for it any more.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from windlass.api import annotations as names
from windlass.api.fields import trainer
from windlass.api.resources import CONFIG_MAPS, JOB_SETS, SECRETS, TRAIN_JOBS, Resource
from windlass.controllers.effects import (
    NOTHING,
    Create,
    Delete,
    EffectPlan,
    Effects,
    EmitEvent,
    Patch,
    Update,
    controller_of,
    reference,
)
from windlass.jobs.jobset.conditions import CREATION_FAILED
from windlass.jobs.trainer import status as words
from windlass.jobs.trainer.objects import (
    TrainObjects,
    build_objects,
    build_secret,
    build_snapshot,
    is_from,
    read_snapshot,
    snapshot_name,
)
from windlass.jobs.trainer.runtime import RuntimeProblem
from windlass.jobs.trainer.status import TrainConditions

Json = dict[str, Any]
RETRY_SECONDS = 2.0
"""Interval in seconds between attempts to find a runtime that does not exist."""


@dataclass(frozen=True, slots=True)
class TrainSnapshot:
    """Observed surroundings of a TrainJob.

    ``job_set``: of the name of the job, of any owner. ``config_maps``: by name.
    ``secrets`` and ``groups``: names that exist, the latter by kind.
    ``runtime``: that the job names, or ``None``.
    ``refused``: message of the server that refused an object; empty if it accepts all.
    ``priorities``: PriorityClass → value. ``now``: Unix seconds.
    ``keys``: returns a new SSH key pair: private and public.
    """

    job_set: Json | None
    config_maps: Mapping[str, Json]
    secrets: frozenset[str]
    groups: Mapping[Resource, frozenset[str]]
    runtime: Json | None
    refused: str
    priorities: Mapping[str, int]
    now: float
    keys: Callable[[], tuple[str, str]]


def reconcile_train_job(obj: Json, observed: TrainSnapshot) -> Effects:
    """Reconcile one TrainJob. Pure but for ``observed.keys``."""
    if obj["metadata"].get("deletionTimestamp"):
        return NOTHING
    if (obj.get("spec") or {}).get("managedBy") not in (None, "", trainer.CONTROLLER_NAME):
        return NOTHING
    return _TrainReconciliation(obj, observed).effects()


def needs_objects(obj: Json, job_set: Json | None) -> bool:
    """Return whether the objects of a TrainJob have to be compared: it has no JobSet, or a suspended one."""
    owner = controller_of(job_set) if job_set is not None else None
    if job_set is None or owner is None or owner.get("uid") != obj["metadata"].get("uid"):
        return True
    return bool((job_set.get("spec") or {}).get("suspend"))


class _TrainReconciliation:
    """State of one reconciliation. Used once."""

    def __init__(self, obj: Json, observed: TrainSnapshot) -> None:
        self.obj, self.observed = obj, observed
        self.spec: Json = obj.get("spec") or {}
        self.namespace: str = obj["metadata"].get("namespace") or "default"
        self.name: str = obj["metadata"]["name"]
        self.about = reference(TRAIN_JOBS, obj)
        self.plan = EffectPlan(about=self.about)
        self.conditions = TrainConditions((obj.get("status") or {}).get("conditions") or (), observed.now)

    @property
    def suspended(self) -> bool:
        return bool(self.spec.get("suspend"))

    def effects(self) -> Effects:
        was_finished = self.conditions.finished
        if not was_finished:
            self._follow_job_set()
        if not self.conditions.finished:
            self._check_deadline()
        problem = ""
        if not self.conditions.finished:
            problem = self._create() or self.observed.refused or self._refused_job()
        self._state(problem)
        self._write_status(first=bool(problem) or self.conditions.finished)
        if self.conditions.finished and self._deadline_exceeded() and self._own_job_set() is not None:
            self._delete_job_set()
        return self.plan.done()

    # What the JobSet says.

    def _own_job_set(self) -> Json | None:
        found = self.observed.job_set
        owner = controller_of(found) if found is not None else None
        return found if owner is not None and owner.get("uid") == self.obj["metadata"].get("uid") else None

    def _follow_job_set(self) -> None:
        status = (self._own_job_set() or {}).get("status") or {}
        for found in status.get("conditions") or ():
            kind = {"Completed": words.COMPLETE, "Failed": words.FAILED}.get(found.get("type"))
            if kind is not None and found.get("status") == "True":
                self.conditions.set(kind, True, found.get("reason") or kind, found.get("message") or "")
                event = "Warning" if kind == words.FAILED else "Normal"
                self._event(event, f"TrainJob{kind}", found.get("message") or "")

    def _refused_job(self) -> str:
        """Return why the server refuses a Job of the JobSet; empty if it does not."""
        for found in ((self._own_job_set() or {}).get("status") or {}).get("conditions") or ():
            if found.get("type") == CREATION_FAILED and found.get("status") == "True":
                return found.get("message") or ""
        return ""

    def _check_deadline(self) -> None:
        limit = self.spec.get("activeDeadlineSeconds")
        start = words.started_at(self.obj, self.conditions, self.observed.now)
        if not limit or self.suspended or start is None:
            return
        left = start + float(limit) - self.observed.now
        if left > 0:
            self.plan.requeue(left)
            return
        message = "TrainJob exceeded its active deadline"
        self.conditions.set(words.FAILED, True, "DeadlineExceeded", message)
        self._event("Warning", "DeadlineExceeded", message)

    def _deadline_exceeded(self) -> bool:
        return (self.conditions.find(words.FAILED) or {}).get("reason") == "DeadlineExceeded"

    # Creation.

    def _create(self) -> str:
        """Plan the missing objects. Return what prevents them; empty if nothing does."""
        if not needs_objects(self.obj, self.observed.job_set):
            if self.suspended:
                self._suspend(True)
            return ""
        runtime, problem = self._runtime()
        if runtime is None:
            return problem
        try:
            wanted = build_objects(self.obj, runtime, self.observed.priorities)
        except (RuntimeProblem, ValueError, KeyError, TypeError, AttributeError) as error:
            return f"the JobSet cannot be built from runtime {self._runtime_name()}: {error}"
        self._create_parts(wanted)
        return self._place_job_set(wanted.job_set)

    def _runtime_name(self) -> str:
        return str((self.spec.get("runtimeRef") or {}).get("name"))

    def _runtime(self) -> tuple[Json | None, str]:
        """Return the recorded runtime, or record it."""
        reference_ = self.spec.get("runtimeRef") or {}
        kind = trainer.runtime_kind(reference_)
        if kind is None:
            text = f"unsupported runtime: {reference_.get('kind')}.{reference_.get('apiGroup')}"
            self.conditions.set(words.FAILED, True, "TrainingRuntimeNotSupported", text)
            return None, ""
        stored = self.observed.config_maps.get(snapshot_name(self.obj))
        if stored is not None:
            found = read_snapshot(stored)
            if found is None or not is_from(found, reference_):
                return (
                    None,
                    f"ConfigMap {snapshot_name(self.obj)} is not a snapshot of the runtime: delete it",
                )
            return dict(found), ""
        if self.observed.runtime is None:
            self.plan.requeue(RETRY_SECONDS)
            return None, f"{kind.kind} {self._runtime_name()} does not exist: create it"
        self.plan.stage(Create(CONFIG_MAPS, build_snapshot(self.obj, self.observed.runtime)))
        return self.observed.runtime, ""

    def _create_parts(self, wanted: TrainObjects) -> None:
        parts: list[Create] = []
        hosts = wanted.host_file
        if hosts is not None and hosts["metadata"]["name"] not in self.observed.config_maps:
            parts.append(Create(CONFIG_MAPS, hosts))
        if wanted.ssh_secret and wanted.ssh_secret not in self.observed.secrets:
            parts.append(Create(SECRETS, build_secret(self.obj, *self.observed.keys())))
        if wanted.group is not None and not self.suspended:
            resource, group = wanted.group
            if group["metadata"]["name"] not in self.observed.groups.get(resource, frozenset()):
                parts.append(Create(resource, group))
        self.plan.stage(*parts)

    def _place_job_set(self, wanted: Json) -> str:
        present = self.observed.job_set
        if present is None:
            self.plan.stage(Create(JOB_SETS, wanted))
            return ""
        if self._own_job_set() is None:
            return f"JobSet {self.name} exists and does not belong to the TrainJob: delete or rename it"
        if present["metadata"].get("deletionTimestamp"):
            return ""
        is_suspended = bool((present.get("spec") or {}).get("suspend"))
        was_built_from = (present["metadata"].get("annotations") or {}).get(names.TEMPLATE_HASH)
        if is_suspended and was_built_from != wanted["metadata"]["annotations"][names.TEMPLATE_HASH]:
            # Changed while it was suspended. No pod runs, so a new one takes its place.
            self._delete_job_set()
        elif is_suspended != self.suspended:
            self._suspend(self.suspended)
        return ""

    def _suspend(self, suspend: bool) -> None:
        assert self.observed.job_set is not None
        uid = self.observed.job_set["metadata"].get("uid")
        patch = {"spec": {"suspend": suspend}}
        self.plan.stage(Patch(JOB_SETS, self.name, patch, self.namespace, uid=uid))

    def _delete_job_set(self) -> None:
        assert self.observed.job_set is not None
        uid = self.observed.job_set["metadata"].get("uid")
        self.plan.stage(Delete(JOB_SETS, self.name, self.namespace, uid, propagation="Background"))

    # Status.

    def _state(self, problem: str) -> None:
        """Set the conditions of a job that has not ended, and end those of one that has."""
        conditions = self.conditions
        if conditions.finished:
            conditions.set(words.RUNNING, False, "Finished", "TrainJob has finished")
            conditions.set(words.CREATION_FAILED, False, "Finished", "TrainJob has finished")
            return
        if problem:
            text = f"{problem} Remedy: {words.remedy(problem, self.namespace)}"
            conditions.set(words.CREATION_FAILED, True, "TrainJobResourcesCreationFailed", text)
            message = f"TrainJob resources reconciliation failed: {problem}"
            self._event("Warning", "TrainJobResourcesCreationFailed", message[:1000])
        else:
            conditions.set(
                words.CREATION_FAILED, False, "Created", "all objects of the TrainJob were created"
            )
        if self.suspended:
            conditions.set(words.RUNNING, False, "Suspended", "TrainJob is suspended")
            conditions.set(words.SUSPENDED, True, "Suspended", "TrainJob is suspended")
            return
        if conditions.is_true(words.SUSPENDED):
            conditions.set(words.SUSPENDED, False, "Resumed", "TrainJob is resumed")
        if words.is_running(words.job_counts(self._own_job_set())):
            conditions.set(words.RUNNING, True, "Running", "TrainJob is running")

    def _write_status(self, *, first: bool) -> None:
        """Plan the write of the status. ``first``: before the other writes, which may be refused."""
        before = self.obj.get("status") or {}
        status = dict(before)
        if self.conditions.items:
            status["conditions"] = self.conditions.items
        counts = words.job_counts(self._own_job_set())
        if counts or not self.conditions.finished:
            status["jobsStatus"] = counts
        if status == before or (not before and not self.conditions.items and not counts):
            return
        write = (Update(TRAIN_JOBS, {**self.obj, "status": status}, "status"),)
        if first:
            self.plan.stages.insert(0, write)
        else:
            self.plan.stage(*write)

    def _event(self, kind: str, reason: str, message: str) -> None:
        self.plan.event(EmitEvent(self.about, kind, reason, message, lasting=True))
