"""Volumes of a pod: directories below the pod's directory, and their mounts. Mostly pure.

``layout`` returns the directory and the files of each volume. :func:`materialise` writes them.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from windlass.api import quantities
from windlass.kits.files import write_atomic
from windlass.node.options import ImageEntry, image_entry
from windlass.node.pods.environment import (
    ContainerConfigError,
    Lookup,
    PodFacts,
    Reference,
    expand,
    field_value,
    payload,
    resource_value,
)
from windlass.node.runtime.mounts import Mount

MOUNT_FAILED = "FailedMount"
CLAIM_VOLUME = "volume"
"""Entry of a looked-up PersistentVolumeClaim that holds its PersistentVolume."""


@dataclass(frozen=True, slots=True)
class File:
    path: str
    """Relative to the volume."""
    content: bytes
    mode: int


@dataclass(frozen=True, slots=True)
class PodVolume:
    """Volume of a pod.

    ``source``: directory or file of the machine. ``files`` are written into it.
    """

    name: str
    source: str
    kind: str
    files: tuple[File, ...] = ()
    memory: bool = False
    size_bytes: int = 0
    host_type: str = ""
    read_only: bool = False


@dataclass(frozen=True, slots=True)
class VolumeRoots:
    """Directories that contain volumes: the pod's own, and that of persistent volume claims.

    ``images``: image map of the machine, for volumes of images.
    """

    pod: Path
    claims: Path
    images: Mapping[str, ImageEntry] = field(default_factory=dict)

    def volume(self, name: str) -> str:
        return str(self.pod / "volumes" / name)


def references(spec: Mapping[str, Any]) -> list[Reference]:
    """Return references to the ConfigMaps, Secrets and claims that the pod's volumes show."""
    result: list[Reference] = []
    for volume in spec.get("volumes") or ():
        if claim := volume.get("persistentVolumeClaim"):
            result.append(Reference("PersistentVolumeClaim", claim.get("claimName") or "", optional=False))
        sources = [volume, *((volume.get("projected") or {}).get("sources") or ())]
        for source in sources:
            if ref := source.get("configMap"):
                result.append(Reference("ConfigMap", ref.get("name", ""), bool(ref.get("optional"))))
            if ref := source.get("secret"):
                name = ref.get("secretName") or ref.get("name") or ""
                result.append(Reference("Secret", name, bool(ref.get("optional"))))
    return result


def layout(facts: PodFacts, lookup: Lookup, roots: VolumeRoots) -> list[PodVolume]:
    """Return every volume of the pod.

    Raises :class:`ContainerConfigError` with reason FailedMount.
    """
    return [_volume(record, facts, lookup, roots) for record in facts.pod["spec"].get("volumes") or ()]


def _volume(record: Mapping[str, Any], facts: PodFacts, lookup: Lookup, roots: VolumeRoots) -> PodVolume:
    name = record["name"]
    path = roots.volume(name)
    if "emptyDir" in record:
        empty = record["emptyDir"] or {}
        limit = empty.get("sizeLimit")
        size = quantities.to_units("memory", limit) if limit is not None else 0
        return PodVolume(name, path, "emptyDir", memory=empty.get("medium") == "Memory", size_bytes=size)
    if host := record.get("hostPath"):
        return PodVolume(name, host["path"], "hostPath", host_type=host.get("type") or "")
    if image := record.get("image"):
        return PodVolume(
            name, _image_path(name, image, roots), "hostPath", host_type="Directory", read_only=True
        )
    if claim := record.get("persistentVolumeClaim"):
        wanted = claim["claimName"]
        if "/" in wanted:  # it would lead out of the directory of claims
            raise ContainerConfigError(
                f'volume "{name}": persistentVolumeClaim.claimName "{wanted}" is not the name of a claim',
                MOUNT_FAILED,
            )
        source = _claim_path(wanted, facts.pod["metadata"]["namespace"], lookup, roots)
        return PodVolume(name, source, "claim", read_only=bool(claim.get("readOnly")))
    if "configMap" in record or "secret" in record or "downwardAPI" in record:
        kind = next(k for k in ("configMap", "secret", "downwardAPI") if k in record)
        mode = int(record[kind].get("defaultMode", 0o644))
        return PodVolume(name, path, kind, tuple(_files(record, mode, facts, lookup)), read_only=True)
    if projected := record.get("projected"):
        mode = int(projected.get("defaultMode", 0o644))
        files = [f for source in projected.get("sources") or () for f in _files(source, mode, facts, lookup)]
        return PodVolume(name, path, "projected", tuple(files), read_only=True)
    kinds = ", ".join(sorted(key for key in record if key != "name")) or "nothing"
    raise ContainerConfigError(
        f'volume "{name}": {kinds} is not supported on this machine; use hostPath, emptyDir, configMap, '
        "secret, downwardAPI, projected, image or persistentVolumeClaim",
        MOUNT_FAILED,
    )


