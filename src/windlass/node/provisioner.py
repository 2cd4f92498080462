"""Provisioner of volumes on this machine: a directory for each claim (``windlass.dev/local-path``).

The volume binder of the control plane asks for a volume by an annotation on the claim.
The directory is reachable from all nodes of this machine, also from simulated ones, so
a volume has no node affinity. Its capacity is recorded and not enforced.
"""

from __future__ import annotations

import asyncio
import logging
import shutil
from pathlib import Path
from typing import Any

from windlass.api.errors import StatusError
from windlass.api.local_storage import LOCAL_PROVISIONER, PROVISIONED_BY, STORAGE_PROVISIONER
from windlass.api.resources import PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES, STORAGE_CLASSES
from windlass.client.client import Client
from windlass.client.errors import Unreachable
from windlass.client.event_correlator import ObjectRef
from windlass.client.informers import SharedInformers
from windlass.client.recorder import EventRecorder
from windlass.kits.backoff import Backoff
from windlass.kits.clock import Clock
from windlass.kits.rng import Random
from windlass.node.runtime.threads import in_thread

_log = logging.getLogger("windlass.node")
Json = dict[str, Any]


class Provisioner:
    """Creates volumes for claims below ``directory``, and deletes those that are released."""

    def __init__(
        self,
        client: Client,
        informers: SharedInformers,
        recorder: EventRecorder,
        clock: Clock,
        rng: Random,
        directory: Path,
    ) -> None:
        self._client = client
        self._recorder = recorder
        self._clock = clock
        self._rng = rng
        self._directory = directory
        self._claims = informers.informer(PERSISTENT_VOLUME_CLAIMS)
        self._volumes = informers.informer(PERSISTENT_VOLUMES)
        self._classes = informers.informer(STORAGE_CLASSES)
        self._changed = asyncio.Event()
        for informer in (self._claims, self._volumes, self._classes):
            informer.add_handler(self._touch, lambda _, new: self._touch(new), self._touch)

    def _touch(self, _: object) -> None:
        self._changed.set()

    async def run(self) -> None:
        """Provision and delete volumes until cancelled."""
        for informer in (self._claims, self._volumes, self._classes):
            await informer.wait_synced()
        backoff = Backoff(self._rng, 0.2, 2.0, 30.0, 0.2)
        while True:
            await self._changed.wait()
            self._changed.clear()
            try:
                for claim in list(self._claims.items.values()):
                    if self._is_asked(claim):
                        await self._provision(claim)
                for volume in list(self._volumes.items.values()):
                    if _is_released(volume):
                        await self._delete(volume)
                backoff.reset()
            except (StatusError, Unreachable, OSError) as error:
                _log.warning("volumes of claims are not up to date, retrying: %s", error)
                await self._clock.sleep(backoff.next())
                self._changed.set()

    def _is_asked(self, claim: Json) -> bool:
        meta = claim["metadata"]
        return (
            (meta.get("annotations") or {}).get(STORAGE_PROVISIONER) == LOCAL_PROVISIONER
            and not claim["spec"].get("volumeName")
            and not meta.get("deletionTimestamp")
            and _name(claim) not in self._volumes.items
        )

    async def _provision(self, claim: Json) -> None:
        meta = claim["metadata"]
        key = f"{meta['namespace']}/{meta['name']}"
        message = f'External provisioner is provisioning volume for claim "{key}"'
        self._event(claim, "Normal", "Provisioning", message)
        path = self._path(claim)
        try:
            await in_thread(_make, path)
            await self._client.create(PERSISTENT_VOLUMES, self._volume(claim, path))
        except StatusError as error:
            if error.code != 409:
                self._failed(claim, error)
                raise
        except OSError as error:
            self._failed(claim, error)
            raise
        self._event(
            claim, "Normal", "ProvisioningSucceeded", f"Successfully provisioned volume {_name(claim)}"
        )

    def _failed(self, claim: Json, error: Exception) -> None:
        name = claim["spec"].get("storageClassName") or ""
        message = f'failed to provision volume with StorageClass "{name}": {error}'
        self._event(claim, "Warning", "ProvisioningFailed", message)

    def _path(self, claim: Json) -> Path:
        """Return the directory: one of its own, or the one that the claim had in an earlier version."""
        meta = claim["metadata"]
        earlier = self._directory / f"{meta['namespace']}_{meta['name']}"
        taken = {(one["spec"].get("hostPath") or {}).get("path") for one in self._volumes.items.values()}
        if earlier.is_dir() and str(earlier) not in taken:
            return earlier
        return self._directory / f"{_name(claim)}_{meta['namespace']}_{meta['name']}"

    def _volume(self, claim: Json, path: Path) -> Json:
        meta, spec = claim["metadata"], claim["spec"]
        name = spec.get("storageClassName") or ""
        storage_class = self._classes.items.get(name) or {}
        return {
            "apiVersion": "v1",
            "kind": "PersistentVolume",
            "metadata": {"name": _name(claim), "annotations": {PROVISIONED_BY: LOCAL_PROVISIONER}},
            "spec": {
                "accessModes": spec.get("accessModes") or ["ReadWriteOnce"],
                "capacity": {"storage": spec["resources"]["requests"]["storage"]},
                "claimRef": {
                    "apiVersion": "v1",
                    "kind": "PersistentVolumeClaim",
                    "namespace": meta["namespace"],
                    "name": meta["name"],
                    "uid": meta["uid"],
                },
                "hostPath": {"path": str(path), "type": "DirectoryOrCreate"},
                "persistentVolumeReclaimPolicy": storage_class.get("reclaimPolicy") or "Delete",
                "storageClassName": name,
                "volumeMode": spec.get("volumeMode") or "Filesystem",
            },
        }

    async def _delete(self, volume: Json) -> None:
        path = Path((volume["spec"].get("hostPath") or {}).get("path") or "")
        if path.parent == self._directory:
            await in_thread(shutil.rmtree, path, True)
        meta = volume["metadata"]
        try:
            await self._client.delete(PERSISTENT_VOLUMES, meta["name"], uid=meta["uid"])
        except StatusError as error:
            if error.code not in (404, 409):
                raise

    def _event(self, claim: Json, kind: str, reason: str, message: str) -> None:
        meta = claim["metadata"]
        resource = PERSISTENT_VOLUME_CLAIMS
        ref = ObjectRef(resource.api_version, resource.kind, meta["namespace"], meta["name"], meta["uid"])
        self._recorder.event(ref, kind, reason, message)


def _name(claim: Json) -> str:
    return f"pvc-{claim['metadata']['uid']}"


def _is_released(volume: Json) -> bool:
    meta, spec = volume["metadata"], volume["spec"]
    return (
        (meta.get("annotations") or {}).get(PROVISIONED_BY) == LOCAL_PROVISIONER
        and spec.get("persistentVolumeReclaimPolicy") == "Delete"
        and (volume.get("status") or {}).get("phase") == "Released"
        and not meta.get("deletionTimestamp")
    )


def _make(path: Path) -> None:
    path.mkdir(parents=True, exist_ok=True)
    path.chmod(0o777)
