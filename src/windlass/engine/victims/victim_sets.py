"""Victim sets: tasks of a group that are evicted together.

Elastic members are evicted one at a time, the last in task order first. The minimum is
evicted as a whole. In a group with subgroups, the fullest subgroup gives first. A
subgroup that the group does not need is evicted as a whole, after the elastic members
of all subgroups. Tasks of an incomplete subgroup serve nothing and are evicted before.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from windlass.engine.groups.entries import ACTIVE, GroupEntry, TaskEntry
from windlass.engine.groups.subgroups import SubGroupEntry, SubGroupTree

Unit = list[TaskEntry]


def extras_and_core(group: GroupEntry) -> tuple[list[Unit], Unit]:
    """Return the active tasks of the group as victim sets: elastic members, then the minimum.

    Elastic members are in the order of eviction, one per set. The minimum is one set. A
    group below its minimum is one set. The minimum may be empty: the group has none, or
    its finished members are the minimum.
    """
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
    """Takes a group with subgroups apart, one victim set at a time, on a copy of its counts."""

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
        """Return whether its subgroup, its role and the group can do without this one task."""
        part = self._tree.of(entry.task.subgroup)
        return self._held[part] > part.minimum and self._dispensable([entry])

    def _useless(self, part: SubGroupEntry) -> Unit:
        """Take tasks of an incomplete subgroup at any level."""
        for child in reversed(part.children):
            if self._complete(child):
                unit = self._useless(child)
            else:  # if the group's minimum counts them, take at least some
                unit = self._take_all(child) or self._useless(child) or self._any(child)
            if unit:
                return unit
        return []

    def _any(self, part: SubGroupEntry) -> Unit:
        """Take one task of an incomplete subgroup."""
        for below in sorted(part.walk(), key=self._complete):
            for entry in reversed(self._active[below]):
                if self._dispensable([entry]):
                    return self._take(below, [entry])
        return []

    def _single(self, part: SubGroupEntry) -> Unit:
        """Take one task beyond the minimum of its subgroup."""
        if self._held[part] > part.minimum:
            for entry in reversed(self._active[part]):
                if self._dispensable([entry]):
                    return self._take(part, [entry])
        for child in self._fullest(part):
            if unit := self._single(child):
                return unit
        return []

    def _whole(self, part: SubGroupEntry) -> Unit:
        """Take a complete subgroup that is not required."""
        if self._completed(part) > part.required:
            for child in self._fullest(part):
                if unit := self._take_all(child):
                    return unit
        for child in self._fullest(part):
            if unit := self._whole(child):
                return unit
        return []

    # ------------------------------------------------------------------ counts of the copy

    def _complete(self, part: SubGroupEntry) -> bool:
        return self._held[part] >= part.minimum and self._completed(part) >= part.required

    def _completed(self, part: SubGroupEntry) -> int:
        return sum(self._complete(child) for child in part.children)

    def _fullest(self, part: SubGroupEntry) -> list[SubGroupEntry]:
        """Return the complete child subgroups, the fullest first."""
        complete = [child for child in part.children if self._complete(child)]
        return sorted(complete, key=lambda child: (-self._fullness(child), -child.position))

    def _fullness(self, part: SubGroupEntry) -> float:
        if part.children:
            return self._completed(part) / max(part.required, 1)
        return self._held[part] / max(part.minimum, 1)

    def _dispensable(self, unit: Unit) -> bool:
        """Return whether the group's minimum and its roles can do without these tasks."""
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
        """Take all tasks of the subgroup and those below, if the group can do without them."""
        unit = [entry for below in part.walk() for entry in reversed(self._active[below])]
        if not self._dispensable(unit):
            return []
        for below in part.walk():
            self._take(below, list(self._active[below]))
        return unit


def evicted_with(group: GroupEntry, entry: TaskEntry) -> Unit:
    """Return the tasks to evict together with this task.

    It is the task alone if the group, its subgroup and its role keep their minimum
    without it. Otherwise it is every active task of the group.
    """
    active = [each for each in group.tasks.values() if each.state in ACTIVE]
    if not group.ready():
        return active
    if group.parts is not None:
        return [entry] if _Taking(group, group.parts, active).spares(entry) else active
    role = entry.task.role
    bound = group.roles_enforced.get(role)
    spared = group.held_members > group.minimum and (bound is None or group.active_roles.get(role, 0) > bound)
    return [entry] if spared else active
