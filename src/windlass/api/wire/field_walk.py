"""The walk behind :mod:`windlass.api.wire.field_review`: Go's decoding, and pruning by structural schemas."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from windlass.api.errors import FieldError
from windlass.api.wire.field_values import (
    FORMAT_WRONG,
    canonical_quantity,
    canonical_time,
    check_base64,
    whole_numbers,
)
from windlass.api.wire.schema import ZERO, SchemaNode, Struct

Path = tuple["Path | None", "str | int"]

DROP = object()
"""In place of a value: the field goes."""

_GO_NAMES = {str: "string", bool: "bool", int: "number", float: "number", list: "array", dict: "object"}
_BODY_NAMES = {
    str: "string",
    bool: "boolean",
    int: "integer",
    float: "number",
    list: "array",
    dict: "object",
    type(None): "null",
}
_BODY_WANTED = {
    "struct": "object",
    "map": "object",
    "list": "array",
    "bytes": "string",
    "time": "string",
    "microtime": "string",
    "duration": "string",
    "quantity": "integer,string",
    "int-or-string": "integer,string",
}
_RANGES = {32: (-(2**31), 2**31 - 1), 64: (-(2**63), 2**63 - 1)}


def _steps(path: Path | None) -> Iterator[int | str]:
    """Yield the steps of a path, the last one first."""
    while path is not None:
        yield path[1]
        path = path[0]


def dotted(path: Path | None) -> str:
    """``spec.containers[0].image``."""
    parts = [f"[{step}]" if isinstance(step, int) else f".{step}" for step in _steps(path)]
    return "".join(reversed(parts)).removeprefix(".")


def zero(node: SchemaNode) -> Any:
    """Return the value that Go writes for an unset field."""
    if node.kind == "struct":
        return {name: zero(inner) for name, inner in node.struct.always}  # type: ignore[union-attr]
    if node.kind == "list":
        return []
    if node.kind == "map":
        return {}
    return ZERO.get(node.kind, "")


def apply_changes(value: dict[str, Any], changed: list[tuple[str, Any]]) -> None:
    for key, result in changed:
        if result is DROP:
            del value[key]
        else:
            value[key] = result


class GoWalker:
    """Decoding into Go structs: nulls vanish, empties of ``omitempty`` fields too, errors in Go's words."""

    def __init__(self, root: Struct) -> None:
        self.root = root
        self.unknown: list[str] = []
        self.errors: list[str] = []

    def struct(self, value: dict[str, Any], struct: Struct, path: Path | None) -> None:
        fields = struct.fields
        changed: list[tuple[str, Any]] | None = None
        for key, item in value.items():
            node = fields.get(key)
            if node is None:
                self.unknown.append(dotted((path, key)))
                result = DROP
            elif type(item) is node.leaf:
                if item or not node.omit:
                    continue
                result = DROP
            else:
                result = self.value(item, node, (path, key))
                if result is item:
                    continue
            if changed is None:
                changed = []
            changed.append((key, result))
        if changed is not None:
            apply_changes(value, changed)
        for name, node in struct.always:
            if name not in value:
                value[name] = zero(node)

    def value(self, item: Any, node: SchemaNode, path: Path) -> Any:
        """The normal form of one value that is no plain string or bool; ``DROP`` where the field goes."""
        kind = node.kind
        found = type(item)
        if item is None:
            return DROP if not node.written_empty else zero(node)
        if kind == "struct":
            if found is dict:
                self.struct(item, node.struct, path)  # type: ignore[arg-type]
                return item
        elif kind == "list":
            if found is list:
                return self.items(item, node.item, path) if item or not node.omit else DROP  # type: ignore[arg-type]
        elif kind == "map":
            if found is dict:
                return self.map(item, node.item, path) if item or not node.omit else DROP  # type: ignore[arg-type]
        elif kind == "any":
            return item
        elif kind == "integer":
            if found is int:
                low, high = _RANGES[node.bits]
                if low <= item <= high:
                    return item if item or not node.omit else DROP
        else:
            return self.scalar(item, node, path)
        self.mismatch(item, node, path)
        return item

    def items(self, value: list[Any], node: SchemaNode, path: Path) -> list[Any]:
        leaf, is_struct = node.leaf, node.kind == "struct"
        for index, item in enumerate(value):
            if type(item) is leaf:
                continue
            if is_struct and type(item) is dict:
                self.struct(item, node.struct, (path, index))  # type: ignore[arg-type]
                continue
            value[index] = self.element(item, node, (path, index))
        return value

    def map(self, value: dict[str, Any], node: SchemaNode, path: Path) -> dict[str, Any]:
        leaf = node.leaf
        for key, item in value.items():
            if type(item) is not leaf:
                value[key] = self.element(item, node, (path, key))
        return value

    def element(self, item: Any, node: SchemaNode, path: Path) -> Any:
        if item is None:
            return zero(node)
        result = self.value(item, node, path)
        return item if result is DROP else result

    def scalar(self, item: Any, node: SchemaNode, path: Path) -> Any:
        kind, found = node.kind, type(item)
        try:
            match kind:
                case "quantity":
                    if found not in (str, int, float):
                        raise ValueError(FORMAT_WRONG)
                    return canonical_quantity(item, milli=node.format == "milli")
                case "int-or-string" if found is str or (found is int and -(2**31) <= item < 2**31):
                    return item
                case "time" | "microtime" if found is str:
                    return canonical_time(item, micro=kind == "microtime")
                case "bytes" if found is str:
                    check_base64(item)
                    return item
                case "duration" if found is str:
                    return item
                case "number" if found in (int, float):
                    return item
        except ValueError as error:
            self.errors.append(str(error))
            return item
        self.mismatch(item, node, path)
        return item

    def mismatch(self, item: Any, node: SchemaNode, path: Path) -> None:
        found = _GO_NAMES[type(item)]
        wanted = node.go
        match node.kind:
            case "time" | "microtime" | "duration":
                wanted = "string"
            case "int-or-string":
                wanted = "int32"
        if found == "number" and node.kind in ("integer", "int-or-string"):
            found = f"number {item}"
        owner, steps = self.go_path(path)
        self.errors.append(
            f"json: cannot unmarshal {found} into Go struct field {owner}.{steps} of type {wanted}"
        )

    def go_path(self, path: Path) -> tuple[str, str]:
        """Go's path (no indices, no map keys, names of inlined structs) and the innermost struct's name."""
        steps: list[str | int] = []
        steps.extend(_steps(path))
        owner: Struct = self.root
        shown: list[str] = []
        node: SchemaNode | None = None
        for step in reversed(steps):
            if node is None or node.kind == "struct":
                owner = node.struct if node is not None else self.root  # type: ignore[assignment]
                node = owner.fields[step]  # type: ignore[index]
                shown += [node.inline, str(step)] if node.inline else [str(step)]
            else:
                node = node.item
        return owner.go, ".".join(shown)


