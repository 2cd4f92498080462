"""What the server itself writes into objects: identity, generation; and which half a write may touch.

As in the registry strategies of kube-apiserver: a write to the object leaves ``status`` alone, a write
to ``/status`` leaves the rest alone, and nobody but the server sets uid, creation and deletion times.
"""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

from windlass.api import resources
from windlass.api.errors import FieldError, conflict, failure, invalid
from windlass.api.resources import Resource
from windlass.kits.rng import Random, uid
from windlass.kits.timestamps import rfc3339

_SPEC_GENERATION = frozenset((resources.PODS, resources.POD_DISRUPTION_BUDGETS))
_FIXED_GENERATION = frozenset((resources.PRIORITY_CLASSES,))
_ANY_GENERATION = frozenset((resources.ENDPOINT_SLICES, resources.DEVICE_CLASSES, resources.RESOURCE_SLICES))
_KEEPS_STATUS_AT_CREATE = frozenset((resources.NODES,))
CREATED_BY_UPDATE = frozenset(
    (
        resources.LEASES,
        resources.EVENTS,
        resources.SERVICES,
        resources.ENDPOINTS,
        resources.LIMIT_RANGES,
    )
)
"""Kinds that a PUT on an absent name creates."""
_NEEDS_VERSION = frozenset((resources.LEASES, resources.POD_DISRUPTION_BUDGETS))
_FIRST_STATUS: dict[Resource, dict[str, Any]] = {
    resources.PODS: {"phase": "Pending"},
    resources.NAMESPACES: {"phase": "Active"},
    resources.PERSISTENT_VOLUMES: {"phase": "Pending"},
    resources.PERSISTENT_VOLUME_CLAIMS: {"phase": "Pending"},
    resources.RESOURCE_CLAIMS: {},
}
_SERVER_ONLY = ("managedFields", "selfLink", "resourceVersion", "uid", "creationTimestamp")
_DELETION = ("deletionTimestamp", "deletionGracePeriodSeconds")
_NOT_BY_CLIENTS = frozenset((*_SERVER_ONLY, *_DELETION, "generation"))
NAMESPACE_FINALIZER = "kubernetes"


def has_generation(resource: Resource) -> bool:
    """Whether objects of the kind count their spec's changes."""
    return (
        resource.custom
        or resource in _SPEC_GENERATION
        or resource in _FIXED_GENERATION
        or resource in _ANY_GENERATION
    )


def needs_version(resource: Resource) -> bool:
    """Whether an update must name the version that it was made on."""
    return resource.custom or resource in _NEEDS_VERSION


class _Begins(NamedTuple):
    """How objects of a kind begin: whether they count their spec's changes, and with which status."""

    counts: bool
    without_status: bool
    status: dict[str, Any] | None


@cache
def _begins(resource: Resource) -> _Begins:
    drops = "status" in resource.subresources and resource not in _KEEPS_STATUS_AT_CREATE
    return _Begins(has_generation(resource), drops, _FIRST_STATUS.get(resource))


def prepare_create(resource: Resource, obj: dict[str, Any], rng: Random, now: float) -> None:
    """Give a new object its identity, and drop what only the server may write."""
    metadata = obj["metadata"]
    if metadata.get("resourceVersion"):
        raise failure(400, "BadRequest", "resourceVersion should not be set on objects to be created")
    if not _NOT_BY_CLIENTS.isdisjoint(metadata):
        for key in _NOT_BY_CLIENTS:
            metadata.pop(key, None)
    metadata["uid"] = uid(rng)
    metadata["creationTimestamp"] = rfc3339(now)
    begins = _begins(resource)
    if begins.counts:
        metadata["generation"] = 1
    if begins.without_status:
        obj.pop("status", None)
    if begins.status is not None:
        obj["status"] = {**begins.status}
    if resource is resources.NAMESPACES:
        metadata.setdefault("labels", {})["kubernetes.io/metadata.name"] = metadata["name"]
        obj["spec"] = {**(obj.get("spec") or {})}
        if not obj["spec"].get("finalizers"):
            obj["spec"]["finalizers"] = [NAMESPACE_FINALIZER]


