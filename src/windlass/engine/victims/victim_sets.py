"""What goes together when room is taken from a group.

Tasks beyond the minimum go one by one, last in task order first; what makes up the minimum goes whole. In a
group of parts the fullest part gives first; a part that the group can do without goes whole, after the
extras of all parts. What a part holds without being complete serves nothing and goes before.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from windlass.engine.groups.entries import ACTIVE, GroupEntry, TaskEntry
from windlass.engine.groups.subgroups import SubGroupEntry, SubGroupTree

Unit = list[TaskEntry]


def extras_and_core(group: GroupEntry) -> tuple[list[Unit], Unit]:
    """The group's tasks that hold something and do not terminate: extras in the order in which they would go, one
    by one, then the core, which goes as one. A group below its minimum is all core. A core may be empty: of a group
    without a minimum, or of one whose ended members are the minimum."""
    active = sorted((entry for entry in group.tasks.values() if entry.state in ACTIVE), key=group.place_of)
    if not group.ready():
        return [], active[::-1]
    if group.parts is None:
        return _flat(group, active)
    return _Taking(group, group.parts, active).units()


def _flat(group: GroupEntry, active: Sequence[TaskEntry]) -> tuple[list[Unit], Unit]:
    roles = dict(group.active_roles)
    spare = group.held_members - group.minimum
    extras: list[Unit] = []
    core: Unit = []
    for entry in reversed(active):
        role = entry.task.role
        bound = group.roles_enforced.get(role)
        if spare > 0 and (bound is None or roles.get(role, 0) > bound):
            spare -= 1
            roles[role] = roles.get(role, 0) - 1
            extras.append([entry])
        else:
            core.append(entry)
    return extras, core


class _Taking:
    """Takes a group of parts down unit by unit, on a copy of its counts."""

    def __init__(self, group: GroupEntry, tree: SubGroupTree, active: Sequence[TaskEntry]) -> None:
        self._roles = Counter(group.active_roles)
        self._bounds = group.roles_enforced
        self._spare = group.held_members - group.minimum
        self._tree, self._root = tree, tree.root
        self._held = {part: part.held for part in tree.root.walk()}
        self._active: dict[SubGroupEntry, Unit] = {part: [] for part in tree.root.walk()}
        for entry in active:
            self._active[tree.of(entry.task.subgroup)].append(entry)

    def units(self) -> tuple[list[Unit], Unit]:
        extras: list[Unit] = []
        root = self._root
        while unit := self._useless(root) or self._single(root) or self._whole(root):
            extras.append(unit)
        core = [entry for part in self._root.walk() for entry in reversed(self._active[part])]
        return extras, core

    def spares(self, entry: TaskEntry) -> bool:
        """Whether its part, its role and the group can do without this one task."""
        part = self._tree.of(entry.task.subgroup)
        return self._held[part] > part.minimum and self._dispensable([entry])

    def _useless(self, part: SubGroupEntry) -> Unit:
        """What a part holds, or one below it, that is not complete."""
        for child in reversed(part.children):
            if self._complete(child):
                unit = self._useless(child)
            else:  # if the group counts on their number, some of them at least
                unit = self._take_all(child) or self._useless(child) or self._any(child)
            if unit:
                return unit
        return []

    def _any(self, part: SubGroupEntry) -> Unit:
        """One task of a part that serves nothing as it is."""
        for below in sorted(part.walk(), key=self._complete):
            for entry in reversed(self._active[below]):
                if self._dispensable([entry]):
                    return self._take(below, [entry])
        return []

    def _single(self, part: SubGroupEntry) -> Unit:
        """One task beyond the minimum of its part."""
        if self._held[part] > part.minimum:
            for entry in reversed(self._active[part]):
                if self._dispensable([entry]):
                    return self._take(part, [entry])
        for child in self._fullest(part):
            if unit := self._single(child):
                return unit
        return []

    def _whole(self, part: SubGroupEntry) -> Unit:
        """A part of which more are complete than must be."""
        if self._completed(part) > part.required:
            for child in self._fullest(part):
                if unit := self._take_all(child):
                    return unit
        for child in self._fullest(part):
            if unit := self._whole(child):
                return unit
        return []

    # ------------------------------------------------------------------ the copy's counts

    def _complete(self, part: SubGroupEntry) -> bool:
        return self._held[part] >= part.minimum and self._completed(part) >= part.required

    def _completed(self, part: SubGroupEntry) -> int:
        return sum(self._complete(child) for child in part.children)

    def _fullest(self, part: SubGroupEntry) -> list[SubGroupEntry]:
        """The complete parts below, the fullest first."""
        complete = [child for child in part.children if self._complete(child)]
        return sorted(complete, key=lambda child: (-self._fullness(child), -child.position))

    def _fullness(self, part: SubGroupEntry) -> float:
        if part.children:
            return self._completed(part) / max(part.required, 1)
        return self._held[part] / max(part.minimum, 1)

    def _dispensable(self, unit: Unit) -> bool:
        """Whether the group's own minimum and its roles can do without these tasks."""
        if len(unit) > self._spare:
            return False
        roles = Counter(entry.task.role for entry in unit)
        return all(self._roles[role] - roles[role] >= n for role, n in self._bounds.items())

    def _take(self, part: SubGroupEntry, unit: Unit) -> Unit:
        for entry in unit:
            self._active[part].remove(entry)
            self._roles[entry.task.role] -= 1
        self._held[part] -= len(unit)
        self._spare -= len(unit)
        return unit

    def _take_all(self, part: SubGroupEntry) -> Unit:
        """All that the part and those below it hold, if the group can do without."""
        unit = [entry for below in part.walk() for entry in reversed(self._active[below])]
        if not self._dispensable(unit):
            return []
        for below in part.walk():
            self._take(below, list(self._active[below]))
        return unit


def evicted_with(group: GroupEntry, entry: TaskEntry) -> Unit:
    """What has to go if this task does: it alone where the group keeps its minimum without it, and each part and role
    its own; else all that holds something."""
    active = [each for each in group.tasks.values() if each.state in ACTIVE]
    if not group.ready():
        return active
    if group.parts is not None:
        return [entry] if _Taking(group, group.parts, active).spares(entry) else active
    role = entry.task.role
    bound = group.roles_enforced.get(role)
    spared = group.held_members > group.minimum and (bound is None or group.active_roles.get(role, 0) > bound)
    return [entry] if spared else active
