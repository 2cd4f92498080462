"""The reconciler of adopted gangs. Keys are ``NAMESPACE/NAME`` of PodGroups, ``kai:NAMESPACE/NAME`` of KAI's, and
:data:`LEFT`: what is still marked as handed over by KAI when that runs no more."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable
from typing import Any, Protocol

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
from windlass.controllers.adoption.step import KEEPS_CARDS, adopted, step
from windlass.controllers.effects import NOTHING, Effects
from windlass.controllers.runner import WatchedCollection
from windlass.model.cluster.ownership import KAI, VOLCANO, keeps_devices
from windlass.model.groups.podgroups import kai_group_name

LEFT = "kai"
_PREFIX = "kai:"


class AdoptionInformers(Protocol):
    def informer(self, resource: Resource, *, decode: Any = dict) -> Informer[Any]: ...


class SharingPod(msgspec.Struct, frozen=True):
    """A pod of KAI that asks for a part of a card. ``group``: the key of its PodGroup."""

    key: str
    group: str


def decode_sharer(raw: msgspec.Raw) -> SharingPod | None:
    """``None`` for every other pod: nothing is kept of it."""
    pod = decode_pod(raw)
    name = kai_group_name(pod)
    return SharingPod(pod.key, f"{pod.namespace}/{name}") if name and keeps_devices(pod.annotations) else None


class AdoptionController:
    """``beside``: the kinds of schedulers that still run. Without KAI among them its PodGroups are not followed: nobody
    marks them any more, and those that are marked lose the mark once."""

    name = "adoption"
    pause_seconds = 0.0

    def __init__(self, client: Client, informers: AdoptionInformers, *, beside: Collection[str]) -> None:
        self._client = client
        self._sharing: Counter[str] = Counter()
        """Groups of KAI whose pods ask for parts of cards."""
        volcano = _Side(informers, (POD_GROUPS, decode_pod_group), (QUEUES, decode_queue))
        self._sides = {"": (volcano, VOLCANO in beside)}
        self._sharers: Informer[SharingPod] | None = None
        if KAI in beside:
            kai = _Side(
                informers, (KAI_POD_GROUPS, decode_kai_pod_group), (KAI_QUEUES, decode_kai_queue), _PREFIX
            )
            self._sides[_PREFIX] = (kai, True)
            self._sharers = informers.informer(PODS, decode=decode_sharer)
            self._sharers.add_handler(
                lambda pod: self._count(None, pod), self._count, lambda pod: self._count(pod, None)
            )

    def _count(self, old: SharingPod | None, new: SharingPod | None) -> None:
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

    def first_keys(self) -> Iterable[str]:
        return () if _PREFIX in self._sides else (LEFT,)

    async def look(self, key: str) -> Effects:
        if key == LEFT:
            return await self._left()
        side, beside = self._sides[_PREFIX if key.startswith(_PREFIX) else ""]
        group = side.groups.items.get(key.removeprefix(_PREFIX))
        if group is None:
            return NOTHING
        stays = self._stays(group) if isinstance(group, KaiPodGroup) else ""
        return step(group, side.queues.items.get(group.queue), beside=beside, stays=stays)

    def _stays(self, group: KaiPodGroup) -> str:
        """Why a gang of KAI is not handed over."""
        if group.pool and not group.adopted:
            return f"it belongs to the shard {group.pool}"
        return KEEPS_CARDS if self._sharing[group.key] else ""

    async def _left(self) -> Effects:
        """Take the mark off the groups of KAI that still have it."""
        try:
            found = await self._client.list(KAI_POD_GROUPS, labels=f"{NODE_POOL_KAI}={ADOPTED_POOL}")
        except StatusError as error:
            if error.code == 404:
                return NOTHING  # the cluster has no such kind
            raise
        steps = [step(decode_kai_pod_group(encode(obj)), None, beside=False) for obj in found.items]
        actions = tuple(action for one in steps for action in one.actions())
        events = tuple(event for one in steps for event in one.events)
        return Effects(stages=(actions,), events=events) if actions else NOTHING


class _Side:
    """PodGroups and queues of one API. ``prefix``: what the keys of its groups begin with."""

    def __init__(
        self,
        informers: AdoptionInformers,
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
        mine = (group for group in self.groups.items.values() if group.queue == queue.name)
        return [self._prefix + group.key for group in mine]
