"""ConfigMap, Secret and claim of each AIGCJob, without a request for each reconciliation."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from windlass.api.fields import aigc
from windlass.api.resources import AIGC_JOBS, CONFIG_MAPS, PERSISTENT_VOLUME_CLAIMS, SECRETS
from windlass.client.client import Client
from windlass.client.informers import Informer
from windlass.controllers.expectations import RecordIndex, StoredObject, decode_stored_object
from windlass.controllers.ownership import ControlledBy
from windlass.controllers.runner import Informers, WatchedCollection
from windlass.jobs.aigc.storage import CLAIM_SUFFIX
from windlass.jobs.aigc.volumes import MissingVolume, NamedVolume, named_volumes
from windlass.kits.clock import Clock

Json = dict[str, Any]
_OWNED = ControlledBy(AIGC_JOBS)
REREAD_SECONDS = 60.0
"""Maximum age of a Secret that was read before. Its token never changes, but it may be deleted."""


class BatchObjects:
    """Objects that the pods of jobs read.

    ConfigMaps with the label of generation jobs are watched, and claims. Secrets are not:
    a watch needs the right to list all of them.
    """

    def __init__(
        self, client: Client, informers: Informers, clock: Clock, jobs: Informer[StoredObject]
    ) -> None:
        self._client, self._clock = client, clock
        self._maps: Informer[StoredObject] = informers.informer(
            CONFIG_MAPS, labels=aigc.JOB_NAME, decode=decode_stored_object
        )
        self._claims: Informer[StoredObject] = informers.informer(
            PERSISTENT_VOLUME_CLAIMS, decode=decode_stored_object
        )
        self._by_claim = RecordIndex(jobs, _claims_of, lambda job: job.key)
        self._secrets: dict[str, tuple[str, float, Json]] = {}
        """Key of a job → its uid, the time of the read, its Secret."""

    def watches(self) -> tuple[WatchedCollection, ...]:
        return (
            WatchedCollection(self._maps, _OWNED.keys),
            WatchedCollection(self._claims, lambda claim: self._by_claim.get(claim.key)),
        )

    def config(self, namespace: str, name: str, uid: str) -> Json | None:
        """Return the ConfigMap of a job."""
        found = self._maps.items.get(f"{namespace}/{name}-batch")
        owned = found is not None and found.controller is not None and found.controller.uid == uid
        return found.object if found is not None and owned else None

    def has_claim(self, namespace: str, name: str) -> bool:
        return f"{namespace}/{name}{CLAIM_SUFFIX}" in self._claims.items

    async def missing(self, obj: Json) -> tuple[MissingVolume, ...]:
        """Return the named claims and ConfigMaps that do not exist or are being deleted.

        A claim without a volume is not among them: its class may make the volume for the
        first pod. ConfigMaps of users are read, since their watch would hold all of them.
        """
        namespace = obj["metadata"]["namespace"]
        found = []
        for volume in named_volumes(aigc.part(obj, "spec")):
            present, deleting = await self._state(namespace, volume)
            if not present or deleting:
                found.append(MissingVolume(volume, deleting))
        return tuple(found)

    async def _state(self, namespace: str, volume: NamedVolume) -> tuple[bool, bool]:
        """Return whether an object exists, and whether it is being deleted."""
        if volume.is_claim:
            claim = self._claims.items.get(f"{namespace}/{volume.name}")
            return claim is not None, claim is not None and bool(claim.deleted)
        config = await self._client.find(CONFIG_MAPS, volume.name, namespace)
        return config is not None, bool(config and config["metadata"].get("deletionTimestamp"))

    async def secret(self, namespace: str, name: str, uid: str) -> Json | None:
        """Return the Secret of a job. It is read once a minute."""
        key, now = f"{namespace}/{name}", self._clock.monotonic()
        owner, at, known = self._secrets.get(key, ("", 0.0, {}))
        if owner == uid and now < at + REREAD_SECONDS:
            return known
        found = await self._client.find(SECRETS, f"{name}-batch", namespace)
        owners = found["metadata"].get("ownerReferences") or () if found is not None else ()
        if found is None or not any(owner.get("uid") == uid for owner in owners):
            self._secrets.pop(key, None)
            return None
        self._secrets[key] = (uid, now, found)
        return found

    def forget(self, key: str) -> None:
        self._secrets.pop(key, None)


def _claims_of(job: StoredObject) -> Iterable[str]:
    """Return the keys of the claims that a job names."""
    if b'"claimName"' not in job.raw and aigc.CLAIM_SCHEME.encode() not in job.raw:
        return ()
    namespace = job.key.partition("/")[0]
    volumes = named_volumes(aigc.part(job.object, "spec"))
    return tuple(dict.fromkeys(f"{namespace}/{one.name}" for one in volumes if one.is_claim))