def _image_path(name: str, source: Mapping[str, Any], roots: VolumeRoots) -> str:
    """Return the directory that stands for an image on this machine."""
    image = source.get("reference") or ""
    entry = image_entry(roots.images, image)
    if entry is None or not entry.path:
        raise ContainerConfigError(
            f'volume "{name}": the image map of this machine has no path for image "{image}": '
            "give it one in the file of windlass up --images",
            MOUNT_FAILED,
        )
    return entry.path


def _claim_path(name: str, namespace: str, lookup: Lookup, roots: VolumeRoots) -> str:
    """Return the directory of a claim's volume.

    For a volume of a kind that this machine does not mount (NFS, CSI), a directory of the
    claim stands in. Raises :class:`ContainerConfigError` for a claim without a volume.
    """
    claim = lookup("PersistentVolumeClaim", name)
    if claim is None:
        raise ContainerConfigError(f'persistentvolumeclaim "{name}" not found', MOUNT_FAILED)
    volume = claim.get(CLAIM_VOLUME)
    if volume is None:
        raise ContainerConfigError(f"error processing PVC {namespace}/{name}: PVC is not bound", MOUNT_FAILED)
    for kind in ("hostPath", "local"):
        if found := (volume["spec"].get(kind) or {}).get("path"):
            return found
    return str(roots.claims / f"{namespace}_{name}")


def _files(source: Mapping[str, Any], mode: int, facts: PodFacts, lookup: Lookup) -> list[File]:
    if ref := source.get("downwardAPI"):
        return [_downward(item, mode, facts) for item in ref.get("items") or ()]
    for field_name, kind in (("configMap", "ConfigMap"), ("secret", "Secret")):
        ref = source.get(field_name)
        if ref is None:
            continue
        name = ref.get("name") or ref.get("secretName") or ""
        obj = lookup(kind, name)
        if obj is None:
            if ref.get("optional"):
                return []
            raise ContainerConfigError(f'{kind.lower()} "{name}" not found', MOUNT_FAILED)
        entries = payload(obj)
        if not ref.get("items"):
            return [File(key, content, mode) for key, content in sorted(entries.items())]
        return _selected_files(ref, entries, mode, f"{kind} {name}")
    if "serviceAccountToken" in source:
        return []  # pods get no credentials of the control plane
    raise ContainerConfigError("a projected volume has a source of an unknown kind", MOUNT_FAILED)


def _selected_files(ref: Mapping[str, Any], entries: Mapping[str, bytes], mode: int, what: str) -> list[File]:
    files = []
    for item in ref["items"]:
        if item["key"] in entries:
            files.append(File(_relative(item["path"]), entries[item["key"]], int(item.get("mode", mode))))
        elif not ref.get("optional"):
            raise ContainerConfigError(
                f"references non-existent config key: {item['key']} of {what}", MOUNT_FAILED
            )
    return files


def _downward(item: Mapping[str, Any], mode: int, facts: PodFacts) -> File:
    if ref := item.get("fieldRef"):
        text = field_value(ref["fieldPath"], facts)
    else:
        text = resource_value(item["resourceFieldRef"], facts, None)
    return File(_relative(item["path"]), text.encode(), int(item.get("mode", mode)))


def _relative(path: str) -> str:
    """Return a normalized path that cannot leave its volume. Raises :class:`ContainerConfigError`."""
    if path.startswith("/") or ".." in path.split("/"):
        raise ContainerConfigError(
            f'the path "{path}" must be relative and must not contain ".."', MOUNT_FAILED
        )
    return os.path.normpath(path)


