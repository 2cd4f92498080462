"""Reconciler of adopted gangs.

Keys are ``NAMESPACE/NAME`` of Volcano's PodGroups, ``kai:NAMESPACE/NAME`` of KAI's, and
:data:`RELEASE_KEY`, which releases all PodGroups of KAI after KAI was removed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable
from typing import Any

import msgspec

from windlass.api.annotations import ADOPTED_POOL, NODE_POOL_KAI
from windlass.api.errors import StatusError
from windlass.api.resources import KAI_POD_GROUPS, KAI_QUEUES, POD_GROUPS, PODS, QUEUES, Resource
from windlass.api.views import (
    KaiPodGroup,
    KaiQueue,
    PodGroup,
    QueueObject,
    decode_kai_pod_group,
    decode_kai_queue,
    decode_pod,
    decode_pod_group,
    decode_queue,
    encode,
)
from windlass.client.client import Client
from windlass.client.informers import Informer
from windlass.controllers.adoption.reconcile import RESERVES_DEVICES, adopted, reconcile
from windlass.controllers.effects import NOTHING, Effects
from windlass.controllers.runner import Informers, WatchedCollection
from windlass.model.cluster.ownership import KAI, VOLCANO, requests_device_share
from windlass.model.groups.podgroups import kai_group_name

RELEASE_KEY = "kai"
_PREFIX = "kai:"


class SharingPod(msgspec.Struct, frozen=True):
    """Pod of KAI that requests a device share. ``group``: key of its PodGroup."""

    key: str
    group: str


def decode_sharer(raw: msgspec.Raw) -> SharingPod | None:
    """Decode a pod that requests a device share. Other pods return ``None`` and are not cached."""
    pod = decode_pod(raw)
    name = kai_group_name(pod)
    return (
        SharingPod(pod.key, f"{pod.namespace}/{name}")
        if name and requests_device_share(pod.annotations)
        else None
    )


class AdoptionController:
    """Marks gangs of adopted queues so that the other scheduler ignores them.

    ``other_schedulers`` lists the kinds of schedulers that still run. Without KAI its
    PodGroups are not followed. PodGroups that are still marked lose the mark once, at
    the start.
    """

    name = "adoption"
    pause_seconds = 0.0

    def __init__(self, client: Client, informers: Informers, *, other_schedulers: Collection[str]) -> None:
        self._client = client
        self._sharing: Counter[str] = Counter()
        """Number of pods with device shares per PodGroup of KAI."""
        volcano = _Side(informers, (POD_GROUPS, decode_pod_group), (QUEUES, decode_queue))
        self._sides = {"": (volcano, VOLCANO in other_schedulers)}
        self._sharers: Informer[SharingPod] | None = None
        if KAI in other_schedulers:
            kai = _Side(
                informers, (KAI_POD_GROUPS, decode_kai_pod_group), (KAI_QUEUES, decode_kai_queue), _PREFIX
            )
            self._sides[_PREFIX] = (kai, True)
            self._sharers = informers.informer(PODS, decode=decode_sharer)
            self._sharers.add_handler(
                lambda pod: self._count_pod(None, pod),
                self._count_pod,
                lambda pod: self._count_pod(pod, None),
            )

    def _count_pod(self, old: SharingPod | None, new: SharingPod | None) -> None:
        for pod, by in ((old, -1), (new, 1)):
            if pod is not None:
                self._sharing[pod.group] += by
                if not self._sharing[pod.group]:
                    del self._sharing[pod.group]

    def watches(self) -> Iterable[WatchedCollection]:
        for side, _ in self._sides.values():
            yield from side.watches()
        if self._sharers is not None:
            yield WatchedCollection(
                self._sharers, lambda pod: (_PREFIX + pod.group,), lambda old, new: old != new
            )

    def initial_keys(self) -> Iterable[str]:
        return () if _PREFIX in self._sides else (RELEASE_KEY,)

    async def reconcile(self, key: str) -> Effects:
        if key == RELEASE_KEY:
            return await self._release_all()
        side, coexists = self._sides[_PREFIX if key.startswith(_PREFIX) else ""]
        group = side.groups.items.get(key.removeprefix(_PREFIX))
        if group is None:
            return NOTHING
        kept_reason = self._kept_reason(group) if isinstance(group, KaiPodGroup) else ""
        return reconcile(
            group, side.queues.items.get(group.queue), coexists=coexists, kept_reason=kept_reason
        )

    def _kept_reason(self, group: KaiPodGroup) -> str:
        """Return why a gang of KAI is not adopted; ``""`` if it may be."""
        if group.pool and not group.adopted:
            return f"it belongs to the shard {group.pool}"
        return RESERVES_DEVICES if self._sharing[group.key] else ""

    async def _release_all(self) -> Effects:
        """Take the mark off the groups of KAI that still have it."""
        try:
            found = await self._client.list(KAI_POD_GROUPS, labels=f"{NODE_POOL_KAI}={ADOPTED_POOL}")
        except StatusError as error:
            if error.code == 404:
                return NOTHING  # the cluster has no such kind
            raise
        steps = [reconcile(decode_kai_pod_group(encode(obj)), None, coexists=False) for obj in found.items]
        actions = tuple(action for one in steps for action in one.actions())
        events = tuple(event for one in steps for event in one.events)
        return Effects(stages=(actions,), events=events) if actions else NOTHING


class _Side:
    """PodGroups and queues of one API. ``prefix``: prefix of the keys of its groups."""

    def __init__(
        self,
        informers: Informers,
        groups: tuple[Resource, Callable[[msgspec.Raw], Any]],
        queues: tuple[Resource, Callable[[msgspec.Raw], Any]],
        prefix: str = "",
    ) -> None:
        self.groups: Informer[PodGroup | KaiPodGroup] = informers.informer(groups[0], decode=groups[1])
        self.queues: Informer[QueueObject | KaiQueue] = informers.informer(queues[0], decode=queues[1])
        self._prefix = prefix

    def watches(self) -> Iterable[WatchedCollection]:
        return (
            WatchedCollection(self.groups, lambda group: (self._prefix + group.key,)),
            WatchedCollection(self.queues, self._groups_of, lambda old, new: adopted(old) != adopted(new)),
        )

    def _groups_of(self, queue: QueueObject | KaiQueue) -> Iterable[str]:
        members = (group for group in self.groups.items.values() if group.queue == queue.name)
        return [self._prefix + group.key for group in members]
