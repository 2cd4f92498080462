"""Reconciliation of a JobFlow and of a JobTemplate.

A job is created when the conditions of its step hold. Its name follows from the flow
and the step, so a controller that stops after a creation finds the job again. A failed
or terminated job ends the flow: no further job is created, and running ones go on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from windlass.api.resources import JOB_FLOWS, JOB_TEMPLATES, VOLCANO_JOBS
from windlass.controllers.effects import (
    NOTHING,
    Create,
    Delete,
    EffectPlan,
    Effects,
    EmitEvent,
    Update,
    controller_reference,
    reference,
)
from windlass.controllers.jobflow.flow import (
    CREATED_BY_FLOW,
    CREATED_BY_TEMPLATE,
    FlowSpec,
    FlowStep,
    read_flow,
)
from windlass.controllers.jobflow.patching import patched_spec
from windlass.controllers.jobflow.status import (
    COMPLETED,
    FlowJob,
    FlowPhase,
    flow_jobs,
    flow_phase,
    flow_status,
    next_phase,
)

Json = dict[str, Any]
PROBE_SECONDS = 2.0
"""Interval (seconds) between probes of the same pods."""


@dataclass(frozen=True, slots=True)
class FlowSnapshot:
    """Observed surroundings of a flow.

    ``jobs``: jobs that the flow controls, by name.
    ``foreign``: names of its jobs that are taken by another job.
    ``templates``: JobTemplate → spec.
    ``probed``: names of the steps with conditions on pods that hold now.
    ``now``: Unix seconds.
    """

    jobs: Mapping[str, Json]
    foreign: frozenset[str]
    templates: Mapping[str, Json]
    probed: frozenset[str]
    now: float


@dataclass(slots=True)
class _Flow:
    """State of one reconciliation. Used once."""

    obj: Json
    spec: FlowSpec
    observed: FlowSnapshot
    plan: EffectPlan
    created: list[Create] = field(default_factory=list)

    def effects(self) -> Effects:
        before = flow_phase(self.obj)
        if before is FlowPhase.SUCCEED and self.spec.delete_jobs:
            self.plan.stage(*(self._delete(job) for job in self.observed.jobs.values()))
            return self.plan.done()
        jobs = flow_jobs(self.obj, self.observed.jobs)
        phase = next_phase(before, jobs, len(self.spec.steps))
        if phase in (FlowPhase.PENDING, FlowPhase.RUNNING):
            self._create_jobs(jobs)
        status = flow_status(self.obj, jobs, phase, self.observed.now)
        if status != (self.obj.get("status") or {}):
            self.plan.stage(Update(JOB_FLOWS, {**self.obj, "status": status}, "status"))
        self.plan.stage(*self.created)
        return self.plan.done()

    def _create_jobs(self, jobs: Sequence[FlowJob]) -> None:
        present = {job.name for job in jobs}
        completed = {job.name for job in jobs if job.phase == COMPLETED}
        for step in self.spec.steps:
            name = self.spec.job_name(step.name)
            if name in present or not self._may_begin(step, completed):
                continue
            if name in self.observed.foreign:
                self._warn(
                    "JobExists",
                    f"Job {name} exists and does not belong to the flow: delete it, or rename the flow",
                )
                continue
            template = self.observed.templates.get(step.name)
            if template is None:
                self._warn(
                    "JobTemplateNotFound", f"JobTemplate {step.name} does not exist: Job {name} waits for it"
                )
                continue
            self._create(step, name, template)

    def _may_begin(self, step: FlowStep, completed: set[str]) -> bool:
        if not step.targets:
            return True
        if step.conditions:
            return step.name in self.observed.probed
        return all(self.spec.job_name(target) in completed for target in step.targets)

    def _create(self, step: FlowStep, name: str, template: Json) -> None:
        try:
            spec = patched_spec(template, step.patch)
        except ValueError as problem:
            self._warn("InvalidPatch", f"patch of flow {step.name}: {problem}")
            return
        marks = {
            CREATED_BY_TEMPLATE: f"{self.spec.namespace}.{step.name}",
            CREATED_BY_FLOW: self.spec.mark,
        }
        metadata = {
            "name": name,
            "namespace": self.spec.namespace,
            "labels": dict(marks),
            "annotations": dict(marks),
            "ownerReferences": [controller_reference(JOB_FLOWS, self.obj)],
        }
        job = {
            "apiVersion": VOLCANO_JOBS.api_version,
            "kind": VOLCANO_JOBS.kind,
            "metadata": metadata,
            "spec": spec,
        }
        self.created.append(Create(VOLCANO_JOBS, job))
        self._event("Normal", "Created", f"create a job named {name}!", lasting=True)

    def _delete(self, job: Json) -> Delete:
        metadata = job["metadata"]
        uid = metadata.get("uid")
        return Delete(VOLCANO_JOBS, metadata["name"], self.spec.namespace, uid, propagation="Background")

    def _warn(self, reason: str, message: str) -> None:
        self._event("Warning", reason, message, lasting=True)

    def _event(self, kind: str, reason: str, message: str, *, lasting: bool = False) -> None:
        assert self.plan.about is not None
        self.plan.event(EmitEvent(self.plan.about, kind, reason, message, lasting))


def reconcile_flow(flow: Json, observed: FlowSnapshot) -> Effects:
    """Reconcile one flow. Pure."""
    if flow["metadata"].get("deletionTimestamp"):
        return NOTHING
    about = reference(JOB_FLOWS, flow)
    return _Flow(flow, read_flow(flow), observed, EffectPlan(about=about)).effects()


def waiting_steps(flow: Json, observed: FlowSnapshot) -> list[FlowStep]:
    """Return the steps with conditions on pods that decide whether they begin now."""
    if flow_phase(flow) not in (FlowPhase.PENDING, FlowPhase.RUNNING):
        return []
    spec = read_flow(flow)
    present = {job.name for job in flow_jobs(flow, observed.jobs)}
    return [
        step
        for step in spec.steps
        if step.conditions
        and step.targets
        and spec.job_name(step.name) not in present
        and all(spec.job_name(target) in present for target in step.targets)
    ]


def reconcile_template(template: Json, jobs: Sequence[str]) -> Effects:
    """Record the names of the jobs that were created from the template. Pure."""
    if template["metadata"].get("deletionTimestamp") or not jobs:
        return NOTHING
    status = {**(template.get("status") or {}), "jobDependsOnList": sorted(jobs)}
    if status == template.get("status"):
        return NOTHING
    return Effects(
        stages=((Update(JOB_TEMPLATES, {**template, "status": status}, "status"),),),
        about=reference(JOB_TEMPLATES, template),
    )
