"""Checks of objects beyond the schema of each value: list types, embedded objects."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from windlass.api.errors import FieldError
from windlass.api.structural.pruning import Schema, field_schema
from windlass.api.structural.values import invalid, shown
from windlass.api.validation import names
from windlass.api.validation.collector import Collector


def list_types(schema: Schema, value: Mapping[str, Any]) -> list[FieldError]:
    """Return the duplicates in lists of the types ``set`` and ``map``."""
    found: list[FieldError] = []
    _walk(schema, value, "", found)
    return found


def _walk(schema: Schema | None, value: Any, path: str, found: list[FieldError]) -> None:
    if schema is None:
        return
    if isinstance(value, Mapping):
        specified = schema.get("properties") or {}
        for key, item in value.items():
            step = f".{key}" if key in specified else f"[{key}]"
            _walk(field_schema(schema, key), item, f"{path}{step}".removeprefix("."), found)
    elif isinstance(value, list):
        match schema.get("x-kubernetes-list-type"):
            case "set":
                found += [_duplicate(f"{path}[{index}]", value[index]) for index in _repeated(value)]
            case "map":
                found += _same_keys(schema.get("x-kubernetes-list-map-keys") or (), value, path)
        items = schema.get("items")
        if isinstance(items, Mapping):
            for index, item in enumerate(value):
                _walk(items, item, f"{path}[{index}]", found)


def _same_keys(keys: Sequence[str], value: list[Any], path: str) -> list[FieldError]:
    for index, item in enumerate(value):
        if item is not None and not isinstance(item, Mapping):
            why = "must be an object for an array of list-type map"
            return [invalid(f"{path}[{index}]", item, why)]
    picked = [{key: item[key] for key in keys if key in item} if item else {} for item in value]
    return [_duplicate(f"{path}[{index}]", picked[index]) for index in _repeated(picked)]


def _repeated(values: Sequence[Any]) -> list[int]:
    """Return the position of the second of each group of equal values."""
    counts: dict[str, int] = {}
    found = []
    for index, value in enumerate(values):
        mark = json.dumps(value, sort_keys=True)
        counts[mark] = counts.get(mark, 0) + 1
        if counts[mark] == 2:
            found.append(index)
    return found


def _duplicate(path: str, value: Any) -> FieldError:
    return FieldError(path, f"Duplicate value: {shown(value)}", "FieldValueDuplicate")


def embedded_objects(schema: Schema | None, value: Any, path: str = "") -> list[FieldError]:
    """Return the errors in ``apiVersion``, ``kind`` and ``metadata`` of embedded objects."""
    out = Collector()
    _embedded(schema, value, path, out)
    return out.errors


def _embedded(schema: Schema | None, value: Any, path: str, out: Collector) -> None:
    if schema is None:
        return
    if isinstance(value, Mapping):
        if schema.get("x-kubernetes-embedded-resource"):
            _embedded_object(value, path, out)
        for key, item in value.items():
            _embedded(field_schema(schema, key), item, f"{path}.{key}" if path else key, out)
    elif isinstance(value, list):
        items = schema.get("items")
        for index, item in enumerate(value):
            _embedded(items if isinstance(items, Mapping) else None, item, f"{path}[{index}]", out)


def _embedded_object(value: Mapping[str, Any], path: str, out: Collector) -> None:
    prefix = f"{path}." if path else ""
    for name in ("apiVersion", "kind"):
        if name not in value:
            out.required(f"{prefix}{name}")
        elif not isinstance(value[name], str):
            out.add(invalid(f"{prefix}{name}", value[name], "must be a string"))
        elif not value[name]:
            out.invalid(f"{prefix}{name}", "", "must not be empty")
    kind, version = value.get("kind"), value.get("apiVersion")
    if isinstance(kind, str) and kind and (why := names.dns_1035_label(kind.lower())):
        words = f"may have mixed case, but should otherwise match: {','.join(why)}"
        out.invalid(f"{prefix}kind", kind, words)
    if isinstance(version, str) and version.count("/") > 1:
        out.invalid(f"{prefix}apiVersion", version, f"unexpected GroupVersion string: {version}")
    metadata = value.get("metadata")
    if metadata is not None and not isinstance(metadata, Mapping):
        out.add(invalid(f"{prefix}metadata", metadata, "must be an object"))
