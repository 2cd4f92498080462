"""What a pod asks for that this machine does otherwise: said once per pod, in events. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from windlass.api.annotations import HOST_IMAGE
from windlass.node.lifecycle.events import Note
from windlass.node.options import ImageEntry, image_entry
from windlass.node.sandbox.pod_network import Capabilities


def notices(
    pod: Mapping[str, Any],
    images: Mapping[str, ImageEntry],
    capabilities: Capabilities,
    *,
    own_uid: int,
) -> list[Note]:
    """One note per thing, in the order of the manifest."""
    spec = pod["spec"]
    containers = [*(spec.get("initContainers") or ()), *(spec.get("containers") or ())]
    notes = _image_notes(containers, images)
    users = [c["name"] for c in containers if _user(c, spec) not in (None, own_uid)]
    if users and own_uid != 0:
        text = f"runAsUser is ignored, the agent is not root: {', '.join(users)} run as the agent's own user"
        notes.append(Note("Warning", "NotSupported", text))
    if not capabilities.network and not spec.get("hostNetwork"):
        why = next(iter(capabilities.refused.values()), "refused")
        text = (
            f"no network of its own ({why}): the pod shares the machine's ports; its names lead to a "
            "loopback address; windlass doctor says what to change"
        )
        notes.append(Note("Warning", "SharedNetwork", text))
    if not capabilities.mounts and any(c.get("volumeMounts") for c in containers):
        text = "no mount namespace: volumes lie in the pod's folder; paths in command and environment are replaced"
        notes.append(Note("Warning", "SharedFiles", text))
    return notes


def _image_notes(containers: list[Mapping[str, Any]], images: Mapping[str, ImageEntry]) -> list[Note]:
    ignored = []
    for container in containers:
        image = container.get("image") or ""
        if image in ("", HOST_IMAGE) or image in ignored:
            continue
        if image_entry(images, image) is None:
            ignored.append(image)
    if not ignored:
        return []
    plural = "images are" if len(ignored) > 1 else "image is"
    text = f"{plural} not used on this machine, commands run with its own files: {', '.join(ignored)}"
    return [Note("Normal", "ImageIgnored", text)]


def _user(container: Mapping[str, Any], spec: Mapping[str, Any]) -> int | None:
    context = {**(spec.get("securityContext") or {}), **(container.get("securityContext") or {})}
    return context.get("runAsUser")


def lost_files_note(folders: list[str], used: list[str]) -> Note | None:
    """A folder that is shadowed (see :mod:`mounts`) and that the container is likely to write into."""
    lost = sorted({folder for folder in folders if folder != "/" and folder in used})
    if not lost:
        return None
    text = (
        f"new files directly in {', '.join(lost)} are lost when the pod ends, because a mount point below "
        "does not exist on this machine; make it first (mkdir -p)"
    )
    return Note("Warning", "ShadowedFolder", text)
