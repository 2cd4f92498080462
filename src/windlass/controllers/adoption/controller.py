"""The reconciler of adopted gangs. Keys are ``NAMESPACE/NAME`` of PodGroups."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Protocol

from windlass.api.resources import POD_GROUPS, QUEUES, Resource
from windlass.api.views import PodGroup, Queue, decode_pod_group, decode_queue
from windlass.client.informers import Informer
from windlass.controllers.adoption.step import adopted, step
from windlass.controllers.effects import NOTHING, Effects
from windlass.controllers.runner import Watch


class Informers(Protocol):
    def informer(self, resource: Resource, *, decode: Any = dict) -> Informer[Any]: ...


class AdoptionController:
    name = "adoption"
    pause_seconds = 0.0

    def __init__(self, informers: Informers, *, beside: bool) -> None:
        """``beside``: Volcano still runs."""
        self._beside = beside
        self._groups: Informer[PodGroup] = informers.informer(POD_GROUPS, decode=decode_pod_group)
        self._queues: Informer[Queue] = informers.informer(QUEUES, decode=decode_queue)

    def watches(self) -> Iterable[Watch]:
        return (
            Watch(self._groups, lambda group: (group.key,)),
            Watch(self._queues, self._groups_of, lambda old, new: adopted(old) != adopted(new)),
        )

    def first_keys(self) -> Iterable[str]:
        return ()

    async def look(self, key: str) -> Effects:
        group = self._groups.items.get(key)
        if group is None:
            return NOTHING
        return step(group, self._queues.items.get(group.queue), beside=self._beside)

    def _groups_of(self, queue: Queue) -> Iterable[str]:
        return [group.key for group in self._groups.items.values() if group.queue == queue.name]
