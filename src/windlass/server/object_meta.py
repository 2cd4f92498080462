"""Fields that the server writes into objects, and fields that a write may change.

As in the registry strategies of kube-apiserver: a write to the object leaves ``status``
unchanged, and a write to
``/status`` leaves everything else unchanged. Only the server sets uid, creation and
deletion times.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

from windlass.api import resources
from windlass.api.defaults.apps import TEMPLATE_GENERATION
from windlass.api.errors import FieldError, conflict, failure, invalid
from windlass.api.resources import Resource
from windlass.kits.rng import Random, uid
from windlass.kits.timestamps import rfc3339

_SPEC_GENERATION = frozenset(
    (
        resources.PODS,
        resources.POD_DISRUPTION_BUDGETS,
        resources.REPLICA_SETS,
        resources.STATEFUL_SETS,
        resources.DAEMON_SETS,
        resources.DEPLOYMENTS,
        resources.BATCH_JOBS,
        resources.CRON_JOBS,
        resources.CUSTOM_RESOURCE_DEFINITIONS,
    )
)
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
"""Kinds of which a PUT creates an absent object."""
_NEEDS_VERSION = frozenset(
    (resources.LEASES, resources.POD_DISRUPTION_BUDGETS, resources.CUSTOM_RESOURCE_DEFINITIONS)
)
_FIRST_STATUS: dict[Resource, dict[str, Any]] = {
    resources.PODS: {"phase": "Pending"},
    resources.POD_GROUPS: {"phase": "Pending"},
    resources.NAMESPACES: {"phase": "Active"},
    resources.PERSISTENT_VOLUMES: {"phase": "Pending"},
    resources.PERSISTENT_VOLUME_CLAIMS: {"phase": "Pending"},
    resources.RESOURCE_CLAIMS: {},
    resources.DEPLOYMENTS: {},
    resources.BATCH_JOBS: {},
    resources.CRON_JOBS: {},
    resources.REPLICA_SETS: {"replicas": 0},
    resources.STATEFUL_SETS: {"replicas": 0, "availableReplicas": 0},
    resources.DAEMON_SETS: {
        "currentNumberScheduled": 0,
        "numberMisscheduled": 0,
        "desiredNumberScheduled": 0,
        "numberReady": 0,
    },
}
_SERVER_ONLY = ("managedFields", "selfLink", "resourceVersion", "uid", "creationTimestamp")
_DELETION = ("deletionTimestamp", "deletionGracePeriodSeconds")
_NOT_BY_CLIENTS = frozenset((*_SERVER_ONLY, *_DELETION, "generation"))
NAMESPACE_FINALIZER = "kubernetes"


def has_generation(resource: Resource) -> bool:
    """Return whether objects of the kind have ``metadata.generation``."""
    return (
        resource.custom
        or resource in _SPEC_GENERATION
        or resource in _FIXED_GENERATION
        or resource in _ANY_GENERATION
    )


def needs_version(resource: Resource) -> bool:
    """Return whether an update must contain ``resourceVersion``."""
    return resource.custom or resource in _NEEDS_VERSION


class _InitialState(NamedTuple):
    """Initial state of objects of a kind: generation and status."""

    has_generation: bool
    without_status: bool
    status: dict[str, Any] | None


@lru_cache(maxsize=1024)
def _initial_state(resource: Resource) -> _InitialState:
    drops = "status" in resource.subresources and resource not in _KEEPS_STATUS_AT_CREATE
    return _InitialState(has_generation(resource), drops, _FIRST_STATUS.get(resource))


def prepare_create(resource: Resource, obj: dict[str, Any], rng: Random, now: float) -> None:
    """Set the identity of a new object, and remove fields that only the server writes."""
    metadata = obj["metadata"]
    if metadata.get("resourceVersion"):
        raise failure(400, "BadRequest", "resourceVersion should not be set on objects to be created")
    if not _NOT_BY_CLIENTS.isdisjoint(metadata):
        for key in _NOT_BY_CLIENTS:
            metadata.pop(key, None)
    metadata["uid"] = uid(rng)
    metadata["creationTimestamp"] = rfc3339(now)
    initial = _initial_state(resource)
    if initial.has_generation:
        metadata["generation"] = 1
    if initial.without_status:
        obj.pop("status", None)
    if initial.status is not None:
        obj["status"] = {**initial.status}
    if resource is resources.NAMESPACES:
        metadata.setdefault("labels", {})["kubernetes.io/metadata.name"] = metadata["name"]
        obj["spec"] = {**(obj.get("spec") or {})}
        if not obj["spec"].get("finalizers"):
            obj["spec"]["finalizers"] = [NAMESPACE_FINALIZER]


def prepare_update(resource: Resource, new: dict[str, Any], old: dict[str, Any], subresource: str) -> None:
    """Restore in ``new`` (in place) the fields that this write must not change."""
    if subresource == "status":
        _only_status(resource, new, old)
    elif subresource == "finalize":
        _only_finalizers(new, old)
    elif subresource == "ephemeralcontainers":
        _only_ephemeral_containers(new, old)
    else:
        if "status" in resource.subresources:
            _take(new, old, "status")
        if resource is resources.NAMESPACES:
            spec = new["spec"] = {**(new.get("spec") or {})}
            _take(spec, old.get("spec") or {}, "finalizers")
        if resource is resources.DAEMON_SETS:
            _count_template(new, old)
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


def _only_ephemeral_containers(new: dict[str, Any], old: dict[str, Any]) -> None:
    containers = (new.get("spec") or {}).get("ephemeralContainers")
    version = new["metadata"].get("resourceVersion")
    new.clear()
    new.update(old)
    new["metadata"] = {**old["metadata"], "resourceVersion": version}
    new["spec"] = {**old["spec"]}
    if containers:
        new["spec"]["ephemeralContainers"] = containers
    else:
        new["spec"].pop("ephemeralContainers", None)


def _count_template(new: dict[str, Any], old: dict[str, Any]) -> None:
    """Count the templates of a DaemonSet. A client cannot change the count."""
    count = int(_annotations(old).get(TEMPLATE_GENERATION) or 1)
    if (new.get("spec") or {}).get("template") != (old.get("spec") or {}).get("template"):
        count += 1
    new["metadata"]["annotations"] = {**_annotations(new), TEMPLATE_GENERATION: str(count)}


def _restore_identity(resource: Resource, new: dict[str, Any], old: dict[str, Any]) -> None:
    name = old["name"]
    uid = new.get("uid")
    if uid and uid != old.get("uid"):
        key = "/".join(filter(None, (old.get("namespace"), name)))
        raise conflict(
            resource,
            name,
            f"StorageError: invalid object, Code: 4, Key: /registry/{resource.plural}/{key}, "
            "ResourceVersion: 0, AdditionalErrorMsg: Precondition failed: UID in precondition: "
            f"{uid}, UID in object meta: {old.get('uid')}",
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
        if resource is resources.DEPLOYMENTS and _annotations(new) != _annotations(old):
            return True
        return new.get("spec") != old.get("spec")
    ignored = ["metadata", "kind", "apiVersion"]
    if resource.definition is None or "status" in resource.subresources:
        ignored.append("status")
    keys = {key for key in (*new, *old) if key not in ignored}
    return any(new.get(key) != old.get(key) for key in keys)


def _annotations(obj: dict[str, Any]) -> dict[str, str]:
    return obj["metadata"].get("annotations") or {}


def unchanged(new: dict[str, Any], old: dict[str, Any]) -> bool:
    """Return whether ``new`` equals ``old`` except for resourceVersion."""
    if new.keys() != old.keys():
        return False
    for key, value in new.items():
        if key == "metadata":
            new_metadata = {k: v for k, v in value.items() if k != "resourceVersion"}
            old_metadata = {k: v for k, v in old[key].items() if k != "resourceVersion"}
            if new_metadata != old_metadata:
                return False
        elif key not in ("kind", "apiVersion") and value != old[key]:
            return False
    return True


def bump_generation(metadata: dict[str, Any]) -> None:
    """Increment the generation, if there is one, when deletion starts."""
    if metadata.get("generation"):
        metadata["generation"] += 1
