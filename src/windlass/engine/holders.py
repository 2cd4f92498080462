"""Who holds what a group needs."""

from __future__ import annotations

from collections.abc import Sequence

from windlass.engine.groups import GroupEntry
from windlass.engine.nodes_verdict import NodesVerdict
from windlass.engine.world import World

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
        short = [name for name in verdict.short if name != "pods"]
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
    ranked = sorted(held.items(), key=lambda item: (-item[1], item[0]))
    return tuple(key for key, _ in ranked[:limit])
