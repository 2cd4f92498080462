"""Who holds what a group needs."""

from __future__ import annotations

from collections.abc import Sequence

from windlass.engine.groups import GroupEntry
from windlass.engine.nodes_verdict import NodesVerdict
from windlass.engine.world import World
from windlass.spi.plugins import Refusal

_TASKS_LOOKED_AT = 512


def holders_of(
    world: World, group: GroupEntry, verdicts: Sequence[NodesVerdict], limit: int
) -> tuple[str, ...]:
    """Groups that hold a resource that is short, on nodes that would do otherwise; most of it first.

    At most a few hundred tasks are looked at, node by node in the order of their names.
    """
    held: dict[str, int] = {}
    looked_at = 0
    table = world.table
    for verdict in verdicts:
        if verdict.now is None:
            continue
        short = [name for name in verdict.short if name != "pods"] or list(verdict.short)
        if not short and verdict.fitting < verdict.wanted:
            # each node could take one more, all together too few: what is short is what is asked for
            short = [name for name, _ in verdict.cls.items if name != "pods"]
        if not short:
            continue
        for row in sorted(verdict.matching.tolist(), key=table.names.__getitem__):
            for entry in table.tasks[row].values():
                looked_at += 1
                units = sum(entry.cls.request.get(name, 0) for name in short)
                owner = entry.group
                if units and owner is not None and owner is not group:
                    held[owner.key] = held.get(owner.key, 0) + units
            if looked_at > _TASKS_LOOKED_AT:
                break
    return _most(held, limit)


def holders_in_queue(
    world: World, group: GroupEntry, refusals: Sequence[Refusal], limit: int
) -> tuple[str, ...]:
    """Groups of the queues that refuse (or of queues below them) that hold the refused resource; most first."""
    held: dict[str, int] = {}
    for refusal in refusals:
        if refusal.permanent or not refusal.resource:
            continue
        for other in world.groups.values():
            if (
                other is group
                or other.queue is None
                or refusal.queue not in [q.name for q in other.queue.path]
            ):
                continue
            units = sum(e.cls.request.get(refusal.resource, 0) for e in other.tasks.values() if e.row >= 0)
            if units:
                held[other.key] = held.get(other.key, 0) + units
    return _most(held, limit)


def _most(held: dict[str, int], limit: int) -> tuple[str, ...]:
    ranked = sorted(held.items(), key=lambda item: (-item[1], item[0]))
    return tuple(key for key, _ in ranked[:limit])
