"""Reconciler of TrainJobs: its caches and its snapshots."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from windlass.api import annotations as names
from windlass.api.errors import StatusError
from windlass.api.fields import trainer
from windlass.api.fields.jobset import JOB_SET_NAME
from windlass.api.resources import (
    CLUSTER_TRAINING_RUNTIMES,
    CONFIG_MAPS,
    COSCHEDULING_POD_GROUPS,
    JOB_SETS,
    POD_GROUPS,
    PODS,
    PRIORITY_CLASSES,
    SECRETS,
    TRAIN_JOBS,
    TRAINING_RUNTIMES,
    Resource,
)
from windlass.api.views import Pod, PriorityClass, decode_pod, decode_priority_class
from windlass.client.client import Client
from windlass.client.informers import Informer
from windlass.controllers.apply_effects import Failure
from windlass.controllers.effects import NOTHING, Create, Effects
from windlass.controllers.expectations import RecordIndex, StoredObject, decode_stored_object
from windlass.controllers.ownership import ControlledBy
from windlass.controllers.runner import Informers, WatchedCollection
from windlass.controllers.trainer.reconcile import TrainSnapshot, needs_objects, reconcile_train_job
from windlass.controllers.trainer.world import announce_world
from windlass.jobs.trainer.objects import snapshot_name
from windlass.jobs.trainer.policies import HOST_FILE, SSH_SECRET
from windlass.jobs.trainer.status import FINAL, TrainConditions
from windlass.kits import ssh_keys
from windlass.kits.clock import Clock

Json = dict[str, Any]
_OWNED = ControlledBy(TRAIN_JOBS)


class TrainJobController:
    """TrainJobs. Keys are ``namespace/name``."""

    name = "trainjob"
    pause_seconds = 0.0

    def __init__(self, client: Client, informers: Informers, clock: Clock) -> None:
        self._client, self._clock = client, clock
        self._jobs: Informer[StoredObject] = informers.informer(TRAIN_JOBS, decode=decode_stored_object)
        self._sets: Informer[StoredObject] = informers.informer(JOB_SETS, decode=decode_stored_object)
        self._runtimes: dict[Resource, Informer[StoredObject]] = {
            kind: informers.informer(kind, decode=decode_stored_object)
            for kind in (TRAINING_RUNTIMES, CLUSTER_TRAINING_RUNTIMES)
        }
        self._classes: Informer[PriorityClass] = informers.informer(
            PRIORITY_CLASSES, decode=decode_priority_class
        )
        self._pods: Informer[Pod] = informers.informer(PODS, decode=decode_pod)
        self._pods_of = RecordIndex(self._pods, _job_of_elastic_pod, lambda pod: pod.key)
        self._refused: dict[str, str] = {}

    def watches(self) -> Iterable[WatchedCollection]:
        return (
            WatchedCollection(self._jobs, lambda job: [job.key]),
            WatchedCollection(self._sets, _OWNED.keys),
            WatchedCollection(self._pods, _job_of_elastic_pod),
        )

    def initial_keys(self) -> Iterable[str]:
        return ()

    def note_failures(self, key: str, failures: Sequence[Failure]) -> None:
        """Note why the server refused an object of a TrainJob."""
        refused = [failure for failure in failures if failure.refused and isinstance(failure.action, Create)]
        if refused:
            self._refused[key] = refused[0].message
        elif not failures:
            self._refused.pop(key, None)

    async def reconcile(self, key: str) -> Effects:
        stored = self._jobs.items.get(key)
        if stored is None:
            self._refused.pop(key, None)
            return NOTHING
        obj = stored.object
        found = self._sets.items.get(key)
        job_set = found.object if found is not None else None
        conditions = TrainConditions((obj.get("status") or {}).get("conditions") or (), 0.0)
        reads = needs_objects(obj, job_set) and not any(conditions.is_true(kind) for kind in FINAL)
        observed = TrainSnapshot(
            job_set=job_set,
            config_maps=await self._config_maps(obj) if reads else {},
            secrets=await self._present(SECRETS, obj, SSH_SECRET) if reads else frozenset(),
            groups={
                kind: await self._present(kind, obj, "") if reads else frozenset()
                for kind in (POD_GROUPS, COSCHEDULING_POD_GROUPS)
            },
            runtime=self._runtime(obj),
            refused=self._refused.get(key, ""),
            priorities={name: found.value for name, found in self._classes.items.items()},
            now=self._clock.now(),
            keys=_new_keys,
        )
        effects = reconcile_train_job(obj, observed)
        world = announce_world(self._pods_of.get(key).values())
        return replace(effects, stages=(*effects.stages, (world,))) if world is not None else effects

    def _runtime(self, obj: Json) -> Json | None:
        reference = (obj.get("spec") or {}).get("runtimeRef") or {}
        kind = trainer.runtime_kind(reference)
        if kind is None:
            return None
        name = str(reference.get("name"))
        key = f"{obj['metadata'].get('namespace')}/{name}" if kind.namespaced else name
        stored = self._runtimes[kind].items.get(key)
        if stored is None:
            return None
        return {"apiVersion": kind.api_version, "kind": kind.kind, **stored.object}

    async def _config_maps(self, obj: Json) -> dict[str, Json]:
        wanted = (snapshot_name(obj), f"{obj['metadata']['name']}{HOST_FILE}")
        found = {name: await self._find(CONFIG_MAPS, obj, name) for name in wanted}
        return {name: config_map for name, config_map in found.items() if config_map is not None}

    async def _present(self, resource: Resource, obj: Json, suffix: str) -> frozenset[str]:
        """Return the name of an object of the TrainJob if it exists."""
        name = f"{obj['metadata']['name']}{suffix}"
        return frozenset({name} if await self._find(resource, obj, name) is not None else ())

    async def _find(self, resource: Resource, obj: Json, name: str) -> Json | None:
        try:
            return await self._client.find(resource, name, obj["metadata"].get("namespace") or "default")
        except StatusError as error:
            if error.code == 404:  # the server does not know the kind, as coscheduling's PodGroup
                return None
            raise


def _job_of_elastic_pod(pod: Pod) -> Iterable[str]:
    """Return the key of the TrainJob of a pod that takes part in a rendezvous."""
    name = pod.labels.get(JOB_SET_NAME)
    return (f"{pod.namespace}/{name}",) if name and names.RENDEZVOUS in pod.annotations else ()


def _new_keys() -> tuple[str, str]:
    pair = ssh_keys.generate()
    return pair.private, pair.public
