"""Fields of an object that the CustomResourceDefinition of its kind does not declare."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from windlass.api.wire.schema_crd import schema_of


def undeclared_fields(group: str, version: str, kind: str, part: str, values: Any) -> Iterator[str]:
    """Yield the paths of fields below ``part`` of an object, such as ``spec``, that its schema lacks.

    Without declared fields an object may have any, for example a pod template.
    """
    body = schema_of(group, version, kind).get("properties", {}).get(part, {})
    yield from _undeclared(body, values, part)


def _undeclared(body: Mapping[str, Any], value: Any, path: str) -> Iterator[str]:
    if isinstance(value, list):
        for index, item in enumerate(value):
            yield from _undeclared(body.get("items") or {}, item, f"{path}[{index}]")
    declared = body.get("properties")
    if not declared or not isinstance(value, Mapping):
        return
    for name, inner in value.items():
        if name in declared:
            yield from _undeclared(declared[name], inner, f"{path}.{name}")
        else:
            yield f"{path}.{name}"
