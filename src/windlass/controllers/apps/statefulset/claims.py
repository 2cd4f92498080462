"""Claims of a StatefulSet's pods, and their deletion."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from windlass.api.resources import PERSISTENT_VOLUME_CLAIMS, PODS, STATEFUL_SETS, Resource
from windlass.api.views import Pod
from windlass.client.event_correlator import ObjectRef
from windlass.controllers.effects import Create, EmitEvent, Patch, controller_reference

Json = dict[str, Any]
_DELETE = "Delete"


def claim_name(claim: Mapping[str, Any], owner: str, ordinal: int) -> str:
    return f"{claim['metadata'].get('name', '')}-{owner}-{ordinal}"


def build_claims(obj: Json, ordinal: int, about: ObjectRef) -> list[Create]:
    """Return the creations of the claims of one pod."""
    spec, name, namespace = obj["spec"], obj["metadata"]["name"], obj["metadata"]["namespace"]
    found = []
    for claim in spec.get("volumeClaimTemplates") or ():
        metadata = claim.get("metadata") or {}
        named = claim_name(claim, name, ordinal)
        labels = {**(metadata.get("labels") or {}), **((spec.get("selector") or {}).get("matchLabels") or {})}
        body: Json = {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {"name": named, "namespace": namespace, "labels": labels},
            "spec": claim.get("spec") or {},
        }
        if metadata.get("annotations"):
            body["metadata"]["annotations"] = dict(metadata["annotations"])
        message = f"create Claim {named} Pod {name}-{ordinal} in StatefulSet {name} success"
        event = EmitEvent(about, "Normal", "SuccessfulCreate", message)
        found.append(Create(PERSISTENT_VOLUME_CLAIMS, body, event))
    return found


def with_claims(obj: Json, pod: Json, ordinal: int) -> None:
    """Give a pod the volumes of its claims."""
    name = obj["metadata"]["name"]
    volumes = [
        {
            "name": claim["metadata"].get("name", ""),
            "persistentVolumeClaim": {"claimName": claim_name(claim, name, ordinal)},
        }
        for claim in obj["spec"].get("volumeClaimTemplates") or ()
    ]
    if volumes:
        own = {volume["name"] for volume in volumes}
        kept = [one for one in pod["spec"].get("volumes") or () if one.get("name") not in own]
        pod["spec"]["volumes"] = [*volumes, *kept]


def adopt_claims(
    obj: Json, pod: Pod, ordinal: int, claims: Mapping[str, Json], *, scaled_down: bool
) -> list[Patch]:
    """Bring the owners of a pod's claims in line with the retention policy.

    A claim that the StatefulSet owns is deleted with it, one that its pod owns with the
    pod. ``scaled_down``: the pod is beyond the replicas.
    """
    patches = []
    for template in obj["spec"].get("volumeClaimTemplates") or ():
        claim = claims.get(claim_name(template, obj["metadata"]["name"], ordinal))
        if claim is None:
            continue
        before = claim["metadata"].get("ownerReferences") or []
        after = _owners(obj, pod, before, scaled_down=scaled_down)
        if after is not None and after != before:
            metadata = claim["metadata"]
            patches.append(
                Patch(
                    PERSISTENT_VOLUME_CLAIMS,
                    metadata["name"],
                    {"metadata": {"ownerReferences": after}},
                    metadata.get("namespace"),
                    uid=metadata.get("uid"),
                )
            )
    return patches


def is_stale(obj: Json, ordinal: int, claims: Mapping[str, Json]) -> bool:
    """Return whether a claim still belongs to an earlier pod of the name, with which it is deleted."""
    if _policy(obj)[1] != _DELETE:
        return False
    name = f"{obj['metadata']['name']}-{ordinal}"
    found = (
        claims.get(claim_name(template, obj["metadata"]["name"], ordinal))
        for template in obj["spec"].get("volumeClaimTemplates") or ()
    )
    return any(
        _names(owner, PODS, name)
        for claim in found
        if claim is not None
        for owner in claim["metadata"].get("ownerReferences") or ()
    )


def _policy(obj: Json) -> tuple[str, str]:
    """Return what happens to claims on deletion of the set, and on fewer replicas."""
    policy = obj["spec"].get("persistentVolumeClaimRetentionPolicy") or {}
    return policy.get("whenDeleted") or "Retain", policy.get("whenScaled") or "Retain"


def _names(owner: Mapping[str, Any], resource: Resource, name: str) -> bool:
    return (owner.get("apiVersion"), owner.get("kind"), owner.get("name")) == (
        resource.api_version,
        resource.kind,
        name,
    )


def _owners(obj: Json, pod: Pod, before: list[Json], *, scaled_down: bool) -> list[Json] | None:
    """Return the owners that a claim should have; ``None`` if others decide about it."""
    mine = {obj["metadata"].get("uid"), pod.uid}

    def is_own(owner: Json) -> bool:
        return _names(owner, STATEFUL_SETS, obj["metadata"]["name"]) or _names(owner, PODS, pod.name)

    if any(is_own(owner) and owner.get("uid") not in mine for owner in before):
        return None  # It belongs to an earlier object of the name, and goes with it.
    when_deleted, when_scaled = _policy(obj)
    kept = [owner for owner in before if not is_own(owner)]
    if when_deleted != _DELETE and when_scaled != _DELETE:
        return kept
    if any(owner.get("controller") for owner in kept):
        return kept
    if when_scaled == _DELETE and scaled_down:
        reference = {"metadata": {"name": pod.name, "uid": pod.uid}}
        return [*kept, controller_reference(PODS, reference)]
    if when_deleted == _DELETE:
        return [*kept, controller_reference(STATEFUL_SETS, obj)]
    return kept
