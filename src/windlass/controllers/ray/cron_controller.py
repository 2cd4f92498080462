"""Reconciler of RayCronJobs: it creates a RayJob at each time of the schedule.

The name of a RayJob follows from its time. A controller that stops after the creation therefore creates no second one.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable
from typing import Any

from windlass.api import annotations as names
from windlass.api.fields import ray
from windlass.api.resources import RAY_CRON_JOBS, RAY_JOBS
from windlass.api.views.wire import moment
from windlass.client.informers import Informer
from windlass.controllers.effects import (
    NOTHING,
    Create,
    EffectPlan,
    Effects,
    EmitEvent,
    Update,
    controller_reference,
    reference,
)
from windlass.controllers.expectations import StoredObject, decode_stored_object
from windlass.controllers.ownership import ControlledBy
from windlass.controllers.runner import Informers, WatchedCollection
from windlass.kits.clock import Clock
from windlass.kits.cron import last_due, parse_cron
from windlass.kits.timestamps import rfc3339

Json = dict[str, Any]
_OWNED = ControlledBy(RAY_CRON_JOBS)
_SLACK_SECONDS = 0.1
"""Delay (seconds) after a time of the schedule, for clocks that differ."""
_QUEUE_LABELS = (names.QUEUE_NAME_LABEL, names.QUEUE_NAME_KAI)
"""Labels of a RayCronJob that its RayJobs get: their template has no metadata."""


class RayCronJobController:
    """RayCronJobs. Keys are ``namespace/name``."""

    name = "raycronjob"
    pause_seconds = 0.0

    def __init__(self, informers: Informers, clock: Clock) -> None:
        self._clock = clock
        self._crons: Informer[StoredObject] = informers.informer(RAY_CRON_JOBS, decode=decode_stored_object)
        self._jobs: Informer[StoredObject] = informers.informer(RAY_JOBS, decode=decode_stored_object)

    def watches(self) -> Iterable[WatchedCollection]:
        return (WatchedCollection(self._crons, lambda cron: [cron.key]),)

    def initial_keys(self) -> Iterable[str]:
        return ()

    async def reconcile(self, key: str) -> Effects:
        stored = self._crons.items.get(key)
        if stored is None:
            return NOTHING
        foreign = {
            found.rpartition("/")[2]
            for found, job in self._jobs.items.items()
            if found.startswith(f"{key}-") and key not in _OWNED.keys(job)
        }
        return reconcile_ray_cron_job(stored.object, foreign, self._clock.now())


def reconcile_ray_cron_job(cron: Json, foreign: Iterable[str], now: float) -> Effects:
    """Reconcile one RayCronJob. Pure.

    ``foreign``: names of RayJobs that it does not control. ``now``: Unix seconds. Of several times that were missed,
    only the last one counts.
    """
    if cron["metadata"].get("deletionTimestamp"):
        return NOTHING
    spec, status = cron["spec"], cron.get("status") or {}
    about = reference(RAY_CRON_JOBS, cron)
    plan = EffectPlan(about=about)
    if spec.get("suspend"):
        words = "RayCronJob suspended, no new RayJobs will be created"
        plan.event(EmitEvent(about, "Normal", "SuspendedRayCronJob", words, lasting=True))
        return plan.done()
    earliest = moment(status.get("lastScheduleTime")) or moment(cron["metadata"].get("creationTimestamp"))
    try:
        schedule = parse_cron(spec.get("schedule") or "", spec.get("timeZone") or "")
        due, missed = last_due(schedule, earliest, now)
    except ValueError as problem:
        words = f"the schedule {spec.get('schedule')!r} cannot be read: {problem}"
        plan.event(EmitEvent(about, "Warning", "InvalidRayCronJobSpec", words, lasting=True))
        return plan.done()
    following = schedule.next_after(now)
    if following is not None:
        plan.requeue(following - now + _SLACK_SECONDS)
    if due is None:
        return plan.done()
    name = f"{cron['metadata']['name']}-{int(due) // 60}"
    if name in foreign:
        words = f"RayJob {name} exists and does not belong to the RayCronJob: delete or rename it"
        plan.event(EmitEvent(about, "Warning", "ForeignRayJob", words, lasting=True))
        return plan.done()
    if missed > 1:
        words = f"{missed - 1} times of the schedule before {rfc3339(due)} passed without a RayJob"
        plan.event(EmitEvent(about, "Warning", "MissedSchedule", words, lasting=True))
    created = EmitEvent(about, "Normal", "CreatedRayJob", f"Created RayJob {name}")
    plan.stage(Create(RAY_JOBS, _job(cron, name, due), created))
    plan.stage(
        Update(RAY_CRON_JOBS, {**cron, "status": {**status, "lastScheduleTime": rfc3339(due)}}, "status")
    )
    return plan.done()


def _job(cron: Json, name: str, due: float) -> Json:
    metadata = cron["metadata"]
    given = metadata.get("labels") or {}
    return {
        "apiVersion": RAY_JOBS.api_version,
        "kind": RAY_JOBS.kind,
        "metadata": {
            "name": name,
            "namespace": metadata.get("namespace"),
            "labels": {
                **{key: given[key] for key in _QUEUE_LABELS if key in given},
                ray.CRON_JOB_NAME: metadata["name"],
            },
            "annotations": {ray.CRON_JOB_TIME: rfc3339(due)},
            "ownerReferences": [controller_reference(RAY_CRON_JOBS, cron)],
        },
        "spec": copy.deepcopy(cron["spec"]["jobTemplate"]),
    }
