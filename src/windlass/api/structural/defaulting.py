"""Defaults of a structural schema, filled into objects."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

from windlass.api.structural.pruning import Schema, drop_nulls


def has_defaults(schema: Any) -> bool:
    """Return whether any part of a schema declares a default."""
    if isinstance(schema, Mapping):
        return (
            "default" in schema
            or any(has_defaults(schema.get(part)) for part in ("items", "additionalProperties"))
            or any(has_defaults(inner) for inner in (schema.get("properties") or {}).values())
        )
    return False


def fill(value: Any, schema: Schema) -> None:
    """Remove nulls that are not allowed, and fill in defaults, in place."""
    drop_nulls(value, schema)
    _fill(value, schema)


def _fill(value: Any, schema: Schema | None) -> None:
    if not schema:
        return
    if isinstance(value, dict):
        properties = schema.get("properties") or {}
        for key, inner in properties.items():
            if "default" in inner and (key not in value or _not_allowed(value[key], inner)):
                value[key] = copy.deepcopy(inner["default"])
        others = schema.get("additionalProperties")
        others = others if isinstance(others, Mapping) else None
        for key, item in value.items():
            inner = properties.get(key, others)
            if inner is others and _not_allowed(item, others):
                value[key] = copy.deepcopy((others or {}).get("default"))
            _fill(value[key], inner)
    elif isinstance(value, list):
        items = schema.get("items")
        items = items if isinstance(items, Mapping) else None
        for index, item in enumerate(value):
            if _not_allowed(item, items):
                value[index] = copy.deepcopy((items or {}).get("default"))
            _fill(value[index], items)


def _not_allowed(value: Any, schema: Schema | None) -> bool:
    return value is None and schema is not None and not schema.get("nullable")
