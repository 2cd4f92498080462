"""Waits of a followed workflow and its nodes that are long, with what they wait for."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from windlass.workflow import words
from windlass.workflow.node import NodeStatus

LONG_SECONDS = 5.0
"""Seconds after which a wait is printed. Most pods wait for a moment."""


class LongWaits:
    """Pending nodes that have had the same message for long, and messages of the workflow. Each is given once."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._since: dict[tuple[str, str], float] = {}
        self._given: set[tuple[str, str]] = set()
        self._message_since: float | None = None
        self._message_given = False

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

    def begins(self, message: str) -> bool:
        """Return whether a workflow has had messages for long now, once for each such time.

        The numbers in a message may change meanwhile.
        """
        if not message:
            self._message_since, self._message_given = None, False
            return False
        if self._message_since is None:
            self._message_since = self._monotonic()
        if self._message_given or self._monotonic() - self._message_since < LONG_SECONDS:
            return False
        self._message_given = True
        return True
