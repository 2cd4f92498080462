"""Tree of hierarchical DRF, updated incrementally.

:mod:`windlass.plugins.volcano.queues.hdrf` defines its values. Each inner node keeps
three sums over its children: amounts held by saturated ones, amounts per share of the
others, and the sorted shares of these. So a change of one child costs the same for any
number of children. Fractions are exact, so a subtraction restores the previous value.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from fractions import Fraction

from windlass.spi.objects import Queue, Resources
from windlass.spi.plugins import GroupView, QueueView

HIERARCHY = "volcano.sh/hierarchy"
WEIGHTS = "volcano.sh/hierarchy-weights"

Amounts = Mapping[str, Fraction]
Key = tuple[tuple[bool, Fraction], ...]
ONE = Fraction(1)


@dataclass(slots=True)
class HdrfSums:
    """Values that a node contributes to its parent."""

    held: Amounts = field(default_factory=dict)
    share: Fraction = Fraction(0)
    saturated: bool = True


@dataclass(slots=True)
class _ChildSums:
    """Sums over the children of a node. Children without a share count only as (not) saturated."""

    full: dict[str, Fraction] = field(default_factory=dict)
    per_share: dict[str, Fraction] = field(default_factory=dict)
    shares: list[Fraction] = field(default_factory=list)
    hungry: int = 0

    def count(self, child: HdrfSums, sign: int) -> None:
        self.hungry += 0 if child.saturated else sign
        if not child.share:
            return
        if child.saturated:
            _add(self.full, child.held, sign * ONE)
            return
        _add(self.per_share, child.held, sign / child.share)
        if sign > 0:
            insort(self.shares, child.share)
        else:
            del self.shares[bisect_left(self.shares, child.share)]

    def values(self, total: Resources) -> HdrfSums:
        held = dict(self.full)
        if self.shares:
            _add(held, self.per_share, min(ONE, self.shares[0]))
        return HdrfSums(held, dominant(held, total), self.hungry == 0)


def _add(sums: dict[str, Fraction], more: Amounts, factor: Fraction) -> None:
    for name, units in more.items():
        total = sums.get(name, 0) + units * factor
        if total:
            sums[name] = total
        else:
            sums.pop(name, None)


@dataclass(slots=True)
class HdrfNode:
    """Node of the tree. ``weight``: relative to its siblings."""

    weight: Fraction = ONE
    children: dict[str, HdrfNode] = field(default_factory=dict)
    values: HdrfSums = field(default_factory=HdrfSums)
    sums: _ChildSums = field(default_factory=_ChildSums, compare=False, repr=False)

    @property
    def held(self) -> Amounts:
        return self.values.held

    @property
    def share(self) -> Fraction:
        return self.values.share

    @property
    def saturated(self) -> bool:
        return self.values.saturated

    def recompute(self, total: Resources) -> None:
        """Recompute an inner node from its children, bottom up."""
        self.sums = _ChildSums()
        for child in self.children.values():
            if child.children:
                child.recompute(total)
            self.sums.count(child.values, 1)
        self.values = self.sums.values(total)


def dominant(held: Amounts, total: Resources) -> Fraction:
    """Return the largest ratio of held and total amount over the cluster's resources."""
    return max(
        (units / total[name] for name, units in held.items() if total.get(name, 0) > 0), default=Fraction(0)
    )


def path_of(queue: QueueView) -> list[tuple[str, Fraction]]:
    """Return names and weights of the nodes below the root that lead to a queue."""
    annotations = queue.spec.annotations
    names = [name for name in annotations.get(HIERARCHY, "").split("/") if name]
    weights = annotations.get(WEIGHTS, "").split("/")
    return [
        (name, max(Fraction(1), _weight(weights[index] if index < len(weights) else "")))
        for index, name in enumerate(names)
        if index > 0
    ]


def leaf_key(group: GroupView) -> str:
    """Return the name of a group's leaf; no part of a path can equal it."""
    return f"{group.spec.key}\0"


