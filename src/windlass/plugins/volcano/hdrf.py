"""Hierarchical DRF: ``drf`` with ``enableHierarchy``.

The tree is that of the queues' annotations ``volcano.sh/hierarchy`` (``root/eng/dev``) and
``volcano.sh/hierarchy-weights`` (``1/2/8``; below 1 counts as 1); its leaves are the groups. From below:

* a group is *saturated* when it has all that it asks of some resource, or asks for a resource that is used
  up; its share is its dominant share;
* an inner node holds the sum of its children, those that are not saturated scaled to the smallest share
  among them (empty ones left out), and is saturated when all its children are.

Two queues are compared along their paths, level by level: saturated last, then the smaller share per weight.
Everything hangs together, so every placement may change the place of every queue; meant for tens of queues.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction

from windlass.spi.objects import Dialect, Resources
from windlass.spi.plugins import QueueView, StepView
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
        amounts = {name: Fraction(units) for name, units in holdings[group.spec.key].items()}
        node.children[f"{group.spec.key}\0"] = Node(
            held=amounts,
            share=dominant(amounts, total),
            saturated=_saturated(amounts, group.asked, open_ones, total),
        )
    root.settle(total)
    return root


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


def _saturated(held: Amounts, asked: Resources, open_ones: set[str], total: Resources) -> bool:
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
        self._seen: tuple[int, Node] | None = None

    def queue_key(self, queue: QueueView, step: StepView | None) -> Key:
        if queue.mixed or queue.spec.dialect is Dialect.KAI or not queue.spec.annotations.get(HIERARCHY):
            return ()
        if self._seen is None or self._seen[0] != queue.stamp:
            self._seen = (queue.stamp, tree_of(queue.siblings, queue.cluster, {}))
        return key_of(self._seen[1], queue)


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
