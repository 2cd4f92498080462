"""Network presets of new pods."""

from __future__ import annotations

from typing import Any

from windlass.api import network_presets
from windlass.api.annotations import NETWORK_PRESET
from windlass.api.resources import CONFIG_MAPS, PODS, SECRETS, Resource
from windlass.server.admission.plugin import Review

_SOURCES: tuple[tuple[str, Resource], ...] = (("configMapRef", CONFIG_MAPS), ("secretRef", SECRETS))


def apply_preset(review: Review) -> None:
    """Apply the network preset of a new pod. Warn about an unknown one."""
    if review.resource is not PODS or not review.creating or not review.main:
        return
    preset = network_presets.preset_of(review.object.get("metadata") or {})
    if not preset:
        return
    if preset not in network_presets.PRESETS:
        review.warn(
            f"advice: metadata.annotations[{NETWORK_PRESET}]: {preset!r} is not a network preset and has no "
            f"effect; use {', '.join(network_presets.PRESETS)}"
        )
        return
    containers = (review.object.get("spec") or {}).get("containers") or ()
    defined = {container["name"]: _from_elsewhere(review, container) for container in containers}
    network_presets.apply_rdma(review.object, defined)


def _from_elsewhere(review: Review, container: dict[str, Any]) -> set[str]:
    """Return names of variables that a container has from ConfigMaps and Secrets."""
    found: set[str] = set()
    for source in container.get("envFrom") or ():
        for kind, resource in _SOURCES:
            name = (source.get(kind) or {}).get("name")
            stored = review.objects.get(resource, review.namespace, name) if name else None
            keys = {**((stored or {}).get("data") or {}), **((stored or {}).get("binaryData") or {})}
            found.update(f"{source.get('prefix') or ''}{key}" for key in keys)
    return found
