"""Hierarchical DRF: ``drf`` with ``enableHierarchy``.

The annotations ``volcano.sh/hierarchy`` (``root/eng/dev``) and
``volcano.sh/hierarchy-weights`` (``1/2/8``; below 1 counts as 1) of the queues define the
tree. Its leaves are the groups. From the leaves up:

* A group is *saturated* if it has all that it requests of some resource, or if it
  requests a resource that is used up. Its share is its dominant share.
* An inner node holds the sum of its children. Those that are not saturated are scaled to
  the smallest share among them, without empty ones. The node is saturated if all its
  children are.

Two queues are compared along their paths, level by level: saturated ones last, then the
smaller share per weight. Each placement may change the position of each queue, so the
plugin is meant for tens of queues. The tree is kept
(:mod:`windlass.plugins.volcano.queues.hdrf_tree`): a placement changes only the sums of
its queue and of the nodes above.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from fractions import Fraction

from windlass.plugins.volcano.queues.hdrf_tree import HIERARCHY, WEIGHTS, HdrfTree, Key, key_of
from windlass.plugins.volcano.queues.resource_bounds import plus
from windlass.spi.objects import Dialect
from windlass.spi.plugins import QueueView, StepView
from windlass.spi.tiers import GangView, Purpose, TaskView

__all__ = ["HIERARCHY", "WEIGHTS", "HdrfEvictable", "HdrfOrder", "before"]

TOLERANCE = Fraction(1, 1_000_000)
"""Maximum difference of two shares that count as equal for victims."""
TREES = 8
"""Maximum number of cached trees for victims."""


class HdrfOrder:
    """Order of queues. ``entangled``: a placement in one queue may change the order of all."""

    name = "hdrf"
    entangled = True

    def __init__(self) -> None:
        self._trees: dict[str, tuple[int, HdrfTree]] = {}
        """Parent queue → stamp and tree of the queues below it."""

    def queue_key(self, queue: QueueView, step: StepView | None) -> Key:
        if queue.mixed or queue.spec.dialect is Dialect.KAI or not queue.spec.annotations.get(HIERARCHY):
            return ()
        above = queue.parent.name if queue.parent is not None else ""
        stamp, tree = self._trees.get(above) or (-1, HdrfTree())
        if stamp != queue.stamp:
            tree.updated(queue.siblings, queue.cluster)
            self._trees[above] = (queue.stamp, tree)
        return key_of(tree.root, queue)


class HdrfEvictable:
    """Vote on victims of other queues.

    A pod may be evicted if the queue of the preemptor still comes first without the pod
    and with the preemptor's task.
    """

    name = "hdrf"

    def __init__(self) -> None:
        self._plain = HdrfTree()
        self._trees: dict[frozenset[str], HdrfTree] = {}
        """Resources that would not be used up → tree with these."""

    def victims(
        self, purpose: Purpose, preemptor: TaskView, candidates: Sequence[TaskView]
    ) -> Sequence[TaskView] | None:
        if purpose is Purpose.PREEMPT:
            return None
        mine = preemptor.gang
        queues, total = mine.path[0].siblings, mine.path[0].cluster
        self._plain.updated(queues, total)
        by_open: dict[frozenset[str], list[TaskView]] = {}
        for candidate in candidates:
            moved = [(preemptor.request, 1)]
            if self._contains(candidate.gang):
                moved.append((candidate.request, -1))
            open_ones = self._plain.unused_with(moved)
            by_open.setdefault(frozenset(open_ones), []).append(candidate)
        grown = plus(mine.holding, preemptor.request)
        evicted: set[str] = set()
        for open_ones, group in by_open.items():
            tree = self._tree(open_ones)
            root = tree.updated(queues, total)
            with tree.holding(mine.path[0], mine, grown):
                for candidate in group:
                    theirs = candidate.gang
                    left = plus(theirs.holding, candidate.request, -1)
                    known = self._contains(theirs)
                    with tree.holding(theirs.path[0], theirs, left) if known else nullcontext():
                        if before(key_of(root, mine.path[0]), key_of(root, theirs.path[0])):
                            evicted.add(candidate.task.key)
        return [candidate for candidate in candidates if candidate.task.key in evicted]

    def _contains(self, gang: GangView) -> bool:
        return self._plain.leaf(gang.path[0], gang) is not None

    def _tree(self, open_ones: frozenset[str]) -> HdrfTree:
        tree = self._trees.get(open_ones)
        if tree is None:
            if len(self._trees) >= TREES:
                self._trees.clear()
            tree = self._trees[open_ones] = HdrfTree(open_ones)
        return tree


def before(first: Key, second: Key) -> bool:
    """Return whether the first level with a significant difference puts ``first`` first."""
    for (saturated, share), (other_saturated, other_share) in zip(first, second, strict=False):
        if saturated is not other_saturated:
            return not saturated
        if abs(share - other_share) > TOLERANCE:
            return share < other_share
    return False
