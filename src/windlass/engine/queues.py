"""The queue tree and its sums.

Sums are exact Python integers per resource name: over thousands of nodes, and multiplied by weights,
they leave 64 bits. Every change runs up the ancestors at once, so a queue's sum is always that of its
subtree. A queue that is only named (by a group, or as a parent) but not known is kept ``missing``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from windlass.spi.objects import Dialect, Queue
from windlass.spi.plugins import FLAVOR
from windlass.spi.shares import Share

if TYPE_CHECKING:
    from windlass.engine.groups import GroupEntry
    from windlass.engine.parking import Bucket
    from windlass.spi.plugins import StepView

Items = Iterable[tuple[str, int]]
NO_SHARE = Share()
SUMS = ("allocated", "releasing", "pending", "promised", "firm")
"""What every queue sums up over its subtree."""


class QueueEntry:
    """One queue of the tree; what plugins see as ``spi.plugins.QueueView``."""

    __slots__ = (
        "_cluster",
        "_known",
        "_reserved",
        "_tree",
        "allocated",
        "children",
        "firm",
        "flavored",
        "groups",
        "heap",
        "missing",
        "mixed",
        "name",
        "next_step",
        "parent",
        "path",
        "pending",
        "promised",
        "releasing",
        "reported",
        "share",
        "sibling_weight",
        "spec",
        "ticket",
        "usage",
        "waiting",
    )

    def __init__(self, name: str, cluster: Mapping[str, int], tree: QueueTree) -> None:
        self.name = name
        self.spec = Queue(name)
        self.missing = True
        self.parent: QueueEntry | None = None
        self.path: tuple[QueueEntry, ...] = (self,)
        """This queue, its parent, … up to the root."""
        self.children: dict[str, QueueEntry] = {}
        self.sibling_weight = 1
        self.allocated: dict[str, int] = {}
        self.releasing: dict[str, int] = {}
        self.pending: dict[str, int] = {}
        self.promised: dict[str, int] = {}
        self.firm: dict[str, int] = {}
        """What groups hold that no one may evict: held, promised, and not being given back."""
        self.share = NO_SHARE
        """Kept by ``shares``."""
        self.usage: Mapping[str, int] = {}
        """Kept by ``usage``."""
        self.mixed = False
        self.flavored: tuple[str, ...] = ()
        """What its capability says of single device models."""
        self.groups: dict[str, GroupEntry] = {}
        self.reported: object = None
        self._cluster = cluster
        self._tree = tree
        self._known: tuple[int, list[QueueEntry]] = (-1, [])
        self._reserved: tuple[int, dict[str, int]] = (-1, {})
        # Kept by ``turns``.
        self.waiting: list[tuple[Any, int, Bucket, GroupEntry]] = []
        self.ticket = -1
        self.next_step: StepView | None = None
        self.heap: list[tuple[Any, ...]] = []

    @property
    def cluster(self) -> Mapping[str, int]:
        return self._cluster

    @property
    def requested(self) -> Mapping[str, int]:
        return _total(self.allocated, self.pending)

    @property
    def demand(self) -> Mapping[str, int]:
        total = _total(self.allocated, self.pending)
        _subtract(total, self.releasing.items())
        return total

    @property
    def committed(self) -> Mapping[str, int]:
        if not self.promised and not self.releasing:
            return self.allocated
        total = _total(self.allocated, self.promised)
        _subtract(total, self.releasing.items())
        return total

    @property
    def allocated_nonpreemptible(self) -> Mapping[str, int]:
        return self.firm

    @property
    def fair_share(self) -> Mapping[str, int]:
        return self.share.fair

    @property
    def allocatable_share(self) -> Mapping[str, int]:
        return self.share.allocatable

    @property
    def real_capability(self) -> Mapping[str, int]:
        return self.share.real_capability

    @property
    def gangs(self) -> Sequence[GroupEntry]:
        return [group for _, group in sorted(self.groups.items()) if group.group is not None]

    @property
    def stamp(self) -> int:
        return self._tree.stamp

    @property
    def siblings(self) -> Sequence[QueueEntry]:
        return self._tree.known_tops() if self.parent is None else self.parent.subqueues

    @property
    def subqueues(self) -> Sequence[QueueEntry]:
        version = self._tree.version
        if self._known[0] != version:
            self._known = (version, [q for _, q in sorted(self.children.items()) if not q.missing])
        return self._known[1]

    @property
    def guarantees(self) -> Mapping[str, int]:
        return self._tree.reserved()

    @property
    def reserved(self) -> Mapping[str, int]:
        version = self._tree.version
        if self._reserved[0] != version:
            found: dict[str, int] = {}
            for child in self.subqueues:
                _add(found, child.reserved.items())
            for name, units in self.spec.guarantee.items():
                if units > found.get(name, 0):
                    found[name] = units
            self._reserved = (version, found)
        return self._reserved[1]

    def __repr__(self) -> str:
        return f"<QueueEntry {self.name}{' missing' if self.missing else ''}>"


class QueueTree:
    """All queues. ``changed`` collects those whose figures moved since the engine last reported."""

    def __init__(self, cluster: Mapping[str, int]) -> None:
        self._cluster = cluster
        self.entries: dict[str, QueueEntry] = {}
        self.stamp = 0
        """Counts the changes of sums and rules."""
        self.version = 0
        """Counts the changes of rules and of the tree."""
        self._known_tops: tuple[int, list[QueueEntry]] = (-1, [])
        self._reserved: tuple[int, dict[str, int]] = (-1, {})
        self.tops: dict[str, QueueEntry] = {}
        """The queues without a parent."""
        self.changed: dict[str, QueueEntry] = {}
        self.freed: dict[str, QueueEntry] = {}
        """Queues that gave something back, or whose rules changed, since the engine last looked."""
        self.unsorted: dict[str, QueueEntry] = {}
        """Queues whose place in the order may have changed."""
        self.reshaped: dict[str, QueueEntry] = {}
        """Queues whose rules or place in the tree changed since the engine last looked."""
        self.demanding: dict[str, QueueEntry] = {}
        """Queues whose demand may have changed since shares were last divided."""
        self.redivide = True
        """Whether everything is to be divided anew: rules or the tree have changed."""
        self.flavors: tuple[str, ...] = ()
        """Names of single device models that some queue speaks of: these have sums of their own."""
        self.recount = False
        """Whether the sums by model are to be made anew."""
        self.foreign: dict[str, int] = {}
        """What tasks without a group hold: work of other schedulers."""

    def __iter__(self) -> Iterator[QueueEntry]:
        return iter(self.entries.values())

    def get(self, name: str) -> QueueEntry:
        """The queue, made now as missing if it is unknown."""
        entry = self.entries.get(name)
        if entry is None:
            entry = self.entries[name] = QueueEntry(name, self._cluster, self)
            self.tops[name] = entry
        return entry

    def known_tops(self) -> list[QueueEntry]:
        """The known queues without a parent, by name."""
        if self._known_tops[0] != self.version:
            tops = [entry for _, entry in sorted(self.tops.items()) if not entry.missing]
            self._known_tops = (self.version, tops)
        return self._known_tops[1]

    def reserved(self) -> Mapping[str, int]:
        """What is guaranteed to all queues together."""
        if self._reserved[0] != self.version:
            total: dict[str, int] = {}
            for entry in self.known_tops():
                _add(total, entry.reserved.items())
            self._reserved = (self.version, total)
        return self._reserved[1]

    # ------------------------------------------------------------------ shape

    def upsert(self, spec: Queue) -> QueueEntry:
        entry = self.get(spec.name)
        if not entry.missing and entry.spec == spec:
            return entry
        moved = entry.missing or entry.spec.parent != spec.parent
        entry.spec = spec
        self._note_flavors(entry)
        entry.missing = False
        if moved:
            self._move(entry, spec.parent)
        self._weigh_siblings(entry.parent)
        self._mark_rules_changed(entry)
        if entry.parent is not None:
            self.reshaped[entry.parent.name] = entry.parent
        return entry

    def remove(self, name: str) -> None:
        """The queue is gone; it stays as missing while groups or children name it."""
        entry = self.entries.get(name)
        if entry is None or entry.missing:
            return
        self._mark_rules_changed(entry)
        self._move(entry, "")
        entry.spec = Queue(name)
        self._note_flavors(entry)
        entry.missing = True
        self._weigh_siblings(None)
        self.drop_if_unused(entry)

    def drop_if_unused(self, entry: QueueEntry) -> None:
        if entry.missing and not entry.groups and not entry.children:
            self.entries.pop(entry.name, None)
            self.tops.pop(entry.name, None)
            self.changed.pop(entry.name, None)
            self.freed.pop(entry.name, None)
            self.unsorted.pop(entry.name, None)
            self.reshaped.pop(entry.name, None)
            self.demanding.pop(entry.name, None)

    def _note_flavors(self, entry: QueueEntry) -> None:
        """Keep :attr:`flavors` true after the rules of a queue have changed."""
        flavored = tuple(sorted(name for name in entry.spec.capability if FLAVOR in name))
        if flavored == entry.flavored:
            return
        entry.flavored = flavored
        self.flavors = tuple(sorted({name for queue in self for name in queue.flavored}))
        self.recount = True

    def _move(self, entry: QueueEntry, parent_name: str) -> None:
        """Hang the queue under another parent, with its sums. A parent below itself counts as none."""
        for ancestor in entry.path[1:]:
            for sums in SUMS:
                _subtract(getattr(ancestor, sums), getattr(entry, sums).items())
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
            if neighbour is not None:  # it may have become a leaf, or ceased to be one
                self.reshaped[neighbour.name] = neighbour
        for ancestor in entry.path[1:]:
            for sums in SUMS:
                _add(getattr(ancestor, sums), getattr(entry, sums).items())
            self._mark(ancestor)
        if old is not entry.parent:
            self._weigh_siblings(old)
        if old is not None:
            self._mark_freed(old)
            self.drop_if_unused(old)

    def _renew_paths(self, entry: QueueEntry) -> None:
        entry.path = (entry, *(entry.parent.path if entry.parent else ()))
        for child in entry.children.values():
            self._renew_paths(child)

    def _weigh_siblings(self, parent: QueueEntry | None) -> None:
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
        """What all queues are measured by has changed: the cluster's total."""
        for entry in self.entries.values():
            self._mark(entry)

    def _mark_rules_changed(self, entry: QueueEntry) -> None:
        self._mark(entry)
        self._mark_freed(entry)
        self.redivide = True
        self.reshaped[entry.name] = entry
        for child in entry.children.values():
            self._mark_rules_changed(child)

    def _mark(self, entry: QueueEntry) -> None:
        self.changed[entry.name] = self.unsorted[entry.name] = entry

    def _mark_freed(self, entry: QueueEntry) -> None:
        self.freed[entry.name] = entry

    # ------------------------------------------------------------------ sums

    def allocate(self, leaf: QueueEntry, items: Items, count: int, *, firm: bool = False) -> None:
        """``count`` tasks of request ``items`` hold resources; negative: they let go. ``firm``: of a
        group that no one may evict."""
        self.stamp += 1
        for entry in leaf.path:
            _count(entry.allocated, items, count)
            if firm:
                _count(entry.firm, items, count)
            self.changed[entry.name] = self.unsorted[entry.name] = self.demanding[entry.name] = entry
            if count < 0:
                self.freed[entry.name] = entry

    def start(self, leaf: QueueEntry, items: Items, count: int, *, firm: bool = False) -> None:
        """``count`` waiting tasks hold resources as decided; negative: the decision is undone, which
        does not count as giving back. The demand stays the same. See :meth:`start_flavored`."""
        self.stamp += 1
        for entry in leaf.path:
            allocated = entry.allocated
            pending = entry.pending
            for name, units in items:
                units *= count
                allocated[name] = allocated.get(name, 0) + units
                pending[name] = pending.get(name, 0) - units
            if firm:
                _count(entry.firm, items, count)
            self.changed[entry.name] = self.unsorted[entry.name] = entry

    def start_flavored(self, leaf: QueueEntry, items: Items, count: int) -> None:
        """The same for what is known only now, and was never asked for: the model of the devices."""
        for entry in leaf.path:
            _count(entry.allocated, items, count)

    def release(self, leaf: QueueEntry, items: Items, count: int, *, firm: bool = False) -> None:
        """``count`` holders begin to let go; negative: they have, or hold on after all."""
        self.stamp += 1
        for entry in leaf.path:
            _count_few(entry.releasing, items, count)
            if firm:
                _count(entry.firm, items, -count)
            self.changed[entry.name] = self.unsorted[entry.name] = self.demanding[entry.name] = entry

    def promise(self, leaf: QueueEntry, items: Items, count: int, *, firm: bool = False) -> None:
        """Room is kept for ``count`` waiting tasks; negative: no longer."""
        self.stamp += 1
        for entry in leaf.path:
            _count_few(entry.promised, items, count)
            if firm:
                _count(entry.firm, items, count)
            self.changed[entry.name] = self.unsorted[entry.name] = entry

    def drop_flavored(self) -> None:
        """Forget the sums by device model."""
        for entry in self:
            for sums in (entry.allocated, entry.releasing, entry.promised):
                for name in [name for name in sums if FLAVOR in name]:
                    del sums[name]
            self._mark(entry)

    def mark_freed(self, leaf: QueueEntry) -> None:
        """The queue gave something back, for good."""
        for entry in leaf.path:
            self._mark_freed(entry)

    def ask(self, leaf: QueueEntry, items: Items, count: int) -> None:
        """``count`` tasks wait; negative: they wait no longer."""
        self.stamp += 1
        for entry in leaf.path:
            _count(entry.pending, items, count)
            self.changed[entry.name] = self.demanding[entry.name] = entry

    def hold_foreign(self, items: Items, count: int) -> None:
        """``count`` tasks without a group hold resources; negative: they let go."""
        _count(self.foreign, items, count)
        self.redivide = True


def _total(first: Mapping[str, int], second: Mapping[str, int]) -> dict[str, int]:
    total = dict(first)
    for name, units in second.items():
        if units:
            total[name] = total.get(name, 0) + units
    return total


def _count(sums: dict[str, int], items: Items, count: int) -> None:
    for name, units in items:
        sums[name] = sums.get(name, 0) + units * count


def _count_few(sums: dict[str, int], items: Items, count: int) -> None:
    """The same for sums that are mostly nothing: then they are empty."""
    for name, units in items:
        left = sums.get(name, 0) + units * count
        if left:
            sums[name] = left
        else:
            sums.pop(name, None)


def _add(sums: dict[str, int], items: Items) -> None:
    for name, units in items:
        sums[name] = sums.get(name, 0) + units


def _subtract(sums: dict[str, int], items: Items) -> None:
    for name, units in items:
        sums[name] = sums.get(name, 0) - units
