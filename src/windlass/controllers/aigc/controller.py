"""Reconciler of AIGCJobs: its caches, its snapshots, and its looks at the drivers."""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import msgspec

from windlass.api.fields import aigc
from windlass.api.resources import (
    AIGC_JOBS,
    POD_GROUPS,
    PODS,
    PRIORITY_CLASSES,
    SERVICES,
)
from windlass.api.views import Pod, PriorityClass, decode_pod, decode_priority_class
from windlass.client.batch_driver import BatchDriver, DriverUnreachable
from windlass.client.client import Client
from windlass.client.informers import Informer
from windlass.controllers.aigc.models import ModelStates
from windlass.controllers.aigc.objects import BatchObjects
from windlass.controllers.aigc.reconcile import POLL_SECONDS, AigcSnapshot, reconcile_aigc
from windlass.controllers.effects import NOTHING, Effects
from windlass.controllers.expectations import RecordIndex, StoredObject, decode_stored_object
from windlass.controllers.ownership import ControlledBy
from windlass.controllers.runner import Informers, WatchedCollection
from windlass.jobs.aigc.job import DRIVER_KEY, read_aigc_job
from windlass.jobs.aigc.pods import BatchPlatform, driver_among, token_of
from windlass.jobs.aigc.removal import REMOVAL
from windlass.jobs.aigc.volumes import MissingVolume
from windlass.jobs.members import OUT_OF_MEMORY, RolePod, job_pods
from windlass.kits.clock import Clock

Json = dict[str, Any]
_OWNED = ControlledBy(AIGC_JOBS)
_ROLES = {DRIVER_KEY: aigc.DRIVER, "worker": aigc.WORKER}
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
        self._objects = BatchObjects(client, informers, clock, self._jobs)
        self._models = ModelStates(informers, self._jobs)
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
            WatchedCollection(self._groups, self._jobs_of_group),
            WatchedCollection(self._services, _OWNED.keys),
            *self._objects.watches(),
            *self._models.watches(),
        )

    def _jobs_of_group(self, group: StoredObject) -> list[str]:
        """Return the job with the name of the group, and the one that owns it as the group of a stage."""
        named = [group.key] if group.key in self._jobs.items else []
        return list(dict.fromkeys([*named, *_OWNED.keys(group)]))

    def initial_keys(self) -> Iterable[str]:
        return ()

    async def reconcile(self, key: str) -> Effects:
        stored = self._jobs.items.get(key)
        if stored is None:
            self._seen.pop(key, None)
            self._objects.forget(key)
            return NOTHING
        obj = stored.object
        namespace, _, name = key.partition("/")
        group = self._groups.items.get(key)
        pods = self._pods_of.get(stored.uid)
        secret = await self._objects.secret(namespace, name, stored.uid)
        observed = AigcSnapshot(
            pods=_job_pods(
                (pod for pod in pods.values() if not _removes(pod)), stage_names(obj), shards_of(obj)
            ),
            gates={pod.name: pod.shape.gates for pod in pods.values() if pod.shape.gates},
            removal=next(iter(_job_pods(filter(_removes, pods.values()), ())), None),
            stage_groups=self._stage_groups(namespace, name, obj),
            group=group.object if group is not None else None,
            services=frozenset(
                one.key.partition("/")[2] for one in self._services_of.get(stored.uid).values()
            ),
            secret=secret is not None,
            config=self._objects.config(namespace, name, stored.uid),
            claim=self._objects.has_claim(namespace, name),
            missing=await self._missing(obj, pods.values()),
            batch=await self._look(key, obj, pods.values(), secret),
            token="" if secret is not None else self._token(),
            priorities={name: found.value for name, found in self._classes.items.items()},
            now=self._clock.now(),
            scheduler=self._scheduler,
            platform=self._platform,
            model=self._models.of(obj.get("spec") or {}),
        )
        effects = reconcile_aigc(obj, observed)
        if message := failure_of(obj, effects):
            stopped = await self._stop(obj, pods.values(), secret, message)
            effects = reconcile_aigc(obj, replace(observed, stopped=stopped))
        return effects

    async def _missing(self, obj: Json, pods: Iterable[Pod]) -> tuple[MissingVolume, ...]:
        """Return the named objects that pods lack. A driver that runs, or has run, began with all of them."""
        driver = driver_among(pods)
        if driver is not None and driver.phase != "Pending":
            return ()
        finished = aigc.part(obj, "status").get("phase") in ("Succeeded", "Failed")
        return () if finished else await self._objects.missing(obj)

    async def _stop(self, obj: Json, pods: Iterable[Pod], secret: Json | None, message: str) -> bool:
        """Let the driver of a job that fails write the rows that are done; return whether it does."""
        driver = driver_among(pods)
        if driver is None or secret is None or driver.phase != "Running":
            return False
        connection = self._connect(obj, driver, secret)
        try:
            return connection is not None and bool(
                await asyncio.to_thread(connection.post, "/v1/end", {"message": message})
            )
        except DriverUnreachable as problem:
            log.debug("aigcjob: the driver %s cannot be told the end: %s", driver.name, problem)
            return False

    def _stage_groups(self, namespace: str, name: str, obj: Json) -> dict[str, Json]:
        """Return the PodGroups of stages, by name."""
        wanted = [f"{name}-{stage}{end}" for stage in stage_names(obj) for end in ("", "-cpu")]
        found = {one: self._groups.items.get(f"{namespace}/{one}") for one in wanted}
        return {one: group.object for one, group in found.items() if group is not None}

    async def _look(self, key: str, obj: Json, pods: Iterable[Pod], secret: Json | None) -> Json | None:
        """Return the status of the driver, at most as old as the interval between looks."""
        driver = driver_among(pods)
        if driver is None or secret is None:
            return None
        uid, at, last = self._seen.get(key, ("", 0.0, None))
        ended = driver.phase in ("Succeeded", "Failed")
        if ended and not (uid == driver.uid and (last or {}).get("finished")):
            last = await self._last_report(driver) or (last if uid == driver.uid else None)
            if last is not None:
                self._seen[key] = (driver.uid, self._clock.monotonic(), last)
            return last
        fresh = uid == driver.uid and self._clock.monotonic() < at + 0.9 * POLL_SECONDS
        if fresh or driver.phase != "Running":
            return last if uid == driver.uid else None
        status = await self._ask(obj, driver, secret)
        if status is None and uid == driver.uid:
            status = last
        self._seen[key] = (driver.uid, self._clock.monotonic(), status)
        return status

    async def _last_report(self, driver: Pod) -> Json | None:
        """Return the last status of a driver that has ended, from the message of its container."""
        pod = await self._client.find(PODS, driver.name, driver.namespace)
        for one in ((pod or {}).get("status") or {}).get("containerStatuses") or ():
            ended = (one.get("state") or {}).get("terminated") or {}
            try:
                report = msgspec.json.decode(str(ended.get("message") or ""), type=dict[str, Any])
            except (msgspec.DecodeError, msgspec.ValidationError):
                continue
            if report.get("finished"):
                return report
        return None

    def _connect(self, obj: Json, driver: Pod, secret: Json) -> BatchDriver | None:
        try:
            port = read_aigc_job(obj).port
            token = token_of(secret)
        except (ValueError, TypeError, KeyError, AttributeError):
            return None  # the reconciliation reports it
        return self._driver_of(driver.namespace, driver.name, driver.pod_ip, port, token)

    async def _ask(self, obj: Json, driver: Pod, secret: Json) -> Json | None:
        connection = self._connect(obj, driver, secret)
        if connection is None:
            return None
        try:
            return await asyncio.to_thread(connection.get, "/v1/status")
        except DriverUnreachable as problem:
            log.debug("aigcjob: the driver %s cannot be read: %s", driver.name, problem)
            return None


