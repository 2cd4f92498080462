"""Media time that a node got as context (``contextCache`` of a step or task)."""

from __future__ import annotations

import json

from windlass.workflow.node import NodeStatus

_KEYS = frozenset(("stream", "mode", "start", "end", "segments"))


def range_of(node: NodeStatus) -> str:
    """Return ``context 90-120 s`` if an input of the node is a context; empty otherwise."""
    for parameter in (node.inputs or {}).get("parameters") or ():
        value = parameter.get("value")
        if not isinstance(value, str) or not value.startswith("{"):
            continue
        try:
            found = json.loads(value)
        except ValueError:
            continue
        if isinstance(found, dict) and set(found) >= _KEYS:
            return f"context {found['start']}-{found['end']} s"
    return ""
