"""The reconciler of automatic PodGroups. Keys are ``pod:NAMESPACE/NAME`` and ``group:NAMESPACE/NAME``."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Protocol

from windlass.api import annotations as names
from windlass.api.resources import NAMESPACES, POD_GROUPS, PODS, PRIORITY_CLASSES, Resource
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
from windlass.controllers.podgroup.step import SCHEDULER, PodGroupSnapshot, class_missing, group_name, step
from windlass.controllers.runner import WatchedCollection

Json = dict[str, Any]


class PodGroupInformers(Protocol):
    def informer(self, resource: Resource, *, decode: Any = dict) -> Informer[Any]: ...


class PodGroupController:
    name = "podgroup"
    pause_seconds = 0.0

    def __init__(self, client: Client, informers: PodGroupInformers) -> None:
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

    def first_keys(self) -> Iterable[str]:
        return ()

    async def look(self, key: str) -> Effects:
        kind, _, place = key.partition(":")
        if kind == "group":
            group = self._groups.items.get(place)
            return class_missing(group, self._classes.items) if group is not None else NOTHING
        if place not in self._pods.items:
            return NOTHING
        namespace, _, name = place.partition("/")
        pod = await self._client.find(PODS, name, namespace)  # the cache does not hold whole pods
        if pod is None:
            return NOTHING
        holder = self._namespaces.items.get(namespace)
        queue = holder.annotations.get(names.QUEUE_NAME_VOLCANO, "") if holder is not None else ""
        exists = f"{namespace}/{group_name(pod)}" in self._groups.items
        return step(pod, PodGroupSnapshot(exists, queue))


def _pod_keys(pod: Pod) -> Iterable[str]:
    grouped = pod.annotations.get(names.GROUP_NAME) or pod.annotations.get(names.GROUP_NAME_VOLCANO)
    if pod.scheduler_name != SCHEDULER or grouped or pod.finished or pod.deleting:
        return ()
    return (f"pod:{pod.key}",)


def _group_keys(group: PodGroup) -> Iterable[str]:
    return (f"group:{group.key}",) if group.priority_class else ()
