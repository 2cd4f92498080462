"""Reconciler of Queues: the objects it follows, and the snapshot for a reconciliation."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from windlass.api.resources import COMMANDS, POD_GROUPS, QUEUES
from windlass.api.views import PodGroup, decode_pod_group
from windlass.client.informers import Informer
from windlass.controllers.effects import Effects
from windlass.controllers.expectations import RecordIndex
from windlass.controllers.queue.reconcile import (
    DEFAULT,
    REQUIRED,
    ROOT,
    QueueSnapshot,
    create_missing,
    reconcile,
)
from windlass.controllers.runner import Informers, WatchedCollection
from windlass.controllers.volcano_commands import discarded, key_of, oldest_first

Json = dict[str, Any]
PAUSE_SECONDS = 1.0
"""Interval (seconds) between two writes of a queue's counts.

Each write costs the API server as much as three binds.
"""
_NO_ROOT_YET_SECONDS = 0.1


class GroupTally:
    """Number of groups per queue and phase, updated by the informer."""

    def __init__(self, informer: Informer[PodGroup]) -> None:
        self._counts: dict[str, dict[str, int]] = {}
        informer.add_handler(self._added, self._changed, self._removed)

    def _added(self, group: PodGroup) -> None:
        self._count(group, 1)

    def _removed(self, group: PodGroup) -> None:
        self._count(group, -1)

    def _changed(self, old: PodGroup, new: PodGroup) -> None:
        self._removed(old)
        self._added(new)

    def _count(self, group: PodGroup, by: int) -> None:
        counts = self._counts.setdefault(group.queue, {})
        phase = (group.phase or "Pending").lower()
        counts[phase] = counts.get(phase, 0) + by

    def of(self, queue: str) -> Mapping[str, int]:
        return dict(self._counts.get(queue, {}))


class QueueController:
    """Keys are queue names."""

    name = "queue"
    pause_seconds = PAUSE_SECONDS

    def __init__(self, informers: Informers) -> None:
        self._queues: Informer[Json] = informers.informer(QUEUES)
        self._groups: Informer[PodGroup] = informers.informer(POD_GROUPS, decode=decode_pod_group)
        self._commands: Informer[Json] = informers.informer(COMMANDS)
        self._tally = GroupTally(self._groups)
        self._children = RecordIndex(self._queues, lambda queue: [_parent(queue)], _name)
        self._commands_of = RecordIndex(self._commands, _command_keys, key_of)

    def watches(self) -> Iterable[WatchedCollection]:
        return (
            WatchedCollection(self._queues, lambda queue: [_name(queue), *self._children.get(_name(queue))]),
            WatchedCollection(self._groups, lambda group: [group.queue]),
            WatchedCollection(self._commands, _command_keys),
        )

    def initial_keys(self) -> Iterable[str]:
        return REQUIRED

    async def reconcile(self, key: str) -> Effects:
        queue = self._queues.items.get(key)
        commands = oldest_first(self._commands_of.get(key).values())
        if queue is None:
            if key == DEFAULT and ROOT not in self._queues.items:
                return Effects(requeue_after=_NO_ROOT_YET_SECONDS)
            if key in REQUIRED:
                return create_missing(key)
            return discarded(commands)
        parent = None if key == ROOT else self._queues.items.get(_parent(queue))
        return reconcile(queue, QueueSnapshot(parent, self._tally.of(key), commands))


def _name(queue: Json) -> str:
    return queue["metadata"]["name"]


def _parent(queue: Json) -> str:
    return (queue.get("spec") or {}).get("parent") or ROOT


def _command_keys(command: Json) -> Iterable[str]:
    target = command.get("target") or {}
    if target.get("kind") != QUEUES.kind:
        return ()
    if not (target.get("apiVersion") or "").startswith(f"{QUEUES.group}/"):
        return ()
    return (target.get("name") or "",)
