"""Accounting of NUMA zones: the zones that each task uses.

A plugin accounts for the zones (:class:`~windlass.spi.numa.NumaAccounting`). The
holding of a task is stored with the task, so its release is exact, whatever causes it.
On nodes without zones this costs one dictionary lookup.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace

from windlass.engine.devices.whole_device_table import WHOLE
from windlass.engine.feasibility.task_class import TaskClass
from windlass.engine.groups.entries import TaskEntry, tasks_on
from windlass.engine.nodes.table import NodeTable
from windlass.engine.plugin_set import PluginSet
from windlass.spi.numa import NO_HOLDING, NumaAccounting, NumaHolding
from windlass.spi.objects import Needs, TaskState


class NumaUsage:
    """NUMA holdings of tasks. ``terminating``: kept by the ledger."""

    def __init__(self, table: NodeTable, plugins: PluginSet, terminating: Mapping[str, TaskEntry]) -> None:
        self._table = table
        self._terminating = terminating
        self._vacant = False
        """True inside :meth:`vacated`."""
        self._accounting: NumaAccounting | None = plugins.numa_accounting
        self.rows = table.numa
        """Rows with NUMA zones."""
        self._nominated: dict[int, Counter[NumaHolding]] = {}
        """Row → holdings of its nominations."""
        if self._accounting is not None:
            table.on_numa_change = self.rebuild

    # ------------------------------------------------------------------ tasks on a node

    def plan(self, cls: TaskClass, row: int) -> NumaHolding | None:
        """Return the holding that a task would get now on a node with zones."""
        return self._accounting.plan(cls.number, row) if self._accounting is not None else None

    def choose_devices(
        self, row: int, resource: str, count: int, free: int, planned: NumaHolding | None
    ) -> int:
        """Return a mask of the lowest devices in the planned zones.

        0 if no device is planned, or the zones of free devices are unknown.
        """
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
        """Return needs that take whole devices from the planned zones, or ``None`` if unchanged."""
        node, reported_node = self.rows.get(row), self._table.nodes[row]
        if node is None or reported_node is None or not any(need.whole for need in needs.devices):
            return None
        zones = {
            (name, number) for number, amounts in planned.zones for name, units in amounts if units >= WHOLE
        }
        planned_devices = {(name, index) for name, index, zone in node.cards if (name, zone) in zones}
        narrowed = []
        for need in needs.devices:
            uuids = tuple(
                device.uuid
                for device in reported_node.devices
                if (device.resource, device.index) in planned_devices
                and device.uuid
                and device.resource == need.resource
            )
            chosen = tuple(uuid for uuid in uuids if uuid in need.uuids) if need.uuids else uuids
            narrowed.append(replace(need, uuids=chosen) if need.whole and chosen else need)
        return replace(needs, devices=tuple(narrowed)) if tuple(narrowed) != needs.devices else None

    def occupy(self, entry: TaskEntry, reported: NumaHolding | None) -> None:
        """Enter the zones of a task that is on its node. Its devices have to be known."""
        if self._accounting is not None and entry.row in self.rows:
            devices = tuple((share.resource, share.index) for share in entry.devices)
            entry.zones = self._accounting.take(entry.cls.number, entry.row, devices, reported)

    def vacate(self, entry: TaskEntry, row: int) -> None:
        """Release the zones of a task that leaves ``row``."""
        zones, entry.zones = entry.zones, None
        if zones is not None and self._accounting is not None and row in self.rows:
            self._accounting.give(row, zones)

    def update(self, entry: TaskEntry, reported: NumaHolding | None) -> None:
        """Enter the zones of a task again after its devices or zones were reported."""
        if entry.row in self.rows and (reported is None or not _same(reported, entry.zones)):
            before = entry.zones
            self.vacate(entry, entry.row)
            self.occupy(entry, reported or before)

    # ------------------------------------------------------------------ promises

    def nominate(self, cls: TaskClass, row: int, zones: NumaHolding | None = None) -> NumaHolding | None:
        """Enter the zones of a nominated task.

        Without ``zones``, they are planned as if terminating tasks were gone. Given
        ``zones`` are stored even if the node has no zones at present, in case it
        reports them again.
        """
        has_zones = row in self.rows
        if self._accounting is None or (zones is None and not has_zones):
            return None
        if zones is None:
            with self.vacated([entry for entry in self._terminating.values() if entry.row == row]):
                zones = self._accounting.plan(cls.number, row) or NO_HOLDING
        if has_zones:
            self._accounting.hold(row, zones)
        self._nominated.setdefault(row, Counter())[zones] += 1
        return zones

    def remove_nomination(self, row: int, zones: NumaHolding | None) -> None:
        """Undo :meth:`nominate`."""
        promised = self._nominated.get(row)
        if self._accounting is None or zones is None or promised is None:
            return
        promised[zones] -= 1
        if not promised[zones]:
            del promised[zones]
            if not promised:
                del self._nominated[row]
        if row in self.rows:
            self._accounting.give(row, zones)

    # ------------------------------------------------------------------ what changes around them

    def rebuild(self, row: int) -> None:
        """Enter all tasks of a node again after its zones have changed."""
        if self._accounting is None:
            return
        self._accounting.open(row, self.rows.get(row))
        for entry in tasks_on(self._table, row).values():
            zones_of_task = entry.task.zones
            if zones_of_task is None and entry.state is not TaskState.RUNNING:
                zones_of_task = entry.zones
            entry.zones = None
            self.occupy(entry, zones_of_task)
        for zones in self._nominated.get(row, Counter()).elements():
            self._accounting.hold(row, zones)

    @contextmanager
    def vacated(self, terminating: Collection[TaskEntry]) -> Iterator[None]:
        """Inside, terminating tasks use no zone."""
        holdings = [(entry.row, entry.zones) for entry in terminating if entry.zones is not None]
        if self._accounting is None or self._vacant or not holdings:
            yield
            return
        self._vacant = True
        for row, zones in holdings:
            self._accounting.give(row, zones)
        try:
            yield
        finally:
            self._vacant = False
            for row, zones in holdings:
                self._accounting.hold(row, zones)


def _same(one: NumaHolding, other: NumaHolding | None) -> bool:
    return other is not None and one.zones == other.zones
