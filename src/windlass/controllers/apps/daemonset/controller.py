"""Reconciler of DaemonSets: its caches and its snapshots."""

from __future__ import annotations

from collections.abc import Iterable

from windlass.api.resources import CONTROLLER_REVISIONS, DAEMON_SETS, NODES, PODS
from windlass.api.views import NodeObject, Pod, decode_node, decode_pod
from windlass.client.informers import Informer
from windlass.controllers.apps.daemonset.reconcile import (
    DaemonSetSnapshot,
    reconcile_daemon_set,
    target_node,
)
from windlass.controllers.apps.replicaset.controller import owner_or_namespace
from windlass.controllers.apps.workloads import Selecting, Workload, decode_workload, owner_or_loose
from windlass.controllers.effects import NOTHING, Effects
from windlass.controllers.expectations import NamespaceView, RecordIndex
from windlass.controllers.ownership import pods_of
from windlass.controllers.replacement_delays import ReplacementDelays
from windlass.controllers.runner import Informers, WatchedCollection
from windlass.kits.clock import Clock
from windlass.kits.rng import Random, name_suffix

FIRST_BACKOFF_SECONDS = 1.0
"""Delay before a failed pod is replaced again on its node; each further failure doubles it."""
MAX_BACKOFF_SECONDS = 900.0


class DaemonSetController:
    """DaemonSets. Keys are ``namespace/name``."""

    name = "daemonset"
    pause_seconds = 0.0

    def __init__(self, informers: Informers, clock: Clock, rng: Random) -> None:
        self._clock, self._rng = clock, rng
        self._sets: Informer[Workload] = informers.informer(DAEMON_SETS, decode=decode_workload)
        self._pods: Informer[Pod] = informers.informer(PODS, decode=decode_pod)
        self._nodes: Informer[NodeObject] = informers.informer(NODES, decode=decode_node)
        self._revisions: Informer[Workload] = informers.informer(CONTROLLER_REVISIONS, decode=decode_workload)
        self._selecting = Selecting(DAEMON_SETS, self._sets)
        self._pods_of = RecordIndex(
            self._pods, owner_or_namespace, lambda pod: pod.key, pods_of(DAEMON_SETS, unowned=True)
        )
        self._revisions_of = RecordIndex(self._revisions, owner_or_loose, lambda one: one.key)
        self._delays = ReplacementDelays(FIRST_BACKOFF_SECONDS, MAX_BACKOFF_SECONDS)

    def watches(self) -> Iterable[WatchedCollection]:
        return (
            WatchedCollection(self._sets, lambda one: [one.key]),
            WatchedCollection(
                self._pods,
                lambda pod: self._selecting.keys(pod.namespace, pod.labels, pod.controller),
                route=pods_of(DAEMON_SETS, unowned=True),
            ),
            WatchedCollection(
                self._revisions,
                lambda one: self._selecting.keys(one.namespace, one.labels, one.controller),
            ),
            WatchedCollection(self._nodes, lambda node: list(self._sets.items), _changes_fit),
        )

    def initial_keys(self) -> Iterable[str]:
        return ()

    async def reconcile(self, key: str) -> Effects:
        stored = self._sets.items.get(key)
        if stored is None:
            self._delays.forget(key)
            return NOTHING
        now, namespace = self._clock.now(), stored.namespace
        observed = DaemonSetSnapshot(
            owned=tuple(self._pods_of.get(stored.uid).values()),
            orphans=tuple(self._pods_of.get(f"{namespace}/").values()),
            nodes=tuple(sorted(self._nodes.items.values(), key=lambda node: node.name)),
            revisions=tuple(self._revisions_of.get(stored.uid).values()),
            loose_revisions=tuple(self._revisions_of.get(f"{namespace}/").values()),
            names=NamespaceView(self._revisions.items, namespace),
            now=now,
            suffix=lambda: name_suffix(self._rng),
            not_before=self._delays.not_before(key),
        )
        effects = reconcile_daemon_set(stored.object, observed)
        self._note_failed(key, effects, now)
        return effects

    def _note_failed(self, key: str, effects: Effects, now: float) -> None:
        """Delay the next replacement on nodes with a failed pod that is deleted."""
        for action in effects.deletes:
            pod = self._pods.items.get(f"{action.namespace}/{action.name}")
            if action.resource == PODS and pod is not None and pod.phase == "Failed":
                self._delays.note(key, target_node(pod), now)


def _changes_fit(old: NodeObject, new: NodeObject) -> bool:
    """Return whether an update of a node may change which pods it runs."""
    return old.labels != new.labels or old.taints != new.taints or old.kubelet != new.kubelet
