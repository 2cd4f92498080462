"""Reconcilers of PersistentVolumeClaims (``namespace/name``) and PersistentVolumes (``name``)."""

from __future__ import annotations

from collections.abc import Iterable

from windlass.api.resources import PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES, PODS, STORAGE_CLASSES
from windlass.api.views import Pod, decode_pod
from windlass.client.informers import Informer
from windlass.controllers.effects import NOTHING, Effects
from windlass.controllers.expectations import RecordIndex, StoredObject, decode_stored_object
from windlass.controllers.runner import Informers, WatchedCollection
from windlass.controllers.storage.claims import ClaimSnapshot, reconcile_claim
from windlass.controllers.storage.volumes import reconcile_volume


class ClaimController:
    """Binds claims to volumes."""

    name = "persistentvolumeclaim"
    pause_seconds = 0.0

    def __init__(self, informers: Informers) -> None:
        self._claims: Informer[StoredObject] = informers.informer(
            PERSISTENT_VOLUME_CLAIMS, decode=decode_stored_object
        )
        self._volumes: Informer[StoredObject] = informers.informer(
            PERSISTENT_VOLUMES, decode=decode_stored_object
        )
        self._classes: Informer[StoredObject] = informers.informer(
            STORAGE_CLASSES, decode=decode_stored_object
        )
        self._pods: Informer[Pod] = informers.informer(PODS, decode=decode_pod)
        self._users = RecordIndex(self._pods, _claims_of, lambda pod: pod.key)

    def watches(self) -> Iterable[WatchedCollection]:
        return (
            WatchedCollection(self._claims, lambda claim: [claim.key]),
            WatchedCollection(self._volumes, self._volume_keys),
            WatchedCollection(self._classes, lambda _: self._open()),
            WatchedCollection(self._pods, self._pod_keys),
        )

    def initial_keys(self) -> Iterable[str]:
        return ()

    def _open(self) -> list[str]:
        """Return the claims without a volume."""
        return [
            key for key, claim in self._claims.items.items() if not claim.object["spec"].get("volumeName")
        ]

    def _volume_keys(self, volume: StoredObject) -> Iterable[str]:
        held = volume.object["spec"].get("claimRef")
        if held:
            return [f"{held.get('namespace')}/{held.get('name')}"]
        named = [
            key
            for key, claim in self._claims.items.items()
            if claim.object["spec"].get("volumeName") == volume.key
        ]
        return [*named, *self._open()]

    def _pod_keys(self, pod: Pod) -> Iterable[str]:
        """Return the claims that this pod may have kept from deletion."""
        keys = _claims_of(pod)
        return [key for key in keys if (claim := self._claims.items.get(key)) and claim.deleted]

    async def reconcile(self, key: str) -> Effects:
        stored = self._claims.items.get(key)
        if stored is None:
            return NOTHING
        users = self._users.get(key).values()
        observed = ClaimSnapshot(
            in_use=any(pod.node_name and pod.phase not in ("Succeeded", "Failed") for pod in users),
            volumes=[one.object for one in self._volumes.items.values()],
            classes=[one.object for one in self._classes.items.values()],
        )
        return reconcile_claim(stored.object, observed)


def _claims_of(pod: Pod) -> list[str]:
    return [f"{pod.namespace}/{name}" for name in pod.claims or ()]


class VolumeController:
    """Keeps the phase of volumes."""

    name = "persistentvolume"
    pause_seconds = 0.0

    def __init__(self, informers: Informers) -> None:
        self._claims: Informer[StoredObject] = informers.informer(
            PERSISTENT_VOLUME_CLAIMS, decode=decode_stored_object
        )
        self._volumes: Informer[StoredObject] = informers.informer(
            PERSISTENT_VOLUMES, decode=decode_stored_object
        )

    def watches(self) -> Iterable[WatchedCollection]:
        return (
            WatchedCollection(self._volumes, lambda volume: [volume.key]),
            WatchedCollection(self._claims, self._claim_keys),
        )

    def initial_keys(self) -> Iterable[str]:
        return ()

    def _claim_keys(self, claim: StoredObject) -> Iterable[str]:
        name = claim.object["spec"].get("volumeName")
        return [name] if name else ()

    async def reconcile(self, key: str) -> Effects:
        stored = self._volumes.items.get(key)
        if stored is None:
            return NOTHING
        volume = stored.object
        held = volume["spec"].get("claimRef") or {}
        claim = self._claims.items.get(f"{held.get('namespace')}/{held.get('name')}")
        return reconcile_volume(volume, claim.object if claim is not None else None)
