"""Queue tree with its sums.

Sums are exact Python integers per resource name, because over thousands of nodes and
multiplied by weights they exceed 64 bits. Every change updates the ancestors at once,
so the sum of a queue is always that of its subtree. A queue that is named (by a group,
or as a parent) but unknown is kept as ``missing``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from windlass.engine.groups.queue_entry import (
    NO_SHARE,
    SUMS,
    Items,
    QueueEntry,
    add,
    count_few,
    count_up,
    subtract,
)
from windlass.spi.nodes import NodeView
from windlass.spi.objects import Dialect, Queue
from windlass.spi.plugins import FLAVOR

__all__ = ["NO_SHARE", "SUMS", "Items", "QueueEntry", "QueueTree"]


class QueueTree:
    """All queues. ``changed``: queues with other sums than at the last report."""

    def __init__(self, cluster: Mapping[str, int], nodes: NodeView | None = None) -> None:
        self._cluster = cluster
        self._nodes = nodes
        self.entries: dict[str, QueueEntry] = {}
        self.stamp = 0
        """Number of changes of sums and rules."""
        self.version = 0
        """Number of changes of rules and of the tree."""
        self._known_tops: tuple[int, list[QueueEntry]] = (-1, [])
        self._reserved: tuple[int, dict[str, int]] = (-1, {})
        self.tops: dict[str, QueueEntry] = {}
        """Queues without a parent."""
        self.changed: dict[str, QueueEntry] = {}
        self.was_changed = False
        """True if usage, shares or rules of queues have changed since the last decision."""
        self.freed: dict[str, QueueEntry] = {}
        """Queues that released something, or got other rules, since the last check by the engine."""
        self.unsorted: dict[str, QueueEntry] = {}
        """Queues with a possibly changed position in the order."""
        self.rules_changed: dict[str, QueueEntry] = {}
        """Queues with other rules or another parent since the last check by the engine."""
        self.demanding: dict[str, QueueEntry] = {}
        """Queues with a possibly changed demand since the last division."""
        self.redivide = True
        """True if everything has to be divided again, because rules or the tree have changed."""
        self.flavors: tuple[str, ...] = ()
        """Names of device models in the rules of some queue; these have sums of their own."""
        self.entitled_flavors: tuple[str, ...] = ()
        """Models with an entitlement of some queue; they are divided like any other resource."""
        self.entitled_by_queue: dict[str, set[str]] = {}
        """Queue → models to which it is entitled."""
        self.recount = False
        """True if the sums by model have to be computed again."""
        self.foreign: dict[str, int] = {}
        """Usage of tasks without a group: work of other schedulers."""

    def __iter__(self) -> Iterator[QueueEntry]:
        return iter(self.entries.values())

    def get(self, name: str) -> QueueEntry:
        """Return the queue; an unknown one is created as missing."""
        entry = self.entries.get(name)
        if entry is None:
            entry = self.entries[name] = QueueEntry(name, self._cluster, self)
            self.tops[name] = entry
        return entry

    @property
    def nodes(self) -> NodeView:
        """Return all nodes, which are needed because free devices of a model may be reserved."""
        if self._nodes is None:
            raise RuntimeError("a tree without nodes has no models")
        return self._nodes

    def known_tops(self) -> list[QueueEntry]:
        """Return the known queues without a parent, by name."""
        if self._known_tops[0] != self.version:
            tops = [entry for _, entry in sorted(self.tops.items()) if not entry.missing]
            self._known_tops = (self.version, tops)
        return self._known_tops[1]

    def reserved(self) -> Mapping[str, int]:
        """Return the sum of all guarantees."""
        if self._reserved[0] != self.version:
            reserved: dict[str, int] = {}
            for entry in self.known_tops():
                add(reserved, entry.reserved.items())
            self._reserved = (self.version, reserved)
        return self._reserved[1]

    # ------------------------------------------------------------------ shape

    def upsert(self, spec: Queue) -> QueueEntry:
        entry = self.get(spec.name)
        if not entry.missing and entry.spec == spec:
            return entry
        moved = entry.missing or entry.spec.parent != spec.parent
        entry.spec = spec
        self._update_flavors(entry)
        entry.missing = False
        if moved:
            self._move(entry, spec.parent)
        self._update_sibling_weights(entry.parent)
        self._mark_rules_changed(entry)
        if entry.parent is not None:
            self.rules_changed[entry.parent.name] = entry.parent
        return entry

    def remove(self, name: str) -> None:
        """Remove the queue. It stays as missing while groups or children name it."""
        entry = self.entries.get(name)
        if entry is None or entry.missing:
            return
        self._mark_rules_changed(entry)
        self._move(entry, "")
        entry.spec = Queue(name)
        self._update_flavors(entry)
        entry.missing = True
        self._update_sibling_weights(None)
        self.drop_if_unused(entry)

    def drop_if_unused(self, entry: QueueEntry) -> None:
        if entry.missing and not entry.groups and not entry.children:
            self.entries.pop(entry.name, None)
            self.tops.pop(entry.name, None)
            self.changed.pop(entry.name, None)
            self.freed.pop(entry.name, None)
            self.unsorted.pop(entry.name, None)
            self.rules_changed.pop(entry.name, None)
            self.demanding.pop(entry.name, None)

    def _update_flavors(self, entry: QueueEntry) -> None:
        """Update :attr:`flavors` after a change of the rules of a queue."""
        spec = entry.spec
        entry.flavored = tuple(sorted(name for name in spec.capability if FLAVOR in name))
        entitled = {name for amounts in (spec.guarantee, spec.deserved) for name in amounts if FLAVOR in name}
        if entitled:
            self.entitled_by_queue[entry.name] = entitled
        elif not self.entitled_by_queue.pop(entry.name, None) and not (entry.flavored or self.flavors):
            return
        self.entitled_flavors = tuple(sorted(set().union(*self.entitled_by_queue.values())))
        before = self.flavors
        self.flavors = tuple(
            sorted({name for queue in self for name in queue.flavored} | {*self.entitled_flavors})
        )
        self.recount = self.recount or self.flavors != before

    def _move(self, entry: QueueEntry, parent_name: str) -> None:
        """Move the queue with its sums to another parent. A parent below itself counts as none."""
        for ancestor in entry.path[1:]:
            for sums in SUMS:
                subtract(getattr(ancestor, sums), getattr(entry, sums).items())
        old = entry.parent
        if old is not None:
            del old.children[entry.name]
            entry.parent = None
        parent = self.get(parent_name) if parent_name else None
        if parent is not None and parent is not entry and entry not in parent.path:
            entry.parent = parent
            parent.children[entry.name] = entry
        if entry.parent is None:
            self.tops[entry.name] = entry
        else:
            self.tops.pop(entry.name, None)
        self._renew_paths(entry)
        for neighbour in {id(old): old, id(entry.parent): entry.parent}.values():
            if neighbour is not None:  # it may have become a leaf, or an inner queue
                self.rules_changed[neighbour.name] = neighbour
        for ancestor in entry.path[1:]:
            for sums in SUMS:
                add(getattr(ancestor, sums), getattr(entry, sums).items())
            self._mark(ancestor)
        if old is not entry.parent:
            self._update_sibling_weights(old)
        if old is not None:
            self._mark_freed(old)
            self.drop_if_unused(old)

    def _renew_paths(self, entry: QueueEntry) -> None:
        entry.path = (entry, *(entry.parent.path if entry.parent else ()))
        for child in entry.children.values():
            self._renew_paths(child)

    def _update_sibling_weights(self, parent: QueueEntry | None) -> None:
        """Sum the weights below a parent (``None``: of the queues without one)."""
        self.version += 1
        self.stamp += 1
        siblings = list(parent.children.values()) if parent else list(self.tops.values())
        weight = sum(sibling.spec.weight for sibling in siblings if not sibling.missing)
        for sibling in siblings:
            if sibling.sibling_weight != weight:
                sibling.sibling_weight = weight
                self._mark(sibling)
        if parent is None:
            known = [sibling for sibling in siblings if not sibling.missing]
            mixed = len({sibling.spec.dialect is Dialect.KAI for sibling in known}) > 1
            for sibling in siblings:
                if sibling.mixed is not (mixed and not sibling.missing):
                    sibling.mixed = not sibling.mixed
                    self._mark_rules_changed(sibling)
        else:
            for sibling in siblings:
                sibling.mixed = False

    def mark_all(self) -> None:
        """Mark all queues after a change of the cluster's total."""
        self.stamp += 1
        for entry in self.entries.values():
            self._mark(entry)

    def _mark_rules_changed(self, entry: QueueEntry) -> None:
        self._mark(entry)
        self._mark_freed(entry)
        self.redivide = True
        self.rules_changed[entry.name] = entry
        for child in entry.children.values():
            self._mark_rules_changed(child)

    def _mark(self, entry: QueueEntry) -> None:
        self.was_changed = True
        self.changed[entry.name] = self.unsorted[entry.name] = entry

    def _mark_freed(self, entry: QueueEntry) -> None:
        self.freed[entry.name] = entry

    # ------------------------------------------------------------------ sums

    def touch(self, leaf: QueueEntry) -> None:
        """Record that the groups of the queue itself, or their amounts, have changed."""
        self.stamp += 1
        leaf.touched = self.stamp

    def allocate(self, leaf: QueueEntry, items: Items, count: int, *, firm: bool = False) -> None:
        """Add ``count`` tasks with request ``items`` to the usage; negative: remove them.

        ``firm``: the tasks belong to a group that cannot be evicted.
        """
        self.touch(leaf)
        self.was_changed = True
        for entry in leaf.path:
            count_up(entry.allocated, items, count)
            if firm:
                count_up(entry.nonpreemptible, items, count)
            self.changed[entry.name] = self.unsorted[entry.name] = self.demanding[entry.name] = entry
            if count < 0:
                self.freed[entry.name] = entry

    def start(self, leaf: QueueEntry, items: Items, count: int, *, firm: bool = False) -> None:
        """Move ``count`` pending tasks to the usage by a decision.

        Negative: the decision is undone, which does not count as a release. The demand
        stays the same. See :meth:`start_flavored`.
        """
        self.stamp = leaf.touched = self.stamp + 1
        changed, unsorted = self.changed, self.unsorted
        for entry in leaf.path:
            allocated = entry.allocated
            pending = entry.pending
            for name, units in items:
                units *= count
                try:
                    allocated[name] += units
                    pending[name] -= units
                except KeyError:
                    allocated.setdefault(name, units)  # otherwise the other one was missing
                    pending[name] = pending.get(name, 0) - units
            if firm:
                count_up(entry.nonpreemptible, items, count)
            changed[entry.name] = unsorted[entry.name] = entry

    def start_flavored(self, leaf: QueueEntry, items: Items, eligible: Items, count: int) -> None:
        """Apply :meth:`start` to device models.

        ``items``: models that are held now.
        ``eligible``: models that would have been possible, which are not requested any
        more.
        """
        self.touch(leaf)
        for entry in leaf.path:
            count_up(entry.allocated, items, count)
            count_up(entry.pending, eligible, -count)
            self.demanding[entry.name] = entry

    def release(self, leaf: QueueEntry, items: Items, count: int, *, firm: bool = False) -> None:
        """Mark ``count`` tasks as releasing; negative: they are gone, or stay."""
        self.touch(leaf)
        self.was_changed = True
        for entry in leaf.path:
            count_few(entry.releasing, items, count)
            if firm:
                count_up(entry.nonpreemptible, items, -count)
            self.changed[entry.name] = self.unsorted[entry.name] = self.demanding[entry.name] = entry

    def nominate(self, leaf: QueueEntry, items: Items, count: int, *, firm: bool = False) -> None:
        """Nominate ``count`` pending tasks; negative: withdraw the nominations."""
        self.touch(leaf)
        self.was_changed = True
        for entry in leaf.path:
            count_few(entry.nominated, items, count)
            if firm:
                count_up(entry.nonpreemptible, items, count)
            self.changed[entry.name] = self.unsorted[entry.name] = entry

    def drop_flavored(self) -> None:
        """Remove the sums by device model."""
        self.stamp += 1
        for sums in (self.foreign, *(sums for entry in self for sums in entry.model_sums())):
            for name in [name for name in sums if FLAVOR in name]:
                del sums[name]
        for entry in self:
            self._mark(entry)
        self.redivide = True

    def mark_freed(self, leaf: QueueEntry) -> None:
        """Record that the queue finally released something."""
        for entry in leaf.path:
            self._mark_freed(entry)

    def add_pending(self, leaf: QueueEntry, items: Items, count: int) -> None:
        """Add ``count`` pending tasks; negative: remove them."""
        self.stamp = leaf.touched = self.stamp + 1
        changed, demanding = self.changed, self.demanding
        for entry in leaf.path:
            pending = entry.pending
            for name, units in items:
                pending[name] = pending.get(name, 0) + units * count
            changed[entry.name] = demanding[entry.name] = entry

    def hold_foreign(self, items: Items, count: int) -> None:
        """Add ``count`` tasks without a group to the foreign usage; negative: remove them."""
        count_up(self.foreign, items, count)
        self.redivide = True
