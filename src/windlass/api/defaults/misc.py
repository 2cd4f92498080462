"""Defaults of the smaller built-in kinds."""

from __future__ import annotations

import base64
from typing import Any

_NAME_LABEL = "kubernetes.io/metadata.name"


def namespace(obj: dict[str, Any]) -> None:
    """Every namespace carries its own name as a label, so that selectors can name it."""
    metadata = obj.setdefault("metadata", {})
    if metadata.get("name"):
        metadata.setdefault("labels", {})[_NAME_LABEL] = metadata["name"]


def node(obj: dict[str, Any]) -> None:
    """A node that does not say what it can allot allots all that it has."""
    status = obj.setdefault("status", {})
    if status.get("capacity") and "allocatable" not in status:
        status["allocatable"] = dict(status["capacity"])


def secret(obj: dict[str, Any]) -> None:
    """``stringData`` is written into ``data`` and not kept."""
    obj.setdefault("type", "Opaque")
    plain = obj.pop("stringData", None)
    if plain:
        data = obj.setdefault("data", {})
        for key, text in plain.items():
            data[key] = base64.b64encode(text.encode()).decode()


def endpoints(obj: dict[str, Any]) -> None:
    for subset in obj.get("subsets") or ():
        for port in subset.get("ports") or ():
            port.setdefault("protocol", "TCP")


def endpoint_slice(obj: dict[str, Any]) -> None:
    for port in obj.get("ports") or ():
        port.setdefault("name", "")
        port.setdefault("protocol", "TCP")


def persistent_volume(obj: dict[str, Any]) -> None:
    spec = obj.setdefault("spec", {})
    spec.setdefault("persistentVolumeReclaimPolicy", "Retain")
    spec.setdefault("volumeMode", "Filesystem")
    if "hostPath" in spec:
        spec["hostPath"].setdefault("type", "")
    obj.setdefault("status", {}).setdefault("phase", "Pending")


def persistent_volume_claim(obj: dict[str, Any]) -> None:
    obj.setdefault("spec", {}).setdefault("volumeMode", "Filesystem")
    obj.setdefault("status", {}).setdefault("phase", "Pending")


def storage_class(obj: dict[str, Any]) -> None:
    obj.setdefault("reclaimPolicy", "Delete")
    obj.setdefault("volumeBindingMode", "Immediate")


def limit_range(obj: dict[str, Any]) -> None:
    """For containers: the maximum is the default limit, the default limit the default request."""
    for item in (obj.get("spec") or {}).get("limits") or ():
        if item.get("type") != "Container":
            continue
        default = item.setdefault("default", {})
        request = item.setdefault("defaultRequest", {})
        for source, target in ((item.get("max"), default), (default, request), (item.get("min"), request)):
            for name, quantity in (source or {}).items():
                target.setdefault(name, quantity)
        for name in ("default", "defaultRequest"):
            if not item[name]:
                del item[name]


def priority_class(obj: dict[str, Any]) -> None:
    obj.setdefault("preemptionPolicy", "PreemptLowerPriority")