def materialise(volumes: list[PodVolume]) -> None:
    """Create the volumes' directories and write their files.

    Raises :class:`ContainerConfigError` for a hostPath that is not as declared.
    """
    for volume in volumes:
        if volume.kind == "hostPath":
            _check_host_path(volume)
            continue
        directory = Path(volume.source)
        directory.mkdir(parents=True, exist_ok=True)
        if volume.kind == "emptyDir":
            directory.chmod(0o777)
        for file in volume.files:
            path = directory / file.path
            path.parent.mkdir(parents=True, exist_ok=True)
            write_atomic(path, file.content, file.mode, durable=False)


_CHECKS = {
    "Directory": (stat.S_ISDIR, "a directory"),
    "File": (stat.S_ISREG, "a file"),
    "Socket": (stat.S_ISSOCK, "a socket"),
    "CharDevice": (stat.S_ISCHR, "a character device"),
    "BlockDevice": (stat.S_ISBLK, "a block device"),
}


def _check_host_path(volume: PodVolume) -> None:
    path, kind = volume.source, volume.host_type
    try:
        if kind == "DirectoryOrCreate":
            os.makedirs(path, mode=0o755, exist_ok=True)
        elif kind == "FileOrCreate" and not os.path.exists(path):
            os.close(os.open(path, os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0o644))
        mode = os.stat(path).st_mode
    except OSError as error:
        remedy = f"; create it first: mkdir -p {path}" if kind in ("", "Directory") else ""
        raise ContainerConfigError(
            f'hostPath "{path}" of volume "{volume.name}": {error.strerror or error}{remedy}', MOUNT_FAILED
        ) from None
    check, what = _CHECKS.get(kind.removesuffix("OrCreate"), (None, ""))
    if check is not None and not check(mode):
        raise ContainerConfigError(f"hostPath type check failed: {path} is not {what}", MOUNT_FAILED)


@dataclass(slots=True)
class ContainerMounts:
    """Mounts of one container. ``paths``: mount path → path of the machine.

    ``paths`` serves containers without a mount namespace.
    """

    mounts: list[Mount] = field(default_factory=list)
    paths: dict[str, str] = field(default_factory=dict)


def container_mounts(
    container: Mapping[str, Any], volumes: Mapping[str, PodVolume], values: Mapping[str, str]
) -> ContainerMounts:
    """Return the mounts of a container's volumes. Raises :class:`ContainerConfigError`."""
    result = ContainerMounts()
    for record in container.get("volumeMounts") or ():
        volume = volumes.get(record["name"])
        if volume is None:
            raise ContainerConfigError(f'volume "{record["name"]}" is mounted but not declared')
        source = volume.source
        subpath = record.get("subPath") or ""
        if record.get("subPathExpr"):
            subpath = expand(record["subPathExpr"], values)
        if subpath:
            source = _sub_path(volume, subpath)
        target = os.path.normpath("/" + record["mountPath"].lstrip("/"))
        if target == "/":
            raise ContainerConfigError("a volume cannot be mounted over /")
        read_only = bool(record.get("readOnly")) or volume.read_only
        result.mounts.append(Mount(source, target, read_only))
        result.paths[target] = source
    return result


def _sub_path(volume: PodVolume, subpath: str) -> str:
    try:
        relative = _relative(subpath)
    except ContainerConfigError as error:
        raise ContainerConfigError(f"failed to prepare subPath: {error.message}") from None
    path = os.path.join(volume.source, relative)
    root = os.path.realpath(volume.source)
    if volume.memory:
        raise ContainerConfigError(f'volume "{volume.name}": subPath of a memory volume is not supported')
    real = os.path.realpath(path)
    if real != root and not real.startswith(root + "/"):
        raise ContainerConfigError(f'subPath "{subpath}" leads out of volume "{volume.name}"')
    if not os.path.exists(real):
        try:
            os.makedirs(real, mode=0o755, exist_ok=True)
        except OSError as error:
            raise ContainerConfigError(f'failed to create subPath "{subpath}": {error.strerror}') from None
    return real
