"""ControllerRevisions: the pod templates that a StatefulSet or a DaemonSet has had."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from windlass.api.resources import CONTROLLER_REVISIONS, Resource
from windlass.controllers.apps.template_hash import template_hash
from windlass.controllers.effects import Create, Delete, Patch, controller_reference

Json = dict[str, Any]
REVISION_HASH = "controller-revision-hash"
"""Label of a pod with its revision."""
_REPLACE = {"$patch": "replace"}
_NAME_LENGTH = 223


def revision_data(obj: Mapping[str, Any]) -> Json:
    """Return the patch that gives an object its present template again (``kubectl rollout undo``)."""
    template = (obj.get("spec") or {}).get("template") or {}
    return {"spec": {"template": {**template, **_REPLACE}}}


def template_of(revision: Mapping[str, Any]) -> Json:
    """Return the pod template of a revision."""
    template = ((revision.get("data") or {}).get("spec") or {}).get("template") or {}
    return {name: value for name, value in template.items() if name not in _REPLACE}


def in_order(revisions: Iterable[Json]) -> list[Json]:
    """Return the revisions, the oldest first."""

    def order(one: Json) -> tuple[int, str, str]:
        metadata = one["metadata"]
        return one.get("revision") or 0, metadata.get("creationTimestamp") or "", metadata["name"]

    return sorted(revisions, key=order)


@dataclass(frozen=True, slots=True)
class RevisionPlan:
    """Revision of the present template, and the write that makes it the newest.

    ``collisions``: number of names that other templates hold.
    """

    newest: Json
    action: Create | Patch | None
    collisions: int


def plan_revision(
    resource: Resource,
    obj: Json,
    revisions: list[Json],
    labels: Callable[[str], dict[str, str]],
    taken: Callable[[str], Json | None],
) -> RevisionPlan:
    """Find or create the revision of the present template.

    ``revisions``: those of the object, the oldest first.
    ``labels``: hash of a new revision → its labels.
    ``taken``: name → the revision that has it; ``None`` if it is free.
    """
    data = revision_data(obj)
    collisions = (obj.get("status") or {}).get("collisionCount") or 0
    number = (revisions[-1].get("revision") or 0) + 1 if revisions else 1
    equal = [one for one in revisions if one.get("data") == data]
    if equal and equal[-1] is revisions[-1]:
        return RevisionPlan(equal[-1], None, collisions)
    if equal:
        metadata = equal[-1]["metadata"]
        patch = Patch(
            CONTROLLER_REVISIONS,
            metadata["name"],
            {"revision": number},
            metadata.get("namespace"),
            uid=metadata.get("uid"),
        )
        return RevisionPlan({**equal[-1], "revision": number}, patch, collisions)
    while True:
        hashed = template_hash(data, collisions)
        name = f"{obj['metadata']['name'][:_NAME_LENGTH]}-{hashed}"
        present = taken(name)
        if present is None or (present.get("data") == data and _is_owner(obj, present)):
            break
        collisions += 1
    created = _revision(resource, obj, name, number, labels(hashed), data)
    return RevisionPlan(created, Create(CONTROLLER_REVISIONS, created), collisions)


def _is_owner(obj: Json, revision: Json) -> bool:
    owners = revision["metadata"].get("ownerReferences") or ()
    return any(owner.get("uid") == obj["metadata"].get("uid") for owner in owners)


def _revision(
    resource: Resource, obj: Json, name: str, number: int, labels: dict[str, str], data: Json
) -> Json:
    metadata: Json = {
        "name": name,
        "namespace": obj["metadata"]["namespace"],
        "labels": labels,
        "ownerReferences": [controller_reference(resource, obj)],
    }
    if obj["metadata"].get("annotations"):
        metadata["annotations"] = dict(obj["metadata"]["annotations"])
    return {
        "apiVersion": CONTROLLER_REVISIONS.api_version,
        "kind": CONTROLLER_REVISIONS.kind,
        "metadata": metadata,
        "data": data,
        "revision": number,
    }


def expired_revisions(revisions: list[Json], live: set[str], limit: int) -> list[Delete]:
    """Delete the oldest revisions beyond ``limit`` that no pod has. ``live``: names to keep."""
    unused = [one["metadata"] for one in revisions if one["metadata"]["name"] not in live]
    return [
        Delete(CONTROLLER_REVISIONS, one["name"], one.get("namespace"), one.get("uid"))
        for one in unused[: max(0, len(unused) - limit)]
    ]
