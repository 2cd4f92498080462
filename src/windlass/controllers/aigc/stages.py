"""Stages of an AIGCJob in its reconciliation: the plan, ended stages, PodGroups. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from windlass.api.fields import aigc
from windlass.api.fields.stages import normal_stages
from windlass.controllers.aigc.stage_plan import plan_stages
from windlass.jobs.aigc.job import AigcJob
from windlass.jobs.aigc.stages import StagePlan
from windlass.jobs.decision import NextActions
from windlass.jobs.members import RolePod
from windlass.kits.timestamps import parse_rfc3339

RELEASE_SECONDS = 3.0
"""Time after the end of a stage at which workers that have not ended are deleted (seconds)."""
_STOPPED = ("Suspended", "Succeeded", "Failed")
Json = dict[str, Any]


def plan_of(
    obj: Json,
    batch: Mapping[str, Any] | None,
    pods: Sequence[RolePod],
    now: float,
    held: bool = False,
) -> StagePlan | None:
    """Return the plan of the stages; ``None`` for a job without stages. One that begins again forgets its stages.

    ``held``: no pod is created now, so that no stage asks for workers that it does not have.
    """
    stages = normal_stages(aigc.part(obj, "spec"))
    if not stages:
        return None
    if aigc.part(obj, "status").get("phase") in _STOPPED:
        status = {
            name: value for name, value in obj["status"].items() if name not in ("stages", "scaledTime")
        }
        obj = {**obj, "status": status}
    return plan_stages(obj, stages, batch, pods, now, held)


def with_ended_stages(
    job: AigcJob, decision: NextActions, pods: Sequence[RolePod], now: float
) -> NextActions:
    """Return the decision that keeps what has succeeded, and lets workers of ended stages end by themselves."""
    if job.plan is None:
        return decision
    kept = [pod for pod in decision.delete if not _may_stay(job.plan, pod, now)]
    names = {pod.uid for pod in kept}
    for pod in pods:  # workers of another shape, which held GPUs before the stage went on without
        role = job.definition.role(pod.role)
        if role is None or pod.role == aigc.DRIVER or pod.deleting or pod.uid in names or pod.finished:
            continue
        if role.replicas and pod.name != job.definition.pod_name(role, pod.index):
            kept.append(pod)
    return replace(decision, delete=tuple(kept))


def _may_stay(plan: StagePlan, pod: RolePod, now: float) -> bool:
    stage = plan.stage(pod.role)
    if stage is None or not stage.ended or pod.disrupted:
        return False
    finished = stage.notes.get("finishedAt")
    lately = not finished or now < parse_rfc3339(finished) + RELEASE_SECONDS
    return pod.succeeded or (bool(pod.node) and lately and not pod.finished)


def needed_groups(job: AigcJob) -> set[str]:
    """Return the names of the PodGroups that stages need. A stage that was requeued keeps its age."""
    plan = job.plan
    if plan is None:
        return set()
    found = set()
    for role in job.workers:
        stage = plan.stage(role.name)
        if stage is not None and (stage.bound or stage.ended or stage.notes.get("requeuedAt")):
            found.add(job.group_name(role))
    return found
