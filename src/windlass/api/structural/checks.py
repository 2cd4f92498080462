"""Check of a schema itself: whether it is structural, and uses what kube-apiserver accepts.

Paths are those of the CustomResourceDefinition (``spec.versions[0].schema.openAPIV3Schema…``).
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

from windlass.api.errors import FieldError
from windlass.api.patterns import PatternError, compiled
from windlass.api.structural import objects, values
from windlass.api.structural.pruning import META_FIELDS, Schema, prune, prune_part
from windlass.api.structural.values import invalid
from windlass.api.validation.collector import Collector

_INT_OR_STRING = [{"type": "integer"}, {"type": "string"}]
_ROOT, _ITEM, _FIELD = "at the root", "for specified array items", "for specified object fields"
_NESTED = (
    ("type", "must be empty to be structural"),
    ("additionalProperties", "must be undefined to be structural"),
    ("default", "must be undefined to be structural"),
    ("title", "must be empty to be structural"),
    ("description", "must be empty to be structural"),
    ("nullable", "must be false to be structural"),
    ("x-kubernetes-preserve-unknown-fields", "must be false to be structural"),
    ("x-kubernetes-embedded-resource", "must be false to be structural"),
    ("x-kubernetes-int-or-string", "must be false to be structural"),
    ("x-kubernetes-list-map-keys", "must be empty to be structural"),
    ("x-kubernetes-list-type", "must be undefined to be structural"),
    ("x-kubernetes-map-type", "must be undefined to be structural"),
    ("x-kubernetes-validations", "must be empty to be structural"),
)
_ONLY_NAME = (
    "must not specify anything other than name and generateName, but metadata is implicitly specified"
)


def structural(schema: Schema, path: str) -> list[FieldError]:
    """Return the reasons why a schema is not structural, sorted by path."""
    out = Collector()
    _structural(schema, _ROOT, path, out)
    _complete(schema, schema, path, path, out)
    return sorted(out.errors, key=lambda error: (error.field, error.message))


def _structural(schema: Schema, level: str, path: str, out: Collector) -> None:
    items = schema.get("items")
    kind = schema.get("type") or ""
    if kind == "array" and items is None:
        out.required(f"{path}.items", "must be specified")
    if isinstance(items, Mapping):
        _structural(items, _ITEM, f"{path}.items", out)
    for key, inner in (schema.get("properties") or {}).items():
        _structural(inner, _FIELD, f"{path}.properties[{key}]", out)
    others = schema.get("additionalProperties")
    if others is not None:
        if level == _ROOT:
            out.forbidden(f"{path}.additionalProperties", "must not be used at the root")
        if isinstance(others, Mapping):
            _structural(others, _FIELD, f"{path}.additionalProperties", out)
    _extensions(schema, path, out)
    every = schema.get("allOf") or []
    skip_any = schema.get("anyOf") == _INT_OR_STRING
    skip_first = bool(every) and every[0].get("anyOf") == _INT_OR_STRING
    _value_validation(schema, path, out, skip_any=skip_any, skip_first=skip_first)
    _type(schema, kind, level, path, out)
    _metadata(schema, level, path, out)


def _extensions(schema: Schema, path: str, out: Collector) -> None:
    if schema.get("x-kubernetes-int-or-string"):
        for name in ("preserve-unknown-fields", "embedded-resource"):
            if schema.get(f"x-kubernetes-{name}"):
                why = "must be false if x-kubernetes-int-or-string is true"
                out.add(invalid(f"{path}.x-kubernetes-{name}", True, why))


def _type(schema: Schema, kind: str, level: str, path: str, out: Collector) -> None:
    embedded, keeps = (
        bool(schema.get(f"x-kubernetes-{name}")) for name in ("embedded-resource", "preserve-unknown-fields")
    )
    if embedded and kind != "object":
        why = "must be object if x-kubernetes-embedded-resource is true"
        if kind:
            out.invalid(f"{path}.type", kind, why)
        else:
            out.required(f"{path}.type", why)
    elif not kind and not schema.get("x-kubernetes-int-or-string") and not keeps:
        out.required(f"{path}.type", f"must not be empty {level}")
    if embedded and schema.get("additionalProperties") is not None:
        out.forbidden(
            f"{path}.additionalProperties", "must not be used if x-kubernetes-embedded-resource is set"
        )
    if level == _ROOT and kind and kind != "object":
        out.invalid(f"{path}.type", kind, "must be object at the root")
    if embedded and not keeps and not schema.get("properties"):
        out.required(
            f"{path}.properties",
            "must not be empty if x-kubernetes-embedded-resource is true without "
            "x-kubernetes-preserve-unknown-fields",
        )


def _metadata(schema: Schema, level: str, path: str, out: Collector) -> None:
    properties = schema.get("properties") or {}
    whole = level == _ROOT or bool(schema.get("x-kubernetes-embedded-resource"))
    for name in ("kind", "apiVersion"):
        if whole and name in properties and properties[name].get("type") != "string":
            out.invalid(
                f"{path}.properties[{name}].type", properties[name].get("type") or "", "must be string"
            )
    metadata = properties.get("metadata")
    if metadata is None:
        return
    where = f"{path}.properties[metadata]"
    if whole and metadata.get("type") != "object":
        out.invalid(f"{where}.type", metadata.get("type") or "", "must be object")
    if level == _ROOT:
        others = set(metadata) - {"type", "description", "default", "properties"}
        if others or set(metadata.get("properties") or {}) - {"name", "generateName"}:
            out.forbidden(where, _ONLY_NAME)


def _value_validation(
    schema: Schema, path: str, out: Collector, *, skip_any: bool = False, skip_first: bool = False
) -> None:
    if not skip_any:
        for index, inner in enumerate(schema.get("anyOf") or ()):
            _nested(inner, f"{path}.anyOf[{index}]", out)
    for index, inner in enumerate(schema.get("allOf") or ()):
        _nested(inner, f"{path}.allOf[{index}]", out, skip_any=skip_first and index == 0)
    for index, inner in enumerate(schema.get("oneOf") or ()):
        _nested(inner, f"{path}.oneOf[{index}]", out)
    if schema.get("not") is not None:
        _nested(schema["not"], f"{path}.not", out)
    pattern = schema.get("pattern")
    if pattern:
        try:
            compiled(pattern)
        except PatternError as error:
            why = f"must be a valid regular expression, but isn't: error parsing regexp: {error}"
            out.invalid(f"{path}.pattern", pattern, why)


def _nested(schema: Schema, path: str, out: Collector, *, skip_any: bool = False) -> None:
    _value_validation(schema, path, out, skip_any=skip_any)
    if isinstance(schema.get("items"), Mapping):
        _nested(schema["items"], f"{path}.items", out)
    properties = schema.get("properties") or {}
    for key, inner in properties.items():
        _nested(inner, f"{path}.properties[{key}]", out)
    for name, why in _NESTED:
        if schema.get(name) or (name in ("default", "additionalProperties") and name in schema):
            out.forbidden(f"{path}.{name}", why)
    if "metadata" in properties:
        out.forbidden(f"{path}.properties[metadata]", "must not be specified in a nested context")


def _complete(validation: Schema, schema: Schema | None, place: str, path: str, out: Collector) -> None:
    """Check that every field of a value validation is specified outside of it, too."""
    for name in ("not", "allOf", "anyOf", "oneOf"):
        found = validation.get(name)
        if found is None:
            continue
        parts = (
            [(f"{path}.{name}", found)]
            if name == "not"
            else [(f"{path}.{name}[{index}]", inner) for index, inner in enumerate(found)]
        )
        for where, inner in parts:
            _complete_nested(inner, schema, place, where, out)


def _complete_nested(
    validation: Schema, schema: Schema | None, place: str, path: str, out: Collector
) -> None:
    if schema is None:
        out.required(place, f"because it is defined in {path}")
        return
    _complete(validation, schema, place, path, out)
    items = validation.get("items")
    if isinstance(items, Mapping):
        specified = schema.get("items")
        _complete_nested(
            items,
            specified if isinstance(specified, Mapping) else None,
            f"{place}.items",
            f"{path}.items",
            out,
        )
    known = schema.get("properties") or {}
    for key, inner in (validation.get("properties") or {}).items():
        step = f".properties[{key}]"
        if key not in known:
            out.required(f"{place}{step}", f"because it is defined in {path}{step}")
        else:
            _complete_nested(inner, known[key], f"{place}{step}", f"{path}{step}", out)


def defaults(schema: Schema, path: str) -> list[FieldError]:
    """Return the errors of the defaults in a structural schema."""
    out = Collector()
    _defaults({**schema, "x-kubernetes-embedded-resource": True}, path, out)
    return out.errors


def _defaults(schema: Schema, path: str, out: Collector) -> None:
    if "default" in schema:
        value = schema["default"]
        where = f"{path}.default"
        pruned = copy.deepcopy(value)
        (prune if schema.get("x-kubernetes-embedded-resource") else prune_part)(pruned, schema)
        if pruned != value:
            out.add(invalid(where, value, "must not have unknown fields"))
        found = objects.embedded_objects(schema, value, where)
        for error in found or values.validate(schema, value):
            own = error.field == values.NO_PATH
            out.add(
                error
                if found
                else FieldError(where if own else f"{where}.{error.field}", error.message, error.reason)
            )
    items = schema.get("items")
    if isinstance(items, Mapping):
        _defaults(items, f"{path}.items", out)
    for key, inner in (schema.get("properties") or {}).items():
        if schema.get("x-kubernetes-embedded-resource") and key in META_FIELDS:
            continue
        _defaults(inner, f"{path}.properties[{key}]", out)


def visit(schema: Any, path: str, found: list[tuple[str, Schema]]) -> None:
    """Collect every schema in ``schema`` with its path, the outer ones first."""
    if not isinstance(schema, Mapping):
        return
    found.append((path, schema))
    for name in ("items", "additionalProperties", "not"):
        visit(schema.get(name), f"{path}.{name}", found)
    for key, inner in (schema.get("properties") or {}).items():
        visit(inner, f"{path}.properties[{key}]", found)
    for name in ("allOf", "anyOf", "oneOf"):
        for index, inner in enumerate(schema.get(name) or ()):
            visit(inner, f"{path}.{name}[{index}]", found)
