"""Reconciler of Deployments: its caches and its snapshots."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from windlass.api.resources import DEPLOYMENTS, PODS, REPLICA_SETS
from windlass.api.views import Pod, decode_pod
from windlass.client.informers import Informer
from windlass.controllers.apply_effects import Failure
from windlass.controllers.apps.deployment.reconcile import DeploymentSnapshot, reconcile_deployment
from windlass.controllers.apps.failures import WriteFailures
from windlass.controllers.apps.workloads import Selecting, Workload, decode_workload, is_owner, owner_or_loose
from windlass.controllers.effects import NOTHING, Effects
from windlass.controllers.expectations import NamespaceView, RecordIndex
from windlass.controllers.ownership import pods_of
from windlass.controllers.runner import Informers, WatchedCollection
from windlass.kits.clock import Clock


class DeploymentController:
    """Deployments. Keys are ``namespace/name``."""

    name = "deployment"
    pause_seconds = 0.0

    def __init__(self, informers: Informers, clock: Clock) -> None:
        self._clock = clock
        self._deployments: Informer[Workload] = informers.informer(DEPLOYMENTS, decode=decode_workload)
        self._sets: Informer[Workload] = informers.informer(REPLICA_SETS, decode=decode_workload)
        self._pods: Informer[Pod] = informers.informer(PODS, decode=decode_pod)
        self._selecting = Selecting(DEPLOYMENTS, self._deployments)
        self._sets_of = RecordIndex(self._sets, owner_or_loose, lambda one: one.key)
        self._pods_of = RecordIndex(self._pods, _set_of_pod, lambda pod: pod.key, pods_of(REPLICA_SETS))
        self._failures = WriteFailures(REPLICA_SETS)

    def watches(self) -> Iterable[WatchedCollection]:
        return (
            WatchedCollection(self._deployments, lambda one: [one.key]),
            WatchedCollection(
                self._sets, lambda one: self._selecting.keys(one.namespace, one.labels, one.controller)
            ),
            WatchedCollection(self._pods, self._keys_of_pod, _has_ended, pods_of(REPLICA_SETS)),
        )

    def initial_keys(self) -> Iterable[str]:
        return ()

    def note_failures(self, key: str, failures: Sequence[Failure]) -> None:
        self._failures.note(key, failures)

    def _keys_of_pod(self, pod: Pod) -> Iterable[str]:
        """Return the Deployment that recreates its pods once this one has ended."""
        owner = pod.controller
        if owner is None or not is_owner(owner, REPLICA_SETS):
            return ()
        replica_set = self._sets.items.get(f"{pod.namespace}/{owner.name}")
        parent = replica_set.controller if replica_set is not None else None
        if parent is None or not is_owner(parent, DEPLOYMENTS):
            return ()
        deployment = self._deployments.items.get(f"{pod.namespace}/{parent.name}")
        return (deployment.key,) if deployment is not None and b'"Recreate"' in deployment.raw else ()

    async def reconcile(self, key: str) -> Effects:
        stored = self._deployments.items.get(key)
        if stored is None:
            self._failures.forget(key)
            return NOTHING
        owned = tuple(self._sets_of.get(stored.uid).values())
        observed = DeploymentSnapshot(
            owned=owned,
            orphans=tuple(self._sets_of.get(f"{stored.namespace}/").values()),
            taken=NamespaceView(self._sets.items, stored.namespace),
            pods={one.uid: tuple(self._pods_of.get(one.uid).values()) for one in owned},
            now=self._clock.now(),
            failure=self._failures.get(key),
        )
        return reconcile_deployment(stored.object, observed)


def _set_of_pod(pod: Pod) -> Iterable[str]:
    owner = pod.controller
    return (owner.uid,) if owner is not None and is_owner(owner, REPLICA_SETS) else ()


def _has_ended(old: Pod, new: Pod) -> bool:
    return old.finished != new.finished
