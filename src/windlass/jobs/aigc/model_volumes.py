"""Model of an AIGCJob on a volume: in a claim, or in an image (``preload.strategy: PVC``, ``Image``). Pure."""

from __future__ import annotations

import posixpath
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from windlass.api.fields import aigc

Json = Mapping[str, Any]
MOUNT = "/var/lib/windlass/model"
"""Folder of the container with a model that lies on a volume."""
CACHE = "/var/lib/windlass/model-cache"
"""Folder of the container with a claim in which models are kept."""


@dataclass(frozen=True, slots=True)
class ModelVolume:
    """Files that are there. ``source``: a pod's volume without its name. ``path``: folder in it."""

    source: Mapping[str, Any]
    path: str = ""


def volume_of(spec: Json) -> ModelVolume | None:
    """Return the volume with the files, for a source ``pvc://CLAIM/PATH`` or ``oci://IMAGE``."""
    model = aigc.part(spec, "model")
    source, preload = str(model.get("source") or ""), aigc.part(model, "preload")
    path = str(preload.get("path") or "").strip("/")
    if source.startswith(aigc.CLAIM_SCHEME):
        claim, _, inner = source.removeprefix(aigc.CLAIM_SCHEME).partition("/")
        volume = {"persistentVolumeClaim": {"claimName": claim, "readOnly": True}}
        return ModelVolume(volume, posixpath.join(inner.strip("/"), path).strip("/"))
    if source.startswith(aigc.IMAGE_SCHEME):
        image = source.removeprefix(aigc.IMAGE_SCHEME)
        return ModelVolume({"image": {"reference": image, "pullPolicy": "IfNotPresent"}}, path)
    return None


def cache_claim(spec: Json) -> str:
    """Return the claim in which the model is kept for all nodes; empty: it is kept on each node."""
    preload = aigc.part(aigc.part(spec, "model"), "preload")
    return str(preload.get("claimName") or "") if preload.get("strategy") == aigc.ON_CLAIM else ""


def mount_model(body: dict[str, Any], volume: ModelVolume) -> None:
    """Mount the files into the first container, and name their folder to the runtime."""
    name = "windlass-model"
    body["volumes"] = [*(body.get("volumes") or ()), {"name": name, **volume.source}]
    first, *others = body["containers"]
    path = {"name": "WINDLASS_MODEL_PATH", "value": posixpath.join(MOUNT, volume.path).rstrip("/")}
    mount = {"name": name, "mountPath": MOUNT, "readOnly": True}
    first = {
        **first,
        "env": [*(first.get("env") or ()), path],
        "volumeMounts": [*(first.get("volumeMounts") or ()), mount],
    }
    body["containers"] = [first, *others]
