"""Nodes of large workflows as the controller wrote them, so that it need not decode them again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from windlass.controllers.effects import Effects, Update
from windlass.controllers.workflow import labels
from windlass.workflow.node import NodeStatus

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class _Entry:
    stored: str
    nodes: dict[str, NodeStatus]


class DecodedNodes:
    """Nodes by the key of their workflow, and the form in which a status has them.

    They count only for a status that has this form: a write that failed, or that of
    another client, makes the controller decode the nodes again. Nodes that a status has
    in plain are not kept.
    """

    def __init__(self) -> None:
        self._entries: dict[str, _Entry] = {}

    def take(self, key: str, workflow: Mapping[str, Any]) -> dict[str, NodeStatus] | None:
        """Return the nodes of a workflow, which the caller may change; ``None`` if they are not known."""
        entry = self._entries.pop(key, None)
        if entry is None or labels.COMMAND in (workflow["metadata"].get("annotations") or {}):
            return None
        return entry.nodes if entry.stored == _stored(workflow.get("status") or {}) else None

    def note(
        self, key: str, workflow: Mapping[str, Any], effects: Effects, nodes: dict[str, NodeStatus]
    ) -> None:
        """Note the nodes after a reconciliation, in which they may have been changed and written."""
        if labels.COMMAND in (workflow["metadata"].get("annotations") or {}):
            return
        writes = (action for stage in effects.stages for action in stage if isinstance(action, Update))
        status = next((write.object["status"] for write in writes), workflow.get("status") or {})
        stored = _stored(status)
        if stored and not status.get("finishedAt"):
            self._entries[key] = _Entry(stored, nodes)

    def forget(self, key: str) -> None:
        self._entries.pop(key, None)


def _stored(status: Mapping[str, Any]) -> str:
    return status.get("compressedNodes") or status.get("offloadNodeStatusVersion") or ""
