"""NUMA zones in the books of the engine: which zones' amounts each task holds.

A policy keeps the zones' books (:class:`~windlass.spi.numa.NumaAccounting`); what it books for a task is kept with
the task here, so that it is given back to the last unit, whoever undoes what. Nodes without zones cost one
look into a dictionary.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace

from windlass.engine.devices.whole_device_table import WHOLE
from windlass.engine.feasibility.task_class import TaskClass
from windlass.engine.groups.entries import TaskEntry
from windlass.engine.nodes.table import NodeTable
from windlass.engine.plugin_set import PluginSet
from windlass.spi.numa import NO_HOLDING, NumaAccounting, NumaHolding
from windlass.spi.objects import Needs, TaskState


class NumaUsage:
    """``leaving``: the tasks that terminate, kept by the ledger."""

    def __init__(self, table: NodeTable, plugins: PluginSet, leaving: Mapping[str, TaskEntry]) -> None:
        self._table = table
        self._leaving = leaving
        self._vacant = False
        """Whether what terminates counts as gone at present."""
        self._books: NumaAccounting | None = plugins.zone_books
        self.rows = table.numa
        """The rows that have zones."""
        self._promised: dict[int, Counter[NumaHolding]] = {}
        """Row → what is booked there for promises."""
        if self._books is not None:
            table.on_numa_change = self.reopen

    # ------------------------------------------------------------------ tasks on a node

    def plan(self, cls: TaskClass, row: int) -> NumaHolding | None:
        """What a task would get on a node with zones, in the state in which they are."""
        return self._books.plan(cls.number, row) if self._books is not None else None

    def choose(self, row: int, resource: str, count: int, free: int, planned: NumaHolding | None) -> int:
        """Devices in the zones of a plan, the lowest of each; as a mask. 0 if nothing is planned of them, or
        it is not known in which zones the free ones are."""
        node = self.rows.get(row)
        if planned is None or node is None or not node.cards:
            return 0
        mask = 0
        for number, amounts in planned.zones:
            wanted = dict(amounts).get(resource, 0) // WHOLE
            for name, index, zone in node.cards:
                if wanted and name == resource and zone == number and free >> index & 1:
                    mask |= 1 << index
                    wanted -= 1
        return mask if mask.bit_count() == count else 0

    def narrowed(self, row: int, needs: Needs, planned: NumaHolding) -> Needs | None:
        """The needs with their whole cards from the zones of a plan; ``None`` where nothing is to be narrowed."""
        node, place = self.rows.get(row), self._table.nodes[row]
        if node is None or place is None or not any(need.whole for need in needs.devices):
            return None
        zones = {
            (name, number) for number, amounts in planned.zones for name, units in amounts if units >= WHOLE
        }
        there = {(name, index) for name, index, zone in node.cards if (name, zone) in zones}
        found = []
        for need in needs.devices:
            uuids = tuple(
                card.uuid
                for card in place.devices
                if (card.resource, card.index) in there and card.uuid and card.resource == need.resource
            )
            chosen = tuple(uuid for uuid in uuids if uuid in need.uuids) if need.uuids else uuids
            found.append(replace(need, uuids=chosen) if need.whole and chosen else need)
        return replace(needs, devices=tuple(found)) if tuple(found) != needs.devices else None

    def came(self, entry: TaskEntry, reported: NumaHolding | None) -> None:
        """A task is on its node, its devices known: book what it holds."""
        if self._books is not None and entry.row in self.rows:
            cards = tuple((share.resource, share.index) for share in entry.devices)
            entry.zones = self._books.take(entry.cls.number, entry.row, cards, reported)

    def left(self, entry: TaskEntry, row: int) -> None:
        """A task leaves ``row``."""
        zones, entry.zones = entry.zones, None
        if zones is not None and self._books is not None and row in self.rows:
            self._books.give(row, zones)

    def again(self, entry: TaskEntry, reported: NumaHolding | None) -> None:
        """It is told anew what a task holds: its devices, or its zones."""
        if entry.row in self.rows and (reported is None or not _same(reported, entry.zones)):
            before = entry.zones
            self.left(entry, entry.row)
            self.came(entry, reported or before)

    # ------------------------------------------------------------------ promises

    def promise(self, cls: TaskClass, row: int, zones: NumaHolding | None = None) -> NumaHolding | None:
        """Book for a task that is promised room what it would get once those are gone who leave, or exactly
        ``zones``: which are remembered where the node has no zones (any more), in case it gets them (again)."""
        there = row in self.rows
        if self._books is None or (zones is None and not there):
            return None
        if zones is None:
            with self.vacated([entry for entry in self._leaving.values() if entry.row == row]):
                zones = self._books.plan(cls.number, row) or NO_HOLDING
        if there:
            self._books.hold(row, zones)
        self._promised.setdefault(row, Counter())[zones] += 1
        return zones

    def unpromise(self, row: int, zones: NumaHolding | None) -> None:
        """The task is not promised that any more."""
        promised = self._promised.get(row)
        if self._books is None or zones is None or promised is None:
            return
        promised[zones] -= 1
        if not promised[zones]:
            del promised[zones]
            if not promised:
                del self._promised[row]
        if row in self.rows:
            self._books.give(row, zones)

    # ------------------------------------------------------------------ what changes around them

    def reopen(self, row: int) -> None:
        """A node's zones are others now, or say otherwise what is free: book all its tasks anew."""
        if self._books is None:
            return
        self._books.open(row, self.rows.get(row))
        for entry in self._table.tasks[row].values():
            known = entry.task.zones
            if known is None and entry.state is not TaskState.RUNNING:
                known = entry.zones
            entry.zones = None
            self.came(entry, known)
        for zones in self._promised.get(row, Counter()).elements():
            self._books.hold(row, zones)

    @contextmanager
    def vacated(self, leaving: Collection[TaskEntry]) -> Iterator[None]:
        """Inside, what terminates holds nothing of any zone."""
        gone = [(entry.row, entry.zones) for entry in leaving if entry.zones is not None]
        if self._books is None or self._vacant or not gone:
            yield
            return
        self._vacant = True
        for row, zones in gone:
            self._books.give(row, zones)
        try:
            yield
        finally:
            self._vacant = False
            for row, zones in gone:
                self._books.hold(row, zones)


def _same(one: NumaHolding, other: NumaHolding | None) -> bool:
    return other is not None and one.zones == other.zones
