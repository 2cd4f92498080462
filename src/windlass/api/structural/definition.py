"""Kinds that a CustomResourceDefinition declares: one resource for each served version.

A stored object has no version of its own: a version is its ``apiVersion``, and its schema is applied
when the object is read (conversion strategy ``None``).
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any

from windlass.api.resources import Resource
from windlass.api.structural import defaulting, pruning
from windlass.api.structural.pruning import Schema
from windlass.api.wire.scale import ScalePaths, paths_of

Json = Mapping[str, Any]
_ANYTHING: Schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}


class Definition:
    """One version of a kind, as declared by its CustomResourceDefinition. It must not be changed.

    ``revision``: identity of the declaration, for caches. ``changed``: objects may have been
    stored by another version or an older schema, so reading applies this schema.
    """

    def __init__(self, crd: Json, version: Json) -> None:
        spec, metadata = crd["spec"], crd["metadata"]
        self.crd_name: str = metadata.get("name", "")
        self.revision = f"{metadata.get('uid', '')}/{metadata.get('generation', 1)}/{version['name']}"
        self.terminating = bool(metadata.get("deletionTimestamp"))
        self.keeps_unknown = bool(spec.get("preserveUnknownFields"))
        self.schema: Schema = (version.get("schema") or {}).get("openAPIV3Schema") or _ANYTHING
        self.columns: list[dict[str, Any]] = version.get("additionalPrinterColumns") or []
        self.selectable = tuple(
            field["jsonPath"].removeprefix(".") for field in version.get("selectableFields") or ()
        )
        self.scale = _scale(version)
        self.deprecation = _deprecation(crd, version)
        self.changed = metadata.get("generation", 1) > 1 or len(spec["versions"]) > 1

    @cached_property
    def has_defaults(self) -> bool:
        return defaulting.has_defaults(self.schema)

    def prune(self, obj: dict[str, Any]) -> list[str]:
        """Remove unspecified fields of an object (in place), and return their paths."""
        return [] if self.keeps_unknown else pruning.prune(obj, self.schema)

    def fill(self, obj: dict[str, Any]) -> None:
        """Remove nulls that are not allowed, and fill in defaults, in place."""
        defaulting.fill(obj, self.schema)

    def read(self, obj: dict[str, Any]) -> dict[str, Any]:
        """Return a stored object as this version shows it, changed in place."""
        if self.changed:
            self.prune(obj)
            self.fill(obj)
        return obj

    @property
    def status_schema(self) -> Schema | None:
        return (self.schema.get("properties") or {}).get("status")


def _scale(version: Json) -> ScalePaths | None:
    found = (version.get("subresources") or {}).get("scale")
    return paths_of(found) if found else None


def _deprecation(crd: Json, version: Json) -> str:
    if not version.get("deprecated"):
        return ""
    names = f"{crd['spec']['group']}/{version['name']} {crd['spec']['names']['kind']}"
    return version.get("deprecationWarning") or f"{names} is deprecated"


def resources_of(crd: Json) -> list[Resource]:
    """Return the served versions of a definition, the newest first.

    Names are those that the status accepts. A definition that is not established serves none.
    """
    status, spec = crd.get("status") or {}, crd["spec"]
    accepted = status.get("acceptedNames") or {}
    established = any(
        condition.get("type") == "Established" and condition.get("status") == "True"
        for condition in status.get("conditions") or ()
    )
    if not established or not accepted.get("plural"):
        return []
    served = [version for version in spec["versions"] if version.get("served")]
    served.sort(key=lambda version: version_rank(version["name"]))
    return [_resource(crd, version, accepted) for version in served]


def _resource(crd: Json, version: Json, names: Json) -> Resource:
    found = version.get("subresources") or {}
    return Resource(
        crd["spec"]["group"],
        version["name"],
        names["plural"],
        names["kind"],
        crd["spec"]["scope"] == "Namespaced",
        tuple(names.get("shortNames") or ()),
        tuple(names.get("categories") or ()),
        tuple(name for name in ("status", "scale") if found.get(name) is not None),
        custom=True,
        singular_name=names.get("singular") or "",
        list_name=names.get("listKind") or "",
        definition=Definition(crd, version),
    )


def version_rank(name: str) -> tuple[int, int, int, str]:
    """Return the sort key of a version: ``v2``, ``v1``, ``v1beta1``, ``v1alpha1``, then other names."""
    rest = name.removeprefix("v")
    for stage, word in ((1, "beta"), (2, "alpha")):
        major, found, minor = rest.partition(word)
        if found and major.isdigit() and minor.isdigit():
            return stage, -int(major), -int(minor), ""
    if rest != name and rest.isdigit():
        return 0, -int(rest), 0, ""
    return 3, 0, 0, name
