"""Storage class and provisioner of single-node mode, and the marks of Kubernetes' volume binder."""

from __future__ import annotations

from typing import Any

from windlass.api.annotations import LOCAL_PROVISIONER as LOCAL_PROVISIONER
from windlass.api.views.storage import DEFAULT_CLASS

LOCAL_CLASS = "local-path"
NO_PROVISIONER = "kubernetes.io/no-provisioner"
CLAIM_PROTECTION = "kubernetes.io/pvc-protection"
VOLUME_PROTECTION = "kubernetes.io/pv-protection"
BOUND_BY_CONTROLLER = "pv.kubernetes.io/bound-by-controller"
PROVISIONED_BY = "pv.kubernetes.io/provisioned-by"
STORAGE_PROVISIONER = "volume.kubernetes.io/storage-provisioner"
STORAGE_PROVISIONER_BETA = "volume.beta.kubernetes.io/storage-provisioner"


def local_class() -> dict[str, Any]:
    """Return the default storage class of single-node mode."""
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": LOCAL_CLASS, "annotations": {DEFAULT_CLASS: "true"}},
        "provisioner": LOCAL_PROVISIONER,
        "reclaimPolicy": "Delete",
        "volumeBindingMode": "Immediate",
        "allowVolumeExpansion": True,
    }


def is_default(storage_class: dict[str, Any]) -> bool:
    return (storage_class["metadata"].get("annotations") or {}).get(DEFAULT_CLASS) == "true"


def default_class(classes: list[dict[str, Any]]) -> dict[str, Any] | None:
    """Return the default class: of several the newest, then the first by name."""
    found = sorted((one for one in classes if is_default(one)), key=lambda one: one["metadata"]["name"])
    newest = max((one["metadata"].get("creationTimestamp") or "" for one in found), default="")
    return next((one for one in found if (one["metadata"].get("creationTimestamp") or "") == newest), None)
