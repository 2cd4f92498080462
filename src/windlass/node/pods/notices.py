"""Events about everything that this node does differently from a pod's manifest. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from windlass.api.annotations import HOST_IMAGE
from windlass.node.lifecycle.events import RecordEvent
from windlass.node.options import ImageEntry, image_entry
from windlass.node.sandbox.pod_network import Capabilities


def notices(
    pod: Mapping[str, Any],
    images: Mapping[str, ImageEntry],
    capabilities: Capabilities,
    *,
    own_uid: int,
) -> list[RecordEvent]:
    """Return one event per difference, in the order of the manifest."""
    spec = pod["spec"]
    containers = [*(spec.get("initContainers") or ()), *(spec.get("containers") or ())]
    events = _image_events(containers, images)
    users = [c["name"] for c in containers if _user(c, spec) not in (None, own_uid)]
    if users and own_uid != 0:
        text = (
            f"runAsUser is ignored because the agent is not root: {', '.join(users)} run as the agent's user"
        )
        events.append(RecordEvent("Warning", "NotSupported", text))
    if not capabilities.network and not spec.get("hostNetwork"):
        why = next(iter(capabilities.refused.values()), "refused")
        text = (
            f"the pod has no network of its own ({why}): it shares the machine's ports, and its names "
            "resolve to a loopback address; run windlass doctor to see how to change this"
        )
        events.append(RecordEvent("Warning", "SharedNetwork", text))
    if not capabilities.mounts and any(c.get("volumeMounts") for c in containers):
        text = (
            "the pod has no mount namespace: volumes are in the pod's directory, and their paths in "
            "command and environment are replaced"
        )
        events.append(RecordEvent("Warning", "SharedFiles", text))
    return events


def _image_events(containers: list[Mapping[str, Any]], images: Mapping[str, ImageEntry]) -> list[RecordEvent]:
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
    text = f"{plural} not used on this machine; commands run with the machine's files: {', '.join(ignored)}"
    return [RecordEvent("Normal", "ImageIgnored", text)]


def _user(container: Mapping[str, Any], spec: Mapping[str, Any]) -> int | None:
    context = {**(spec.get("securityContext") or {}), **(container.get("securityContext") or {})}
    return context.get("runAsUser")


def shadowed_directory_notice(shadowed: list[str], used: list[str]) -> RecordEvent | None:
    """Return an event if the container is likely to write into a shadowed directory.

    ``shadowed``: see :func:`windlass.node.runtime.mounts.shadows`.
    """
    lost = sorted({path for path in shadowed if path != "/" and path in used})
    if not lost:
        return None
    text = (
        f"new files directly in {', '.join(lost)} are lost when the pod ends, because a mount point below "
        "does not exist on this machine; create it first (mkdir -p)"
    )
    return RecordEvent("Warning", "ShadowedFolder", text)
