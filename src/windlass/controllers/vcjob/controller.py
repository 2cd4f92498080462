"""Reconciler of Volcano Jobs: the objects it follows, and the snapshot for a reconciliation."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import msgspec

from windlass.api import annotations as names
from windlass.api.resources import (
    COMMANDS,
    CONFIG_MAPS,
    PERSISTENT_VOLUME_CLAIMS,
    POD_GROUPS,
    PODS,
    PRIORITY_CLASSES,
    SECRETS,
    SERVICES,
    VOLCANO_JOBS,
)
from windlass.api.views import Pod, PriorityClass, decode_pod, decode_priority_class
from windlass.client.client import Client
from windlass.client.informers import Informer
from windlass.controllers.derived_records import DerivedRecords
from windlass.controllers.effects import Effects
from windlass.controllers.expectations import NamespaceView, RecordIndex, StoredObject, decode_stored_object
from windlass.controllers.ownership import pods_of
from windlass.controllers.runner import Informers, WatchedCollection
from windlass.controllers.vcjob import status as statuses
from windlass.controllers.vcjob.members import Members, member
from windlass.controllers.vcjob.plugins import ssh
from windlass.controllers.vcjob.policies import missing
from windlass.controllers.vcjob.reconcile import reconcile
from windlass.controllers.vcjob.snapshot import JobSnapshot
from windlass.controllers.vcjob.spec import DEFAULT_SCHEDULER, read
from windlass.controllers.vcjob.state_machine import ACTIVE, RESTARTABLE
from windlass.controllers.vcjob.traces import JobTraces
from windlass.controllers.volcano_commands import discarded, key_of, oldest_first
from windlass.kits import ssh_keys
from windlass.kits.clock import Clock
from windlass.kits.ssh_keys import SshKeyPair
from windlass.observe.tracing import Exporter

Json = dict[str, Any]
_STALE_CACHE_SECONDS = 0.2


class JobController:
    """``batch.volcano.sh`` Jobs. Keys are ``namespace/name`` of the Job."""

    name = "vcjob"
    pause_seconds = 0.0

    def __init__(
        self,
        client: Client,
        informers: Informers,
        clock: Clock,
        exporter: Exporter | None = None,
        scheduler: str = DEFAULT_SCHEDULER,
        generate_keys: Callable[[], SshKeyPair] = ssh_keys.generate,
    ) -> None:
        """``scheduler``: default scheduler of pods. ``generate_keys``: source of key pairs."""
        self._generate_keys = generate_keys
        self._client = client
        self._scheduler = scheduler
        self._traces = JobTraces(exporter) if exporter is not None else None
        self._clock = clock
        self._jobs: Informer[StoredObject] = informers.informer(VOLCANO_JOBS, decode=decode_stored_object)
        self._pods: Informer[Pod] = informers.informer(PODS, decode=decode_pod)
        self._groups: Informer[StoredObject] = informers.informer(POD_GROUPS, decode=_group_of_a_job)
        self._maps: Informer[StoredObject] = informers.informer(CONFIG_MAPS, decode=_hosts_of_a_job)
        self._services: Informer[StoredObject] = informers.informer(SERVICES, decode=decode_stored_object)
        self._claims: Informer[StoredObject] = informers.informer(
            PERSISTENT_VOLUME_CLAIMS, decode=decode_stored_object
        )
        self._commands: Informer[Json] = informers.informer(COMMANDS)
        self._classes: Informer[PriorityClass] = informers.informer(
            PRIORITY_CLASSES, decode=decode_priority_class
        )
        self._pods_of = RecordIndex(self._pods, _job_uid, lambda pod: pod.key, pods_of(VOLCANO_JOBS))
        self._members = DerivedRecords(self._pods, member, lambda pod: pod.key, pods_of(VOLCANO_JOBS))
        self._commands_of = RecordIndex(self._commands, _command_keys, key_of)
        self._jobs_with_claim = RecordIndex(self._jobs, _claim_keys, lambda job: job.key)

    def watches(self) -> Iterable[WatchedCollection]:
        return (
            WatchedCollection(self._jobs, lambda job: [job.key]),
            WatchedCollection(self._pods, _pod_keys, _pod_changed, pods_of(VOLCANO_JOBS)),
            WatchedCollection(self._groups, _owner_keys),
            WatchedCollection(self._maps, self._hosts_keys),
            WatchedCollection(self._services, self._service_keys),
            WatchedCollection(self._claims, self._keys_of_claim),
            WatchedCollection(self._commands, _command_keys),
        )

    def initial_keys(self) -> Iterable[str]:
        return ()

    def _hosts_keys(self, hosts: StoredObject) -> list[str]:
        key = hosts.key.removesuffix("-svc")
        return [key] if key in self._jobs.items else []

    def _keys_of_claim(self, claim: StoredObject) -> list[str]:
        return [*_owner_keys(claim), *self._jobs_with_claim.get(claim.key)]

    def _service_keys(self, service: StoredObject) -> list[str]:
        """Return the jobs that give a Service this name, whatever its owner is."""
        return [
            key for key in {service.key, service.key.removesuffix("-head-svc")} if key in self._jobs.items
        ]

    async def reconcile(self, key: str) -> Effects:
        stored = self._jobs.items.get(key)
        commands = oldest_first(self._commands_of.get(key).values())
        if stored is None:
            if self._traces is not None:
                self._traces.forget(key)
            return discarded(commands)
        job = stored.object
        pods = {pod.name: self._members.of(pod) for pod in self._pods_of.get(stored.uid).values()}
        if await self._caches_lag(job, pods):
            return Effects(requeue_after=_STALE_CACHE_SECONDS)
        observed = await self._with_keys(job, self._observe(job, pods, commands))
        if self._traces is not None:
            self._traces.observe(key, job, observed)
        return reconcile(job, observed)

    def _observe(self, job: Json, pods: Members, commands: tuple[Json, ...]) -> JobSnapshot:
        namespace, name = job["metadata"]["namespace"], job["metadata"]["name"]
        uid = job["metadata"]["uid"]
        objects: dict[tuple[str, str], Json] = {}
        for kind, informer, plugin_object in (
            ("Service", self._services, name),
            ("Service", self._services, f"{name}-head-svc"),
            ("ConfigMap", self._maps, f"{name}-svc"),
        ):
            stored = informer.items.get(f"{namespace}/{plugin_object}")
            if stored is not None:
                objects[kind, plugin_object] = stored.object
        group = self._groups.items.get(f"{namespace}/{name}-{uid}")
        return JobSnapshot(
            pods=pods,
            group=group.object if group is not None else None,
            objects=objects,
            claims=NamespaceView(self._claims.items, namespace),
            commands=commands,
            priorities={name: found.value for name, found in self._classes.items.items()},
            now=self._clock.now(),
            scheduler=self._scheduler,
        )

    async def _with_keys(self, job: Json, observed: JobSnapshot) -> JobSnapshot:
        """Add the Secret of plugin ``ssh`` while it is created or deleted, and a key pair for a new one.

        Secrets are not watched: the controller may not list them in a cluster.
        """
        try:
            spec, state = read(job), statuses.load(job)
        except (ValueError, TypeError, KeyError, AttributeError):
            return observed  # the reconciliation reports the problem
        active, stored = state.phase in ACTIVE, ssh.RECORD in state.resources
        if "ssh" not in spec.plugins or active is stored or (stored and state.phase in RESTARTABLE):
            return observed
        name = ssh.secret_name(spec)
        secret = await self._client.find(SECRETS, name, spec.namespace)
        if secret is not None:
            return replace(observed, objects={**observed.objects, ("Secret", name): secret})
        if not active or not ssh.needs_keys(spec):
            return observed
        return replace(observed, keys=await asyncio.to_thread(self._generate_keys))

    async def _caches_lag(self, job: Json, pods: Members) -> bool:
        """Return whether a pod that the cache misses exists on the server.

        A pod taken for evicted may restart its whole job, so the cache alone does not
        decide: it may lag after a change of leader or a broken watch.
        """
        try:
            spec, state = read(job), statuses.load(job)
        except (ValueError, TypeError, KeyError, AttributeError):
            return False  # the reconciliation reports the problem
        if state.phase not in RESTARTABLE or not missing(spec, state, pods):
            return False
        selector = f"{names.JOB_NAME}={spec.name}"
        found = await self._client.list(PODS, spec.namespace, labels=selector, type=_Identity)
        there = {pod.metadata.name for pod in found.items if _controlled_by(pod, spec.uid)}
        dropped = {spec.pod_name(task.name, index) for task, index in missing(spec, state, pods)}
        return bool(there & dropped)


class _Owner(msgspec.Struct):
    uid: str = ""
    controller: bool | None = None


class _Meta(msgspec.Struct, rename="camel"):
    name: str
    owner_references: list[_Owner] | None = None


class _Identity(msgspec.Struct):
    """Name and owners of a pod."""

    metadata: _Meta


def _controlled_by(pod: _Identity, uid: str) -> bool:
    return any(owner.controller and owner.uid == uid for owner in pod.metadata.owner_references or ())


def _is_job(kind: str, api_version: str) -> bool:
    return kind == VOLCANO_JOBS.kind and api_version.startswith(f"{VOLCANO_JOBS.group}/")


def _job_uid(pod: Pod) -> Iterable[str]:
    owner = pod.controller
    return (owner.uid,) if owner is not None and _is_job(owner.kind, owner.api_version) else ()


def _pod_keys(pod: Pod) -> Iterable[str]:
    owner = pod.controller
    if owner is None or not _is_job(owner.kind, owner.api_version):
        return ()
    return (f"{pod.namespace}/{owner.name}",)


def _pod_changed(old: Pod, new: Pod) -> bool:
    """Return whether an update of a pod may matter to its job. That it has a node does not."""

    def facts(pod: Pod) -> tuple[object, ...]:
        notes = pod.annotations
        place = notes.get(names.TASK_SPEC), notes.get(names.TASK_INDEX), notes.get(names.JOB_VERSION)
        end = pod.deleted, pod.exits, pod.ended, pod.restarts
        return pod.uid, pod.phase, pod.ready, end, place, pod.labels

    return facts(old) != facts(new)


def _owner_keys(stored: StoredObject) -> Iterable[str]:
    owner = stored.controller
    if owner is None or not _is_job(owner.kind, owner.api_version):
        return ()
    return (f"{stored.key.partition('/')[0]}/{owner.name}",)


def _command_keys(command: Json) -> Iterable[str]:
    target = command.get("target") or {}
    if not _is_job(target.get("kind") or "", target.get("apiVersion") or ""):
        return ()
    return (f"{command['metadata']['namespace']}/{target.get('name', '')}",)


def _claim_keys(stored: StoredObject) -> Iterable[str]:
    """The claims that a job names but does not make."""
    if b"volumeClaimName" not in stored.raw:
        return ()
    job = stored.object
    namespace = job["metadata"].get("namespace", "")
    volumes = (job.get("spec") or {}).get("volumes") or ()
    return [f"{namespace}/{v['volumeClaimName']}" for v in volumes if v.get("volumeClaimName")]


def _hosts_of_a_job(raw: msgspec.Raw) -> StoredObject | None:
    """Decode a ConfigMap with the name of a job's host list. Others are not cached."""
    stored = decode_stored_object(raw)
    return stored if stored.key.endswith("-svc") else None


def _group_of_a_job(raw: msgspec.Raw) -> StoredObject | None:
    """Decode a PodGroup that a Job owns. Those of bare pods are not cached."""
    stored = decode_stored_object(raw)
    return stored if any(True for _ in _owner_keys(stored)) else None
