"""Reconciler of PodDisruptionBudgets: it counts their pods. Keys are ``NAMESPACE/NAME``."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from windlass.api import selectors
from windlass.api.resources import POD_DISRUPTION_BUDGETS, PODS, REPLICA_SETS, by_kind
from windlass.api.views import Pod, decode_pod
from windlass.api.wire.scale import replicas_of, scale_paths
from windlass.client.client import Client
from windlass.client.informers import Informer
from windlass.controllers.disruption.reconcile import DeclaredScale, needs_scale, reconcile
from windlass.controllers.effects import NOTHING, Effects, controller_of
from windlass.controllers.expectations import RecordIndex
from windlass.controllers.runner import Informers, WatchedCollection
from windlass.kits.clock import Clock

Json = dict[str, Any]


class DisruptionController:
    name = "disruption"
    pause_seconds = 0.2

    def __init__(self, client: Client, informers: Informers, clock: Clock) -> None:
        self._client, self._clock = client, clock
        self._budgets: Informer[Json] = informers.informer(POD_DISRUPTION_BUDGETS)
        self._pods: Informer[Pod] = informers.informer(PODS, decode=decode_pod)
        self._budgets_in = RecordIndex(self._budgets, lambda budget: (budget["metadata"]["namespace"],), _key)
        self._pods_in = RecordIndex(self._pods, lambda pod: (pod.namespace,), lambda pod: pod.key)

    def watches(self) -> Iterable[WatchedCollection]:
        return (
            WatchedCollection(self._budgets, lambda budget: (_key(budget),)),
            WatchedCollection(self._pods, self._keys_of_pod, _counts_otherwise),
        )

    def initial_keys(self) -> Iterable[str]:
        return ()

    def _keys_of_pod(self, pod: Pod) -> Iterable[str]:
        budgets = self._budgets_in.get(pod.namespace)
        return [key for key, budget in budgets.items() if _selects(budget, pod)]

    async def reconcile(self, key: str) -> Effects:
        budget = self._budgets.items.get(key)
        if budget is None:
            return NOTHING
        namespace = budget["metadata"]["namespace"]
        pods = [pod for pod in self._pods_in.get(namespace).values() if _selects(budget, pod)]
        scales = await self._scales(pods) if needs_scale(budget.get("spec") or {}) else {}
        return reconcile(budget, sorted(pods, key=lambda pod: pod.name), self._clock.now(), scales)

    async def _scales(self, pods: Iterable[Pod]) -> dict[str, DeclaredScale]:
        """Look up what the controllers of pods declare. Those without a scale are left out."""
        owners = {pod.controller.uid: (pod.controller, pod.namespace) for pod in pods if pod.controller}
        found = {}
        for uid, (owner, namespace) in owners.items():
            scale = await self._scale(owner.api_version, owner.kind, owner.name, uid, namespace)
            if scale is not None:
                found[uid] = scale
        return found

    async def _scale(
        self, api_version: str, kind: str, name: str, uid: str, namespace: str
    ) -> DeclaredScale | None:
        """Return the scale of an object, or of the Deployment of a ReplicaSet."""
        resource = by_kind(api_version, kind)
        paths = scale_paths(resource) if resource is not None else None
        if resource is None or paths is None:
            return None
        obj = await self._client.find(resource, name, namespace)
        if obj is None or obj["metadata"].get("uid") != uid:
            return None
        parent = controller_of(obj) if resource is REPLICA_SETS else None
        if parent is not None:
            above = await self._scale(
                parent["apiVersion"], parent["kind"], parent["name"], parent["uid"], namespace
            )
            if above is not None:
                return above
        return DeclaredScale(uid, replicas_of(obj, paths) or 0)


def _selects(budget: Json, pod: Pod) -> bool:
    """Return whether a budget selects a pod of its namespace.

    A budget without a selector selects no pod. An empty selector selects every pod.
    """
    selector = selectors.from_object((budget.get("spec") or {}).get("selector"))
    return selector is not None and selector.matches(pod.labels)


def _key(budget: Json) -> str:
    return f"{budget['metadata']['namespace']}/{budget['metadata']['name']}"


def _counts_otherwise(old: Pod, new: Pod) -> bool:
    return (old.uid, old.ready, old.deleting, old.labels, old.owners) != (
        new.uid,
        new.ready,
        new.deleting,
        new.labels,
        new.owners,
    )