def failure_of(obj: Json, effects: Effects) -> str:
    """Return why a reconciliation ends a job as failed; empty if it does not."""
    if (obj.get("status") or {}).get("phase") == "Failed":
        return ""
    statuses = (update.object.get("status") or {} for update in effects.updates)
    failed = next((status for status in statuses if status.get("phase") == "Failed"), None)
    return "" if failed is None else str(failed.get("message") or "the job has failed")


def stage_names(obj: Json) -> list[str]:
    """Return the names of the stages of a job."""
    stages = aigc.part(obj, "spec").get("stages")
    return [str(one.get("name")) for one in stages or () if isinstance(one, dict)]


def _removes(pod: Pod) -> bool:
    return pod.labels.get(aigc.ROLE) == REMOVAL


def shards_of(obj: Json) -> int:
    """Return the number of pods of a worker; 1 for a spec that cannot be read."""
    try:
        return max(1, aigc.shards_of(aigc.part(obj, "spec")))
    except (ValueError, TypeError):
        return 1  # the reconciliation reports it


def _job_pods(pods: Iterable[Pod], stages: Iterable[str], shards: int = 1) -> tuple[RolePod, ...]:
    """Return the pods of a job. Those of workers of several pods are numbered through all workers."""
    main = {aigc.DRIVER: "driver", aigc.WORKER: ""}
    roles = {**_ROLES, **{f"{name}{end}": name for name in stages for end in ("", "-cpu")}}
    listed = tuple(pods)
    exhausted = {pod.uid for pod in listed for end in pod.exits if end.reason == OUT_OF_MEMORY}
    found = job_pods(listed, aigc.ROLE, aigc.INDEX, roles, main)
    if shards > 1:
        found = tuple(_numbered(pod, one, shards) for pod, one in zip(found, listed, strict=True))
    return tuple(replace(pod, reason=OUT_OF_MEMORY) if pod.uid in exhausted else pod for pod in found)


def _numbered(pod: RolePod, seen: Pod, shards: int) -> RolePod:
    """Return a pod of a worker with its number among all pods of the role.

    A pod has failed when one of its containers has, whatever the others do.
    """
    if pod.role != aigc.WORKER or pod.index < 0:
        return pod
    ended = next((end for end in seen.exits if end.exit_code), None)
    if pod.phase == "Running" and ended is not None:  # its server, for example
        pod = replace(pod, phase="Failed", exit_code=ended.exit_code, ready=False, message=ended.message)
    rank = seen.labels.get(aigc.SHARD, "")
    valid = rank.isascii() and rank.isdecimal() and int(rank) < shards
    return replace(pod, index=pod.index * shards + int(rank) if valid else -1)
