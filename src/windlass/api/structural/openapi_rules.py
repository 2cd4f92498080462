"""Parts of OpenAPI that a CustomResourceDefinition may not use, and rules of its extensions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from windlass.api.errors import FieldError
from windlass.api.structural.pruning import META_FIELDS, Schema
from windlass.api.structural.values import invalid
from windlass.api.validation.collector import Collector

_TYPES = ("array", "boolean", "integer", "number", "object", "string")
_UNSUPPORTED = ("id", "additionalItems", "patternProperties", "definitions", "dependencies", "$ref")
_QUADRATIC = "uniqueItems cannot be set to true since the runtime complexity becomes quadratic"
_SCALAR = "must be a scalar type if parent array's x-kubernetes-list-type is map"


def check(schema: Schema, path: str) -> list[FieldError]:
    """Return what is not accepted in a schema, the outer parts first."""
    out = Collector()
    _check(schema, path, out, root=True)
    return out.errors


def _check(schema: Schema, path: str, out: Collector, *, root: bool = False, reason: str = "") -> None:
    _standard(schema, path, out, reason)
    if schema.get("uniqueItems"):
        out.forbidden(f"{path}.uniqueItems", _QUADRATIC)
    others = schema.get("additionalProperties")
    if isinstance(others, Mapping):
        if schema.get("properties"):
            out.forbidden(
                f"{path}.additionalProperties", "additionalProperties and properties are mutual exclusive"
            )
        _check(others, f"{path}.additionalProperties", out, reason=reason)
    elif others is False and schema.get("properties"):
        out.forbidden(
            f"{path}.additionalProperties", "additionalProperties and properties are mutual exclusive"
        )
    for key, inner in (schema.get("properties") or {}).items():
        inside = f"in top-level {key}" if root and key in META_FIELDS else reason
        _check(inner, f"{path}.properties[{key}]", out, reason=inside)
    if isinstance(schema.get("not"), Mapping):
        _check(schema["not"], f"{path}.not", out, reason=reason)
    for name in ("allOf", "oneOf", "anyOf"):
        for index, inner in enumerate(schema.get(name) or ()):
            _check(inner, f"{path}.{name}[{index}]", out, reason=reason)
    if isinstance(schema.get("items"), Mapping):
        _check(schema["items"], f"{path}.items", out, reason=reason)
    if schema.get("x-kubernetes-preserve-unknown-fields") is False:
        out.add(invalid(f"{path}.x-kubernetes-preserve-unknown-fields", False, "must be true or undefined"))
    _map_type(schema, path, out)
    _list_type(schema, path, out)
    _rules(schema, path, out)


def _standard(schema: Schema, path: str, out: Collector, reason: str) -> None:
    kind = schema.get("type")
    if kind and kind not in _TYPES:
        out.choice(f"{path}.type", kind, _TYPES)
    if reason and "default" in schema:
        out.forbidden(f"{path}.default", f"must not be set {reason}")
    for name in _UNSUPPORTED:
        if schema.get(name):
            out.forbidden(f"{path}.{name}", f"{name} is not supported")
    if kind == "null":
        out.forbidden(f"{path}.type", "type cannot be set to null, use nullable as an alternative")
    if isinstance(schema.get("items"), Sequence):
        out.forbidden(f"{path}.items", "items must be a schema object and not an array")


def _of_type(schema: Schema, wanted: str, extension: str, path: str, out: Collector) -> bool:
    kind = schema.get("type")
    why = f"must be {wanted} if {extension} is specified"
    if not kind:
        out.required(f"{path}.type", why)
    elif kind != wanted:
        out.invalid(f"{path}.type", kind, why)
    return kind == wanted


def _map_type(schema: Schema, path: str, out: Collector) -> None:
    found = schema.get("x-kubernetes-map-type")
    if found is not None:
        _of_type(schema, "object", "x-kubernetes-map-type", path, out)
        out.choice(f"{path}.x-kubernetes-map-type", found, ("atomic", "granular"))


def _list_type(schema: Schema, path: str, out: Collector) -> None:
    found, keys = schema.get("x-kubernetes-list-type"), schema.get("x-kubernetes-list-map-keys") or []
    items = schema.get("items")
    items = items if isinstance(items, Mapping) else None
    where = f"{path}.x-kubernetes-list-type"
    if found is not None:
        if _of_type(schema, "array", "x-kubernetes-list-type", path, out) and found == "set" and items:
            _atomic_items(items, path, out)
        out.choice(where, found, ("atomic", "set", "map"))
    if keys and found is None:
        out.required(where, "must be map if x-kubernetes-list-map-keys is non-empty")
    elif keys and found != "map":
        out.invalid(where, found, "must be map if x-kubernetes-list-map-keys is non-empty")
    if found == "map":
        _map_keys(items, keys, path, out)
    if found in ("set", "map") and items and items.get("nullable"):
        out.forbidden(f"{path}.items.nullable", f"cannot be nullable when x-kubernetes-list-type is {found}")


def _atomic_items(items: Schema, path: str, out: Collector) -> None:
    why = "must be atomic as item of a list with x-kubernetes-list-type=set"
    kind, lists, maps = (items.get(n) for n in ("type", "x-kubernetes-list-type", "x-kubernetes-map-type"))
    if kind == "array" and lists not in (None, "atomic"):
        out.add(invalid(f"{path}.items.x-kubernetes-list-type", lists, why))
    if kind == "object" and maps != "atomic":
        out.add(invalid(f"{path}.items.x-kubernetes-map-type", lists, why))


def _map_keys(items: Schema | None, keys: Sequence[str], path: str, out: Collector) -> None:
    where = f"{path}.x-kubernetes-list-map-keys"
    if not keys:
        out.required(where, "must not be empty if x-kubernetes-list-type is map")
    if items is None:
        out.required(f"{path}.items", "must have a schema if x-kubernetes-list-type is map")
        return
    if items.get("type") != "object":
        why = "must be object if parent array's x-kubernetes-list-type is map"
        out.invalid(f"{path}.items.type", items.get("type") or "", why)
        return
    properties, required = items.get("properties") or {}, items.get("required") or ()
    for position, key in enumerate(keys):
        field = properties.get(key)
        step = f"{path}.items.properties[{key}]"
        if field is None:
            out.add(invalid(where, list(keys), "entries must all be names of item properties"))
        elif field.get("type") in ("array", "object"):
            out.invalid(f"{step}.type", "object", _SCALAR)
        if key in keys[:position]:
            out.add(invalid(where, list(keys), "must not contain duplicate entries"))
        if field is None:
            continue
        listed = "this property is in x-kubernetes-list-map-keys, so it"
        if key not in required and "default" not in field:
            out.required(f"{step}.default", f"{listed} must have a default or be a required property")
        if field.get("nullable"):
            out.forbidden(f"{step}.nullable", f"{listed} cannot be nullable")


def _rules(schema: Schema, path: str, out: Collector) -> None:
    for index, rule in enumerate(schema.get("x-kubernetes-validations") or ()):
        where = f"{path}.x-kubernetes-validations[{index}]"
        text, message = (rule.get("rule") or ""), (rule.get("message") or "")
        if not text.strip():
            out.required(f"{where}.rule", "rule is not specified")
        elif message and not message.strip():
            out.invalid(f"{where}.message", message, "must be non-empty if specified")
        elif "\n" in message.strip():
            out.invalid(f"{where}.message", message, "must not contain line breaks")
        elif "\n" in text.strip() and not message.strip():
            out.required(f"{where}.message", "message must be specified if rule contains line breaks")