def values_of(held: Resources, requested: Resources, open_ones: set[str], total: Resources) -> HdrfSums:
    """Return the values of a group.

    :param open_ones: resources that are not used up
    """
    amounts = {name: Fraction(units) for name, units in held.items()}
    return HdrfSums(amounts, dominant(amounts, total), _saturated(held, requested, open_ones, total))


@dataclass(slots=True)
class _Branch:
    """Part of the tree for one queue: its nodes from the root down, and its groups."""

    queue: QueueView
    spec: Queue
    nodes: list[HdrfNode]
    touched: int
    groups: dict[str, tuple[Resources, Resources, HdrfNode]]
    """Key of a leaf → amounts that the group holds and requests, the leaf."""


class HdrfTree:
    """Tree of some queues and their groups.

    The values of a queue must stay the same while its ``touched`` does. The tree is
    rebuilt if the queues, their rules or the total changed, or if a queue got its first
    group or lost its last one.
    """

    def __init__(self, open_ones: frozenset[str] | None = None) -> None:
        """:param open_ones: resources that count as not used up; ``None``: they are computed"""
        self.root = HdrfNode()
        self.used: dict[str, int] = {}
        self._fixed = open_ones
        self._total: dict[str, int] = {}
        self._open: set[str] = set()
        self._branches: list[_Branch] = []
        self._nodes_of: dict[str, list[HdrfNode]] = {}
        """Queue → the nodes that lead to it."""

    def updated(self, queues: Sequence[QueueView], total: Resources) -> HdrfNode:
        """Update the tree and return its root."""
        if self._total != total or not self._same(queues):
            self._build(queues, total)
            return self.root
        changed = [branch for branch in self._branches if branch.queue.touched != branch.touched]
        for branch in changed:
            if bool(branch.queue.gangs) is not bool(branch.groups):
                self._build(queues, total)
                return self.root
        for branch in changed:
            self._update(branch)
        self._update_open()
        return self.root

    def _same(self, queues: Sequence[QueueView]) -> bool:
        return len(queues) == len(self._branches) and all(
            queue is branch.queue and queue.spec is branch.spec
            for queue, branch in zip(queues, self._branches, strict=True)
        )

    def _build(self, queues: Sequence[QueueView], total: Resources) -> None:
        self._total = dict(total)
        self.root = HdrfNode()
        self.used = {}
        self._branches = []
        self._open = set(self._fixed or ())
        for queue in queues:
            nodes = [self.root]
            if queue.gangs:
                for name, weight in path_of(queue):
                    nodes.append(nodes[-1].children.setdefault(name, HdrfNode(weight)))
            branch = _Branch(queue, queue.spec, nodes, -1, {})
            self._branches.append(branch)
            self._add_groups(branch)
        self._nodes_of = {branch.queue.name: branch.nodes for branch in self._branches}
        if self._fixed is None:
            self._open = self.unused_with(())
            for branch in self._branches:
                for held, requested, leaf in branch.groups.values():
                    leaf.values.saturated = _saturated(held, requested, self._open, total)
        self.root.recompute(total)

    def _add_groups(self, branch: _Branch) -> None:
        """Add all groups of a queue while the tree is built; its inner nodes are computed later."""
        for group in branch.queue.gangs:
            held, requested = dict(group.holding), dict(group.requested)
            self._use(held, 1)
            leaf = HdrfNode(values=values_of(held, requested, self._open, self._total))
            key = leaf_key(group)
            branch.nodes[-1].children[key] = leaf
            branch.groups[key] = (held, requested, leaf)
        branch.touched = branch.queue.touched

    def _update(self, branch: _Branch) -> None:
        """Update the leaves of a queue, the nodes above it and the total use from its groups."""
        before, branch.groups = branch.groups, {}
        for group in branch.queue.gangs:
            key = leaf_key(group)
            old = before.pop(key, None)
            held, requested = dict(group.holding), dict(group.requested)
            if old is not None and old[0] == held and old[1] == requested:
                branch.groups[key] = old
                continue
            leaf = HdrfNode() if old is None else old[2]
            if old is not None:
                self._use(old[0], -1)
            self._use(held, 1)
            if old is None:
                branch.nodes[-1].children[key] = leaf
            values = values_of(held, requested, self._open, self._total)
            self._replace_values(branch.nodes, leaf, values, fresh=old is None)
            branch.groups[key] = (held, requested, leaf)
        for key, (held, _, leaf) in before.items():
            self._use(held, -1)
            self._replace_values(branch.nodes, leaf, None)
            del branch.nodes[-1].children[key]
        branch.touched = branch.queue.touched

    def _use(self, amounts: Resources, sign: int) -> None:
        for name, units in amounts.items():
            self.used[name] = self.used.get(name, 0) + sign * units

    def _replace_values(
        self, nodes: Sequence[HdrfNode], leaf: HdrfNode, values: HdrfSums | None, *, fresh: bool = False
    ) -> None:
        """Replace the values of a leaf and update the nodes above it.

        :param values: ``None``: the leaf is removed
        :param fresh: the leaf is new
        """
        old: HdrfSums | None = None if fresh else leaf.values
        new = values
        if values is not None:
            leaf.values = values
        for node in reversed(nodes):
            if old is not None:
                node.sums.count(old, -1)
            if new is not None:
                node.sums.count(new, 1)
            old = node.values
            new = node.values = node.sums.values(self._total)

    def _update_open(self) -> None:
        """Update the set of used-up resources, and the saturation of groups."""
        if self._fixed is not None:
            return
        open_ones = self.unused_with(())
        if open_ones == self._open:
            return
        self._open = open_ones
        for branch in self._branches:
            for held, requested, leaf in branch.groups.values():
                saturated = _saturated(held, requested, open_ones, self._total)
                if saturated is not leaf.saturated:
                    self._replace_values(branch.nodes, leaf, HdrfSums(leaf.held, leaf.share, saturated))

    # ------------------------------------------------------------------ what-if queries

    def unused_with(self, changes: Iterable[tuple[Resources, int]]) -> set[str]:
        """Return the resources that are not used up after changes (sign 1: more used, -1: less)."""
        used = self.used
        moved: dict[str, int] = {}
        for amounts, sign in changes:
            for name, units in amounts.items():
                moved[name] = moved.get(name, 0) + sign * units
        return {name for name, units in self._total.items() if used.get(name, 0) + moved.get(name, 0) < units}

    def leaf(self, queue: QueueView, group: GroupView) -> HdrfNode | None:
        """Return the group's leaf; ``None`` if it is in no queue of the tree."""
        nodes = self._nodes_of.get(queue.name)
        return nodes[-1].children.get(leaf_key(group)) if nodes else None

    @contextmanager
    def holding(self, queue: QueueView, group: GroupView, held: Resources) -> Iterator[None]:
        """Let a group of the tree hold ``held`` within the context; used-up resources
        stay the same."""
        nodes, leaf = self._nodes_of[queue.name], self.leaf(queue, group)
        if leaf is None:
            raise KeyError(group.spec.key)
        before = leaf.values
        self._replace_values(nodes, leaf, values_of(held, group.requested, self._open, self._total))
        try:
            yield
        finally:
            self._replace_values(nodes, leaf, before)


def key_of(root: HdrfNode, queue: QueueView) -> Key:
    """Return the order key of a queue: the smallest is served first."""
    key = []
    node = root
    for name, _ in path_of(queue):
        child = node.children.get(name)
        if child is None:
            break
        node = child
        key.append((node.saturated, node.share / node.weight))
    return tuple(key)


def _saturated(held: Resources, requested: Resources, open_ones: set[str], total: Resources) -> bool:
    for name, wanted in requested.items():
        if wanted <= 0 or name not in total:
            continue
        if held.get(name, 0) >= wanted or name not in open_ones:
            return True
    return False


def _weight(text: str) -> Fraction:
    try:
        return Fraction(text.strip()) if text.isascii() else Fraction(1)
    except (ValueError, ZeroDivisionError):
        return Fraction(1)
