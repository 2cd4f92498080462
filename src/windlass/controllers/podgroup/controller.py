"""Reconciler of automatic PodGroups.

Keys are ``pod:NAMESPACE/NAME``, ``group:NAMESPACE/NAME`` and ``size:NAMESPACE/NAME``. The
last one is a group that its owner may have resized.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace
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
from windlass.controllers.effects import NOTHING, Effects, controller_of
from windlass.controllers.podgroup.owners import OwnerReader
from windlass.controllers.podgroup.reconcile import (
    SCHEDULER,
    PodGroupSnapshot,
    group_name,
    reconcile,
    resize,
    warn_about_missing_class,
)
from windlass.controllers.runner import Informers, WatchedCollection
from windlass.jobs.owners.decision import OwnerGroup, group_of
from windlass.jobs.owners.pods import grouped_by_owner
from windlass.kits.clock import Clock
from windlass.model.groups.podgroups import IMPLICIT, group_key, kind_prefix

Json = dict[str, Any]
NOT_READY_SECONDS = 0.2
"""Interval (seconds) between two looks whether the declared rules are known."""


class PodGroupController:
    name = "podgroup"
    pause_seconds = 0.0

    def __init__(
        self,
        client: Client,
        informers: Informers,
        clock: Clock | None = None,
        *,
        owner_schedulers: Collection[str] = (),
        volcano_pods: bool = True,
    ) -> None:
        """``owner_schedulers``: scheduler names of pods that are grouped by their top owner.

        ``volcano_pods``: group other pods of scheduler ``volcano``, too.
        """
        self._client = client
        self._owners = OwnerReader(client, informers, clock)
        self._by_owner = frozenset(owner_schedulers)
        self._volcano_pods = volcano_pods
        self._pods: Informer[Pod] = informers.informer(PODS, decode=decode_pod)
        self._groups: Informer[PodGroup] = informers.informer(POD_GROUPS, decode=decode_pod_group)
        self._namespaces: Informer[Namespace] = informers.informer(NAMESPACES, decode=decode_namespace)
        self._classes: Informer[PriorityClass] = informers.informer(
            PRIORITY_CLASSES, decode=decode_priority_class
        )

    def watches(self) -> Iterable[WatchedCollection]:
        return (
            WatchedCollection(self._pods, self._pod_keys, _matters),
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
        namespace, _, name = object_key.partition("/")
        if kind == "size":
            return await self._resized(namespace, name)
        cached = self._pods.items.get(object_key)
        if cached is None or key not in self._pod_keys(cached):  # it got its group meanwhile, or ended
            return NOTHING
        by_owner = self._decided_by_owner(cached)
        if by_owner and not self._owners.ready:
            return Effects(requeue_after=NOT_READY_SECONDS)
        pod = await self._client.find(PODS, name, namespace)  # the cache does not hold whole pods
        if pod is None:
            return NOTHING
        found = self._namespaces.items.get(namespace)
        queue = found.annotations.get(names.QUEUE_NAME_VOLCANO, "") if found is not None else ""
        owned = await self._group_of(pod) if by_owner else None
        group = self._groups.items.get(f"{namespace}/{group_name(pod, owned)}")
        told = group.annotations.get(names.GROUPED_BY, "") if group is not None else ""
        return reconcile(pod, PodGroupSnapshot(group is not None, queue, owned, told))

    async def _group_of(self, obj: Json) -> OwnerGroup:
        """Return the group of a pod, or of a PodGroup that its owner controls."""
        rules, problems = self._owners.rules()
        owners, unread = await self._owners.owners(obj)
        found = group_of(obj, owners, rules)
        return replace(found, problems=(*(unread or found.problems), *problems))

    async def _resized(self, namespace: str, name: str) -> Effects:
        cached = self._groups.items.get(f"{namespace}/{name}")
        if cached is not None and names.GROUPED_BY not in cached.annotations:
            return NOTHING  # of a pod alone: it is created with the annotation or never has it
        group = await self._client.find(POD_GROUPS, name, namespace)
        if group is None or names.GROUPED_BY not in (group["metadata"].get("annotations") or {}):
            return NOTHING
        reference = controller_of(group)
        if reference is None:
            return NOTHING
        self._owners.forget([reference["uid"]])
        owned = await self._group_of(group)
        if owned.problems or owned.owner is None:
            return NOTHING
        present = group["metadata"]["annotations"][names.GROUPED_BY]
        stage = resize(name, namespace, present, owned)
        return Effects(stages=(stage,)) if stage else NOTHING

    def _decided_by_owner(self, pod: Pod) -> bool:
        alone = kind_prefix(group_key(pod)) == IMPLICIT
        return pod.scheduler_name in self._by_owner and alone and grouped_by_owner(pod)

    def _pod_keys(self, pod: Pod) -> Iterable[str]:
        grouped = pod.annotations.get(names.GROUP_NAME) or pod.annotations.get(names.GROUP_NAME_VOLCANO)
        if grouped:
            automatic = grouped.startswith("podgroup-") and grouped_by_owner(pod)
            return (f"size:{pod.namespace}/{grouped}",) if automatic else ()
        if pod.finished or pod.deleting:
            return ()
        if self._decided_by_owner(pod) or (self._volcano_pods and pod.scheduler_name == SCHEDULER):
            return (f"pod:{pod.key}",)
        return ()


def _matters(old: Pod, new: Pod) -> bool:
    """Return whether an update of a pod may change its group: if it has none, has got one, or ends.

    The owner that was read for a pod may be older than the pod, so it is read again afterwards.
    """
    stays = names.GROUP_NAME in old.annotations and names.GROUP_NAME in new.annotations
    return not stays or new.deleting != old.deleting


def _group_keys(group: PodGroup) -> Iterable[str]:
    return (f"group:{group.key}",) if group.priority_class else ()
