"""``gang``: complete gangs before elastic growth, and gangs are not broken.

That a gang starts whole is not this plugin's business: the engine holds it always.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from windlass.spi.plugins import GroupView
from windlass.spi.tiers import GangView, Purpose, TaskView


class GangOrder:
    """A group below its minimum goes before one that only wants to grow."""

    name = "gang"

    def group_key(self, group: GroupView) -> int:
        return 1 if group.ready() else 0


class GangStarves:
    """Held and promised members are fewer than ``minMember``."""

    name = "gang"

    def starving(self, gang: GangView) -> bool:
        return gang.held_members + gang.promised_members < gang.spec.min_member


class GangSpares:
    """A group gives only what it has above ``minMember``, counted down in the order offered."""

    name = "gang"

    def victims(
        self, purpose: Purpose, claimer: TaskView, candidates: Sequence[TaskView]
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


class GangSparesParts:
    """For whole gangs nothing is spared: what a gang can give without being broken goes first
    (the action orders the parts), the rest only as a whole."""

    name = "gang"

    def part_victims(
        self, purpose: Purpose, claimer: GangView, candidates: Sequence[TaskView]
    ) -> Sequence[TaskView] | None:
        return candidates


def surplus(gang: GangView, tasks: Sequence[TaskView]) -> list[TaskView]:
    """Of a group's tasks, in the order in which they would go, those that it can give and still hold its
    minimum and its roles' minima. A group below its minimum can give all."""
    spec = gang.spec
    if gang.held_members < spec.min_member:
        return list(tasks)
    minima = {role: n for role, n in spec.min_task_member.items() if n > 0}
    if spec.min_member < sum(minima.values()):
        minima = {}
    left = gang.held_members
    roles = Counter({role: gang.role_members(role) for role in minima})
    found = []
    for task in tasks:
        role = task.task.role
        if left <= spec.min_member:
            break
        if role in minima and roles[role] <= minima[role]:
            continue
        found.append(task)
        left -= 1
        if role in minima:
            roles[role] -= 1
    return found
