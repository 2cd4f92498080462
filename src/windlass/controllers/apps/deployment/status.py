"""Status of a Deployment: numbers of pods, and the conditions Available and Progressing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from windlass.controllers.apps.conditions import (
    find_condition,
    new_condition,
    remove_condition,
    set_condition,
    without_zeros,
)
from windlass.controllers.apps.deployment.replica_sets import ManagedSet, RolloutLimits
from windlass.controllers.apps.deployment.scaling import available, total
from windlass.kits.timestamps import parse_rfc3339

Json = dict[str, Any]
PROGRESSING = "Progressing"
_UNLIMITED = 2**31 - 1
"""Deadline or number of revisions that stands for none."""


def deadline_of(spec: Json) -> int | None:
    """Return the seconds in which a rollout must make progress; ``None``: any number."""
    seconds = spec.get("progressDeadlineSeconds")
    return None if seconds is None or seconds == _UNLIMITED else int(seconds)


def history_limit(spec: Json) -> int | None:
    """Return the number of old ReplicaSets to keep; ``None``: all."""
    limit = spec.get("revisionHistoryLimit")
    return None if limit is None or limit == _UNLIMITED else int(limit)


def note_progress(status: Json, state: str, reason: str, message: str, now: float) -> None:
    set_condition(status, new_condition(PROGRESSING, state, reason, message, now))


def note_pause(deployment: Json, status: Json, now: float) -> None:
    """Set or remove the condition of a paused Deployment, which has no deadline to keep."""
    spec = deployment["spec"]
    condition = find_condition(status, PROGRESSING) or {}
    if deadline_of(spec) is None or condition.get("reason") == "ProgressDeadlineExceeded":
        return
    noted = condition.get("reason") == "DeploymentPaused"
    if spec.get("paused") and not noted:
        note_progress(status, "Unknown", "DeploymentPaused", "Deployment is paused", now)
    elif not spec.get("paused") and noted:
        note_progress(status, "Unknown", "DeploymentResumed", "Deployment is resumed", now)


def calculate(
    deployment: Json,
    before: Json,
    sets: Sequence[ManagedSet],
    new: ManagedSet | None,
    limits: RolloutLimits,
    now: float,
) -> Json:
    """Return the status by the ReplicaSets. ``before``: status with the conditions to keep."""
    ready = available(sets)
    counts = {
        "observedGeneration": deployment["metadata"].get("generation") or 0,
        "replicas": sum(one.count("replicas") for one in sets),
        "updatedReplicas": new.count("replicas") if new is not None else 0,
        "readyReplicas": sum(one.count("readyReplicas") for one in sets),
        "availableReplicas": ready,
        "unavailableReplicas": max(0, total(sets) - ready),
    }
    status: Json = without_zeros(counts)
    status["terminatingReplicas"] = sum(one.count("terminatingReplicas") for one in sets)
    if before.get("collisionCount") is not None:
        status["collisionCount"] = before["collisionCount"]
    if before.get("conditions"):
        status["conditions"] = list(before["conditions"])
    enough = ready >= limits.least_available
    condition = (
        new_condition(
            "Available", "True", "MinimumReplicasAvailable", "Deployment has minimum availability.", now
        )
        if enough
        else new_condition(
            "Available",
            "False",
            "MinimumReplicasUnavailable",
            "Deployment does not have minimum availability.",
            now,
        )
    )
    set_condition(status, condition)
    return status


def is_complete(deployment: Json, status: Json, limits: RolloutLimits) -> bool:
    """Return whether all pods have the current template and are available."""
    counts = [status.get(name) or 0 for name in ("updatedReplicas", "replicas", "availableReplicas")]
    return counts == [limits.desired] * 3


def judge_rollout(
    deployment: Json, before: Json, status: Json, new: ManagedSet | None, limits: RolloutLimits, now: float
) -> None:
    """Set the condition Progressing of ``status``. ``before``: status before this reconciliation."""
    deadline = deadline_of(deployment["spec"])
    if deadline is None:
        remove_condition(status, PROGRESSING)
        return
    current = find_condition(before, PROGRESSING)
    done = (current or {}).get("reason") == "NewReplicaSetAvailable"
    if done and (status.get("replicas") or 0) == (status.get("updatedReplicas") or 0):
        return
    what = f'ReplicaSet "{new.name}"' if new is not None else f'Deployment "{deployment["metadata"]["name"]}"'
    if is_complete(deployment, status, limits):
        note_progress(status, "True", "NewReplicaSetAvailable", f"{what} has successfully progressed.", now)
    elif _progresses(before, status):
        condition = new_condition(PROGRESSING, "True", "ReplicaSetUpdated", f"{what} is progressing.", now)
        if current is not None and current.get("status") == "True" and current.get("lastTransitionTime"):
            condition["lastTransitionTime"] = current["lastTransitionTime"]
        remove_condition(status, PROGRESSING)
        set_condition(status, condition)
    elif _timed_out(status, deadline, now):
        note_progress(status, "False", "ProgressDeadlineExceeded", f"{what} has timed out progressing.", now)


def _progresses(before: Json, after: Json) -> bool:
    def number(status: Json, name: str) -> int:
        return int(status.get(name) or 0)

    def old(status: Json) -> int:
        return number(status, "replicas") - number(status, "updatedReplicas")

    return old(after) < old(before) or any(
        number(after, name) > number(before, name)
        for name in ("updatedReplicas", "readyReplicas", "availableReplicas")
    )


def _timed_out(status: Json, deadline: int, now: float) -> bool:
    condition = find_condition(status, PROGRESSING)
    if condition is None or condition.get("reason") == "NewReplicaSetAvailable":
        return False
    if condition.get("reason") == "ProgressDeadlineExceeded":
        return True
    return _updated(condition, now) + deadline < now


def _updated(condition: Json, now: float) -> float:
    text = condition.get("lastUpdateTime")
    return parse_rfc3339(text) if text else now


def seconds_to_deadline(deployment: Json, status: Json, limits: RolloutLimits, now: float) -> float | None:
    """Return the seconds after which a rollout without progress must be judged; ``None``: never."""
    deadline, condition = deadline_of(deployment["spec"]), find_condition(status, PROGRESSING)
    if deadline is None or condition is None or is_complete(deployment, status, limits):
        return None
    if condition.get("reason") in ("ProgressDeadlineExceeded", "DeploymentPaused"):
        return None
    return max(0.0, _updated(condition, now) + deadline - now) + 1.0


def note_replica_failure(status: Json, sets: Sequence[ManagedSet], new: ManagedSet | None) -> None:
    """Take over the condition ReplicaFailure of a ReplicaSet, of the new one first."""
    ordered = [*((new,) if new is not None else ()), *sets]
    for one in ordered:
        failure = find_condition(one.status, "ReplicaFailure")
        if failure is not None:
            moment = failure.get("lastTransitionTime")
            set_condition(status, {**failure, "lastUpdateTime": moment})
            return
    remove_condition(status, "ReplicaFailure")
