"""Reconciler of ReplicaSets: its caches and its snapshots."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from windlass.api.resources import PODS, REPLICA_SETS
from windlass.api.views import Pod, decode_pod
from windlass.client.informers import Informer
from windlass.controllers.apply_effects import Failure
from windlass.controllers.apps.failures import WriteFailures
from windlass.controllers.apps.replicaset.reconcile import ReplicaSetSnapshot, reconcile_replica_set
from windlass.controllers.apps.workloads import Selecting, Workload, decode_workload
from windlass.controllers.effects import NOTHING, Effects
from windlass.controllers.expectations import RecordIndex
from windlass.controllers.ownership import pods_of
from windlass.controllers.runner import Informers, WatchedCollection
from windlass.kits.clock import Clock
from windlass.kits.rng import Random, name_suffix


class ReplicaSetController:
    """ReplicaSets. Keys are ``namespace/name``."""

    name = "replicaset"
    pause_seconds = 0.0

    def __init__(self, informers: Informers, clock: Clock, rng: Random) -> None:
        self._clock, self._rng = clock, rng
        self._sets: Informer[Workload] = informers.informer(REPLICA_SETS, decode=decode_workload)
        self._pods: Informer[Pod] = informers.informer(PODS, decode=decode_pod)
        self._selecting = Selecting(REPLICA_SETS, self._sets)
        self._siblings = RecordIndex(self._sets, _owner_uid, lambda one: one.key)
        self._pods_of = RecordIndex(
            self._pods, owner_or_namespace, lambda pod: pod.key, pods_of(REPLICA_SETS, unowned=True)
        )
        self._failures = WriteFailures(PODS)

    def watches(self) -> Iterable[WatchedCollection]:
        return (
            WatchedCollection(self._sets, lambda one: [one.key]),
            WatchedCollection(
                self._pods,
                lambda pod: self._selecting.keys(pod.namespace, pod.labels, pod.controller),
                route=pods_of(REPLICA_SETS, unowned=True),
            ),
        )

    def initial_keys(self) -> Iterable[str]:
        return ()

    def note_failures(self, key: str, failures: Sequence[Failure]) -> None:
        self._failures.note(key, failures)

    async def reconcile(self, key: str) -> Effects:
        stored = self._sets.items.get(key)
        if stored is None:
            self._failures.forget(key)
            return NOTHING
        observed = ReplicaSetSnapshot(
            owned=tuple(self._pods_of.get(stored.uid).values()),
            orphans=tuple(self._pods_of.get(f"{stored.namespace}/").values()),
            related=self._related(stored),
            now=self._clock.now(),
            suffix=lambda: name_suffix(self._rng),
            failure=self._failures.get(key),
        )
        return reconcile_replica_set(stored.object, observed)

    def _related(self, stored: Workload) -> tuple[Pod, ...]:
        owner = stored.controller
        sets = self._siblings.get(owner.uid).values() if owner is not None else (stored,)
        return tuple(pod for one in sets for pod in self._pods_of.get(one.uid).values())


def _owner_uid(one: Workload) -> Iterable[str]:
    owner = one.controller
    return (owner.uid,) if owner is not None else ()


def owner_or_namespace(pod: Pod) -> Iterable[str]:
    """Index pods by the uid of their controller; those without one by ``namespace/``."""
    owner = pod.controller
    return (owner.uid if owner is not None else f"{pod.namespace}/",)
