"""Claims and ConfigMaps that an AIGCJob names for its input and outputs. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from windlass.api.fields import aigc
from windlass.api.reasons import Reason
from windlass.api.resources import CONFIG_MAPS, PERSISTENT_VOLUME_CLAIMS

CONDITION = "VolumesReady"
"""Type of the condition that tells whether the named claims and ConfigMaps exist."""


@dataclass(frozen=True, slots=True)
class NamedVolume:
    """Object that the driver mounts. ``field``: the field of the job that names it.

    ``key``: the key of a ConfigMap that the job reads, if the job names one.
    """

    kind: str
    name: str
    field: str
    key: str = ""

    @property
    def is_claim(self) -> bool:
        return self.kind == PERSISTENT_VOLUME_CLAIMS.kind


@dataclass(frozen=True, slots=True)
class MissingVolume:
    """Named object that cannot be mounted. ``deleting``: it exists, and is being deleted."""

    volume: NamedVolume
    deleting: bool = False

    @property
    def reason(self) -> Reason:
        return Reason.CLAIM_UNAVAILABLE if self.volume.is_claim else Reason.MISCONFIGURED


def named_volumes(spec: Mapping[str, Any]) -> Iterator[NamedVolume]:
    """Yield the claims and the ConfigMap that the driver of a job mounts."""
    given = aigc.part(spec, "input")
    claim = str(aigc.part(given, "pvc").get("claimName") or "")
    config = str(aigc.part(given, "configMap").get("name") or "")
    if claim:
        yield NamedVolume(PERSISTENT_VOLUME_CLAIMS.kind, claim, "spec.input.pvc.claimName")
    elif config:
        key = str(given.get("key") or aigc.part(given, "configMap").get("key") or "")
        yield NamedVolume(CONFIG_MAPS.kind, config, "spec.input.configMap.name", key)
    claim = str(aigc.part(aigc.part(spec, "outputs"), "pvc").get("claimName") or "")
    if claim:
        yield NamedVolume(PERSISTENT_VOLUME_CLAIMS.kind, claim, "spec.outputs.pvc.claimName")


def missing_message(missing: Sequence[MissingVolume], job: str, namespace: str) -> str:
    """Return what is missing, the field that names it, and the remedies."""
    faults = " ".join(_fault(one, namespace) for one in missing)
    fields = " and ".join(one.volume.field for one in missing)
    return (
        f"{faults} No pod of the job is created, and no GPU is bound, until then. To name another object "
        f"instead: windlass suspend {job} -n {namespace}, change {fields}, windlass resume {job} -n {namespace}."
    )


def _fault(missing: MissingVolume, namespace: str) -> str:
    volume = missing.volume
    what = f"{volume.kind} {volume.name} ({volume.field})"
    command = _command(volume, namespace)
    if missing.deleting:
        return (
            f"{what} is being deleted in namespace {namespace}. When it is gone, create it again: {command}."
        )
    return f"{what} does not exist in namespace {namespace}. Create it: {command}."


def _command(volume: NamedVolume, namespace: str) -> str:
    if not volume.is_claim:
        source = f"{volume.key}=FILE" if volume.key else "FILE"
        return f"`kubectl create configmap {volume.name} -n {namespace} --from-file={source}`"
    claim = {
        "apiVersion": PERSISTENT_VOLUME_CLAIMS.api_version,
        "kind": volume.kind,
        "metadata": {"name": volume.name},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "10Gi"}}},
    }
    return f"`echo '{json.dumps(claim)}' | kubectl create -n {namespace} -f -`"
