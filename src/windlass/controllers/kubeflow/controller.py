"""Reconciler of one job kind of ``kubeflow.org/v1``: its caches and its snapshots."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from windlass.api.fields.kubeflow import REPLICA_INDEX, REPLICA_TYPE
from windlass.api.resources import POD_GROUPS, PODS, PRIORITY_CLASSES, SERVICES
from windlass.api.views import Pod, PriorityClass, decode_pod, decode_priority_class
from windlass.client.informers import Informer
from windlass.controllers.effects import NOTHING, Effects
from windlass.controllers.expectations import RecordIndex, StoredObject, decode_stored_object
from windlass.controllers.kubeflow.reconcile import KubeflowSnapshot, reconcile_kubeflow
from windlass.controllers.ownership import ControlledBy, pods_of
from windlass.controllers.runner import Informers, WatchedCollection
from windlass.jobs.kubeflow.job import KubeflowKind, read_job
from windlass.jobs.members import RolePod, job_pods
from windlass.kits import ssh_keys
from windlass.kits.clock import Clock
from windlass.kits.ssh_keys import SshKeyPair

Json = dict[str, Any]


class KubeflowController:
    """Jobs of one kind. Keys are ``namespace/name`` of the job."""

    pause_seconds = 0.0

    def __init__(
        self,
        kind: KubeflowKind,
        informers: Informers,
        clock: Clock,
        scheduler: str,
        generate_keys: Callable[[], SshKeyPair] = ssh_keys.generate,
    ) -> None:
        """``scheduler``: default scheduler of pods. ``generate_keys``: for jobs that need SSH keys."""
        self._generate_keys = generate_keys
        self._kind, self._clock, self._scheduler = kind, clock, scheduler
        self.name = kind.resource.singular
        self._owned = ControlledBy(kind.resource)
        self._jobs: Informer[StoredObject] = informers.informer(kind.resource, decode=decode_stored_object)
        self._pods: Informer[Pod] = informers.informer(PODS, decode=decode_pod)
        self._groups: Informer[StoredObject] = informers.informer(POD_GROUPS, decode=decode_stored_object)
        self._services: Informer[StoredObject] = informers.informer(SERVICES, decode=decode_stored_object)
        self._classes: Informer[PriorityClass] = informers.informer(
            PRIORITY_CLASSES, decode=decode_priority_class
        )
        self._pods_of = RecordIndex(
            self._pods, self._owned.pod_uids, lambda pod: pod.key, pods_of(kind.resource)
        )
        self._services_of = RecordIndex(self._services, self._owned.uids, lambda found: found.key)
        self._roles = {name.lower(): name for name in kind.fields.roles}
        self._main = dict.fromkeys(kind.fields.roles, kind.fields.container)

    def watches(self) -> Iterable[WatchedCollection]:
        return (
            WatchedCollection(self._jobs, lambda job: [job.key]),
            WatchedCollection(self._pods, self._owned.pod_keys, route=pods_of(self._owned.resource)),
            WatchedCollection(self._groups, self._group_keys),
            WatchedCollection(self._services, self._owned.keys),
        )

    def initial_keys(self) -> Iterable[str]:
        return ()

    async def reconcile(self, key: str) -> Effects:
        stored = self._jobs.items.get(key)
        if stored is None:
            return NOTHING
        group = self._groups.items.get(key)
        observed = KubeflowSnapshot(
            pods=self._pods_of_job(stored.uid),
            group=group.object if group is not None else None,
            services={
                found.key.partition("/")[2]: found.uid for found in self._services_of.get(stored.uid).values()
            },
            priorities={name: found.value for name, found in self._classes.items.items()},
            now=self._clock.now(),
            scheduler=self._scheduler,
            keys=self._new_keys(stored),
        )
        return reconcile_kubeflow(self._kind, stored.object, observed)

    def _new_keys(self, stored: StoredObject) -> SshKeyPair | None:
        """Return new keys for a job without pods that needs them. The Secret keeps its first ones."""
        extras = self._kind.extras
        if extras is None or self._pods_of.get(stored.uid):
            return None
        try:
            job = read_job(self._kind, stored.object)
        except (ValueError, TypeError, KeyError, AttributeError):
            return None  # the reconciliation reports it
        return self._generate_keys() if extras.needs_keys(job) else None

    def _pods_of_job(self, uid: str) -> tuple[RolePod, ...]:
        pods = self._pods_of.get(uid).values()
        return job_pods(pods, REPLICA_TYPE, REPLICA_INDEX, self._roles, self._main)

    def _group_keys(self, group: StoredObject) -> Iterable[str]:
        return [group.key] if group.key in self._jobs.items else []
