"""Hierarchical DRF: ``drf`` with ``enableHierarchy``.

The tree is that of the queues' annotations ``volcano.sh/hierarchy`` (``root/eng/dev``) and
``volcano.sh/hierarchy-weights`` (``1/2/8``; below 1 counts as 1); its leaves are the groups. From below:

* a group is *saturated* when it has all that it asks of some resource, or asks for a resource that is used
  up; its share is its dominant share;
* an inner node holds the sum of its children, those that are not saturated scaled to the smallest share
  among them (empty ones left out), and is saturated when all its children are.

Two queues are compared along their paths, level by level: saturated last, then the smaller share per weight.
Everything hangs together, so every placement may change the place of every queue; meant for tens of queues.
For the order the tree is kept (:class:`KeptTree`): after a placement only the groups of the queue that it was
in are summed up again, and the nodes above them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction

from windlass.spi.objects import Dialect, Queue, Resources
from windlass.spi.plugins import GroupView, QueueView, StepView
from windlass.spi.tiers import Purpose, TaskView

HIERARCHY = "volcano.sh/hierarchy"
WEIGHTS = "volcano.sh/hierarchy-weights"
TOLERANCE = Fraction(1, 1_000_000)
"""Shares that differ by less are alike where a victim is judged."""

Amounts = Mapping[str, Fraction]
Key = tuple[tuple[bool, Fraction], ...]


@dataclass(slots=True)
class Node:
    """A node of the tree. ``weight`` counts among its siblings."""

    weight: Fraction = Fraction(1)
    children: dict[str, Node] = field(default_factory=dict)
    held: Amounts = field(default_factory=dict)
    share: Fraction = Fraction(0)
    saturated: bool = True

    def settle(self, total: Resources) -> None:
        """Bring an inner node in line with its children, from below."""
        for child in self.children.values():
            if child.children:
                child.settle(total)
        self.gather(total)

    def gather(self, total: Resources) -> None:
        """The same, its children being settled."""
        growing = [c.share for c in self.children.values() if c.share and not c.saturated]
        smallest = min([Fraction(1), *growing])
        held: dict[str, Fraction] = {}
        for child in self.children.values():
            if child.share:
                scale = Fraction(1) if child.saturated else smallest / child.share
                for name, units in child.held.items():
                    held[name] = held.get(name, Fraction(0)) + units * scale
        self.held = held
        self.share = dominant(held, total)
        self.saturated = all(child.saturated for child in self.children.values())


def dominant(held: Amounts, total: Resources) -> Fraction:
    """The largest part of any of the cluster's resources."""
    return max(
        (units / total[name] for name, units in held.items() if total.get(name, 0) > 0), default=Fraction(0)
    )


def path_of(queue: QueueView) -> list[tuple[str, Fraction]]:
    """The names and weights of the nodes below the root that lead to a queue."""
    notes = queue.spec.annotations
    names = [name for name in notes.get(HIERARCHY, "").split("/") if name]
    weights = notes.get(WEIGHTS, "").split("/")
    return [
        (name, max(Fraction(1), _weight(weights[at] if at < len(weights) else "")))
        for at, name in enumerate(names)
        if at > 0
    ]


def tree_of(queues: Iterable[QueueView], total: Resources, changes: Mapping[str, Resources]) -> Node:
    """The settled tree. ``changes``: group → what it would hold instead."""
    groups = [(queue, group) for queue in queues for group in queue.gangs]
    holdings = {group.spec.key: changes.get(group.spec.key, group.holding) for _, group in groups}
    used: dict[str, int] = {}
    for held in holdings.values():
        for name, units in held.items():
            used[name] = used.get(name, 0) + units
    open_ones = {name for name, units in total.items() if used.get(name, 0) < units}
    root = Node()
    for queue, group in groups:
        node = root
        for name, weight in path_of(queue):
            node = node.children.setdefault(name, Node(weight))
        held = holdings[group.spec.key]
        node.children[_leaf_key(group)] = _leaf_of(held, group.asked, open_ones, total)
    root.settle(total)
    return root


def _leaf_key(group: GroupView) -> str:
    """No part of a path is called so."""
    return f"{group.spec.key}\0"


def _leaf_of(held: Resources, asked: Resources, open_ones: set[str], total: Resources) -> Node:
    amounts = {name: Fraction(units) for name, units in held.items()}
    return Node(
        held=amounts,
        share=dominant(amounts, total),
        saturated=_saturated(amounts, asked, open_ones, total),
    )


@dataclass(slots=True)
class _Branch:
    """What the tree has of one queue: the nodes that lead to it, the root first, and its groups."""

    queue: QueueView
    spec: Queue
    nodes: list[Node]
    touched: int
    groups: dict[str, tuple[Resources, Resources, Node]]
    """Key of a leaf → what the group holds, what it asks for, the leaf."""


