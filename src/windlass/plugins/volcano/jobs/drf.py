"""``drf``: the group with the smallest dominant share comes first, and last among victims.

A group's share is the largest ratio, over the cluster's resources, of what it holds and
the total.
"""

from __future__ import annotations

from collections.abc import Sequence

from windlass.plugins.volcano.queues.resource_bounds import plus
from windlass.spi.objects import Resources
from windlass.spi.plugins import GroupView
from windlass.spi.tiers import Purpose, TaskView

SHIFT = 128
"""Bits by which fractions are scaled; fractions of integers below 2^64 keep their order."""

TOLERANCE = (1 << SHIFT) // 1_000_000


def dominant_share(held: Resources, total: Resources) -> int:
    """Return the dominant share in parts of 2^128, ignoring resources that the cluster lacks."""
    share = 0
    for name, units in held.items():
        whole = total.get(name, 0)
        if whole > 0 and units > 0:
            share = max(share, (units << SHIFT) // whole)
    return share


class DrfOrder:
    """Group order by dominant share, smallest first."""

    name = "drf"

    def group_key(self, group: GroupView) -> int:
        queue = group.queue
        return 0 if queue is None else dominant_share(group.holding, queue.cluster)


class DrfEvictable:
    """Vote on victims by dominant share.

    A pod may be evicted if the preemptor's share with its task is at most the share of
    the pod's group without the pod. All earlier candidates of that group are
    subtracted, whether they were chosen or not.
    """

    name = "drf"

    def victims(
        self, purpose: Purpose, preemptor: TaskView, candidates: Sequence[TaskView]
    ) -> Sequence[TaskView] | None:
        if purpose is Purpose.RECLAIM:
            return None
        total = preemptor.gang.path[-1].cluster
        mine = dominant_share(plus(preemptor.gang.holding, preemptor.request), total)
        left: dict[str, Resources] = {}
        chosen = []
        for candidate in candidates:
            key = candidate.gang.spec.key
            held = plus(left.get(key, candidate.gang.holding), candidate.request, -1)
            left[key] = held
            if mine <= dominant_share(held, total) + TOLERANCE:
                chosen.append(candidate)
        return chosen