class SchemaWalker:
    """Structural schemas: unknown fields are pruned, wrong types become field errors of validation.

    ``metadata`` is decoded as Go does (on the real server too); a pod template is held against the
    fields of PodTemplateSpec, though nothing is normalised in it.
    """

    def __init__(self, root: Struct) -> None:
        self.root = root
        self.unknown: list[str] = []
        self.errors: list[str] = []
        self.invalid: list[FieldError] = []

    def object(self, value: dict[str, Any]) -> None:
        """The whole custom resource. Unknown fields below metadata come first, the others sorted."""
        self.header(value)
        known = len(self.unknown)
        self.struct(value, self.root, None, skip=("metadata", "apiVersion", "kind"))
        self.unknown[known:] = sorted(self.unknown[known:])

    def header(self, value: dict[str, Any]) -> None:
        """Metadata and the names of version and kind. Whole numbers elsewhere become integers."""
        node = self.root.fields.get("metadata")
        if node is not None and node.struct is not None and value.get("metadata") is not None:
            self._metadata(value["metadata"], node)
        for name in ("apiVersion", "kind"):
            if not isinstance(value.get(name, ""), str):
                self.errors.append(
                    f"json: cannot unmarshal {_GO_NAMES[type(value[name])]} into Go struct field .{name} "
                    "of type string"
                )
        for name, inner in value.items():
            if name != "metadata":
                value[name] = whole_numbers(inner)

    def _metadata(self, metadata: Any, node: SchemaNode) -> None:
        """A real server decodes the metadata of a custom resource by itself, as Go does."""
        if not isinstance(metadata, dict):
            found = _GO_NAMES[type(metadata)]
            self.errors.append(f"json: cannot unmarshal {found} into Go value of type v1.ObjectMeta")
            return
        struct: Struct = node.struct  # type: ignore[assignment]
        go = GoWalker(struct)
        go.struct(metadata, struct, None)
        self.errors += go.errors
        self.unknown += [f"metadata.{name}" for name in go.unknown]

    def struct(
        self,
        value: dict[str, Any],
        struct: Struct,
        path: Path | None,
        skip: tuple[str, ...] = (),
        keep_unknown: bool = False,
    ) -> None:
        fields = struct.fields
        gone: list[str] = []
        for key, item in value.items():
            if key in skip:
                continue
            node = fields.get(key)
            if node is None:
                if not keep_unknown:
                    self.unknown.append(dotted((path, key)))
                    gone.append(key)
            elif item is None and not node.nullable:
                gone.append(key)
            elif type(item) is not node.leaf:
                self.value(item, node, (path, key))
        for key in gone:
            del value[key]

    def value(self, item: Any, node: SchemaNode, path: Path) -> None:
        kind = node.kind
        if kind == "any" or (node.nullable and item is None):
            return
        if isinstance(item, dict) and kind in ("struct", "map"):
            if kind == "map":
                self.elements(item.items(), node, path)
            else:
                self.struct(item, node.struct, path, keep_unknown=node.keep_unknown)  # type: ignore[arg-type]
        elif isinstance(item, list) and kind == "list":
            self.elements(enumerate(item), node, path)
        elif not _fits(item, kind):
            self.mismatch(item, node, path)

    def elements(self, pairs: Iterable[tuple[str | int, Any]], node: SchemaNode, path: Path) -> None:
        inner: SchemaNode = node.item  # type: ignore[assignment]
        for step, element in pairs:
            if type(element) is not inner.leaf:
                self.value(element, inner, (path, step))

    def mismatch(self, item: Any, node: SchemaNode, path: Path) -> None:
        where, found = dotted(path), _BODY_NAMES[type(item)]
        wanted = _BODY_WANTED.get(node.kind, node.kind)
        why = f'{where} in body must be of type {wanted}: "{found}"'
        self.invalid.append(FieldError(where, f'Invalid value: "{found}": {why}', "FieldValueTypeInvalid"))


def _fits(item: Any, kind: str) -> bool:
    """Return whether a JSON scalar may stand for a value of this kind."""
    if isinstance(item, bool) or item is None:
        return kind == "boolean" and item is not None
    match kind:
        case "integer":
            return isinstance(item, int) or (isinstance(item, float) and item.is_integer())  # beyond 64 bits
        case "number":
            return isinstance(item, int | float)
        case "quantity" | "int-or-string":
            return isinstance(item, int | str)
        case "string" | "bytes" | "time" | "microtime" | "duration":
            return isinstance(item, str)
    return False
