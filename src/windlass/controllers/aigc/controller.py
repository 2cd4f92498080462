"""Reconciler of AIGCJobs: its caches, its snapshots, and its looks at the drivers."""

from __future__ import annotations

import asyncio
import base64
import logging
import secrets
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

from windlass.api import aigc_fields as fields
from windlass.api.resources import (
    AIGC_JOBS,
    CONFIG_MAPS,
    POD_GROUPS,
    PODS,
    PRIORITY_CLASSES,
    SECRETS,
    SERVICES,
)
from windlass.api.views import Pod, PriorityClass, decode_pod, decode_priority_class
from windlass.client.batch_driver import BatchDriver, DriverUnreachable
from windlass.client.client import Client
from windlass.client.informers import Informer
from windlass.controllers.aigc.reconcile import OUT_OF_MEMORY, POLL_SECONDS, AigcSnapshot, reconcile_aigc
from windlass.controllers.effects import NOTHING, Effects
from windlass.controllers.expectations import RecordIndex, StoredObject, decode_stored_object
from windlass.controllers.ownership import ControlledBy
from windlass.controllers.runner import Informers, WatchedCollection
from windlass.jobs.aigc.job import read_aigc_job
from windlass.jobs.aigc.pods import TOKEN_KEY, BatchPlatform
from windlass.jobs.members import RolePod, job_pods
from windlass.kits.clock import Clock

Json = dict[str, Any]
_OWNED = ControlledBy(AIGC_JOBS)
_ROLES = {"driver": fields.DRIVER, "worker": fields.WORKER}
DriverOf = Callable[[str, str, str, int, str], BatchDriver]
"""``(namespace, pod, address, port, token)`` → the driver in that pod."""
log = logging.getLogger("windlass.controllers")


def new_token() -> str:
    """Return a token that cannot be guessed."""
    return secrets.token_urlsafe(24)


class AigcJobController:
    """AIGCJobs. Keys are ``namespace/name``."""

    name = "aigcjob"
    pause_seconds = 0.0

    def __init__(
        self,
        client: Client,
        informers: Informers,
        clock: Clock,
        scheduler: str,
        driver_of: DriverOf,
        platform: BatchPlatform,
        token: Callable[[], str] = new_token,
    ) -> None:
        """``scheduler``: default scheduler of pods. ``driver_of``: connects to drivers."""
        self._client, self._clock, self._scheduler = client, clock, scheduler
        self._driver_of, self._platform, self._token = driver_of, platform, token
        self._jobs: Informer[StoredObject] = informers.informer(AIGC_JOBS, decode=decode_stored_object)
        self._pods: Informer[Pod] = informers.informer(PODS, decode=decode_pod)
        self._groups: Informer[StoredObject] = informers.informer(POD_GROUPS, decode=decode_stored_object)
        self._services: Informer[StoredObject] = informers.informer(SERVICES, decode=decode_stored_object)
        self._classes: Informer[PriorityClass] = informers.informer(
            PRIORITY_CLASSES, decode=decode_priority_class
        )
        self._pods_of = RecordIndex(self._pods, _OWNED.pod_uids, lambda pod: pod.key)
        self._services_of = RecordIndex(self._services, _OWNED.uids, lambda found: found.key)
        self._seen: dict[str, tuple[str, float, Json | None]] = {}
        """Key of a job → uid of its driver, time and result of the last look."""

    def watches(self) -> Iterable[WatchedCollection]:
        return (
            WatchedCollection(self._jobs, lambda job: [job.key]),
            WatchedCollection(self._pods, _OWNED.pod_keys),
            WatchedCollection(
                self._groups, lambda group: [group.key] if group.key in self._jobs.items else []
            ),
            WatchedCollection(self._services, _OWNED.keys),
        )

    def initial_keys(self) -> Iterable[str]:
        return ()

    async def reconcile(self, key: str) -> Effects:
        stored = self._jobs.items.get(key)
        if stored is None:
            self._seen.pop(key, None)
            return NOTHING
        obj = stored.object
        namespace, _, name = key.partition("/")
        group = self._groups.items.get(key)
        pods = self._pods_of.get(stored.uid)
        config, secret = await self._objects(namespace, name, stored.uid)
        observed = AigcSnapshot(
            pods=_job_pods(pods.values()),
            group=group.object if group is not None else None,
            service=bool(self._services_of.get(stored.uid)),
            secret=secret is not None,
            config=config,
            batch=await self._look(key, obj, pods.values(), secret),
            token="" if secret is not None else self._token(),
            priorities={name: found.value for name, found in self._classes.items.items()},
            now=self._clock.now(),
            scheduler=self._scheduler,
            platform=self._platform,
        )
        return reconcile_aigc(obj, observed)

    async def _objects(self, namespace: str, name: str, uid: str) -> tuple[Json | None, Json | None]:
        """Return the job's ConfigMap and Secret. They are not watched: there may be many others."""
        found = []
        for resource in (CONFIG_MAPS, SECRETS):
            one = await self._client.find(resource, f"{name}-batch", namespace)
            owners = one["metadata"].get("ownerReferences") or () if one is not None else ()
            found.append(one if any(owner.get("uid") == uid for owner in owners) else None)
        return found[0], found[1]

    async def _look(self, key: str, obj: Json, pods: Iterable[Pod], secret: Json | None) -> Json | None:
        """Return the status of the driver, at most as old as the interval between looks."""
        driver = next((pod for pod in pods if pod.labels.get(fields.ROLE) == "driver"), None)
        if driver is None or secret is None:
            return None
        uid, at, last = self._seen.get(key, ("", 0.0, None))
        fresh = uid == driver.uid and self._clock.monotonic() < at + 0.9 * POLL_SECONDS
        if fresh or driver.phase != "Running":
            return last if uid == driver.uid else None
        status = await self._ask(obj, driver, secret)
        if status is None and uid == driver.uid:
            status = last
        self._seen[key] = (driver.uid, self._clock.monotonic(), status)
        return status

    async def _ask(self, obj: Json, driver: Pod, secret: Json) -> Json | None:
        try:
            port = read_aigc_job(obj).port
            token = base64.b64decode((secret.get("data") or {})[TOKEN_KEY]).decode()
        except (ValueError, TypeError, KeyError, AttributeError):
            return None  # the reconciliation reports it
        connection = self._driver_of(driver.namespace, driver.name, driver.pod_ip, port, token)
        try:
            return await asyncio.to_thread(connection.get, "/v1/status")
        except DriverUnreachable as problem:
            log.debug("aigcjob: the driver %s cannot be read: %s", driver.name, problem)
            return None


def _job_pods(pods: Iterable[Pod]) -> tuple[RolePod, ...]:
    main = {fields.DRIVER: "driver", fields.WORKER: ""}
    listed = tuple(pods)
    exhausted = {pod.uid for pod in listed for end in pod.exits if end.reason == OUT_OF_MEMORY}
    found = job_pods(listed, fields.ROLE, fields.INDEX, _ROLES, main)
    return tuple(replace(pod, reason=OUT_OF_MEMORY) if pod.uid in exhausted else pod for pod in found)
