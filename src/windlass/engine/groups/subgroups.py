"""The parts of a gang: a tree of sub-groups, each with a minimum of its own.

A part is *complete* when it holds its minimum of own tasks and enough of the parts below it are
complete. The group itself is the root; tasks that name no part, or one that is not there, belong to it.
Held are active and succeeded tasks.
"""

from __future__ import annotations

from collections.abc import Iterator

from windlass.spi.objects import Group, SubGroup


class SubGroupEntry:
    """One part, with its count. ``needed``: how many of ``children`` must be complete."""

    __slots__ = ("children", "held", "minimum", "name", "needed", "parent", "position")

    def __init__(self, spec: SubGroup, position: int) -> None:
        self.name = spec.name
        self.position = position
        """Its place in the group's list: what goes first among equals."""
        self.minimum = max(0, spec.min_members)
        self.needed = spec.min_subgroups
        self.children: list[SubGroupEntry] = []
        self.parent: SubGroupEntry | None = None
        self.held = 0

    @property
    def required(self) -> int:
        """How many of the parts below must be complete."""
        return len(self.children) if self.needed is None else max(0, self.needed)

    def complete(self) -> bool:
        if self.held < self.minimum:
            return False
        if not self.children:
            return self.required == 0
        return self.completed() >= self.required

    def completed(self) -> int:
        """How many of the parts below are complete."""
        return sum(child.complete() for child in self.children)

    def outermost_incomplete(self) -> SubGroupEntry | None:
        """Of this part and those that it lies in, the outermost that is not complete."""
        part, found = self, None
        while part is not None:
            if not part.complete():
                found = part
            part = part.parent
        return found

    def surplus(self) -> bool:
        """Whether it holds more than its minimum, or one below it does, or one that it could do without."""
        if self.held > self.minimum or any(child.surplus() for child in self.children):
            return True
        return sum(child.holds() for child in self.children) > self.required

    def holds(self) -> bool:
        """Whether anything of it, or below it, is held."""
        return self.held > 0 or any(child.holds() for child in self.children)

    def fullness(self) -> float:
        """How far beyond its minimum it is: 1 is exactly, less is below."""
        if self.children:
            return self.completed() / max(self.required, 1)
        return self.held / max(self.minimum, 1)

    def walk(self) -> Iterator[SubGroupEntry]:
        """This part and all below it."""
        yield self
        for child in self.children:
            yield from child.walk()

    def __repr__(self) -> str:
        return f"<PartEntry {self.name or '(root)'} {self.held} of {self.minimum}>"


class SubGroupTree:
    """The parts of one group."""

    __slots__ = ("by_name", "root")

    def __init__(self, group: Group) -> None:
        self.root = SubGroupEntry(SubGroup("", min_subgroups=group.min_subgroups), -1)
        self.by_name = {spec.name: SubGroupEntry(spec, at) for at, spec in enumerate(group.subgroups)}
        for spec in group.subgroups:
            part = self.by_name[spec.name]
            parent = self.by_name.get(spec.parent) if spec.parent else self.root
            part.parent = self.root if parent is None or _below(parent, part) else parent
            part.parent.children.append(part)

    def of(self, name: str) -> SubGroupEntry:
        """The part of that name; the root if there is none."""
        return self.by_name.get(name, self.root)


def _below(part: SubGroupEntry | None, ancestor: SubGroupEntry) -> bool:
    while part is not None:
        if part is ancestor:
            return True
        part = part.parent
    return False
