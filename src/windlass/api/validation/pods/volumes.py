"""Volumes of a pod: one source each, named once, with what that source needs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from windlass.api.validation import amounts, names
from windlass.api.validation.collector import Collector
from windlass.api.validation.collector import part as inner
from windlass.api.validation.pods.containers import field_path, relative_path, resource_field

_HOST_PATH_TYPES = (
    "",
    "BlockDevice",
    "CharDevice",
    "Directory",
    "DirectoryOrCreate",
    "File",
    "FileOrCreate",
    "Socket",
)
_DOWNWARD = ("metadata.annotations", "metadata.labels", "metadata.name", "metadata.namespace", "metadata.uid")
_MODE_LIMIT = 0o777
_MODE_WORDS = "must be a number between 0 and 0777 (octal), both inclusive"
_TOKEN_SECONDS = 600
Obj = Mapping[str, Any]


def volumes(found: Iterable[Obj], path: str, out: Collector) -> None:
    seen: set[str] = set()
    for index, volume in enumerate(found):
        where = f"{path}[{index}]"
        name = volume.get("name", "")
        sources = [key for key in volume if key != "name"]
        if not sources:
            out.required(where, "must specify a volume type")
        for extra in sources[1:]:
            out.forbidden(f"{where}.{extra}", "may not specify more than 1 volume type")
        if sources:
            _source(sources[0], volume[sources[0]], f"{where}.{sources[0]}", out)
        out.checked(f"{where}.name", name, names.dns_label)
        if name and name in seen:
            out.duplicate(f"{where}.name", name)
        seen.add(name)


def _source(kind: str, source: Obj, where: str, out: Collector) -> None:
    match kind:
        case "emptyDir":
            limit = source.get("sizeLimit")
            value = amounts.parsed(limit) if limit is not None else None
            if value is not None and value < 0:
                out.forbidden(f"{where}.sizeLimit", "SizeLimit field must be a valid resource quantity")
        case "hostPath":
            host_path(source, where, out)
        case "configMap" | "secret":
            name = "name" if kind == "configMap" else "secretName"
            if not source.get(name):
                out.required(f"{where}.{name}")
            _mode(source.get("defaultMode"), f"{where}.defaultMode", out)
            _items(source.get("items") or (), f"{where}.items", out)
        case "downwardAPI":
            _mode(source.get("defaultMode"), f"{where}.defaultMode", out)
            for item in source.get("items") or ():
                _downward_item(item, where, out)
        case "projected":
            _projected(source, where, out)
        case "persistentVolumeClaim":
            if not source.get("claimName"):
                out.required(f"{where}.claimName")
        case "nfs":
            nfs(source, where, out)
        case "csi":
            if not source.get("driver"):
                out.required(f"{where}.driver")


def host_path(source: Obj, where: str, out: Collector) -> None:
    path = source.get("path", "")
    if not path:
        out.required(f"{where}.path")
    elif ".." in path.split("/"):
        out.invalid(f"{where}.path", path, "must not contain '..'")
    out.choice(f"{where}.type", source.get("type", ""), _HOST_PATH_TYPES)


def nfs(source: Obj, where: str, out: Collector) -> None:
    if not source.get("server"):
        out.required(f"{where}.server")
    path = source.get("path", "")
    if not path:
        out.required(f"{where}.path")
    elif not path.startswith("/"):
        out.invalid(f"{where}.path", path, "must be an absolute path")


def _mode(mode: Any, where: str, out: Collector) -> None:
    if mode is not None and not 0 <= mode <= _MODE_LIMIT:
        out.invalid(where, mode, _MODE_WORDS)


def _items(items: Iterable[Obj], path: str, out: Collector) -> None:
    for index, item in enumerate(items):
        where = f"{path}[{index}]"
        if not item.get("key"):
            out.required(f"{where}.key")
        if not item.get("path"):
            out.required(f"{where}.path")
        else:
            relative_path(item["path"], f"{where}.path", out)
        _mode(item.get("mode"), f"{where}.mode", out)


def _downward_item(item: Obj, where: str, out: Collector) -> None:
    if not item.get("path"):
        out.required(f"{where}.path")
    else:
        relative_path(item["path"], f"{where}.path", out)
    if item.get("fieldRef") is not None:
        field_path(item["fieldRef"], f"{where}.fieldRef", _DOWNWARD, out)
        if item.get("resourceFieldRef") is not None:
            out.invalid(
                where, "resource", "fieldRef and resourceFieldRef can not be specified simultaneously"
            )
    elif item.get("resourceFieldRef") is not None:
        resource_field(item["resourceFieldRef"], f"{where}.resourceFieldRef", out, needs_container=True)
    else:
        out.required(f"{where}.fieldRef", "one of fieldRef and resourceFieldRef is required")
    _mode(item.get("mode"), f"{where}.mode", out)


def _projected(source: Obj, where: str, out: Collector) -> None:
    _mode(source.get("defaultMode"), f"{where}.defaultMode", out)
    for index, part in enumerate(source.get("sources") or ()):
        path = f"{where}.sources[{index}]"
        for kind in ("configMap", "secret"):
            if part.get(kind) is not None:
                if not part[kind].get("name"):
                    out.required(f"{path}.{kind}.name")
                _items(part[kind].get("items") or (), f"{path}.{kind}.items", out)
        for item in inner(part, "downwardAPI").get("items") or ():
            _downward_item(item, f"{path}.downwardAPI", out)
        token = part.get("serviceAccountToken")
        if token is not None:
            seconds = token.get("expirationSeconds", _TOKEN_SECONDS)
            if seconds < _TOKEN_SECONDS:
                out.invalid(
                    f"{path}.serviceAccountToken.expirationSeconds",
                    seconds,
                    "may not specify a duration less than 10 minutes",
                )
            if not token.get("path"):
                out.required(f"{where}.path")
