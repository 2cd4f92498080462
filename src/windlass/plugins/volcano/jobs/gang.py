"""``gang``: complete gangs before elastic growth, and gangs are not broken.

That a gang starts whole is not this plugin's business: the engine holds it always.
"""

from __future__ import annotations

from collections.abc import Sequence

from windlass.spi.plugins import GroupView
from windlass.spi.tiers import GangView, Purpose, TaskView


class GangOrder:
    """A group below its minimum goes before one that only wants to grow."""

    name = "gang"

    def group_key(self, group: GroupView) -> int:
        return 1 if group.ready() else 0


class GangStarving:
    """Held and promised members are fewer than ``minMember``."""

    name = "gang"

    def starving(self, gang: GangView) -> bool:
        return gang.held_members + gang.nominated_members < gang.spec.min_member


class GangEvictable:
    """A group gives only what it has above ``minMember``, counted down in the order offered."""

    name = "gang"
    ignores_preemptor = True

    def victims(
        self, purpose: Purpose, preemptor: TaskView, candidates: Sequence[TaskView]
    ) -> Sequence[TaskView] | None:
        left: dict[str, int] = {}
        found = []
        for candidate in candidates:
            gang = candidate.gang
            key = gang.spec.key
            held = left.get(key, gang.held_members)
            if held > gang.spec.min_member:
                found.append(candidate)
                held -= 1
            left[key] = held
        return found
