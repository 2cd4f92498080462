"""Reconciler of ``batch/v1`` Jobs: its caches and its snapshots."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from windlass.api.resources import BATCH_JOBS, NATIVE_POD_GROUPS, PODS, WORKLOADS
from windlass.api.views import Pod, decode_pod
from windlass.client.informers import Informer
from windlass.controllers.batch.reconcile import BatchSnapshot, reconcile_batch_job, release_orphans
from windlass.controllers.derived_records import DerivedRecords
from windlass.controllers.effects import NOTHING, Effects
from windlass.controllers.expectations import (
    BareObject,
    NamespaceView,
    RecordIndex,
    StoredObject,
    decode_stored_object,
)
from windlass.controllers.ownership import pods_of
from windlass.controllers.runner import Informers, WatchedCollection
from windlass.jobs.batch.failures import BatchPod, failure_times
from windlass.jobs.batch.gang import names_job
from windlass.jobs.batch.pods import batch_pod
from windlass.jobs.batch.spec import read_batch_job
from windlass.kits.clock import Clock
from windlass.kits.rng import Random, name_suffix

MAX_REMEMBERED_FAILURES = 20
"""Maximum number of failed pods of a Job that are remembered. The back-off is longest after eight."""


class BatchJobController:
    """Jobs. Keys are ``namespace/name`` of the Job."""

    name = "job"
    pause_seconds = 0.05
    """Pods of a large Job change one after the other. Each reconciliation reads all of them."""

    def __init__(self, informers: Informers, clock: Clock, rng: Random) -> None:
        self._clock, self._rng = clock, rng
        self._jobs: Informer[StoredObject] = informers.informer(BATCH_JOBS, decode=decode_stored_object)
        self._pods: Informer[Pod] = informers.informer(PODS, decode=decode_pod)
        self._pods_of = RecordIndex(self._pods, self._pod_keys, lambda pod: pod.key, pods_of(BATCH_JOBS))
        self._batch_pods = DerivedRecords(self._pods, batch_pod, lambda pod: pod.key, pods_of(BATCH_JOBS))
        self._workloads: Informer[StoredObject] = informers.informer(WORKLOADS, decode=decode_stored_object)
        self._workloads_of = RecordIndex(self._workloads, _job_of_workload, lambda found: found.key)
        self._groups: Informer[BareObject] = informers.informer(NATIVE_POD_GROUPS, decode=BareObject)
        self._failures: dict[str, dict[str, float]] = {}
        """Uid of a Job → uid of a pod → when it failed. Pods that fail by being deleted vanish."""

    def watches(self) -> Iterable[WatchedCollection]:
        return (
            WatchedCollection(self._jobs, lambda job: [job.key]),
            WatchedCollection(self._pods, self._pod_keys, route=pods_of(BATCH_JOBS)),
            WatchedCollection(self._workloads, _job_of_workload),
            WatchedCollection(self._groups, lambda _: ()),
        )

    def initial_keys(self) -> Iterable[str]:
        return ()

    async def reconcile(self, key: str) -> Effects:
        stored = self._jobs.items.get(key)
        pods = self._pods_of.get(key).values()
        uid = stored.uid if stored is not None else ""
        orphans = release_orphans([pod for pod in pods if _owner_uid(pod) != uid])
        if orphans.stages:
            return orphans
        if stored is None:
            return NOTHING
        own = [self._batch_pods.of(pod) for pod in pods if _owner_uid(pod) == uid]
        observed = BatchSnapshot(
            pods=own,
            records=self._pods.items,
            failures=self._remembered(stored, own),
            now=self._clock.now(),
            suffix=lambda: name_suffix(self._rng),
            workloads=[found.object for found in self._workloads_of.get(key).values()],
            groups=frozenset(NamespaceView(self._groups.items, key.partition("/")[0])),
        )
        return reconcile_batch_job(stored.object, observed)

    def _remembered(self, stored: StoredObject, pods: list[BatchPod]) -> Mapping[str, float]:
        """Return the times of failures, those of pods that are gone included."""
        try:
            spec = read_batch_job(stored.object)
        except (ValueError, TypeError, KeyError, AttributeError):
            return {}
        found = {
            **self._failures.pop(stored.uid, {}),
            **failure_times(spec, pods),
        }
        latest = sorted(found.items(), key=lambda item: item[1])[-MAX_REMEMBERED_FAILURES:]
        if latest:
            self._failures[stored.uid] = dict(latest)
            if len(self._failures) > 10_000:
                self._failures.pop(next(iter(self._failures)))
        return dict(latest)

    def _pod_keys(self, pod: Pod) -> Iterable[str]:
        owner = pod.controller
        if owner is None or (owner.kind, owner.api_version) != (BATCH_JOBS.kind, BATCH_JOBS.api_version):
            return ()
        return (f"{pod.namespace}/{owner.name}",)


def _owner_uid(pod: Pod) -> str:
    owner = pod.controller
    return owner.uid if owner is not None else ""


def _job_of_workload(workload: StoredObject) -> Iterable[str]:
    name = names_job(workload.object)
    return (f"{workload.key.partition('/')[0]}/{name}",) if name else ()
