"""Reconciler of JobSets: its caches and its snapshots."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from windlass.api.fields import jobset
from windlass.api.resources import (
    BATCH_JOBS,
    JOB_SETS,
    PERSISTENT_VOLUME_CLAIMS,
    POD_GROUPS,
    PODS,
    PRIORITY_CLASSES,
    SERVICES,
)
from windlass.api.views import Pod, PriorityClass, decode_pod, decode_priority_class
from windlass.client.informers import Informer
from windlass.controllers.apply_effects import Failure
from windlass.controllers.effects import NOTHING, Create, Effects
from windlass.controllers.expectations import RecordIndex, StoredObject, decode_stored_object
from windlass.controllers.jobset.reconcile import JobSetSnapshot, reconcile_job_set
from windlass.controllers.ownership import ControlledBy
from windlass.controllers.runner import Informers, WatchedCollection
from windlass.jobs.jobset.in_place import InPlacePod
from windlass.jobs.jobset.spec import restarts_in_place
from windlass.kits.clock import Clock

Json = dict[str, Any]
_OWNED = ControlledBy(JOB_SETS)


class JobSetController:
    """JobSets. Keys are ``namespace/name``."""

    name = "jobset"
    pause_seconds = 0.0

    def __init__(self, informers: Informers, clock: Clock, scheduler: str) -> None:
        """``scheduler``: default scheduler of pods."""
        self._clock, self._scheduler = clock, scheduler
        self._sets: Informer[StoredObject] = informers.informer(JOB_SETS, decode=decode_stored_object)
        self._jobs: Informer[StoredObject] = informers.informer(BATCH_JOBS, decode=decode_stored_object)
        self._groups: Informer[StoredObject] = informers.informer(POD_GROUPS, decode=decode_stored_object)
        self._services: Informer[StoredObject] = informers.informer(SERVICES, decode=decode_stored_object)
        self._claims: Informer[StoredObject] = informers.informer(
            PERSISTENT_VOLUME_CLAIMS, decode=decode_stored_object
        )
        self._pods: Informer[Pod] = informers.informer(PODS, decode=decode_pod)
        self._classes: Informer[PriorityClass] = informers.informer(
            PRIORITY_CLASSES, decode=decode_priority_class
        )
        self._jobs_of = RecordIndex(self._jobs, _OWNED.uids, lambda job: job.key)
        self._groups_of = RecordIndex(self._groups, _OWNED.uids, lambda group: group.key)
        self._pods_of = RecordIndex(self._pods, self._uid_of_pod, lambda pod: pod.key)

        self._refused: dict[str, str] = {}

    def note_failures(self, key: str, failures: Sequence[Failure]) -> None:
        """Note why the server refused an object of a JobSet."""
        refused = [failure for failure in failures if failure.refused and isinstance(failure.action, Create)]
        if refused:
            self._refused[key] = refused[0].message
        elif not failures:
            self._refused.pop(key, None)

    def watches(self) -> Iterable[WatchedCollection]:
        return (
            WatchedCollection(self._sets, lambda found: [found.key]),
            WatchedCollection(self._jobs, _OWNED.keys),
            WatchedCollection(self._groups, _OWNED.keys),
            WatchedCollection(self._services, _OWNED.keys),
            WatchedCollection(self._pods, self._pod_keys),
        )

    def initial_keys(self) -> Iterable[str]:
        return ()

    async def reconcile(self, key: str) -> Effects:
        stored = self._sets.items.get(key)
        if stored is None:
            self._refused.pop(key, None)
            return NOTHING
        namespace, _, name = key.partition("/")
        observed = JobSetSnapshot(
            jobs=tuple(job.object for job in self._jobs_of.get(stored.uid).values()),
            pods=self._pods_of_attempt(stored),
            groups=self._groups_near(namespace, name, stored.uid),
            services=_names(self._services, namespace),
            claims=_names(self._claims, namespace),
            priorities={name: found.value for name, found in self._classes.items.items()},
            now=self._clock.now(),
            scheduler=self._scheduler,
            refused=self._refused.get(key, ""),
        )
        return reconcile_job_set(stored.object, observed)

    def _groups_near(self, namespace: str, name: str, uid: str) -> dict[str, Json]:
        """Return the PodGroups of the JobSet, and any other one with a name that it needs."""
        found = {key.partition("/")[2]: group.object for key, group in self._groups_of.get(uid).items()}
        stored = self._sets.items[f"{namespace}/{name}"].object
        wanted = [name, *(f"{name}-{job.get('name')}" for job in stored["spec"].get("replicatedJobs") or ())]
        for other in wanted:
            group = self._groups.items.get(f"{namespace}/{other}")
            if group is not None:
                found.setdefault(other, group.object)
        return found

    def _pods_of_attempt(self, stored: StoredObject) -> tuple[InPlacePod, ...]:
        """Return the pods of a JobSet that restarts in place, without those of Jobs before a recreation."""
        if not restarts_in_place(stored.object.get("spec") or {}):
            return ()
        attempt = str((stored.object.get("status") or {}).get("restarts") or 0)
        return tuple(
            _in_place_pod(pod)
            for pod in self._pods_of.get(stored.uid).values()
            if pod.labels.get(jobset.RESTART_ATTEMPT, "0") == attempt
        )

    def _uid_of_pod(self, pod: Pod) -> Iterable[str]:
        uid = pod.labels.get(jobset.JOB_SET_UID)
        return (uid,) if uid else ()

    def _pod_keys(self, pod: Pod) -> Iterable[str]:
        """Return the JobSet of a pod that takes part in an in-place restart."""
        if jobset.IN_PLACE_ATTEMPT not in pod.annotations and not pod.restarts:
            return ()
        name = pod.labels.get(jobset.JOB_SET_NAME)
        return (f"{pod.namespace}/{name}",) if name else ()


def _names(informer: Informer[StoredObject], namespace: str) -> frozenset[str]:
    prefix = f"{namespace}/"
    return frozenset(key.removeprefix(prefix) for key in informer.items if key.startswith(prefix))


def _in_place_pod(pod: Pod) -> InPlacePod:
    text = pod.annotations.get(jobset.IN_PLACE_ATTEMPT, "")
    return InPlacePod(
        name=pod.name,
        attempt=int(text) if text.isdecimal() else None,
        gone=pod.phase == "Failed" or pod.deleted > 0.0,
        succeeded=pod.phase == "Succeeded",
        container_restarts=pod.most_restarts,
    )
