"""Removal of fields that a structural schema does not specify, and of nulls it does not allow."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Schema = Mapping[str, Any]
META_FIELDS = frozenset(("apiVersion", "kind", "metadata"))
_NO_SCHEMA: Schema = {}


def prune(value: Any, schema: Schema) -> list[str]:
    """Remove unspecified fields from an object (in place), and return their paths, sorted.

    ``apiVersion``, ``kind`` and ``metadata`` of the object and of embedded objects are kept.
    """
    found: list[str] = []
    _prune(value, {**schema, "x-kubernetes-embedded-resource": True}, "", found)
    return sorted(found)


def prune_part(value: Any, schema: Schema) -> list[str]:
    """As :func:`prune`, for a value inside an object, such as a default."""
    found: list[str] = []
    _prune(value, schema, "", found)
    return sorted(found)


def _prune(value: Any, schema: Schema | None, path: str, found: list[str]) -> None:
    keep = bool(schema and schema.get("x-kubernetes-preserve-unknown-fields"))
    if isinstance(value, dict):
        _prune_fields(value, schema, path, found, keep)
    elif isinstance(value, list):
        items = schema.get("items") if schema else None
        if keep and isinstance(items, Mapping):
            items = {**items, "x-kubernetes-preserve-unknown-fields": True}
        elif keep:
            return
        for index, item in enumerate(value):
            _prune(item, items if isinstance(items, Mapping) else None, f"{path}[{index}]", found)


def _prune_fields(
    value: dict[str, Any], schema: Schema | None, path: str, found: list[str], keep: bool
) -> None:
    schema = schema if schema is not None else _NO_SCHEMA
    properties = schema.get("properties") or {}
    others = schema.get("additionalProperties")
    embedded = bool(schema.get("x-kubernetes-embedded-resource"))
    gone: list[str] = []
    for key, item in value.items():
        if embedded and key in META_FIELDS:
            continue
        where = f"{path}.{key}" if path else key
        if key in properties:
            _prune(item, properties[key], where, found)
        elif others is not None and others is not False:
            _prune(item, others if isinstance(others, Mapping) else None, where, found)
        elif not keep:
            gone.append(key)
            if key not in META_FIELDS or path:
                found.append(where)
    for key in gone:
        del value[key]


def drop_nulls(value: Any, schema: Schema | None) -> None:
    """Remove nulls of fields that are not nullable and have no default, in place."""
    if isinstance(value, dict):
        for key in [key for key, item in value.items() if _unwanted_null(item, field_schema(schema, key))]:
            del value[key]
        for key, item in value.items():
            drop_nulls(item, field_schema(schema, key))
    elif isinstance(value, list):
        items = schema.get("items") if schema else None
        for item in value:
            drop_nulls(item, items if isinstance(items, Mapping) else None)


def field_schema(schema: Schema | None, key: str) -> Schema | None:
    """Return the schema of one field of an object; ``None`` if there is none."""
    if not schema:
        return None
    found = (schema.get("properties") or {}).get(key)
    if found is None:
        others = schema.get("additionalProperties")
        found = others if isinstance(others, Mapping) else None
    return found


def _unwanted_null(value: Any, schema: Schema | None) -> bool:
    return value is None and schema is not None and not schema.get("nullable") and "default" not in schema
