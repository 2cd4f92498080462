"""Claims and volumes: default class, protection while in use, growth of claims."""

from __future__ import annotations

from typing import Any

from windlass.api import errors
from windlass.api.local_storage import CLAIM_PROTECTION, VOLUME_PROTECTION, default_class
from windlass.api.quantities import QuantityError, to_units
from windlass.api.resources import PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES, STORAGE_CLASSES
from windlass.server.admission.plugin import Review

_PROTECTION = {PERSISTENT_VOLUME_CLAIMS: CLAIM_PROTECTION, PERSISTENT_VOLUMES: VOLUME_PROTECTION}


def finish(review: Review) -> None:
    """Give a new claim the default class, and new claims and volumes their finalizer."""
    finalizer = _PROTECTION.get(review.resource)
    if finalizer is None or not review.main:
        return
    if not review.creating:
        if review.resource is PERSISTENT_VOLUME_CLAIMS:
            _check_growth(review)
        return
    finalizers = review.object.setdefault("metadata", {}).setdefault("finalizers", [])
    if finalizer not in finalizers:
        finalizers.append(finalizer)
    spec = review.object.get("spec")
    if review.resource is not PERSISTENT_VOLUME_CLAIMS or not isinstance(spec, dict):
        return
    found = default_class(review.objects.list(STORAGE_CLASSES))
    if spec.get("storageClassName") is None and found is not None:
        spec["storageClassName"] = found["metadata"]["name"]


def _check_growth(review: Review) -> None:
    """Refuse the growth of a claim unless its class allows it."""
    before, now = _request(review.old or {}), _request(review.object)
    if before is None or now is None or now <= before:
        return
    name = (review.object.get("spec") or {}).get("storageClassName") or ""
    found = review.objects.get(STORAGE_CLASSES, "", name) if name else None
    if not (found or {}).get("allowVolumeExpansion"):
        raise errors.forbidden(
            PERSISTENT_VOLUME_CLAIMS,
            review.name,
            "only dynamically provisioned pvc can be resized and the storageclass that provisions the pvc must "
            "support resize",
        )


def _request(claim: dict[str, Any]) -> int | None:
    text = (((claim.get("spec") or {}).get("resources") or {}).get("requests") or {}).get("storage")
    try:
        return to_units("storage", text) if text is not None else None
    except QuantityError:
        return None  # reported by validation
