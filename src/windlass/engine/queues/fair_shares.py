"""Fair shares of queues. Only levels with a changed total, demand or rule are divided again.

Queues without a parent are below the cluster. If both APIs have such queues, KAI's
division splits the cluster among KAI's roots and Volcano's, so capacity is counted
once. Volcano's tree then divides the rest of KAI's roots. Shares are constant during a
cycle: a bind does not change the demand, and an eviction counts from the next cycle on.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping, Sequence

import msgspec
import numpy as np

from windlass.engine.nodes.table import NodeTable
from windlass.engine.plugin_set import PluginSet
from windlass.engine.queues.flavors import total_of_model
from windlass.engine.queues.tree import NO_SHARE, QueueEntry, QueueTree
from windlass.spi.objects import Dialect
from windlass.spi.shares import Division, QueueShare, ShareCause, SharePart


class SharesRecord(msgspec.Struct, frozen=True):
    """State of :class:`FairShares`: total, and share and demand per queue."""

    total: dict[str, int]
    redivide: bool
    demanding: list[str]
    shares: dict[str, QueueShare]
    demands: dict[str, dict[str, int]]


class FairShares:
    """Division of the cluster among the queues."""

    def __init__(self, table: NodeTable, queues: QueueTree, plugins: PluginSet) -> None:
        self._table = table
        self._queues = queues
        divisions = [plugin for plugin in plugins.plugins if isinstance(plugin, Division)]
        self._kai = division_for(divisions, Dialect.KAI)
        self._volcano = division_for(divisions, Dialect.VOLCANO)
        divisions_used = [division for division in (self._kai, self._volcano) if division is not None]
        self._relevance = [
            getattr(division, "demand_matters", _always_relevant) for division in divisions_used
        ]
        self._total: dict[str, int] = {}
        self._demands: dict[str, Mapping[str, int]] = {}
        """Queue → its demand in the last division of its level."""

    def refresh(self) -> None:
        """Update all shares: every level after changes of queues, otherwise what has changed."""
        queues = self._queues
        if queues.redivide:
            queues.redivide = False
            queues.demanding = {}
            self._divide_all()
            return
        if not queues.demanding:
            return
        if self._is_single():
            queues.demanding = {}
            return
        moved, queues.demanding = queues.demanding, {}
        stale = {}
        for name, entry in moved.items():
            if entry.missing:
                continue
            before, after = self._demands.get(name), entry.demand
            if before != after:
                if before is not None and not self._is_relevant(entry, before, after):
                    self._demands[name] = after
                    continue
                stale[entry.parent.name if entry.parent is not None else ""] = entry.parent
        if stale:
            self._divide(stale)

    def _is_relevant(self, entry: QueueEntry, before: Mapping[str, int], after: Mapping[str, int]) -> bool:
        """Return whether the change of a queue's demand may change any share."""
        return any([is_relevant(entry, before, after) for is_relevant in self._relevance])

    def _is_single(self) -> bool:
        """Return whether there is a single queue that gets everything, whatever its demand."""
        roots = self._queues.known_tops()
        if len(roots) != 1 or roots[0].children or roots[0].spec.dialect is Dialect.KAI:
            return False
        return (self._volcano is None or not self._volcano.flat) and _has_all(roots[0], self._total)

    def retotal(self) -> None:
        """Divide everything again if the total of the nodes has changed."""
        if self._count_total() != self._total:
            self._queues.redivide = True

    # ------------------------------------------------------------------ for ``dump``

    def as_record(self) -> SharesRecord:
        """Return the current shares and the pending changes."""
        queues = self._queues
        known = sorted(self._demands)
        return SharesRecord(
            dict(self._total),
            queues.redivide,
            sorted(queues.demanding),
            {name: queues.entries[name].share for name in known if name in queues.entries},
            {name: dict(self._demands[name]) for name in known if name in queues.entries},
        )

    def restore(self, record: SharesRecord) -> None:
        """Restore the shares of all queues."""
        queues = self._queues
        self._total = dict(record.total)
        self._demands = dict(record.demands)
        for name, share in record.shares.items():
            queues.get(name).share = share
        queues.redivide = record.redivide
        queues.demanding = {name: queues.get(name) for name in record.demanding}

    # ------------------------------------------------------------------ details

    def _divide_all(self) -> None:
        self._total = self._count_total()
        self._demands = {}
        levels: dict[str, QueueEntry | None] = {"": None}
        for entry in self._queues:
            if entry.missing:
                self._assign(entry, NO_SHARE)
            if entry.children:  # also below a missing queue, although there is nothing to divide
                levels[entry.name] = entry
        self._divide(levels)

    def _count_total(self) -> dict[str, int]:
        """Return what is divided: ready nodes, without the usage of other schedulers."""
        table = self._table
        total = dict(table.total)
        for row in np.flatnonzero(table.live & ~table.ready).tolist():
            node = table.nodes[row]
            for resource, units in node.allocatable.items() if node is not None else ():
                total[resource] = total.get(resource, 0) - units
        for name in self._queues.entitled_flavors:
            total[name] = total_of_model(table, name)
        for resource, units in self._queues.foreign.items():
            total[resource] = total.get(resource, 0) - units
        return {resource: units for resource, units in total.items() if units > 0}

    def _divide(self, stale: dict[str, QueueEntry | None]) -> None:
        """Divide the stale levels from the top down, and those with a total that changes on the way."""
        heap = [(0 if parent is None else len(parent.path), name) for name, parent in stale.items()]
        heapq.heapify(heap)
        flat = self._volcano is not None and self._volcano.flat
        flat_due = False
        while heap:
            _, name = heapq.heappop(heap)
            parent = stale.pop(name, None)
            if name and parent is None:
                continue  # done already
            if not name:
                changed = self._top()
            elif flat and parent is not None and parent.spec.dialect is not Dialect.KAI:
                flat_due = True
                continue
            elif parent is not None:
                changed = self._level(parent)
            else:
                changed = ()
            for entry in changed:
                if entry.children and entry.name not in stale:
                    stale[entry.name] = entry
                    heapq.heappush(heap, (len(entry.path), entry.name))
        if flat_due:
            self._flat()

    def _top(self) -> list[QueueEntry]:
        """Divide the cluster among the roots. Return those with a changed share."""
        roots = self._queues.known_tops()
        division = self._division_for_single(roots[0]) if len(roots) == 1 else None
        if division is not None:
            return self._assign_all(roots, division.divide(None, roots, self._total))
        kai_roots = [e for e in roots if e.spec.dialect is Dialect.KAI]
        other_roots = [e for e in roots if e.spec.dialect is not Dialect.KAI]
        changed: list[QueueEntry] = []
        remaining = self._total
        flat = self._volcano is not None and self._volcano.flat
        if not (kai_roots or flat) and len(other_roots) == 1 and _has_all(other_roots[0], remaining):
            self._demands[other_roots[0].name] = other_roots[0].demand
            return changed
        if kai_roots and self._kai is not None:
            shares = self._kai.divide(None, roots, self._total)
            remaining = dict(self._total)
            for entry, share in zip(roots, shares, strict=True):
                if entry.spec.dialect is not Dialect.KAI:
                    continue
                if self._assign(entry, share):
                    changed.append(entry)
                for resource, units in share.fair.items():
                    remaining[resource] = max(0, remaining.get(resource, 0) - units)
        if flat:
            if other_roots:
                self._flat(remaining)
        elif len(other_roots) == 1:
            parts = {
                resource: (SharePart(ShareCause.REST, units),)
                for resource, units in remaining.items()
                if kai_roots
            }
            if self._assign(other_roots[0], QueueShare(remaining, {}, other_roots[0].spec.capability, parts)):
                changed.append(other_roots[0])
        elif other_roots and self._volcano is not None:
            changed += self._assign_all(other_roots, self._volcano.divide(None, other_roots, remaining))
        return changed

    def _division_for_single(self, root: QueueEntry) -> Division | None:
        """Return the division that gives everything to the only root.

        ``None`` if more is to be done.
        """
        if root.spec.dialect is Dialect.KAI:
            return self._kai
        division = self._volcano
        return division if division is not None and division.flat and not root.children else None

    def _level(self, parent: QueueEntry) -> list[QueueEntry]:
        division = self._kai if parent.spec.dialect is Dialect.KAI else self._volcano
        children = parent.subqueues
        if division is None or not children:
            return []
        return self._assign_all(children, division.divide(parent, children, parent.share.fair))

    def _flat(self, total: Mapping[str, int] | None = None) -> None:
        """Divide among all leaves of Volcano's tree at once.

        An inner queue gets the sum of its leaves.
        """
        division = self._volcano
        if division is None:
            return
        tree = [e for e in self._queues if not e.missing and e.spec.dialect is not Dialect.KAI]
        if total is None:
            total = self._volcano_total()
        leaves = sorted((e for e in tree if not e.subqueues), key=_by_name)
        self._assign_all(leaves, division.divide(None, leaves, total))
        for entry in sorted(tree, key=lambda e: -len(e.path)):
            if entry.subqueues:
                fair: dict[str, int] = {}
                for child in entry.subqueues:
                    for resource, units in child.share.fair.items():
                        fair[resource] = fair.get(resource, 0) + units
                self._assign(entry, QueueShare(fair))

    def _volcano_total(self) -> Mapping[str, int]:
        """Return what Volcano's queues have to divide: the rest of KAI's roots."""
        remaining = dict(self._total)
        for entry in self._queues.known_tops():
            if entry.spec.dialect is Dialect.KAI:
                for resource, units in entry.share.fair.items():
                    remaining[resource] = max(0, remaining.get(resource, 0) - units)
        return remaining

    def _assign_all(self, entries: Sequence[QueueEntry], shares: Sequence[QueueShare]) -> list[QueueEntry]:
        return [entry for entry, share in zip(entries, shares, strict=True) if self._assign(entry, share)]

    def _assign(self, entry: QueueEntry, share: QueueShare) -> bool:
        """Set the share of a queue. Return whether the amount has changed."""
        self._demands[entry.name] = entry.demand
        before = entry.share
        if before == share:
            entry.share = QueueShare(before.fair, before.allocatable, before.real_capability, share.parts)
            return False
        entry.share = share
        queues = self._queues
        queues.was_changed = True
        queues.changed[entry.name] = queues.unsorted[entry.name] = queues.freed[entry.name] = entry
        return before.fair != share.fair


def _has_all(entry: QueueEntry, total: Mapping[str, int]) -> bool:
    """Return whether the queue, the only one below the cluster, already has all of it."""
    share = entry.share
    return (
        share.fair == total
        and not share.allocatable
        and not share.parts
        and share.real_capability == entry.spec.capability
    )


def division_for(divisions: Iterable[Division], dialect: Dialect) -> Division | None:
    """Return the first division for a queue API."""
    return next((division for division in divisions if division.dialect is dialect), None)


def _always_relevant(queue: QueueEntry, before: Mapping[str, int], after: Mapping[str, int]) -> bool:
    """Return true: every change of a demand matters."""
    return True


def _by_name(entry: QueueEntry) -> str:
    return entry.name