def prepare_update(resource: Resource, new: dict[str, Any], old: dict[str, Any], subresource: str) -> None:
    """Restore in ``new`` what this write may not change. ``new`` may lose and gain members."""
    if subresource == "status":
        _only_status(resource, new, old)
    elif subresource == "finalize":
        _only_finalizers(new, old)
    else:
        if "status" in resource.subresources:
            _take(new, old, "status")
        if resource is resources.NAMESPACES:
            spec = new["spec"] = {**(new.get("spec") or {})}
            _take(spec, old.get("spec") or {}, "finalizers")
    _restore_identity(resource, new["metadata"], old["metadata"])
    if has_generation(resource):
        changed = not subresource and _generation_moves(resource, new, old)
        generation = old["metadata"].get("generation", 0)
        if generation or changed:
            new["metadata"]["generation"] = generation + 1 if changed else generation


def _take(new: dict[str, Any], old: dict[str, Any], key: str) -> None:
    if key in old:
        new[key] = old[key]
    else:
        new.pop(key, None)


def _only_status(resource: Resource, new: dict[str, Any], old: dict[str, Any]) -> None:
    for key in [key for key in new if key not in ("metadata", "status", "kind", "apiVersion")]:
        del new[key]
    new |= {key: value for key, value in old.items() if key not in ("metadata", "status")}
    if resource.custom:
        new["metadata"] = {**old["metadata"]}
    elif resource is resources.PODS:
        _take(new["metadata"], old["metadata"], "ownerReferences")


def _only_finalizers(new: dict[str, Any], old: dict[str, Any]) -> None:
    finalizers = (new.get("spec") or {}).get("finalizers")
    metadata = new["metadata"]
    new.clear()
    new.update(old)
    new["metadata"] = {**old["metadata"], "resourceVersion": metadata.get("resourceVersion")}
    spec = new["spec"] = {**(old.get("spec") or {})}
    if finalizers:
        spec["finalizers"] = finalizers
    else:
        spec.pop("finalizers", None)


def _restore_identity(resource: Resource, new: dict[str, Any], old: dict[str, Any]) -> None:
    name = old["name"]
    given = new.get("uid")
    if given and given != old.get("uid"):
        key = "/".join(filter(None, (old.get("namespace"), name)))
        raise conflict(
            resource,
            name,
            f"StorageError: invalid object, Code: 4, Key: /registry/{resource.plural}/{key}, "
            "ResourceVersion: 0, AdditionalErrorMsg: Precondition failed: UID in precondition: "
            f"{given}, UID in object meta: {old.get('uid')}",
        )
    for key in ("uid", "creationTimestamp", "generation", "namespace", "name"):
        _take(new, old, key)
    new.pop("managedFields", None)
    new.pop("selfLink", None)
    if "deletionTimestamp" in old:
        for key in _DELETION:
            _take(new, old, key)
        added = [f for f in new.get("finalizers") or () if f not in (old.get("finalizers") or ())]
        if added:
            shown = ", ".join(f'"{finalizer}"' for finalizer in added)
            why = (
                "no new finalizers can be added if the object is being deleted, "
                f"found new finalizers []string{{{shown}}}"
            )
            raise invalid(resource, name, [FieldError.forbidden("metadata.finalizers", why)])
    else:
        set_by_client = [
            FieldError.invalid(f"metadata.{key}", new[key], "field is immutable")
            for key in _DELETION
            if new.get(key) is not None
        ]
        if set_by_client:
            raise invalid(resource, name, set_by_client)
        for key in _DELETION:
            new.pop(key, None)


def _generation_moves(resource: Resource, new: dict[str, Any], old: dict[str, Any]) -> bool:
    if resource in _FIXED_GENERATION:
        return False
    if resource in _SPEC_GENERATION:
        return new.get("spec") != old.get("spec")
    ignored = ("metadata", "status", "kind", "apiVersion")
    keys = {key for key in (*new, *old) if key not in ignored}
    return any(new.get(key) != old.get(key) for key in keys)


def unchanged(new: dict[str, Any], old: dict[str, Any]) -> bool:
    """Whether writing ``new`` would change anything but the version."""
    if new.keys() != old.keys():
        return False
    for key, value in new.items():
        if key == "metadata":
            left = {k: v for k, v in value.items() if k != "resourceVersion"}
            right = {k: v for k, v in old[key].items() if k != "resourceVersion"}
            if left != right:
                return False
        elif key not in ("kind", "apiVersion") and value != old[key]:
            return False
    return True


def bump_generation(metadata: dict[str, Any]) -> None:
    """A deletion that begins counts as a change, where changes are counted."""
    if metadata.get("generation"):
        metadata["generation"] += 1
