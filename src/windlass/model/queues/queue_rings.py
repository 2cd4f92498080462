"""Warnings about rings of parents of queues."""

from __future__ import annotations

from collections.abc import Iterator

from windlass.engine.queues.tree import QueueEntry, QueueTree
from windlass.model.queues.engine_queue import plain


def ring_problems(queues: QueueTree) -> Iterator[str]:
    """Yield a sentence for each ring, which says where the engine cuts it.

    A queue with a parent below itself counts as a queue without a parent. The work of
    all queues in the ring runs.
    """
    for entry in sorted(queues, key=lambda each: each.name):
        if entry.missing or entry.parent is not None or not entry.spec.parent:
            continue
        parent = queues.entries.get(entry.spec.parent)
        if parent is entry:
            yield f"Queue {plain(entry.name)} is its own parent: it counts as a queue without a parent"
        elif parent is not None and entry in parent.path:
            yield (
                f"the parents of Queue {plain(entry.name)} form a ring ({_shown(entry, parent)}): "
                f"it counts as a queue without a parent"
            )


def _shown(entry: QueueEntry, parent: QueueEntry) -> str:
    ring = parent.path[: parent.path.index(entry) + 1]
    return " → ".join(plain(each.name) for each in (entry, *ring))
