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
    """What a node adds to the one above it."""

    held: Amounts = field(default_factory=dict)
    share: Fraction = Fraction(0)
    saturated: bool = True


@dataclass(slots=True)
class _ChildSums:
    """Over the children of a node. Those without a share count only as (not) saturated."""

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

    def figures(self, total: Resources) -> HdrfSums:
        held = dict(self.full)
        if self.shares:
            _add(held, self.per_share, min(ONE, self.shares[0]))
        return HdrfSums(held, dominant(held, total), self.hungry == 0)


def _add(sums: dict[str, Fraction], more: Amounts, factor: Fraction) -> None:
    for name, units in more.items():
        found = sums.get(name, 0) + units * factor
        if found:
            sums[name] = found
        else:
            sums.pop(name, None)


@dataclass(slots=True)
class HdrfNode:
    """A node of the tree. ``weight`` counts among its siblings."""

    weight: Fraction = ONE
    children: dict[str, HdrfNode] = field(default_factory=dict)
    figures: HdrfSums = field(default_factory=HdrfSums)
    sums: _ChildSums = field(default_factory=_ChildSums, compare=False, repr=False)

    @property
    def held(self) -> Amounts:
        return self.figures.held

    @property
    def share(self) -> Fraction:
        return self.figures.share

    @property
    def saturated(self) -> bool:
        return self.figures.saturated

    def settle(self, total: Resources) -> None:
        """Bring an inner node in line with its children, from below."""
        self.sums = _ChildSums()
        for child in self.children.values():
            if child.children:
                child.settle(total)
            self.sums.count(child.figures, 1)
        self.figures = self.sums.figures(total)


def dominant(held: Amounts, total: Resources) -> Fraction:
    """The largest part of any of the cluster's resources."""
    return max(
        (units / total[name] for name, units in held.items() if total.get(name, 0) > 0), default=Fraction(0)
    )


def path_of(queue: QueueView) -> list[tuple[str, Fraction]]:
    """The names and weights of the nodes below the root that lead to a queue."""
    annotations = queue.spec.annotations
    names = [name for name in annotations.get(HIERARCHY, "").split("/") if name]
    weights = annotations.get(WEIGHTS, "").split("/")
    return [
        (name, max(Fraction(1), _weight(weights[at] if at < len(weights) else "")))
        for at, name in enumerate(names)
        if at > 0
    ]


def leaf_key(group: GroupView) -> str:
    """No part of a path is called so."""
    return f"{group.spec.key}\0"


def figures_of(held: Resources, requested: Resources, open_ones: set[str], total: Resources) -> HdrfSums:
    """Of a group. ``open_ones``: the resources that are not used up."""
    amounts = {name: Fraction(units) for name, units in held.items()}
    return HdrfSums(amounts, dominant(amounts, total), _saturated(held, requested, open_ones, total))


@dataclass(slots=True)
class _Branch:
    """What the tree has of one queue: the nodes that lead to it, the root first, and its groups."""

    queue: QueueView
    spec: Queue
    nodes: list[HdrfNode]
    touched: int
    groups: dict[str, tuple[Resources, Resources, HdrfNode]]
    """Key of a leaf → what the group holds, what it asks for, the leaf."""


