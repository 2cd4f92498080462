"""Owner references of objects that a controller creates."""

from __future__ import annotations

from typing import Any

from windlass.api.resources import Resource


def owner_reference(resource: Resource, name: str, uid: str) -> dict[str, Any]:
    """Return the ownerReference of a child of this object (``metav1.NewControllerRef``)."""
    return {
        "apiVersion": resource.api_version,
        "kind": resource.kind,
        "name": name,
        "uid": uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }
