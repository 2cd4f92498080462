"""Names of the kind ModelCache: a model on one node."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from windlass.api.resources import MODEL_CACHES

FINALIZER = "kurator.dev/model-files"
"""Finalizer of a ModelCache until its node has removed the files."""
READY_LABEL = "model.kurator.dev/"
"""Prefix of a label of nodes. The rest is the key of a model; the value is ``ready`` or ``fetching``."""
READY_VALUE, FETCHING_VALUE = "ready", "fetching"

MODELS_FOLDER = "/var/lib/windlass/models"
"""Default of the folder for models on the nodes of a cluster."""
ABSENT, FETCHING, READY, CORRUPT = "Absent", "Fetching", "Ready", "Corrupt"


def cache_name(node: str, key: str) -> str:
    """Return the name of the ModelCache of a model (``key``) on a node."""
    return f"{node[: 252 - len(key)]}.{key}"


def model_cache(node: str, key: str, model: Mapping[str, str], *, pin: bool = False) -> dict[str, Any]:
    """Return the ModelCache that asks for a model on a node. ``model``: name, source, revision, sha256."""
    return {
        "apiVersion": MODEL_CACHES.api_version,
        "kind": MODEL_CACHES.kind,
        "metadata": {"name": cache_name(node, key), "finalizers": [FINALIZER]},
        "spec": {
            "nodeName": node,
            "model": {name: value for name, value in model.items() if value},
            "pin": pin,
        },
    }
