"""Execution of :class:`~windlass.controllers.effects.Effects` against an API server.

Every action is idempotent. Creating an object that exists and deleting one that is gone
succeed if it is the same object. A failed action is returned as a :class:`Failure`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from windlass.api.errors import StatusError
from windlass.api.resources import PODS, Resource
from windlass.client.client import Client
from windlass.client.errors import Unreachable
from windlass.client.informers import key_of
from windlass.client.responses import is_another, is_missing
from windlass.controllers.effects import (
    Action,
    Create,
    Delete,
    Effects,
    EmitEvent,
    Patch,
    Update,
    controller_of,
)
from windlass.controllers.expectations import Written

PARALLEL = 32
"""Maximum number of concurrent actions of one stage."""
QUOTA = "exceeded quota"
"""Part of the message of a request that a ResourceQuota refuses."""


@dataclass(frozen=True, slots=True)
class Failure:
    """Failed action. ``conflict``: another client wrote first, so reconcile again soon.

    Otherwise ``message`` is the error of the server or of the connection.
    """

    action: Action
    conflict: bool
    message: str
    refused: bool = False
    """The server rejected this request; repeating it unchanged will not help."""


@dataclass(frozen=True, slots=True)
class EffectOutcome:
    """Result of the stages. ``events``: those of the actions that succeeded."""

    written: tuple[Written, ...]
    failures: tuple[Failure, ...]
    events: tuple[EmitEvent, ...] = ()


class EffectExecutor:
    def __init__(self, client: Client) -> None:
        self._client = client
        self._slots = asyncio.Semaphore(PARALLEL)

    async def perform(self, effects: Effects) -> EffectOutcome:
        """All stages in order, up to and including the first in which an action failed."""
        written: list[Written] = []
        events: list[EmitEvent] = []
        for stage in effects.stages:
            results = await self._stage(stage)
            written += [result for result in results if isinstance(result, Written)]
            failures = tuple(result for result in results if isinstance(result, Failure))
            events += [
                action.event
                for action, result in zip(stage, results, strict=True)
                if action.event is not None and not isinstance(result, Failure)
            ]
            if failures:
                return EffectOutcome(tuple(written), failures, tuple(events))
        return EffectOutcome(tuple(written), (), tuple(events))

    async def _stage(self, stage: tuple[Action, ...]) -> list[Written | Failure | None]:
        if len(stage) == 1:
            return [await self._try(stage[0])]
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(self._in_slot(action)) for action in stage]
        return [task.result() for task in tasks]

    async def _in_slot(self, action: Action) -> Written | Failure | None:
        async with self._slots:
            return await self._try(action)

    async def _try(self, action: Action) -> Written | Failure | None:
        try:
            return await self._do(action)
        except StatusError as problem:
            conflict = problem.code == 409 and problem.reason == "Conflict"
            refused = problem.code in (400, 403, 409, 413, 422) and not conflict
            return Failure(action, conflict, problem.message, refused)
        except Unreachable as problem:
            return Failure(action, False, problem.message)

    async def _do(self, action: Action) -> Written | None:
        match action:
            case Create():
                return await self._create(action)
            case Update():
                return await self._update(action)
            case Patch():
                return await self._patch(action)
            case Delete():
                return await self._delete(action)

    async def _create(self, action: Create) -> Written:
        resource, obj = action.resource, action.object
        metadata = obj["metadata"]
        try:
            return _written(resource, await self._client.create(resource, obj, metadata.get("namespace")))
        except StatusError as problem:
            # A used-up quota refuses an object that exists as well, before the server finds its name.
            over_quota = QUOTA in problem.message and resource is not PODS
            if problem.reason != "AlreadyExists" and not over_quota:
                raise
            present = await self._client.find(resource, metadata["name"], metadata.get("namespace"))
            if present is None or not _same_controller(obj, present):
                raise
            return _written(resource, present)

    async def _update(self, action: Update) -> Written | None:
        try:
            response = await self._client.update(
                action.resource, action.object, subresource=action.subresource
            )
        except StatusError as problem:
            if not is_missing(problem):
                raise
            return None
        return _written(action.resource, response)

    async def _patch(self, action: Patch) -> Written | None:
        body = dict(action.patch)
        identity = {"uid": action.uid, "resourceVersion": action.resource_version}
        identity = {name: value for name, value in identity.items() if value}
        if identity:
            body["metadata"] = {**(body.get("metadata") or {}), **identity}
        try:
            response = await self._client.patch(
                action.resource, action.name, body, action.namespace, subresource=action.subresource
            )
        except StatusError as problem:
            if not is_missing(problem):
                raise
            return None
        return _written(action.resource, response)

    async def _delete(self, action: Delete) -> Written | None:
        key = key_of(action.namespace or "", action.name)
        deleted = Written(action.resource, key, action.uid or "", "", deleted=True)
        try:
            await self._client.delete(
                action.resource,
                action.name,
                action.namespace,
                propagation=action.propagation,
                grace_seconds=action.grace_seconds,
                uid=action.uid,
                resource_version=action.resource_version,
            )
        except StatusError as problem:
            if is_missing(problem) or is_another(problem):
                return deleted if action.uid else None
            raise
        return deleted if action.uid else None


def _written(resource: Resource, response: Mapping[str, Any]) -> Written:
    metadata = response["metadata"]
    key = key_of(metadata.get("namespace") or "", metadata["name"])
    uid, version = metadata.get("uid", ""), metadata.get("resourceVersion", "")
    return Written(resource, key, uid, version, terminating=bool(metadata.get("deletionTimestamp")))


def _same_controller(wanted: Mapping[str, Any], present: Mapping[str, Any]) -> bool:
    wanted_owner, present_owner = controller_of(wanted), controller_of(present)
    if wanted_owner is None:
        return present_owner is None
    return present_owner is not None and present_owner.get("uid") == wanted_owner.get("uid")
