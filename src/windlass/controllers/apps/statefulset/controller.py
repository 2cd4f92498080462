"""Reconciler of StatefulSets: its caches and its snapshots."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from windlass.api.resources import CONTROLLER_REVISIONS, PERSISTENT_VOLUME_CLAIMS, PODS, STATEFUL_SETS
from windlass.api.views import Pod, decode_pod
from windlass.client.informers import Informer
from windlass.controllers.apps.replicaset.controller import owner_or_namespace
from windlass.controllers.apps.statefulset.reconcile import (
    StatefulSetSnapshot,
    ordinal_of,
    reconcile_stateful_set,
)
from windlass.controllers.apps.workloads import Selecting, Workload, decode_workload, owner_or_loose
from windlass.controllers.effects import NOTHING, Effects
from windlass.controllers.expectations import (
    NamespaceView,
    RecordIndex,
    StoredObject,
    decode_stored_object,
)
from windlass.controllers.ownership import pods_of
from windlass.controllers.runner import Informers, WatchedCollection
from windlass.kits.clock import Clock

Json = dict[str, Any]


class _DecodedView(Mapping[str, Json]):
    """Objects by name, decoded when they are looked up."""

    def __init__(self, stored: Mapping[str, StoredObject]) -> None:
        self._stored = stored

    def __getitem__(self, name: str) -> Json:
        return self._stored[name].object

    def __contains__(self, name: object) -> bool:
        return name in self._stored

    def __iter__(self) -> Iterator[str]:
        return iter(self._stored)

    def __len__(self) -> int:
        return len(self._stored)


class StatefulSetController:
    """StatefulSets. Keys are ``namespace/name``."""

    name = "statefulset"
    pause_seconds = 0.0

    def __init__(self, informers: Informers, clock: Clock) -> None:
        self._clock = clock
        self._sets: Informer[Workload] = informers.informer(STATEFUL_SETS, decode=decode_workload)
        self._pods: Informer[Pod] = informers.informer(PODS, decode=decode_pod)
        self._revisions: Informer[Workload] = informers.informer(CONTROLLER_REVISIONS, decode=decode_workload)
        self._claims: Informer[StoredObject] = informers.informer(
            PERSISTENT_VOLUME_CLAIMS, decode=decode_stored_object
        )
        self._selecting = Selecting(STATEFUL_SETS, self._sets)
        self._pods_of = RecordIndex(
            self._pods, owner_or_namespace, lambda pod: pod.key, pods_of(STATEFUL_SETS, unowned=True)
        )
        self._revisions_of = RecordIndex(self._revisions, owner_or_loose, lambda one: one.key)

    def watches(self) -> Iterable[WatchedCollection]:
        return (
            WatchedCollection(self._sets, lambda one: [one.key]),
            WatchedCollection(
                self._pods,
                lambda pod: self._selecting.keys(pod.namespace, pod.labels, pod.controller),
                route=pods_of(STATEFUL_SETS, unowned=True),
            ),
            WatchedCollection(
                self._revisions,
                lambda one: self._selecting.keys(one.namespace, one.labels, one.controller),
            ),
            WatchedCollection(self._claims, self._keys_of_claim),
        )

    def initial_keys(self) -> Iterable[str]:
        return ()

    def _keys_of_claim(self, claim: StoredObject) -> Iterable[str]:
        """Return the StatefulSet of a claim by its name: ``DATA-NAME-0``."""
        namespace, _, name = claim.key.partition("/")
        parts = name.split("-")
        if not parts[-1].isdecimal():
            return ()
        names = ("-".join(parts[start:-1]) for start in range(1, len(parts) - 1))
        return [key for one in names if (key := f"{namespace}/{one}") in self._sets.items]

    async def reconcile(self, key: str) -> Effects:
        stored = self._sets.items.get(key)
        if stored is None:
            return NOTHING
        namespace = stored.namespace
        orphans = self._pods_of.get(f"{namespace}/").values()
        observed = StatefulSetSnapshot(
            owned=tuple(self._pods_of.get(stored.uid).values()),
            orphans=tuple(pod for pod in orphans if ordinal_of(pod.name, stored.name) is not None),
            revisions=tuple(self._revisions_of.get(stored.uid).values()),
            loose_revisions=tuple(self._revisions_of.get(f"{namespace}/").values()),
            names=NamespaceView(self._revisions.items, namespace),
            claims=_DecodedView(NamespaceView(self._claims.items, namespace)),
            now=self._clock.now(),
        )
        return reconcile_stateful_set(stored.object, observed)
