"""Reconciler of automatic PodGroups.

Keys are ``pod:NAMESPACE/NAME`` and ``group:NAMESPACE/NAME``.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from windlass.api import annotations as names
from windlass.api.resources import NAMESPACES, POD_GROUPS, PODS, PRIORITY_CLASSES
from windlass.api.views import (
    Namespace,
    Pod,
    PodGroup,
    PriorityClass,
    decode_namespace,
    decode_pod,
    decode_pod_group,
    decode_priority_class,
)
from windlass.client.client import Client
from windlass.client.informers import Informer
from windlass.controllers.effects import NOTHING, Effects
from windlass.controllers.podgroup.reconcile import (
    SCHEDULER,
    PodGroupSnapshot,
    group_name,
    reconcile,
    warn_about_missing_class,
)
from windlass.controllers.runner import Informers, WatchedCollection

Json = dict[str, Any]


class PodGroupController:
    name = "podgroup"
    pause_seconds = 0.0

    def __init__(self, client: Client, informers: Informers) -> None:
        self._client = client
        self._pods: Informer[Pod] = informers.informer(PODS, decode=decode_pod)
        self._groups: Informer[PodGroup] = informers.informer(POD_GROUPS, decode=decode_pod_group)
        self._namespaces: Informer[Namespace] = informers.informer(NAMESPACES, decode=decode_namespace)
        self._classes: Informer[PriorityClass] = informers.informer(
            PRIORITY_CLASSES, decode=decode_priority_class
        )

    def watches(self) -> Iterable[WatchedCollection]:
        return (
            WatchedCollection(self._pods, _pod_keys),
            WatchedCollection(self._groups, _group_keys),
            WatchedCollection(self._namespaces, lambda _: ()),
            WatchedCollection(self._classes, lambda _: ()),
        )

    def initial_keys(self) -> Iterable[str]:
        return ()

    async def reconcile(self, key: str) -> Effects:
        kind, _, object_key = key.partition(":")
        if kind == "group":
            group = self._groups.items.get(object_key)
            return warn_about_missing_class(group, self._classes.items) if group is not None else NOTHING
        if object_key not in self._pods.items:
            return NOTHING
        namespace, _, name = object_key.partition("/")
        pod = await self._client.find(PODS, name, namespace)  # the cache does not hold whole pods
        if pod is None:
            return NOTHING
        found = self._namespaces.items.get(namespace)
        queue = found.annotations.get(names.QUEUE_NAME_VOLCANO, "") if found is not None else ""
        exists = f"{namespace}/{group_name(pod)}" in self._groups.items
        return reconcile(pod, PodGroupSnapshot(exists, queue))


def _pod_keys(pod: Pod) -> Iterable[str]:
    grouped = pod.annotations.get(names.GROUP_NAME) or pod.annotations.get(names.GROUP_NAME_VOLCANO)
    if pod.scheduler_name != SCHEDULER or grouped or pod.finished or pod.deleting:
        return ()
    return (f"pod:{pod.key}",)


def _group_keys(group: PodGroup) -> Iterable[str]:
    return (f"group:{group.key}",) if group.priority_class else ()
