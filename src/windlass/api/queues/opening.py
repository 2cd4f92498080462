"""Order in which closed queues of a tree are opened.

A queue that its parent closed opens with it. A queue that was closed by its own command needs a
command of its own, after all queues above it are open.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from windlass.api.queues.tree import QueueSpecs

CLOSED_BY_PARENT = "volcano.sh/closed-by-parent"
Queue = Mapping[str, Any]


def path_of(queues: Mapping[str, Queue], name: str) -> list[str]:
    """Return the queue and the queues above it that exist, from the bottom to the root."""
    tree = QueueSpecs({other: queue.get("spec") or {} for other, queue in queues.items()})
    return [other for other in (name, *tree.ancestors(name)) if other in queues]


def is_open(queue: Queue) -> bool:
    return ((queue.get("status") or {}).get("state") or "Open") == "Open"


def to_open(queues: Mapping[str, Queue], name: str) -> list[str]:
    """Return the queues that need a command before ``name`` takes jobs, in the order of the commands.

    Empty if ``name`` is open, or if it opens by itself with a parent that is already open.
    """
    shut = [other for other in reversed(path_of(queues, name)) if not is_open(queues[other])]
    return [other for other in shut if not closed_by_parent(queues[other])]


def opening_commands(queues: Mapping[str, Queue], name: str) -> str:
    """Return the command line that opens ``name`` and the closed queues above it."""
    return " && ".join(f"windlass queue set {other} state=Open" for other in to_open(queues, name) or [name])


def closed_by_parent(queue: Queue) -> bool:
    """Return whether the queue was closed along with its parent."""
    annotations = (queue.get("metadata") or {}).get("annotations") or {}
    return annotations.get(CLOSED_BY_PARENT) == "true"
