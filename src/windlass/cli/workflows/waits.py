"""Nodes of a followed workflow that wait for long, with what they wait for."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from windlass.workflow import words
from windlass.workflow.node import NodeStatus

LONG_SECONDS = 5.0
"""Seconds after which a wait is printed. Most pods wait for a moment."""


class LongWaits:
    """Pending nodes that have had the same message for long. Each pair is given once."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._since: dict[tuple[str, str], float] = {}
        self._given: set[tuple[str, str]] = set()

    def new(self, nodes: Iterable[NodeStatus]) -> list[NodeStatus]:
        """Return the nodes that began to wait for long after the last call."""
        now, found, present = self._monotonic(), [], {}
        for node in nodes:
            if node.phase != words.PENDING or not node.message:
                continue
            wait = (node.id, node.message)
            present[wait] = self._since.get(wait, now)
            if now - present[wait] >= LONG_SECONDS and wait not in self._given:
                self._given.add(wait)
                found.append(node)
        self._since = present
        return found
