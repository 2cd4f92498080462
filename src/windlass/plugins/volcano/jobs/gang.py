"""``gang``: complete gangs before elastic growth, and protection of gang minimums.

The engine itself starts gangs as a whole, independent of this plugin.
"""

from __future__ import annotations

from collections.abc import Sequence

from windlass.spi.plugins import GroupView
from windlass.spi.tiers import GangView, Purpose, TaskView


class GangOrder:
    """Group order: a group below its minimum precedes one that can only grow."""

    name = "gang"

    def group_key(self, group: GroupView) -> int:
        return 1 if group.ready() else 0


class GangStarving:
    """Starvation: running and nominated members are fewer than ``minMember``."""

    name = "gang"

    def starving(self, gang: GangView) -> bool:
        return gang.held_members + gang.nominated_members < gang.spec.min_member


class GangEvictable:
    """Vote on victims: a group loses only pods above ``minMember``, in the order of the
    candidates."""

    name = "gang"
    ignores_preemptor = True

    def victims(
        self, purpose: Purpose, preemptor: TaskView, candidates: Sequence[TaskView]
    ) -> Sequence[TaskView] | None:
        left: dict[str, int] = {}
        chosen = []
        for candidate in candidates:
            gang = candidate.gang
            key = gang.spec.key
            held = left.get(key, gang.held_members)
            if held > gang.spec.min_member:
                chosen.append(candidate)
                held -= 1
            left[key] = held
        return chosen
