"""Queue of the engine, also as plugins see it (``spi.plugins.QueueView``)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from windlass.spi import renamed
from windlass.spi.objects import Queue
from windlass.spi.shares import QueueShare

if TYPE_CHECKING:
    from windlass.engine.groups.entries import GroupEntry
    from windlass.engine.groups.pending_class import PendingClass
    from windlass.spi.nodes import NodeView
    from windlass.spi.plugins import StepView

Items = Iterable[tuple[str, int]]
NO_SHARE = QueueShare()
SUMS = ("allocated", "releasing", "pending", "nominated", "nonpreemptible")
"""Sums of every queue over its subtree."""


class QueueTreeView(Protocol):
    """Tree of a queue, as far as its entries and their readers use it."""

    @property
    def stamp(self) -> int:
        """Number of changes of sums and rules."""
        ...

    @property
    def version(self) -> int:
        """Number of changes of rules and of the tree."""
        ...

    @property
    def flavors(self) -> tuple[str, ...]: ...

    @property
    def entitled_flavors(self) -> tuple[str, ...]: ...

    @property
    def entitled_by_queue(self) -> Mapping[str, set[str]]: ...

    @property
    def nodes(self) -> NodeView: ...

    def known_tops(self) -> Sequence[QueueEntry]:
        """Return the known queues without a parent, by name."""
        ...

    def reserved(self) -> Mapping[str, int]:
        """Return the sum of all guarantees."""
        ...


@renamed.attributes_of("QueueView")
class QueueEntry:
    """One queue of the tree; plugins see it as ``spi.plugins.QueueView``."""

    __slots__ = (
        "_cluster",
        "_demand",
        "_known",
        "_reserved",
        "allocated",
        "children",
        "closed",
        "flavored",
        "groups",
        "heap",
        "missing",
        "mixed",
        "name",
        "next_step",
        "nominated",
        "nonpreemptible",
        "parent",
        "path",
        "pending",
        "releasing",
        "reported",
        "share",
        "sibling_weight",
        "spec",
        "ticket",
        "touched",
        "tree",
        "usage",
        "waiting",
    )

    def __init__(self, name: str, cluster: Mapping[str, int], tree: QueueTreeView) -> None:
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
        self.nominated: dict[str, int] = {}
        self.nonpreemptible: dict[str, int] = {}
        """Usage of groups that cannot be evicted: held and nominated, without releasing."""
        self.share = NO_SHARE
        """Maintained by ``fair_shares``."""
        self.usage: Mapping[str, int] = {}
        """Maintained by ``decayed_usage``."""
        self.mixed = False
        self.flavored: tuple[str, ...] = ()
        """Device models in its capability."""
        self.groups: dict[str, GroupEntry] = {}
        self.reported: object = None
        self.closed: tuple[int, str | None] = (-1, None)
        """Version of the tree, and reason why the queue takes no new work for it (``enqueue``)."""
        self._cluster = cluster
        self.tree = tree
        self._demand: tuple[int, dict[str, int]] = (-1, {})
        self._known: tuple[int, list[QueueEntry]] = (-1, [])
        self._reserved: tuple[int, dict[str, int]] = (-1, {})
        # Maintained by ``queue_order``.
        self.waiting: list[tuple[Any, int, PendingClass, GroupEntry]] = []
        self.ticket = -1
        self.touched = 0
        self.next_step: StepView | None = None
        self.heap: list[tuple[Any, ...]] = []

    def model_sums(self) -> tuple[dict[str, int], ...]:
        """Return the sums in which single device models are counted."""
        return self.allocated, self.releasing, self.pending, self.nominated

    @property
    def cluster(self) -> Mapping[str, int]:
        return self._cluster

    @property
    def requested(self) -> Mapping[str, int]:
        return total(self.allocated, self.pending)

    @property
    def demand(self) -> Mapping[str, int]:
        stamp = self.tree.stamp
        if self._demand[0] != stamp:
            sums = total(self.allocated, self.pending)
            subtract(sums, self.releasing.items())
            self._demand = (stamp, sums)
        return self._demand[1]

    @property
    def committed(self) -> Mapping[str, int]:
        if not self.nominated and not self.releasing:
            return self.allocated
        sums = total(self.allocated, self.nominated)
        subtract(sums, self.releasing.items())
        return sums

    @property
    def allocated_nonpreemptible(self) -> Mapping[str, int]:
        return self.nonpreemptible

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
        return self.tree.stamp

    @property
    def version(self) -> int:
        """Return the number of changes of rules and of the tree."""
        return self.tree.version

    @property
    def siblings(self) -> Sequence[QueueEntry]:
        return self.tree.known_tops() if self.parent is None else self.parent.subqueues

    @property
    def subqueues(self) -> Sequence[QueueEntry]:
        version = self.tree.version
        if self._known[0] != version:
            self._known = (version, [q for _, q in sorted(self.children.items()) if not q.missing])
        return self._known[1]

    @property
    def guarantees(self) -> Mapping[str, int]:
        return self.tree.reserved()

    @property
    def reserved(self) -> Mapping[str, int]:
        version = self.tree.version
        if self._reserved[0] != version:
            reserved: dict[str, int] = {}
            for child in self.subqueues:
                add(reserved, child.reserved.items())
            for name, units in self.spec.guarantee.items():
                if units > reserved.get(name, 0):
                    reserved[name] = units
            self._reserved = (version, reserved)
        return self._reserved[1]

    def __repr__(self) -> str:
        return f"<QueueEntry {self.name}{' missing' if self.missing else ''}>"


def total(first: Mapping[str, int], second: Mapping[str, int]) -> dict[str, int]:
    total = dict(first)
    for name, units in second.items():
        if units:
            total[name] = total.get(name, 0) + units
    return total


def count_up(sums: dict[str, int], items: Items, count: int) -> None:
    for name, units in items:
        try:
            sums[name] += units * count
        except KeyError:
            sums[name] = units * count


def count_few(sums: dict[str, int], items: Items, count: int) -> None:
    """Add ``items`` times ``count`` to sums that are mostly zero; zeros are removed."""
    for name, units in items:
        units_left = sums.get(name, 0) + units * count
        if units_left:
            sums[name] = units_left
        else:
            sums.pop(name, None)


def add(sums: dict[str, int], items: Items) -> None:
    for name, units in items:
        sums[name] = sums.get(name, 0) + units


def subtract(sums: dict[str, int], items: Items) -> None:
    for name, units in items:
        sums[name] = sums.get(name, 0) - units
