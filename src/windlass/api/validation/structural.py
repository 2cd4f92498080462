"""The bounds of a CustomResourceDefinition's schema: choices, ranges, lengths, patterns, required fields.

Words of the validator that kube-apiserver uses for custom resources.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any

from windlass.api.errors import FieldError
from windlass.api.validation.collector import Collector
from windlass.api.wire.field_values import canonical_time
from windlass.api.wire.schema import SchemaNode, Struct


@lru_cache(maxsize=64)
def _pattern(text: str) -> re.Pattern[str]:
    return re.compile(text)


def struct(found: Struct, value: dict[str, Any], path: str, out: Collector) -> None:
    for name in found.required:
        if name not in value:
            out.required(f"{path}.{name}" if path else name)
    for name, item in value.items():
        node = found.fields.get(name)
        if node is not None and not node.embedded and name not in ("metadata", "apiVersion", "kind"):
            check(node, item, f"{path}.{name}" if path else name, out)


def check(node: SchemaNode, value: Any, path: str, out: Collector) -> None:
    if value is None:
        return
    if node.enum and value not in node.enum:
        out.choice(path, value, [str(choice) for choice in node.enum])
        return
    if node.bounds or node.format:
        _bounds(node, value, path, out)
    if node.kind == "struct" and isinstance(value, dict):
        struct(node.struct, value, path, out)  # type: ignore[arg-type]
    elif node.kind == "list" and isinstance(value, list):
        for index, item in enumerate(value):
            check(node.item, item, f"{path}[{index}]", out)  # type: ignore[arg-type]
    elif node.kind == "map" and isinstance(value, dict):
        for key, item in value.items():
            check(node.item, item, f"{path}.{key}", out)  # type: ignore[arg-type]


def _bounds(node: SchemaNode, value: Any, path: str, out: Collector) -> None:
    bounds = node.bounds
    if isinstance(value, int | float) and not isinstance(value, bool):
        if "minimum" in bounds and value < bounds["minimum"]:
            out.invalid(path, value, f"{path} in body should be greater than or equal to {bounds['minimum']}")
        if "maximum" in bounds and value > bounds["maximum"]:
            out.invalid(path, value, f"{path} in body should be less than or equal to {bounds['maximum']}")
        if node.format == "int32" and not -(2**31) <= value < 2**31:
            out.invalid(path, value, f'{path} in body must be of type int32: "{value}"')
    elif isinstance(value, str):
        if "pattern" in bounds and not _pattern(bounds["pattern"]).search(value):
            out.invalid(path, value, f"{path} in body should match '{bounds['pattern']}'")
        if "minLength" in bounds and len(value) < bounds["minLength"]:
            out.invalid(path, value, f"{path} in body should be at least {bounds['minLength']} chars long")
        if "maxLength" in bounds and len(value) > bounds["maxLength"]:
            out.add(
                FieldError(
                    path, f"Too long: may not be more than {bounds['maxLength']} bytes", "FieldValueTooLong"
                )
            )
        if node.format == "date-time":
            _moment(value, path, out)
    elif isinstance(value, list):
        if "minItems" in bounds and len(value) < bounds["minItems"]:
            out.invalid(path, len(value), f"{path} in body should have at least {bounds['minItems']} items")
        if "maxItems" in bounds and len(value) > bounds["maxItems"]:
            out.too_many(path, len(value), bounds["maxItems"])


def _moment(value: str, path: str, out: Collector) -> None:
    try:
        canonical_time(value)
    except ValueError:
        out.invalid(path, value, f'{path} in body must be of type date-time: "{value}"')
