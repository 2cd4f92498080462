"""Sub-groups of a gang: a tree in which each has a minimum of its own.

A sub-group is *complete* if it holds its minimum of own tasks and enough of its
children are complete. The root is the group itself. It owns the tasks that name no
sub-group, or an unknown one. Held tasks are active and succeeded ones.
"""

from __future__ import annotations

from collections.abc import Iterator

from windlass.spi.objects import Group, SubGroup


class SubGroupEntry:
    """Sub-group with its count. ``needed``: number of ``children`` that must be complete."""

    __slots__ = ("children", "held", "minimum", "name", "needed", "parent", "position")

    def __init__(self, spec: SubGroup, position: int) -> None:
        self.name = spec.name
        self.position = position
        """Position in the list of the group, the last criterion of its order."""
        self.minimum = max(0, spec.min_members)
        self.needed = spec.min_subgroups
        self.children: list[SubGroupEntry] = []
        self.parent: SubGroupEntry | None = None
        self.held = 0

    @property
    def required(self) -> int:
        """Number of children that must be complete."""
        return len(self.children) if self.needed is None else max(0, self.needed)

    def is_complete(self) -> bool:
        if self.held < self.minimum:
            return False
        if not self.children:
            return self.required == 0
        return self.complete_children() >= self.required

    def complete_children(self) -> int:
        """Return the number of complete children."""
        return sum(child.is_complete() for child in self.children)

    def outermost_incomplete(self) -> SubGroupEntry | None:
        """Return the outermost incomplete sub-group among this one and its ancestors."""
        subgroup, outermost = self, None
        while subgroup is not None:
            if not subgroup.is_complete():
                outermost = subgroup
            subgroup = subgroup.parent
        return outermost

    def has_surplus(self) -> bool:
        """Return whether it, or a child, exceeds its minimum, or it has more children than needed."""
        if self.held > self.minimum or any(child.has_surplus() for child in self.children):
            return True
        return sum(child.holds_any() for child in self.children) > self.required

    def holds_any(self) -> bool:
        """Return whether it or a descendant holds a task."""
        return self.held > 0 or any(child.holds_any() for child in self.children)

    def fullness(self) -> float:
        """Return the ratio to its minimum: 1 is exact, below 1 is incomplete."""
        if self.children:
            return self.complete_children() / max(self.required, 1)
        return self.held / max(self.minimum, 1)

    def walk(self) -> Iterator[SubGroupEntry]:
        """Yield this sub-group and its descendants."""
        yield self
        for child in self.children:
            yield from child.walk()

    def __repr__(self) -> str:
        return f"<PartEntry {self.name or '(root)'} {self.held} of {self.minimum}>"


class SubGroupTree:
    """Sub-groups of one group."""

    __slots__ = ("by_name", "root")

    def __init__(self, group: Group) -> None:
        self.root = SubGroupEntry(SubGroup("", min_subgroups=group.min_subgroups), -1)
        self.by_name = {spec.name: SubGroupEntry(spec, at) for at, spec in enumerate(group.subgroups)}
        for spec in group.subgroups:
            subgroup = self.by_name[spec.name]
            parent = self.by_name.get(spec.parent) if spec.parent else self.root
            subgroup.parent = self.root if parent is None or _below(parent, subgroup) else parent
            subgroup.parent.children.append(subgroup)

    def of(self, name: str) -> SubGroupEntry:
        """Return the sub-group of that name, or the root if there is none."""
        return self.by_name.get(name, self.root)


def _below(subgroup: SubGroupEntry | None, ancestor: SubGroupEntry) -> bool:
    while subgroup is not None:
        if subgroup is ancestor:
            return True
        subgroup = subgroup.parent
    return False
