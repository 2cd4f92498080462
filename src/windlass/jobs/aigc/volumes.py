"""Claims and ConfigMaps that an AIGCJob names: input, outputs, model, pod templates. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from windlass.api.fields import aigc
from windlass.api.reasons import Reason
from windlass.api.resources import CONFIG_MAPS, PERSISTENT_VOLUME_CLAIMS
from windlass.jobs.aigc.model_volumes import ModelVolume, cache_claim, volume_of

_CLAIM, _CONFIG = PERSISTENT_VOLUME_CLAIMS.kind, CONFIG_MAPS.kind
CONDITION = "VolumesReady"
"""Type of the condition that tells whether the named claims and ConfigMaps exist."""


@dataclass(frozen=True, slots=True)
class NamedVolume:
    """Object that pods of the job need. ``field``: the field of the job that names it.

    ``key``: the key of a ConfigMap that the job reads, if the job names one.
    """

    kind: str
    name: str
    field: str
    key: str = ""

    @property
    def is_claim(self) -> bool:
        return self.kind == _CLAIM


@dataclass(frozen=True, slots=True)
class MissingVolume:
    """Named object that cannot be mounted. ``deleting``: it exists, and is being deleted."""

    volume: NamedVolume
    deleting: bool = False

    @property
    def reason(self) -> Reason:
        return Reason.CLAIM_UNAVAILABLE if self.volume.is_claim else Reason.MISCONFIGURED


def named_volumes(spec: Mapping[str, Any]) -> Iterator[NamedVolume]:
    """Yield the claims and ConfigMaps that the driver and the workers of a job need, each once."""
    seen = set()
    for one in (*_of_driver(spec), *_of_model(spec), *_of_templates(spec)):
        if one.name and (one.kind, one.name) not in seen:
            seen.add((one.kind, one.name))
            yield one


def _of_driver(spec: Mapping[str, Any]) -> Iterator[NamedVolume]:
    given = aigc.part(spec, "input")
    claim = str(aigc.part(given, "pvc").get("claimName") or "")
    if claim:
        yield NamedVolume(_CLAIM, claim, "spec.input.pvc.claimName")
    else:
        config = str(aigc.part(given, "configMap").get("name") or "")
        key = str(given.get("key") or aigc.part(given, "configMap").get("key") or "")
        yield NamedVolume(_CONFIG, config, "spec.input.configMap.name", key)
    claim = str(aigc.part(aigc.part(spec, "outputs"), "pvc").get("claimName") or "")
    yield NamedVolume(_CLAIM, claim, "spec.outputs.pvc.claimName")


def _of_model(spec: Mapping[str, Any]) -> Iterator[NamedVolume]:
    source = (volume_of(spec) or ModelVolume({})).source
    claim = str(aigc.part(source, "persistentVolumeClaim").get("claimName") or "")
    yield NamedVolume(_CLAIM, claim, "spec.model.source")
    yield NamedVolume(_CLAIM, cache_claim(spec), "spec.model.preload.claimName")


def _of_templates(spec: Mapping[str, Any]) -> Iterator[NamedVolume]:
    places = [("spec", spec)]
    places += [(f"spec.stages[{at}]", stage) for at, stage in enumerate(_dicts(spec.get("stages")))]
    for place, holder in places:
        pod, field = aigc.part(aigc.part(holder, "template"), "spec"), f"{place}.template.spec"
        for at, volume in enumerate(_dicts(pod.get("volumes"))):
            yield from _of_volume(volume, f"{field}.volumes[{at}]")
        for kind in ("initContainers", "containers"):
            for at, container in enumerate(_dicts(pod.get(kind))):
                yield from _of_container(container, f"{field}.{kind}[{at}]")


def _of_volume(volume: Mapping[str, Any], field: str) -> Iterator[NamedVolume]:
    claim = str(aigc.part(volume, "persistentVolumeClaim").get("claimName") or "")
    yield NamedVolume(_CLAIM, claim, f"{field}.persistentVolumeClaim.claimName")
    sources = [(field, volume)]
    projected = _dicts(aigc.part(volume, "projected").get("sources"))
    sources += [(f"{field}.projected.sources[{at}]", one) for at, one in enumerate(projected)]
    for place, source in sources:
        yield from _of_reference(source, "configMap", place)


def _of_container(container: Mapping[str, Any], field: str) -> Iterator[NamedVolume]:
    for at, one in enumerate(_dicts(container.get("envFrom"))):
        yield from _of_reference(one, "configMapRef", f"{field}.envFrom[{at}]")
    for at, one in enumerate(_dicts(container.get("env"))):
        yield from _of_reference(
            aigc.part(one, "valueFrom"), "configMapKeyRef", f"{field}.env[{at}].valueFrom"
        )


def _of_reference(holder: Mapping[str, Any], name: str, field: str) -> Iterator[NamedVolume]:
    """Yield the ConfigMap of a reference, unless pods start without it."""
    found = aigc.part(holder, name)
    if not found.get("optional"):
        key = str(found.get("key") or "")
        yield NamedVolume(_CONFIG, str(found.get("name") or ""), f"{field}.{name}.name", key)


def _dicts(values: Any) -> list[Mapping[str, Any]]:
    """Return the mappings in a list, each at its place: others are empty."""
    listed = values if isinstance(values, list | tuple) else ()
    return [one if isinstance(one, Mapping) else {} for one in listed]


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
