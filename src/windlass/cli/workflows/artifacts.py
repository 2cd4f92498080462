"""Artifacts of a workflow: the node that wrote each, and the nodes that read it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from windlass.workflow import words
from windlass.workflow.node import NodeStatus

HEADER = ["FROM", "ARTIFACT", "SHA256", "TO"]
_GIVEN = "(workflow)"
_SHOWN_DIGITS = 12


def artifacts_of(nodes: Mapping[str, NodeStatus]) -> list[dict[str, Any]]:
    """Return each artifact of a pod, and each raw input: ``from``, ``name``, ``sha256`` and ``to``."""
    readers: dict[str, list[str]] = {}
    found: list[dict[str, Any]] = []
    pods = [node for node in nodes.values() if node.type == words.POD]
    for node in sorted(pods, key=lambda one: (one.started_at or "", one.name)):
        for artifact in _entries(node.inputs):
            digest = (artifact.get("store") or {}).get("sha256")
            if digest:
                readers.setdefault(digest, []).append(node.display_name)
            elif "raw" in artifact:
                record = {"from": _GIVEN, "name": artifact["name"], "sha256": "", "to": [node.display_name]}
                found.append(record)
    for node in sorted(pods, key=lambda one: (one.finished_at or "", one.name)):
        for artifact in _entries(node.outputs):
            digest = (artifact.get("store") or {}).get("sha256") or ""
            record = {"from": node.display_name, "name": artifact["name"], "sha256": digest}
            found.append({**record, "to": readers.get(digest, [])})
    return found


def _entries(part: Mapping[str, Any] | None) -> Iterator[dict[str, Any]]:
    yield from (part or {}).get("artifacts") or ()


def cells(record: Mapping[str, Any]) -> list[str]:
    """Return the row of the table."""
    return [
        record["from"],
        record["name"],
        record["sha256"][:_SHOWN_DIGITS] or "-",
        ", ".join(record["to"]) or "-",
    ]
