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

TaskList = list[TaskEntry]


def elastic_and_minimum(group: GroupEntry) -> tuple[list[TaskList], TaskList]:
    """Return the active tasks of the group as victim sets: elastic members, then the minimum.

    Elastic members are in the order of eviction, one per set. The minimum is one set. A
    group below its minimum is one set. The minimum may be empty: the group has none, or
    its finished members are the minimum.
    """
    active = sorted((entry for entry in group.tasks.values() if entry.state in ACTIVE), key=group.place_of)
    if not group.ready():
        return [], active[::-1]
    if group.subgroups is None:
        return _flat(group, active)
    return _GroupTaker(group, group.subgroups, active).victim_sets()


def _flat(group: GroupEntry, active: Sequence[TaskEntry]) -> tuple[list[TaskList], TaskList]:
    roles = dict(group.active_roles)
    surplus = group.held_members - group.minimum
    elastic: list[TaskList] = []
    minimum: TaskList = []
    for entry in reversed(active):
        role = entry.task.role
        minimum_of_role = group.roles_enforced.get(role)
        if surplus > 0 and (minimum_of_role is None or roles.get(role, 0) > minimum_of_role):
            surplus -= 1
            roles[role] = roles.get(role, 0) - 1
            elastic.append([entry])
        else:
            minimum.append(entry)
    return elastic, minimum


class _GroupTaker:
    """Takes a group with subgroups apart, one victim set at a time, on a copy of its counts."""

    def __init__(self, group: GroupEntry, tree: SubGroupTree, active: Sequence[TaskEntry]) -> None:
        self._roles = Counter(group.active_roles)
        self._bounds = group.roles_enforced
        self._surplus = group.held_members - group.minimum
        self._tree, self._root = tree, tree.root
        self._held = {subgroup: subgroup.held for subgroup in tree.root.walk()}
        self._active: dict[SubGroupEntry, TaskList] = {subgroup: [] for subgroup in tree.root.walk()}
        for entry in active:
            self._active[tree.of(entry.task.subgroup)].append(entry)

    def victim_sets(self) -> tuple[list[TaskList], TaskList]:
        elastic: list[TaskList] = []
        root = self._root
        while victims := self._take_incomplete(root) or self._take_single(root) or self._take_subgroup(root):
            elastic.append(victims)
        minimum = [entry for subgroup in self._root.walk() for entry in reversed(self._active[subgroup])]
        return elastic, minimum

    def can_do_without(self, entry: TaskEntry) -> bool:
        """Return whether its subgroup, its role and the group can do without this one task."""
        subgroup = self._tree.of(entry.task.subgroup)
        return self._held[subgroup] > subgroup.minimum and self._dispensable([entry])

    def _take_incomplete(self, subgroup: SubGroupEntry) -> TaskList:
        """Take tasks of an incomplete subgroup at any level."""
        for child in reversed(subgroup.children):
            if self._is_complete(child):
                victims = self._take_incomplete(child)
            else:  # if the group's minimum counts them, take at least some
                victims = self._take_all(child) or self._take_incomplete(child) or self._take_any(child)
            if victims:
                return victims
        return []

    def _take_any(self, subgroup: SubGroupEntry) -> TaskList:
        """Take one task of an incomplete subgroup."""
        for descendant in sorted(subgroup.walk(), key=self._is_complete):
            for entry in reversed(self._active[descendant]):
                if self._dispensable([entry]):
                    return self._take(descendant, [entry])
        return []

    def _take_single(self, subgroup: SubGroupEntry) -> TaskList:
        """Take one task beyond the minimum of its subgroup."""
        if self._held[subgroup] > subgroup.minimum:
            for entry in reversed(self._active[subgroup]):
                if self._dispensable([entry]):
                    return self._take(subgroup, [entry])
        for child in self._fullest(subgroup):
            if victims := self._take_single(child):
                return victims
        return []

    def _take_subgroup(self, subgroup: SubGroupEntry) -> TaskList:
        """Take a complete subgroup that is not required."""
        if self._completed(subgroup) > subgroup.required:
            for child in self._fullest(subgroup):
                if victims := self._take_all(child):
                    return victims
        for child in self._fullest(subgroup):
            if victims := self._take_subgroup(child):
                return victims
        return []

    # ------------------------------------------------------------------ counts of the copy

    def _is_complete(self, subgroup: SubGroupEntry) -> bool:
        return self._held[subgroup] >= subgroup.minimum and self._completed(subgroup) >= subgroup.required

    def _completed(self, subgroup: SubGroupEntry) -> int:
        return sum(self._is_complete(child) for child in subgroup.children)

    def _fullest(self, subgroup: SubGroupEntry) -> list[SubGroupEntry]:
        """Return the complete child subgroups, the fullest first."""
        complete = [child for child in subgroup.children if self._is_complete(child)]
        return sorted(complete, key=lambda child: (-self._fullness(child), -child.position))

    def _fullness(self, subgroup: SubGroupEntry) -> float:
        if subgroup.children:
            return self._completed(subgroup) / max(subgroup.required, 1)
        return self._held[subgroup] / max(subgroup.minimum, 1)

    def _dispensable(self, victims: TaskList) -> bool:
        """Return whether the group's minimum and its roles can do without these tasks."""
        if len(victims) > self._surplus:
            return False
        roles = Counter(entry.task.role for entry in victims)
        return all(self._roles[role] - roles[role] >= n for role, n in self._bounds.items())

    def _take(self, subgroup: SubGroupEntry, victims: TaskList) -> TaskList:
        for entry in victims:
            self._active[subgroup].remove(entry)
            self._roles[entry.task.role] -= 1
        self._held[subgroup] -= len(victims)
        self._surplus -= len(victims)
        return victims

    def _take_all(self, subgroup: SubGroupEntry) -> TaskList:
        """Take all tasks of the subgroup and those below, if the group can do without them."""
        victims = [entry for below in subgroup.walk() for entry in reversed(self._active[below])]
        if not self._dispensable(victims):
            return []
        for descendant in subgroup.walk():
            self._take(descendant, list(self._active[descendant]))
        return victims


def evicted_with(group: GroupEntry, entry: TaskEntry) -> TaskList:
    """Return the tasks to evict together with this task.

    It is the task alone if the group, its subgroup and its role keep their minimum
    without it. Otherwise it is every active task of the group.
    """
    active = [each for each in group.tasks.values() if each.state in ACTIVE]
    if not group.ready():
        return active
    if group.subgroups is not None:
        return [entry] if _GroupTaker(group, group.subgroups, active).can_do_without(entry) else active
    role = entry.task.role
    minimum_of_role = group.roles_enforced.get(role)
    is_dispensable = group.held_members > group.minimum and (
        minimum_of_role is None or group.active_roles.get(role, 0) > minimum_of_role
    )
    return [entry] if is_dispensable else active
