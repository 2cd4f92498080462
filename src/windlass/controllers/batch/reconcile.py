"""Reconciliation of a ``batch/v1`` Job.

Order of the effects: pods are created, or surplus ones deleted. Then the status is
written. Then the pods of a Job with an outcome are deleted, and pods that were noted lose
their finalizers. A controller that stops in between decides the same again, as
``jobs.batch.decision`` explains.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from windlass.api.fields.batch import CONTROLLER_NAME, TRACKING
from windlass.api.resources import BATCH_JOBS, NATIVE_POD_GROUPS, PODS
from windlass.api.views import Pod
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
from windlass.jobs.batch.decision import BatchActions, decide_batch_job
from windlass.jobs.batch.failures import BatchPod
from windlass.jobs.batch.gang import gang_of
from windlass.jobs.batch.pods import build_pod
from windlass.jobs.batch.spec import UNLIMITED, BatchJobSpec, read_batch_job
from windlass.jobs.batch.state import COMPLETE, FAILED, SUSPENDED, BatchState, read_state, render_state

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class BatchSnapshot:
    """Observed surroundings of a Job.

    ``pods``: pods that the Job controls.
    ``records``: key → record of any pod.
    ``failures``: uid of a pod → when it failed, as this process has seen it.
    ``workloads``: Workloads that name the Job.
    ``groups``: names of the PodGroups of Kubernetes in its namespace.
    ``now``: Unix seconds.
    ``suffix``: returns the random end of a pod's name.
    """

    pods: Sequence[BatchPod]
    records: Mapping[str, Pod]
    failures: Mapping[str, float]
    now: float
    suffix: Callable[[], str]
    workloads: Sequence[Json] = ()
    groups: frozenset[str] = frozenset()


def reconcile_batch_job(obj: Json, observed: BatchSnapshot) -> Effects:
    """Reconcile one Job. Pure, apart from ``observed.suffix``."""
    about = reference(BATCH_JOBS, obj)
    try:
        spec = read_batch_job(obj)
        state = read_state(obj, UNLIMITED if spec.completions is None else spec.completions)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        message = f"the spec cannot be read: {error}"
        return Effects(events=(EmitEvent(about, "Warning", "InvalidJob", message, lasting=True),))
    if spec.managed_by != CONTROLLER_NAME and not state.finished:
        return NOTHING
    actions = decide_batch_job(
        spec,
        state,
        observed.pods,
        observed.now,
        earlier_failures=observed.failures,
        deleting=bool(obj["metadata"].get("deletionTimestamp")),
    )
    return _effects(obj, spec, state, actions, observed, EffectPlan(about=about))


def release_orphans(pods: Sequence[Pod]) -> Effects:
    """Take the finalizer off pods of a Job that does not exist any more. Pure."""
    plan = EffectPlan()
    plan.stage(*(_release(pod) for pod in pods if TRACKING in pod.finalizers))
    return plan.done()


def _effects(
    obj: Json,
    spec: BatchJobSpec,
    before: BatchState,
    actions: BatchActions,
    observed: BatchSnapshot,
    plan: EffectPlan,
) -> Effects:
    assert plan.about is not None
    if actions.create:
        _create_pods(spec, actions, observed, plan)
    plan.stage(*(_release(_record(spec, pod, observed)) for pod in actions.drop if pod.tracked))
    plan.stage(*(_delete(spec, pod, plan) for pod in actions.drop))
    if not before.finished:
        status = render_state(actions.state, spec.indexed)
        if status != (obj.get("status") or {}):
            plan.stage(Update(BATCH_JOBS, {**obj, "status": status}, "status"))
            _report(spec, actions, plan)
    plan.stage(*(_delete(spec, pod, plan) for pod in actions.delete))
    plan.stage(*(_release(_record(spec, pod, observed)) for pod in actions.release))
    if actions.expired:
        metadata = obj["metadata"]
        expired = Delete(
            BATCH_JOBS,
            spec.name,
            spec.namespace,
            spec.uid,
            propagation="Foreground",
            resource_version=metadata.get("resourceVersion"),
        )
        plan.stage(expired)
    if actions.due_seconds is not None:
        plan.requeue(actions.due_seconds)
    return plan.done()


def _record(spec: BatchJobSpec, pod: BatchPod, observed: BatchSnapshot) -> Pod:
    return observed.records[f"{spec.namespace}/{pod.name}"]


def _create_pods(
    spec: BatchJobSpec, actions: BatchActions, observed: BatchSnapshot, plan: EffectPlan
) -> None:
    """Create pods, and before them the PodGroup that they are in."""
    assert plan.about is not None
    gang = None
    try:
        gang = gang_of(spec, observed.workloads)
    except ValueError as problem:
        plan.event(EmitEvent(plan.about, "Warning", "WorkloadIgnored", str(problem), lasting=True))
    group = gang.name if gang is not None else ""
    if gang is not None and group not in observed.groups:
        plan.stage(Create(NATIVE_POD_GROUPS, gang.group))
    plan.stage(*(_create(build_pod(spec, new, observed.suffix(), group), plan) for new in actions.create))


def _create(body: Json, plan: EffectPlan) -> Create:
    assert plan.about is not None
    message = f"Created pod: {body['metadata']['name']}"
    return Create(PODS, body, EmitEvent(plan.about, "Normal", "SuccessfulCreate", message))


def _delete(spec: BatchJobSpec, pod: BatchPod, plan: EffectPlan) -> Delete:
    assert plan.about is not None
    event = EmitEvent(plan.about, "Normal", "SuccessfulDelete", f"Deleted pod: {pod.name}")
    return Delete(PODS, pod.name, spec.namespace, pod.uid, event=event)


def _release(pod: Pod) -> Patch:
    """Remove the finalizer. Where the pod has others, a concurrent change of them is a conflict."""
    left = [finalizer for finalizer in pod.finalizers if finalizer != TRACKING]
    return Patch(
        PODS,
        pod.name,
        {"metadata": {"finalizers": left or None}},
        pod.namespace,
        uid=pod.uid,
        resource_version=pod.resource_version if left else None,
    )


def _report(spec: BatchJobSpec, actions: BatchActions, plan: EffectPlan) -> None:
    assert plan.about is not None
    news = actions.news
    if news is None:
        return
    if news.type == SUSPENDED:
        reason = "Suspended" if news.status == "True" else "Resumed"
        plan.event(EmitEvent(plan.about, "Normal", reason, news.message))
    elif news.type == FAILED:
        plan.event(EmitEvent(plan.about, "Warning", news.reason, news.message))
    elif news.type == COMPLETE:
        if spec.completions is not None and actions.state.succeeded > spec.completions:
            message = "Too many succeeded pods running after completion count reached"
            plan.event(EmitEvent(plan.about, "Warning", "TooManySucceededPods", message))
        plan.event(EmitEvent(plan.about, "Normal", "Completed", "Job completed"))
