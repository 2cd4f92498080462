"""ObjectMeta: names by kind, labels, annotations, owners, finalizers; and what an update may not touch."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from windlass.api import resources
from windlass.api.errors import FieldError
from windlass.api.fields.kubeflow import FIELDS
from windlass.api.resources import Resource
from windlass.api.structural.names import CLEANUP
from windlass.api.validation import names
from windlass.api.validation.collector import Collector

_ANNOTATIONS_LIMIT = 256 * 1024
_STANDARD_FINALIZERS = ("kubernetes", "orphan", "foregroundDeletion")
_LABEL_NAMED = frozenset(
    (resources.NAMESPACES, resources.SERVICES, resources.STATEFUL_SETS, resources.VOLCANO_JOBS, *FIELDS)
)
_OWNER_FIELDS = ("apiVersion", "kind", "name", "uid", "controller", "blockOwnerDeletion")
IMMUTABLE = "field is immutable"


def name_check(resource: Resource) -> Callable[[str], tuple[str, ...]]:
    """Return the check for names of this kind: a DNS label if the name becomes one, else a DNS subdomain.

    A Service may begin with a digit, as in Kubernetes 1.36 (``RelaxedServiceNameValidation``).
    """
    return names.dns_label if resource in _LABEL_NAMED else names.dns_subdomain


def validate(
    resource: Resource, obj: Mapping[str, Any], old: Mapping[str, Any] | None, out: Collector
) -> None:
    metadata = obj.get("metadata") or {}
    generate, name = metadata.get("generateName"), metadata.get("name")
    check = name_check(resource)
    if generate and old is None:
        probe = f"{generate[:-1]}a" if generate.endswith("-") else generate  # a suffix follows the dash
        out.each("metadata.generateName", generate, check(probe))
    if not name:
        out.required("metadata.name", "name or generateName is required")
    elif old is None:
        out.each("metadata.name", name, check(name))
    labels(metadata.get("labels"), "metadata.labels", out)
    _annotations(metadata.get("annotations") or {}, out)
    _owners(metadata.get("ownerReferences") or [], out)
    finalizers = metadata.get("finalizers") or ()
    for finalizer in finalizers:
        out.each("metadata.finalizers", finalizer, names.qualified_name(finalizer))
    for index, finalizer in enumerate(finalizers):
        qualified = "/" in finalizer or finalizer in _STANDARD_FINALIZERS
        if not qualified and resource.definition is None and finalizer != CLEANUP:
            out.invalid(
                f"metadata.finalizers[{index}]",
                finalizer,
                "name is neither a standard finalizer name nor is it fully qualified",
            )
    if old is not None:
        before = old.get("metadata") or {}
        for field in ("name", "namespace", "uid", "creationTimestamp"):
            if before.get(field) and metadata.get(field) != before[field]:
                out.invalid(f"metadata.{field}", metadata.get(field), IMMUTABLE)


def labels(found: Mapping[str, str] | None, path: str, out: Collector) -> None:
    for key, value in (found or {}).items():
        out.each(path, key, names.qualified_name(key))
        out.each(path, value, names.label_value(value))


def _annotations(found: Mapping[str, str], out: Collector) -> None:
    size = 0
    for key, value in found.items():
        out.each("metadata.annotations", key, names.qualified_name(key.lower()))
        size += len(key) + len(value)
    if size > _ANNOTATIONS_LIMIT:
        why = f"Too long: may not be more than {_ANNOTATIONS_LIMIT} bytes"
        out.add(FieldError("metadata.annotations", why, "FieldValueTooLong"))


def _owners(owners: list[Mapping[str, Any]], out: Collector) -> None:
    controllers = []
    for owner in owners:
        version = owner.get("apiVersion", "")
        if not version or version.count("/") > 1:
            out.invalid("metadata.ownerReferences.apiVersion", version, "version must not be empty")
        for field in ("kind", "name", "uid"):
            if not owner.get(field):
                out.invalid(f"metadata.ownerReferences.{field}", "", "must not be empty")
        if owner.get("controller"):
            controllers.append(f"{owner.get('kind', '')}/{owner.get('name', '')}")
    if len(controllers) > 1:
        ordered = [{name: owner[name] for name in _OWNER_FIELDS if name in owner} for owner in owners]
        shown = json.dumps(ordered, separators=(",", ":"), ensure_ascii=False)
        why = 'Only one reference can have Controller set to true. Found "true" in references for '
        out.add(
            FieldError(
                "metadata.ownerReferences",
                f"Invalid value: {shown}: {why}{controllers[0]} and {controllers[1]}",
            )
        )
