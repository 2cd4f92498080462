"""Rows of ``windlass model ls``, from the ModelCaches."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from windlass.api.errors import StatusError
from windlass.api.resources import MODEL_CACHES
from windlass.cli.invocation import Invocation
from windlass.cli.nodes.device_table import memory_text
from windlass.cli.text import natural_key

HEADER = ["MODEL", "REVISION", "NODE", "STATE", "SIZE", "PINNED", "MESSAGE"]
RIGHT = ("SIZE",)


def caches(invocation: Invocation) -> list[dict[str, Any]]:
    """Return all ModelCaches; none, with a note, where the kind is not served."""
    try:
        return list(invocation.client.list(MODEL_CACHES).items)
    except StatusError as error:
        if error.code != 404:
            raise
        invocation.note("No models: this server has no ModelCaches, which single-node mode serves.")
        return []


def record(cache: Mapping[str, Any]) -> dict[str, Any]:
    """Return a ModelCache for programs. ``sizeBytes``: of what is there."""
    spec, status = cache["spec"], cache.get("status") or {}
    return {
        "name": cache["metadata"]["name"],
        "model": spec["model"]["name"],
        "source": spec["model"]["source"],
        "revision": spec["model"].get("revision", ""),
        "node": spec["nodeName"],
        "state": status.get("state", "Absent"),
        "sizeBytes": status.get("bytes", 0),
        "totalBytes": status.get("totalBytes"),
        "pinned": bool(spec.get("pin")),
        "path": status.get("path", ""),
        "reason": status.get("reason") or "",
        "message": status.get("message") or "",
    }


def ordered(caches: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return records by model and node."""
    return sorted(map(record, caches), key=lambda each: (each["model"], natural_key(each["node"])))


def row(found: Mapping[str, Any], *, wide: bool) -> list[str]:
    """Return the cells of one record; a wide row has the source and the path, too."""
    state = found["state"]
    total = found["totalBytes"]
    if state == "Fetching" and total:
        state = f"{state} {found['sizeBytes'] * 100 // total}%"
    cells = [
        found["model"],
        found["revision"] or "-",
        found["node"],
        state,
        size_text(found["sizeBytes"]),
        "yes" if found["pinned"] else "-",
        found["message"] or "-",
    ]
    return [*cells[:-1], found["source"], found["path"] or "-", cells[-1]] if wide else cells


def size_text(size: int) -> str:
    """Return bytes as ``98M`` or ``1.5G``; less than a MiB as ``12K``."""
    return f"{-(-size // 1024)}K" if 0 < size < 1 << 20 else memory_text(size >> 20)
