"""Fields of a manifest with a value of the wrong type, and how they are corrected.

The server names the type in Go's words and not always the field. Here the manifest is reviewed by the
same schemas, so that each field has its path and line.
"""

from __future__ import annotations

import copy
import json
from dataclasses import dataclass
from typing import Any

from windlass.api.resources import Resource
from windlass.api.wire import schema
from windlass.api.wire.field_walk import GoWalker, Path, SchemaWalker, dotted
from windlass.api.wire.schema import SchemaNode, Struct

_FOUND = {
    str: "a string",
    bool: "a boolean",
    int: "a number",
    float: "a number",
    list: "a list",
    dict: "a map",
    type(None): "null",
}
_WANTED = {
    "integer": "a whole number",
    "number": "a number",
    "boolean": "true or false",
    "list": "a list",
    "struct": "a map",
    "map": "a map",
    "int-or-string": "a whole number or a string",
    "quantity": "a quantity such as 500m, 2 or 4Gi",
}


@dataclass(frozen=True, slots=True)
class WrongType:
    """One field: its path, what is wrong, and the correction (empty if unknown)."""

    field: str
    text: str
    correction: str


def wrong_types(resource: Resource, obj: dict[str, Any]) -> list[WrongType]:
    """Return the fields of a manifest that have a value of the wrong type, in the order of the walk."""
    struct = schema.for_kind(resource.group, resource.version, resource.kind)
    if struct is None:
        return []
    reviewed = copy.deepcopy(obj)
    found: list[WrongType] = []
    if not resource.custom:
        _GoFinder(struct, found).struct(reviewed, struct, None)
        return found
    metadata = struct.fields.get("metadata")
    inner = reviewed.get("metadata")
    if metadata is not None and metadata.struct is not None and isinstance(inner, dict):
        _GoFinder(struct, found).struct(inner, metadata.struct, (None, "metadata"))
    _SchemaFinder(struct, found).object(reviewed)
    return found


class _GoFinder(GoWalker):
    def __init__(self, root: Struct, found: list[WrongType]) -> None:
        super().__init__(root)
        self._found = found

    def mismatch(self, item: Any, node: SchemaNode, path: Path) -> None:
        self._found.append(_described(item, node, path))


class _SchemaFinder(SchemaWalker):
    def __init__(self, root: Struct, found: list[WrongType]) -> None:
        super().__init__(root)
        self._found = found

    def mismatch(self, item: Any, node: SchemaNode, path: Path) -> None:
        self._found.append(_described(item, node, path))


def _described(item: Any, node: SchemaNode, path: Path) -> WrongType:
    field = dotted(path)
    wanted = _WANTED.get(node.kind, "a string")
    shown = json.dumps(item, ensure_ascii=False)
    value = f"{shown} is {_FOUND[type(item)]}" if not isinstance(item, dict | list) else _FOUND[type(item)]
    return WrongType(field, f"{field} must be {wanted}, and {value}", _correction(item, node.kind, field))


def _correction(item: Any, kind: str, field: str) -> str:
    """Return the value as it should be written: ``leave out the quotes: 3``."""
    key = field.rpartition(".")[2].partition("[")[0]
    element = field.endswith("]")
    prefix = "- " if element else f"{key}: "
    plain = isinstance(item, bool | int | float)
    if kind in ("integer", "number", "boolean") and isinstance(item, str):
        try:
            meant = json.loads(item)
        except ValueError:
            return ""
        fits = isinstance(meant, bool) if kind == "boolean" else type(meant) in (int, float)
        return f"leave out the quotes: {prefix}{item}" if fits else ""
    if kind == "list" and not isinstance(item, dict | list):
        return f"write a list: {key}: [{json.dumps(item, ensure_ascii=False)}]"
    if plain and kind not in _WANTED:
        return f"put it in quotes: {prefix}{json.dumps(json.dumps(item))}"
    return ""
