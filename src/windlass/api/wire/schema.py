"""Fields of each kind: one table for decoding, pruning, merging, OpenAPI and explain.

A :class:`SchemaNode` describes one value. Built-in kinds come from ``data/types.json.gz`` (written by
``tools/typedata``), custom kinds from their CustomResourceDefinitions (:mod:`windlass.api.wire.schema_crd`).
Structs are resolved on first use, so loading costs a few milliseconds and unused types are never built.
Nodes are shared and must not be changed.
"""

from __future__ import annotations

import gzip
from collections.abc import Callable, Mapping
from functools import cache
from importlib.resources import files
from typing import Any

import msgspec

BATCH = "io.k8s.api.batch.v1."
META = "io.k8s.apimachinery.pkg.apis.meta.v1."
CORE = "io.k8s.api.core.v1."

KINDS = {
    "s": "string",
    "b": "boolean",
    "i": "integer",
    "l": "integer",
    "n": "number",
    "y": "bytes",
    "t": "time",
    "m": "microtime",
    "d": "duration",
    "f": "any",
    "q": "quantity",
    "x": "int-or-string",
    "r": "any",
}
ZERO: Mapping[str, Any] = {
    "string": "",
    "boolean": False,
    "integer": 0,
    "number": 0,
    "struct": {},
    "quantity": "0",
    "int-or-string": 0,
    "time": None,
    "microtime": None,
}
"""Values that Go writes for unset fields. Lists and maps are left out."""
_NEVER_EMPTY = ("struct", "quantity", "int-or-string", "time", "microtime")
_LEAF: dict[str, type] = {"string": str, "boolean": bool}


class SchemaNode:
    """One value: its kind, and for fields of Go structs how Go names, omits and numbers it.

    ``kind``: string, boolean, integer, number, bytes, time, microtime, duration, quantity,
    int-or-string, any, struct, list, map. ``leaf`` is the Python type that is right as it stands (fast path).
    ``keep_unknown`` and ``nullable`` exist for custom kinds only; so do the numeric and length bounds.
    """

    __slots__ = (
        "bits",
        "bounds",
        "default",
        "description",
        "embedded",
        "enum",
        "format",
        "go",
        "inline",
        "item",
        "keep_unknown",
        "kind",
        "leaf",
        "list_keys",
        "list_type",
        "map_type",
        "merge_key",
        "nullable",
        "numbers",
        "omit",
        "pointer",
        "strategy",
        "struct",
        "written_empty",
    )

    def __init__(self, kind: str, *, go: str = "") -> None:
        self.kind = kind
        self.leaf: type | None = _LEAF.get(kind)
        self.go = go
        self.struct: Struct | None = None
        self.item: SchemaNode | None = None
        self.bits = 64
        self.inline = ""
        self.omit = False
        self.pointer = False
        self.written_empty = False
        self.numbers: tuple[int, ...] = ()
        self.list_type = ""
        self.list_keys: tuple[str, ...] = ()
        self.map_type = ""
        self.merge_key = ""
        self.strategy: tuple[str, ...] = ()
        self.enum: tuple[Any, ...] = ()
        self.format = ""
        self.default: Any = None
        self.keep_unknown = False
        self.nullable = False
        self.embedded = False
        self.bounds: Mapping[str, Any] = {}
        self.description = ""


class Struct:
    """A named group of fields. ``required`` holds the names that OpenAPI requires."""

    __slots__ = ("_always", "_build", "_fields", "description", "go", "kind", "map_type", "name", "required")

    def __init__(self, name: str, go: str, build: Callable[[], dict[str, SchemaNode]]) -> None:
        self.name = name
        self.go = go
        self.required: tuple[str, ...] = ()
        self.kind: tuple[str, str, str] | None = None
        self.map_type = ""
        self.description = ""
        self._build = build
        self._fields: dict[str, SchemaNode] | None = None
        self._always: tuple[tuple[str, SchemaNode], ...] | None = None

    @property
    def fields(self) -> dict[str, SchemaNode]:
        fields = self._fields
        if fields is None:
            fields = self._fields = self._build()
        return fields

    @property
    def always(self) -> tuple[tuple[str, SchemaNode], ...]:
        """Fields that Go writes even when they are empty (``resources: {}``, ``restartCount: 0``)."""
        if self._always is None:
            self._always = tuple((name, node) for name, node in self.fields.items() if node.written_empty)
        return self._always