class HdrfTree:
    """The tree of some queues and their groups as things stand.

    What is told of a queue must be the same as long as its ``touched`` is. Other queues than before, other
    rules, another total, or a queue whose first group came or whose last one went: the tree is made anew.
    """

    def __init__(self, open_ones: frozenset[str] | None = None) -> None:
        """``open_ones``: what counts as not used up, whatever is used; without, what is not."""
        self.root = HdrfNode()
        self.used: dict[str, int] = {}
        self._fixed = open_ones
        self._total: dict[str, int] = {}
        self._open: set[str] = set()
        self._branches: list[_Branch] = []
        self._leads: dict[str, list[HdrfNode]] = {}
        """Queue → the nodes that lead to it."""

    def renewed(self, queues: Sequence[QueueView], total: Resources) -> HdrfNode:
        """The tree as things stand."""
        if self._total != total or not self._same(queues):
            self._build(queues, total)
            return self.root
        changed = [branch for branch in self._branches if branch.queue.touched != branch.touched]
        for branch in changed:
            if bool(branch.queue.gangs) is not bool(branch.groups):
                self._build(queues, total)
                return self.root
        for branch in changed:
            self._sum_up(branch)
        self._reopen()
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
            self._enter(branch)
        self._leads = {branch.queue.name: branch.nodes for branch in self._branches}
        if self._fixed is None:
            self._open = self.open_with(())
            for branch in self._branches:
                for held, requested, leaf in branch.groups.values():
                    leaf.figures.saturated = _saturated(held, requested, self._open, total)
        self.root.settle(total)

    def _enter(self, branch: _Branch) -> None:
        """All groups of a queue, while the tree is being made: its nodes are settled later."""
        for group in branch.queue.gangs:
            held, requested = dict(group.holding), dict(group.requested)
            self._use(held, 1)
            leaf = HdrfNode(figures=figures_of(held, requested, self._open, self._total))
            key = leaf_key(group)
            branch.nodes[-1].children[key] = leaf
            branch.groups[key] = (held, requested, leaf)
        branch.touched = branch.queue.touched

    def _sum_up(self, branch: _Branch) -> None:
        """Bring the leaves of a queue, the nodes above it and what is used in all in line with its groups."""
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
            figures = figures_of(held, requested, self._open, self._total)
            self._lift(branch.nodes, leaf, figures, fresh=old is None)
            branch.groups[key] = (held, requested, leaf)
        for key, (held, _, leaf) in before.items():
            self._use(held, -1)
            self._lift(branch.nodes, leaf, None)
            del branch.nodes[-1].children[key]
        branch.touched = branch.queue.touched

    def _use(self, amounts: Resources, sign: int) -> None:
        for name, units in amounts.items():
            self.used[name] = self.used.get(name, 0) + sign * units

    def _lift(
        self, nodes: Sequence[HdrfNode], leaf: HdrfNode, figures: HdrfSums | None, *, fresh: bool = False
    ) -> None:
        """A leaf has other figures now (``None``: it goes; ``fresh``: it comes); so do the nodes above it."""
        old: HdrfSums | None = None if fresh else leaf.figures
        new = figures
        if figures is not None:
            leaf.figures = figures
        for node in reversed(nodes):
            if old is not None:
                node.sums.count(old, -1)
            if new is not None:
                node.sums.count(new, 1)
            old = node.figures
            new = node.figures = node.sums.figures(self._total)

    def _reopen(self) -> None:
        """Look again what is used up; whatever asks for that changes with it."""
        if self._fixed is not None:
            return
        open_ones = self.open_with(())
        if open_ones == self._open:
            return
        self._open = open_ones
        for branch in self._branches:
            for held, requested, leaf in branch.groups.values():
                saturated = _saturated(held, requested, open_ones, self._total)
                if saturated is not leaf.saturated:
                    self._lift(branch.nodes, leaf, HdrfSums(leaf.held, leaf.share, saturated))

    # ------------------------------------------------------------------ what would be

    def open_with(self, changes: Iterable[tuple[Resources, int]]) -> set[str]:
        """What would not be used up if these amounts were used as well (sign 1) or not (-1)."""
        used = self.used
        moved: dict[str, int] = {}
        for amounts, sign in changes:
            for name, units in amounts.items():
                moved[name] = moved.get(name, 0) + sign * units
        return {name for name, units in self._total.items() if used.get(name, 0) + moved.get(name, 0) < units}

    def leaf(self, queue: QueueView, group: GroupView) -> HdrfNode | None:
        """The group's node; ``None`` if it is in no queue of the tree."""
        nodes = self._leads.get(queue.name)
        return nodes[-1].children.get(leaf_key(group)) if nodes else None

    @contextmanager
    def holding(self, queue: QueueView, group: GroupView, held: Resources) -> Iterator[None]:
        """Inside, a group of the tree holds ``held``; what is used up stays as it is."""
        nodes, leaf = self._leads[queue.name], self.leaf(queue, group)
        if leaf is None:
            raise KeyError(group.spec.key)
        before = leaf.figures
        self._lift(nodes, leaf, figures_of(held, group.requested, self._open, self._total))
        try:
            yield
        finally:
            self._lift(nodes, leaf, before)


def key_of(root: HdrfNode, queue: QueueView) -> Key:
    """The place of a queue: the smaller is served first."""
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
        return Fraction(text.strip())
    except (ValueError, ZeroDivisionError):
        return Fraction(1)
