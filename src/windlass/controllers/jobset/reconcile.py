"""Reconciliation of a JobSet.

A restart or an end is stored in the status before anything follows from it. Otherwise
the order is: deletions, Service and claims, PodGroups, Jobs, and last the status. A
controller that stops in between decides the same again.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from windlass.api.resources import (
    BATCH_JOBS,
    JOB_SETS,
    PERSISTENT_VOLUME_CLAIMS,
    POD_GROUPS,
    SERVICES,
)
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
from windlass.controllers.pod_groups import patch_group, spec_patch
from windlass.jobs.jobset import bodies
from windlass.jobs.jobset.children import ChildJob, read_children, read_restarts
from windlass.jobs.jobset.conditions import CREATION_FAILED, Conditions
from windlass.jobs.jobset.decision import JobSetDecision, decide_job_set
from windlass.jobs.jobset.in_place import InPlacePod
from windlass.jobs.jobset.spec import JobSetDefinition, read_job_set, stages

Json = dict[str, Any]
BATCH = 500
"""Maximum number of Jobs that one reconciliation creates."""


@dataclass(frozen=True, slots=True)
class JobSetSnapshot:
    """Observed surroundings of a JobSet.

    ``jobs``: Jobs that it controls. ``groups``: PodGroups by name, of any owner.
    ``pods``: its pods, for in-place restarts.
    ``services`` and ``claims``: names that exist in the namespace.
    ``priorities``: PriorityClass → value. ``now``: Unix seconds.
    ``scheduler``: default scheduler of pods.
    ``refused``: message of the server that refused an object; empty if it accepts all.
    """

    jobs: tuple[Json, ...]
    pods: tuple[InPlacePod, ...]
    groups: Mapping[str, Json]
    services: frozenset[str]
    claims: frozenset[str]
    priorities: Mapping[str, int]
    now: float
    scheduler: str
    refused: str = ""


def reconcile_job_set(obj: Json, observed: JobSetSnapshot) -> Effects:
    """Reconcile one JobSet. Pure."""
    if obj["metadata"].get("deletionTimestamp"):
        return NOTHING
    definition = read_job_set(obj)
    if not definition.is_ours:
        return NOTHING
    return _JobSetReconciliation(definition, obj, observed).effects()


class _JobSetReconciliation:
    """State of one reconciliation. Used once."""

    def __init__(self, definition: JobSetDefinition, obj: Json, observed: JobSetSnapshot) -> None:
        self.definition, self.obj, self.observed = definition, obj, observed
        self.about = reference(JOB_SETS, obj)
        self.plan = EffectPlan(about=self.about)
        self.restarts = read_restarts(obj.get("status") or {})

    def effects(self) -> Effects:
        observed, plan = self.observed, self.plan
        status = self.obj.get("status") or {}
        children = read_children(observed.jobs, self.restarts)
        decision = decide_job_set(self.definition, status, children, observed.pods, observed.now)
        if decision.due_seconds is not None:
            plan.requeue(decision.due_seconds)
        self._tell_refusal(decision)
        changed = decision.status != status
        if decision.decided and changed:
            self._write_status(decision)
            return plan.done()
        if changed and observed.refused:
            self._write_status(decision)  # before the write that is refused
            changed = False
        plan.stage(*(self._delete_job(child) for child in decision.delete))
        if decision.finished:
            self._drop_groups(self._stages_without_jobs(children))
        elif not decision.decided:
            self._create_objects(decision)
            self._change_jobs(decision)
        if changed:
            self._write_status(decision)
        if decision.expired:
            found = self.definition
            plan.stage(Delete(JOB_SETS, found.name, found.namespace, found.uid, propagation="Foreground"))
        return plan.done()

    def _tell_refusal(self, decision: JobSetDecision) -> None:
        """Set the condition that tells why the server refuses an object, or end it."""
        conditions = Conditions(decision.status.get("conditions") or (), self.observed.now)
        if self.observed.refused and not decision.finished:
            text = self.observed.refused
            conditions.set(CREATION_FAILED, True, "JobCreationFailed", text, warning=True)
        elif conditions.is_true(CREATION_FAILED):
            conditions.set(CREATION_FAILED, False, "Created", "all objects of the jobset were created")
        if conditions.events:
            decision.status["conditions"] = conditions.items
            decision.events = (*decision.events, *conditions.events)

    def _write_status(self, decision: JobSetDecision) -> None:
        self.plan.stage(Update(JOB_SETS, {**self.obj, "status": decision.status}, "status"))
        for event in decision.events:
            kind = "Warning" if event.warning else "Normal"
            self.plan.event(EmitEvent(self.about, kind, event.reason, event.message))

    def _delete_job(self, child: ChildJob) -> Delete:
        return Delete(BATCH_JOBS, child.name, self.definition.namespace, child.uid, propagation="Foreground")

    # Service, claims, PodGroups.

    def _create_objects(self, decision: JobSetDecision) -> None:
        definition, observed = self.definition, self.observed
        missing: list[Create] = []
        if definition.has_host_names and definition.subdomain not in observed.services:
            missing.append(Create(SERVICES, bodies.build_service(definition)))
        missing += [
            Create(PERSISTENT_VOLUME_CLAIMS, claim)
            for claim in bodies.build_claims(definition)
            if claim["metadata"]["name"] not in observed.claims
        ]
        self.plan.stage(*missing)
        if definition.suspend:
            self._drop_groups(observed.groups)
        else:
            self._keep_groups(decision)

    def _keep_groups(self, decision: JobSetDecision) -> None:
        definition, observed = self.definition, self.observed
        actions: list[Create | Patch] = []
        for stage in bodies.gangs(definition, decision.opened):
            name = stage.group_name(definition.name)
            group = observed.groups.get(name)
            if group is None:
                actions.append(Create(POD_GROUPS, bodies.build_group(definition, stage, observed.priorities)))
            elif self._owns(group):
                patch = spec_patch(group, bodies.group_spec(definition, stage, observed.priorities))
                if patch:
                    actions.append(patch_group(group, patch))
            elif not group["metadata"].get("deletionTimestamp"):
                message = f"PodGroup {name} exists and does not belong to the JobSet: delete or rename it"
                self.plan.event(EmitEvent(self.about, "Warning", "PodGroupConflict", message, lasting=True))
        self.plan.stage(*actions)

    def _stages_without_jobs(self, children: Sequence[ChildJob]) -> set[str]:
        """Return the PodGroups of stages of which no Job is retained."""
        present = {child.replicated_job for child in children if not child.deleting}
        return {
            stage.group_name(self.definition.name)
            for stage in stages(self.definition)
            if not any(job.name in present for job in stage.jobs)
        }

    def _drop_groups(self, unused: Collection[str]) -> None:
        """Delete the JobSet's own PodGroups that wait for nothing any more."""
        self.plan.stage(
            *(
                Delete(POD_GROUPS, name, self.definition.namespace, group["metadata"].get("uid"))
                for name, group in self.observed.groups.items()
                if name in unused and self._owns(group) and not group["metadata"].get("deletionTimestamp")
            )
        )

    def _owns(self, group: Json) -> bool:
        owner = controller_of(group)
        return owner is not None and owner.get("uid") == self.definition.uid

    # Jobs.

    def _change_jobs(self, decision: JobSetDecision) -> None:
        definition, observed = self.definition, self.observed
        self.plan.stage(*(self._suspend(child, True) for child in decision.suspend))
        self.plan.stage(
            *(
                self._resume(child)
                for child in decision.resume
                if child.object.get("status", {}).get("startTime")
            )
        )
        self.plan.stage(*(self._suspend(child, False) for child in decision.resume))
        self.plan.stage(
            *(
                Create(
                    BATCH_JOBS, bodies.build_job(definition, job, index, self.restarts, observed.scheduler)
                )
                for job, index in islice(decision.create, BATCH)
            )
        )
        self.plan.stage(*self._scale())

    def _suspend(self, child: ChildJob, suspend: bool) -> Patch:
        patch: Json = {"spec": {"suspend": suspend}}
        if not suspend:
            job = self.definition.job(child.replicated_job)
            if job is not None:
                patch["spec"]["template"] = bodies.resumed_template(child.object, job)
        return Patch(
            BATCH_JOBS,
            child.name,
            patch,
            self.definition.namespace,
            uid=child.uid,
        )

    def _resume(self, child: ChildJob) -> Patch:
        """Clear the start time of a Job: its template can be changed only then."""
        return Patch(
            BATCH_JOBS,
            child.name,
            {"status": {"startTime": None}},
            self.definition.namespace,
            subresource="status",
            uid=child.uid,
        )

    def _scale(self) -> list[Patch]:
        """Correct the number of pods of Jobs after their replicated job was scaled."""
        found = []
        for child in read_children(self.observed.jobs, self.restarts):
            job = self.definition.job(child.replicated_job)
            if job is None or child.state != "active" or child.deleting:
                continue
            wanted = {name: job.job_spec.get(name) for name in ("parallelism", "completions")}
            present = child.object.get("spec") or {}
            scaled = wanted["parallelism"] is not None and wanted["parallelism"] == wanted["completions"]
            if scaled and any(present.get(name) != value for name, value in wanted.items()):
                found.append(
                    Patch(BATCH_JOBS, child.name, {"spec": wanted}, self.definition.namespace, uid=child.uid)
                )
        return found
