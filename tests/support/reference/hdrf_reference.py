"""The tree of hierarchical DRF made from scratch, as its definition reads."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction

from windlass.plugins.volcano.queues.hdrf import before
from windlass.plugins.volcano.queues.hdrf_tree import (
    HdrfNode,
    HdrfSums,
    dominant,
    key_of,
    leaf_key,
    path_of,
    values_of,
)
from windlass.spi.objects import Resources
from windlass.spi.plugins import QueueView
from windlass.spi.tiers import TaskView


def tree_of(queues: Iterable[QueueView], total: Resources, changes: Mapping[str, Resources]) -> HdrfNode:
    """``changes``: group → what it would hold instead."""
    groups = [(queue, group) for queue in queues for group in queue.gangs]
    holdings = {group.spec.key: changes.get(group.spec.key, group.holding) for _, group in groups}
    used: dict[str, int] = {}
    for held in holdings.values():
        for name, units in held.items():
            used[name] = used.get(name, 0) + units
    open_ones = {name for name, units in total.items() if used.get(name, 0) < units}
    root = HdrfNode()
    for queue, group in groups:
        node = root
        for name, weight in path_of(queue):
            node = node.children.setdefault(name, HdrfNode(weight))
        held = holdings[group.spec.key]
        node.children[leaf_key(group)] = HdrfNode(values=values_of(held, group.requested, open_ones, total))
    _gather(root, total)
    return root


def _gather(node: HdrfNode, total: Resources) -> None:
    for child in node.children.values():
        if child.children:
            _gather(child, total)
    growing = [c.share for c in node.children.values() if c.share and not c.saturated]
    smallest = min([Fraction(1), *growing])
    held: dict[str, Fraction] = {}
    for child in node.children.values():
        if child.share:
            scale = Fraction(1) if child.saturated else smallest / child.share
            for name, units in child.held.items():
                if units:
                    held[name] = held.get(name, Fraction(0)) + units * scale
    saturated = all(child.saturated for child in node.children.values())
    node.values = HdrfSums(held, dominant(held, total), saturated)


def victims(claimer: TaskView, candidates: Sequence[TaskView]) -> list[TaskView]:
    """Those with whom gone, and the claimer's task placed, the claimer's queue still comes first."""
    mine = claimer.gang
    queues, total = mine.path[0].siblings, mine.path[0].cluster
    found = []
    for candidate in candidates:
        theirs = candidate.gang
        changes = {mine.spec.key: _plus(mine.holding, claimer.request, 1)}
        changes[theirs.spec.key] = _plus(theirs.holding, candidate.request, -1)
        root = tree_of(queues, total, changes)
        if before(key_of(root, mine.path[0]), key_of(root, theirs.path[0])):
            found.append(candidate)
    return found


def _plus(held: Resources, more: Resources, sign: int) -> dict[str, int]:
    found = dict(held)
    for name, units in more.items():
        found[name] = found.get(name, 0) + sign * units
    return found