@cache
def _data() -> dict[str, Any]:
    packed = (files("windlass.api") / "data/types.json.gz").read_bytes()
    return msgspec.json.decode(gzip.decompress(packed))


def kubernetes_version() -> str:
    """Return the Kubernetes version of these types, ``1.36.3``."""
    return _data()["kubernetes"]


@cache
def builtin(name: str) -> Struct:
    """The struct with this OpenAPI name (``io.k8s.api.core.v1.Pod``). Raises ``KeyError``."""
    entry = _data()["types"][name]
    struct = Struct(name, name.rsplit(".", 1)[1], lambda: _fields(entry["f"]))
    struct.required = tuple(entry.get("r", ()))
    struct.kind = tuple(entry["k"]) if "k" in entry else None
    struct.map_type = entry.get("mt", "")
    return struct


def _fields(table: Mapping[str, Any]) -> dict[str, SchemaNode]:
    return {name: _field(*spec) for name, spec in table.items()}


def _field(spec: Any, go: str, flags: str, numbers: str, extra: Mapping[str, Any]) -> SchemaNode:
    node = _node(spec, go)
    node.pointer = "p" in flags
    node.omit = "e" in flags and not node.pointer and node.kind != "struct"
    node.written_empty = (
        not node.pointer
        and "z" not in flags
        and node.kind in ZERO
        and ("e" not in flags or node.kind in _NEVER_EMPTY)
    )
    node.numbers = tuple(int(part) for part in numbers.split(".")) if numbers else ()
    node.list_type = extra.get("lt", "")
    node.list_keys = tuple(extra.get("lk", ()))
    node.map_type = extra.get("mt", "")
    node.inline = extra.get("il", "")
    node.merge_key = extra.get("mk", "")
    node.strategy = tuple(part for part in extra.get("ps", "").split(",") if part)
    node.enum = tuple(extra.get("en", ()))
    node.format = extra.get("fm", "")
    node.default = extra.get("df")
    return node


def _node(spec: Any, go: str) -> SchemaNode:
    if isinstance(spec, list):
        node = SchemaNode("list" if spec[0] == "L" else "map", go=go)
        node.item = _node(spec[1], _item_go(go, spec))
        if spec == ["M", "q"]:
            node.item.format = "milli"  # a ResourceList: its amounts are rounded up to thousandths
        return node
    if spec.startswith("o:"):
        node = SchemaNode("struct", go=go)
        node.struct = builtin(spec[2:])
        return node
    node = SchemaNode(KINDS[spec], go=go or {"s": "string", "b": "bool"}.get(spec, ""))
    node.bits = 32 if spec == "i" else 64
    return node


def _item_go(go: str, spec: list[Any]) -> str:
    """The Go type of an item, from that of its list or map; named ones are looked up by their item."""
    if go.startswith("[]"):
        return go[2:].removeprefix("*")
    if go.startswith("map["):
        return go[go.index("]") + 1 :]
    if isinstance(spec[1], list):
        return ""
    if spec[1].startswith("o:"):
        return f"v1.{spec[1].rpartition('.')[2]}"
    return {"q": "resource.Quantity", "s": "string", "r": "v1.JSON"}.get(spec[1], "")


@cache
def object_header() -> Struct:
    """The struct of what all objects have: apiVersion, kind and metadata."""

    def build() -> dict[str, SchemaNode]:
        metadata = SchemaNode("struct", go="v1.ObjectMeta")
        metadata.struct = builtin(f"{META}ObjectMeta")
        fields = {name: SchemaNode("string", go="string") for name in ("apiVersion", "kind")}
        return {**fields, "metadata": metadata}

    return Struct("object", "object", build)


@cache
def _builtin_kinds() -> dict[tuple[str, str, str], str]:
    """(group, version, kind) → OpenAPI name."""
    return {tuple(entry["k"]): name for name, entry in _data()["types"].items() if "k" in entry}


def for_kind(group: str, version: str, kind: str) -> Struct | None:
    """The struct of a served kind or of a body (DeleteOptions, Binding, Eviction); ``None``: not known."""
    name = _builtin_kinds().get((group, version, kind))
    if name is None and kind == "DeleteOptions":
        name = f"{META}DeleteOptions"
    if name is not None:
        return builtin(name)
    from windlass.api.wire import schema_crd

    return schema_crd.struct_for(group, version, kind)
