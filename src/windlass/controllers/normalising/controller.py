"""Reconciler of alias spellings.

Keys are ``queue:NAME``, ``pod:NAMESPACE/NAME`` and ``job:NAMESPACE/NAME``.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from windlass.api.aliases import PRODUCT
from windlass.api.annotations import SCHEDULER_NAMES
from windlass.api.resources import PODS, QUEUES, VOLCANO_JOBS
from windlass.api.views import Pod, decode_pod
from windlass.client.client import Client
from windlass.client.informers import Informer
from windlass.controllers.effects import NOTHING, Effects
from windlass.controllers.normalising.reconcile import job, pod, queue
from windlass.controllers.runner import Informers, WatchedCollection
from windlass.kits.clock import Clock
from windlass.kits.timestamps import rfc3339

Json = dict[str, Any]


class NormalisingController:
    name = "normalising"
    pause_seconds = 0.0

    def __init__(self, client: Client, informers: Informers, clock: Clock) -> None:
        self._client = client
        self._clock = clock
        self._queues: Informer[Json] = informers.informer(QUEUES)
        self._jobs: Informer[Json] = informers.informer(VOLCANO_JOBS)
        self._pods: Informer[Pod] = informers.informer(PODS, decode=decode_pod)

    def watches(self) -> Iterable[WatchedCollection]:
        return (
            WatchedCollection(self._queues, _queue_keys),
            WatchedCollection(self._jobs, _job_keys, _never),
            WatchedCollection(self._pods, _pod_keys, _never),
        )

    def initial_keys(self) -> Iterable[str]:
        return ()

    async def reconcile(self, key: str) -> Effects:
        kind, _, place = key.partition(":")
        if kind == "queue":
            found = self._queues.items.get(place)
            return queue(found, rfc3339(self._clock.now())) if found is not None else NOTHING
        if kind == "job":
            found = self._jobs.items.get(place)
            return job(found) if found is not None else NOTHING
        namespace, _, name = place.partition("/")
        whole = await self._client.find(PODS, name, namespace)  # the cache does not hold whole pods
        return pod(whole, rfc3339(self._clock.now())) if whole is not None else NOTHING


def _never(_old: Any, _new: Any) -> bool:
    """Ignore updates: the aliases of a pod or a job are in immutable fields."""
    return False


def _queue_keys(obj: Json) -> Iterable[str]:
    return (f"queue:{obj['metadata']['name']}",) if "guaranteed" in (obj.get("spec") or {}) else ()


def _job_keys(obj: Json) -> Iterable[str]:
    return (f"job:{obj['metadata']['namespace']}/{obj['metadata']['name']}",)


def _pod_keys(found: Pod) -> Iterable[str]:
    if found.scheduler_name not in SCHEDULER_NAMES or found.finished or found.deleting:
        return ()
    shape = found.shape
    spelled = shape.speaks_of_parts or PRODUCT in shape.node_selector or _names_product(found)
    return (f"pod:{found.key}",) if spelled else ()


def _names_product(found: Pod) -> bool:
    near = found.shape.affinity.node_affinity if found.shape.affinity is not None else None
    required = near.required if near is not None else None
    terms = (required.node_selector_terms or ()) if required is not None else ()
    return any(one.key == PRODUCT for term in terms for one in term.match_expressions or ())
