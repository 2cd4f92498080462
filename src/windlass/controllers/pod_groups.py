"""PodGroups that job controllers keep: admission to the queue, and corrections of the spec."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from windlass.api.resources import POD_GROUPS
from windlass.controllers.effects import Patch

JOB_FIELDS = ("minMember", "minTaskMember", "minResources", "priorityClassName")
"""Fields that every job decides. Others, such as ``queue`` after the creation, are left alone."""


def is_admitted(group: Mapping[str, Any] | None) -> bool:
    """Return whether the group was admitted to its queue. No pod is created before."""
    return ((group or {}).get("status") or {}).get("phase") not in (None, "", "Pending")


def own_group(group: dict[str, Any] | None, uid: str) -> dict[str, Any] | None:
    """Return the group if the object ``uid`` owns it and it is not being deleted."""
    if group is None or group["metadata"].get("deletionTimestamp"):
        return None
    owners = group["metadata"].get("ownerReferences") or ()
    return group if any(owner.get("uid") == uid for owner in owners) else None


def spec_patch(
    group: Mapping[str, Any], desired: Mapping[str, Any], fields: tuple[str, ...] = JOB_FIELDS
) -> dict[str, Any]:
    """Return the merge patch that corrects ``fields`` of a group's spec; empty if they are right."""
    present = group.get("spec") or {}
    patch: dict[str, Any] = {}
    for name in fields:
        wanted, found = desired.get(name), present.get(name)
        if (wanted or None) == (found or None):
            continue
        if isinstance(wanted, dict) and isinstance(found, dict):
            patch[name] = {**dict.fromkeys(found.keys() - wanted.keys()), **wanted}
        else:
            patch[name] = wanted
    return patch


def annotate_group(group: Mapping[str, Any], annotations: Mapping[str, str | None]) -> Patch:
    """Return the write of annotations of a group; ``None`` removes one."""
    metadata = group["metadata"]
    body = {"metadata": {"annotations": dict(annotations)}}
    return Patch(
        POD_GROUPS,
        metadata["name"],
        body,
        metadata.get("namespace"),
        resource_version=metadata.get("resourceVersion"),
    )


def patch_group(group: Mapping[str, Any], patch: Mapping[str, Any]) -> Patch:
    """Return the write of a spec patch. It conflicts with any write since the group was read."""
    metadata = group["metadata"]
    return Patch(
        POD_GROUPS,
        metadata["name"],
        {"spec": dict(patch)},
        metadata.get("namespace"),
        resource_version=metadata.get("resourceVersion"),
    )