class KeptTree:
    """The tree of :func:`tree_of`, without changes, kept from one look to the next.

    What is told of a queue must be the same as long as its ``touched`` is. Other queues than before, other
    rules, another total, or a queue whose first group came or whose last one went: the tree is made anew.
    """

    def __init__(self) -> None:
        self.root = Node()
        self._total: dict[str, int] = {}
        self._used: dict[str, int] = {}
        self._open: set[str] = set()
        self._branches: list[_Branch] = []

    def renewed(self, queues: Sequence[QueueView], total: Resources) -> Node:
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
        open_ones = {name for name, units in total.items() if self._used.get(name, 0) < units}
        if open_ones != self._open:
            self._open = open_ones
            changed = self._branches
            for branch in changed:
                for held, asked, leaf in branch.groups.values():
                    leaf.saturated = _saturated(held, asked, open_ones, total)
        self._gather(changed)
        return self.root

    def _same(self, queues: Sequence[QueueView]) -> bool:
        return len(queues) == len(self._branches) and all(
            queue is branch.queue and queue.spec is branch.spec
            for queue, branch in zip(queues, self._branches, strict=True)
        )

    def _build(self, queues: Sequence[QueueView], total: Resources) -> None:
        self._total = dict(total)
        self.root = Node()
        self._used = {}
        self._branches = []
        self._open = set()
        for queue in queues:
            nodes = [self.root]
            if queue.gangs:
                for name, weight in path_of(queue):
                    nodes.append(nodes[-1].children.setdefault(name, Node(weight)))
            branch = _Branch(queue, queue.spec, nodes, -1, {})
            self._branches.append(branch)
            self._sum_up(branch)
        self._open = {name for name, units in total.items() if self._used.get(name, 0) < units}
        for branch in self._branches:
            for held, asked, leaf in branch.groups.values():
                leaf.saturated = _saturated(held, asked, self._open, total)
        self.root.settle(total)

    def _sum_up(self, branch: _Branch) -> None:
        """Bring the leaves of a queue, and what is used in all, in line with its groups."""
        before, branch.groups = branch.groups, {}
        node = branch.nodes[-1]
        for group in branch.queue.gangs:
            key = _leaf_key(group)
            old = before.pop(key, None)
            held, asked = dict(group.holding), dict(group.asked)
            if old is not None and old[0] == held and old[1] == asked:
                branch.groups[key] = old
                continue
            if old is not None:
                self._use(old[0], -1)
            self._use(held, 1)
            leaf = node.children[key] = _leaf_of(held, asked, self._open, self._total)
            branch.groups[key] = (held, asked, leaf)
        for key, (held, _, _) in before.items():
            self._use(held, -1)
            del node.children[key]
        branch.touched = branch.queue.touched

    def _use(self, amounts: Resources, sign: int) -> None:
        for name, units in amounts.items():
            self._used[name] = self._used.get(name, 0) + sign * units

    def _gather(self, branches: Iterable[_Branch]) -> None:
        """Settle the nodes above these queues, the deepest first."""
        levels: dict[int, dict[int, Node]] = {}
        for branch in branches:
            for depth, node in enumerate(branch.nodes):
                levels.setdefault(depth, {})[id(node)] = node
        for depth in sorted(levels, reverse=True):
            for node in levels[depth].values():
                node.gather(self._total)


def key_of(root: Node, queue: QueueView) -> Key:
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


def _saturated(
    held: Mapping[str, Fraction] | Resources, asked: Resources, open_ones: set[str], total: Resources
) -> bool:
    for name, wanted in asked.items():
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


class HdrfOrder:
    """The order of queues. ``entangled``: a placement anywhere may move any queue."""

    name = "hdrf"
    entangled = True

    def __init__(self) -> None:
        self._trees: dict[str, tuple[int, KeptTree]] = {}
        """The queue above → the stamp of the tree of those below it."""

    def queue_key(self, queue: QueueView, step: StepView | None) -> Key:
        if queue.mixed or queue.spec.dialect is Dialect.KAI or not queue.spec.annotations.get(HIERARCHY):
            return ()
        above = queue.parent.name if queue.parent is not None else ""
        stamp, tree = self._trees.get(above) or (-1, KeptTree())
        if stamp != queue.stamp:
            tree.renewed(queue.siblings, queue.cluster)
            self._trees[above] = (queue.stamp, tree)
        return key_of(tree.root, queue)


class HdrfSpares:
    """A pod of another queue may go if, with it gone and the claimer's task placed, the claimer's queue
    still comes first."""

    name = "hdrf"

    def victims(
        self, purpose: Purpose, claimer: TaskView, candidates: Sequence[TaskView]
    ) -> Sequence[TaskView] | None:
        if purpose is Purpose.PREEMPT:
            return None
        mine = claimer.gang
        queues, total = mine.path[0].siblings, mine.path[0].cluster
        grown = _plus(mine.holding, claimer.request, 1)
        found = []
        for candidate in candidates:
            theirs = candidate.gang
            left = _plus(theirs.holding, candidate.request, -1)
            root = tree_of(queues, total, {mine.spec.key: grown, theirs.spec.key: left})
            if before(key_of(root, mine.path[0]), key_of(root, theirs.path[0])):
                found.append(candidate)
        return found


def before(first: Key, second: Key) -> bool:
    """Whether the first differing level puts ``first`` first, by more than nothing."""
    for (saturated, share), (other_saturated, other_share) in zip(first, second, strict=False):
        if saturated is not other_saturated:
            return not saturated
        if abs(share - other_share) > TOLERANCE:
            return share < other_share
    return False


def _plus(held: Resources, more: Resources, sign: int) -> dict[str, int]:
    found = dict(held)
    for name, units in more.items():
        found[name] = found.get(name, 0) + sign * units
    return found
