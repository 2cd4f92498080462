"""``drf``: the group with the smallest dominant share goes first, and gives last.

A group's share is the largest, over the cluster's resources, of what it holds divided by the total.
"""

from __future__ import annotations

from collections.abc import Sequence

from windlass.plugins.volcano.queues.resource_bounds import plus
from windlass.spi.objects import Resources
from windlass.spi.plugins import GroupView
from windlass.spi.tiers import Purpose, TaskView

SHIFT = 128
"""Fractions of integers below 2^64 keep their order, scaled by this many bits and rounded down."""

TOLERANCE = (1 << SHIFT) // 1_000_000


def dominant_share(held: Resources, total: Resources) -> int:
    """In parts of 2^128. Resources that the cluster lacks are left out."""
    share = 0
    for name, units in held.items():
        whole = total.get(name, 0)
        if whole > 0 and units > 0:
            share = max(share, (units << SHIFT) // whole)
    return share


class DrfOrder:
    """The group that holds the smaller dominant share goes first."""

    name = "drf"

    def group_key(self, group: GroupView) -> int:
        queue = group.queue
        return 0 if queue is None else dominant_share(group.holding, queue.cluster)


class DrfEvictable:
    """A pod may go if the claimer's share with its task is at most the share of the pod's group without
    it and without all earlier candidates of that group, whether they were refused or not."""

    name = "drf"

    def victims(
        self, purpose: Purpose, preemptor: TaskView, candidates: Sequence[TaskView]
    ) -> Sequence[TaskView] | None:
        if purpose is Purpose.RECLAIM:
            return None
        total = preemptor.gang.path[-1].cluster
        mine = dominant_share(plus(preemptor.gang.holding, preemptor.request), total)
        left: dict[str, Resources] = {}
        found = []
        for candidate in candidates:
            key = candidate.gang.spec.key
            held = plus(left.get(key, candidate.gang.holding), candidate.request, -1)
            left[key] = held
            if mine <= dominant_share(held, total) + TOLERANCE:
                found.append(candidate)
        return found
