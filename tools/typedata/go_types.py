"""Reads the struct declarations of Kubernetes' API packages: names, JSON and protobuf tags, Go types.

The sources are formatted by gofmt, so one field is one line and regular expressions are enough.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

_STRUCT = re.compile(r"^type (\w+) struct \{$(.*?)^\}$", re.MULTILINE | re.DOTALL)
_NAMED = re.compile(r"^type (\w+) (=\s*)?([^\s{]+)$", re.MULTILINE)
_FIELD = re.compile(r"^\t(?:(\w+)\s+)?([*\[\]\w.]+)\s+`([^`]*)`", re.MULTILINE)
_TAG = re.compile(r'(\w+):"([^"]*)"')
_IMPORT = re.compile(r'^\s*(?:import\s+)?(?:(\w+)\s+)?"(k8s\.io/[^"]+)"', re.MULTILINE)

SCALARS = {
    "string": "s",
    "bool": "b",
    "int": "l",
    "int32": "i",
    "int64": "l",
    "uint32": "i",
    "float64": "n",
    "[]byte": "y",
}
SPECIAL = {
    "k8s.io/apimachinery/pkg/apis/meta/v1.Time": "t",
    "k8s.io/apimachinery/pkg/apis/meta/v1.MicroTime": "m",
    "k8s.io/apimachinery/pkg/apis/meta/v1.Duration": "d",
    "k8s.io/apimachinery/pkg/apis/meta/v1.FieldsV1": "f",
    "k8s.io/apimachinery/pkg/api/resource.Quantity": "q",
    "k8s.io/apimachinery/pkg/util/intstr.IntOrString": "x",
    "k8s.io/apimachinery/pkg/runtime.RawExtension": "r",
    "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1.CustomResourceSubresourceStatus": "r",
    "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1.JSON": "r",
    "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1.JSONSchemaPropsOrArray": "r",
    "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1.JSONSchemaPropsOrBool": "r",
    "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1.JSONSchemaPropsOrStringArray": "r",
}


@dataclass
class GoField:
    """One field as it appears on the wire. ``json`` is empty for an inlined struct."""

    json: str
    type: object
    """``s b i l n y t m d f q x r``, ``o:NAME``, ``["L", item]`` or ``["M", item]``."""
    go: str
    """The Go type as error messages print it."""
    omit_empty: bool
    omit_zero: bool
    pointer: bool
    number: int
    """Protobuf field number; 0: none."""
    name: str = ""
    """The name in Go, which error messages show for inlined structs."""
    patch_strategy: str = ""
    patch_merge_key: str = ""


@dataclass
class GoPackage:
    path: str
    structs: dict[str, list[tuple[str, str, dict[str, str]]]] = field(default_factory=dict)
    named: dict[str, str] = field(default_factory=dict)
    imports: dict[str, str] = field(default_factory=dict)


class Sources:
    """Packages of ``k8s.io/api`` and ``k8s.io/apimachinery`` in a Go module cache."""

    def __init__(self, modules: Path, version: str) -> None:
        self.modules = modules
        self.version = version
        self.package = cache(self._package)

    def _package(self, path: str) -> GoPackage:
        root, _, rest = path.removeprefix("k8s.io/").partition("/")
        folder = self.modules / "k8s.io" / f"{root}@{self.version}" / rest
        package = GoPackage(path)
        for file in sorted(folder.glob("*.go")):
            if file.name.endswith("_test.go") or file.name.startswith(("zz_", "generated")):
                continue
            text = file.read_text()
            header = text.split("\ntype ", 1)[0]
            for alias, target in _IMPORT.findall(header):
                package.imports.setdefault(alias or target.rsplit("/", 1)[1], target)
            for name, body in _STRUCT.findall(text):
                package.structs[name] = [
                    (field_name or go_type.rsplit(".", 1)[-1], go_type, dict(_TAG.findall(tags)))
                    for field_name, go_type, tags in _FIELD.findall(body)
                ]
            for name, _, target in _NAMED.findall(text):
                package.named.setdefault(name, target)
        if not package.structs and not package.named:
            raise SystemExit(f"no Go types in {folder}")
        return package

    def fields(self, full_name: str) -> list[GoField]:
        """The wire fields of ``k8s.io/api/core/v1.Pod``, inlined structs as one entry each."""
        path, name = full_name.rsplit(".", 1)
        package = self.package(path)
        out = []
        for go_name, go_type, tags in package.structs[name]:
            json_name, *options = tags.get("json", "-").split(",")
            if json_name == "-":
                continue
            protobuf = tags.get("protobuf", "").split(",")
            spec, shown = self.resolve(package, go_type.removeprefix("*"))
            out.append(
                GoField(
                    json="" if "inline" in options or not json_name else json_name,
                    type=spec,
                    go=shown,
                    omit_empty="omitempty" in options,
                    omit_zero="omitzero" in options,
                    pointer=go_type.startswith("*"),
                    number=int(protobuf[1]) if len(protobuf) > 1 else 0,
                    name=go_name,
                    patch_strategy=tags.get("patchStrategy", ""),
                    patch_merge_key=tags.get("patchMergeKey", ""),
                )
            )
        return out

    def resolve(self, package: GoPackage, go_type: str) -> tuple[object, str]:
        if go_type in SCALARS:
            return SCALARS[go_type], go_type if go_type != "[]byte" else "[]uint8"
        if go_type.startswith("[]"):
            item, shown = self.resolve(package, go_type[2:].removeprefix("*"))
            return ["L", item], f"[]{'*' if go_type[2] == '*' else ''}{shown}"
        if go_type.startswith("map["):
            key, value = re.fullmatch(r"map\[([\w.]+)\](.+)", go_type).groups()  # type: ignore[union-attr]
            item, shown = self.resolve(package, value)
            _, key_shown = self.resolve(package, key)
            return ["M", item], f"map[{key_shown}]{shown}"
        prefix, _, name = go_type.rpartition(".")
        if prefix:
            package = self.package(package.imports[prefix])
        full = f"{package.path}.{name}"
        shown = f"{package.path.rsplit('/', 1)[1]}.{name}"
        if full in SPECIAL:
            return SPECIAL[full], shown
        if name in package.structs:
            return f"o:{full}", shown
        target = package.named[name]
        return self.resolve(package, target)[0], shown
