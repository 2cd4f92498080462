"""Reconciler of ResourceQuotas, which counts a namespace's objects. Keys are namespaces.

Counting reads the objects from the server page by page. Its cost bounds its rate: after
a count the namespace is not counted again for ten times the duration of that count.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from windlass.api.quota_usage import Usage, counted_kinds
from windlass.api.resources import ALIASES, ALL, EVENTS, EVENTS_V1, PODS, RESOURCE_QUOTAS
from windlass.api.views import Pod, decode_pod
from windlass.client.client import Client
from windlass.client.informers import Informer
from windlass.controllers.effects import NOTHING, Effects
from windlass.controllers.expectations import BareObject, RecordIndex
from windlass.controllers.quota.reconcile import charge, reconcile
from windlass.controllers.runner import Informers, WatchedCollection
from windlass.kits.clock import Clock

Json = dict[str, Any]
PAGE = 500
PAUSE_SECONDS = 0.3
REST_FACTOR = 10.0
_OTHERS = tuple(
    r
    for r in ALL
    if r.namespaced and r not in ALIASES and r not in (PODS, EVENTS, EVENTS_V1, RESOURCE_QUOTAS)
)


class QuotaController:
    """Keys are namespaces."""

    name = "quota"
    pause_seconds = PAUSE_SECONDS

    def __init__(self, client: Client, informers: Informers, clock: Clock) -> None:
        self._client = client
        self._clock = clock
        self._quotas: Informer[Json] = informers.informer(RESOURCE_QUOTAS)
        self._pods: Informer[Pod] = informers.informer(PODS, decode=decode_pod)
        self._others = [informers.informer(resource, decode=BareObject) for resource in _OTHERS]
        self._quotas_in = RecordIndex(self._quotas, lambda quota: (quota["metadata"]["namespace"],), _key)
        self._rest_until: dict[str, float] = {}

    def watches(self) -> Iterable[WatchedCollection]:
        return (
            WatchedCollection(self._quotas, lambda quota: (quota["metadata"]["namespace"],)),
            WatchedCollection(self._pods, lambda pod: self._if_limited(pod.namespace), _counts_otherwise),
            *(
                WatchedCollection(informer, lambda thing: self._if_limited(thing.metadata.namespace))
                for informer in self._others
            ),
        )

    def _if_limited(self, namespace: str) -> Iterable[str]:
        return (namespace,) if self._quotas_in.get(namespace) else ()

    def initial_keys(self) -> Iterable[str]:
        return ()

    async def reconcile(self, key: str) -> Effects:
        quotas = list(self._quotas_in.get(key).values())
        if not quotas:
            self._rest_until.pop(key, None)
            return NOTHING
        start = self._clock.monotonic()
        rest = self._rest_until.get(key, start) - start
        if rest > 0:
            return Effects(requeue_after=rest)
        totals = await self._count(key, quotas)
        end = self._clock.monotonic()
        self._rest_until[key] = end + REST_FACTOR * (end - start)
        effects = [reconcile(quota, total) for quota, total in zip(quotas, totals, strict=True)]
        actions = tuple(action for one in effects for action in one.actions())
        return Effects(stages=(actions,) if actions else ())

    async def _count(self, namespace: str, quotas: list[Json]) -> list[Usage]:
        totals: list[Usage] = [{} for _ in quotas]
        wanted = [counted_kinds((quota.get("spec") or {}).get("hard") or ()) for quota in quotas]
        for resource in sorted(set().union(*wanted), key=lambda r: r.qualified):
            token = ""
            while True:
                page = await self._client.list_page(resource, namespace, limit=PAGE, continue_token=token)
                for quota, kinds, total in zip(quotas, wanted, totals, strict=True):
                    if resource in kinds:
                        charge(total, quota, resource, page.items)
                token = page.continue_token
                if not token:
                    break
        return totals


def _key(obj: Json) -> str:
    return f"{obj['metadata']['namespace']}/{obj['metadata']['name']}"


def _counts_otherwise(old: Pod, new: Pod) -> bool:
    return old.finished != new.finished or old.uid != new.uid or old.shape is not new.shape
