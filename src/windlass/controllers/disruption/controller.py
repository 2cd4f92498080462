"""Reconciler of PodDisruptionBudgets: it counts their pods. Keys are ``NAMESPACE/NAME``."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from windlass.api import selectors
from windlass.api.resources import POD_DISRUPTION_BUDGETS, PODS
from windlass.api.views import Pod, decode_pod
from windlass.client.informers import Informer
from windlass.controllers.disruption.reconcile import reconcile
from windlass.controllers.effects import NOTHING, Effects
from windlass.controllers.expectations import RecordIndex
from windlass.controllers.runner import Informers, WatchedCollection
from windlass.kits.clock import Clock

Json = dict[str, Any]


class DisruptionController:
    name = "disruption"
    pause_seconds = 0.2

    def __init__(self, informers: Informers, clock: Clock) -> None:
        self._clock = clock
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
        return reconcile(budget, sorted(pods, key=lambda pod: pod.name), self._clock.now())


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
