"""The nodes as columns.

One block ``planes[row, plane, resource]`` of int64 holds all amounts; a row's bytes are its state, so
two nodes with equal bytes are equal to every policy that looks at amounts only. Row numbers are
stable while a node exists and are reused afterwards. A node that is unknown but named by a task is a
row that is not ``live``: it holds the accounts and is never offered.

Amounts are capped at ``CELL_LIMIT`` (4.5e15: 4 PiB of memory) so that no sum over a node's pods can
overflow; what asks for more than that never fits.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol
from weakref import WeakSet

import numpy as np
from numpy.typing import NDArray

from windlass.engine.devices.share_table import ShareTable
from windlass.engine.devices.whole_device_table import WHOLE, WholeDeviceTable, slots_of
from windlass.engine.nodes.change_log import ChangeLog
from windlass.engine.nodes.images import ImageTable
from windlass.engine.nodes.interning import Interner
from windlass.engine.nodes.name_order import NameRanking
from windlass.spi.numa import NumaTopology
from windlass.spi.objects import Node, Taint, TaskState

if TYPE_CHECKING:
    from windlass.engine.groups.entries import TaskEntry

ALLOCATABLE, USED, RELEASING, PROMISED = range(4)
PLANES = 4
CELL_LIMIT = 1 << 52
NO_POD_LIMIT = 1 << 31
PODS = "pods"


class WideRow(Protocol):
    """Keeps a row of the block, or what is as wide."""

    def widen(self) -> None:
        """The block may have become wider."""
        ...


def _nobody(row: int) -> None:
    """Nobody keeps the books of zones."""


class NodeTable:
    def __init__(self) -> None:
        self.resources = Interner[str](PODS)
        """Resource name → column; column 0 is ``pods``."""
        self._column_sets: dict[tuple[str, ...], NDArray[np.int64]] = {}
        self.capacity = 0
        self.height = 0
        """Rows in use lie below this."""
        self.planes: NDArray[np.int64] = np.zeros((0, PLANES, 1), dtype=np.int64)
        self.live: NDArray[np.bool_] = np.zeros(0, dtype=np.bool_)
        self.unschedulable: NDArray[np.bool_] = np.zeros(0, dtype=np.bool_)
        self.ready: NDArray[np.bool_] = np.zeros(0, dtype=np.bool_)
        self.taint_codes: NDArray[np.int64] = np.zeros(0, dtype=np.int64)
        self.taint_sets = Interner[tuple[Taint, ...]](())
        self.labels: dict[str, tuple[Interner[str], NDArray[np.int64]]] = {}
        self.names: list[str] = []
        self.nodes: list[Node | None] = []
        self.tasks: list[dict[str, TaskEntry]] = []
        self.expected: dict[int, dict[str, TaskEntry]] = {}
        """Row → the tasks that room is promised to there."""
        self.devices = WholeDeviceTable()
        self.ailing: set[int] = set()
        """Rows of which some devices are not healthy."""
        self.zones: dict[int, NumaTopology] = {}
        """Row → the node's NUMA zones, where they are known."""
        self.on_zones: Callable[[int], None] = _nobody
        """Told of rows whose zones came, went or changed."""
        self.cards = ShareTable(self)
        self.images = ImageTable()
        self.ranking = NameRanking()
        self.rows: dict[str, int] = {}
        self.free_rows: list[int] = []
        self.total: dict[str, int] = {}
        """Allocatable over all live nodes, exact."""
        self.total_changed = False
        self.reshaped = False
        """Whether nodes came, went or changed since the engine last looked."""
        self.shape = 0
        """Counts the times that they did."""
        self.amounts = ChangeLog()
        self.statics = ChangeLog()
        self.improved: set[int] = set()
        """Rows on which something became possible since the engine last looked."""
        self.epoch = 0
        """Counts the events after which every cached array is void."""
        self.kept_wide: WeakSet[WideRow] = WeakSet()
        """Told when the block has become wider, as soon as it has."""
        self._asked_carried: set[str] = set()
        self.relabelled: set[int] = set()
        self.version = 0
        """Counts all changes."""

    # ------------------------------------------------------------------ shape

    def column(self, resource: str) -> int:
        """The column of a resource, made now if it is new."""
        column = self.resources.code(resource)
        if column >= self.planes.shape[2]:
            width = max(8, 2 * self.planes.shape[2])
            grown = np.zeros((self.capacity, PLANES, width), dtype=np.int64)
            grown[:, :, : self.planes.shape[2]] = self.planes
            self.planes = grown
            self.epoch += 1
            for one in self.kept_wide:
                one.widen()
        return column

    def columns(self, resources: tuple[str, ...]) -> NDArray[np.int64] | None:
        """The columns of several resources; ``None`` if nobody has named one of them yet."""
        found = self._column_sets.get(resources)
        if found is None and all(resource in self.resources.codes for resource in resources):
            found = np.array([self.resources.codes[resource] for resource in resources], dtype=np.int64)
            self._column_sets[resources] = found
        return found

    @property
    def width(self) -> int:
        return self.planes.shape[2]

    def _grow(self) -> None:
        capacity = max(64, 2 * self.capacity)
        planes = np.zeros((capacity, PLANES, self.width), dtype=np.int64)
        planes[: self.capacity] = self.planes
        self.planes = planes
        for field in ("live", "unschedulable", "ready", "taint_codes"):
            old = getattr(self, field)
            new = np.zeros(capacity, dtype=old.dtype)
            new[: len(old)] = old
            setattr(self, field, new)
        for key, (interner, codes) in self.labels.items():
            longer = np.zeros(capacity, dtype=np.int64)
            longer[: len(codes)] = codes
            self.labels[key] = (interner, longer)
        self.ranking.resize(capacity)
        self.devices.resize(capacity)
        self.cards.resize(capacity)
        extra = capacity - self.capacity
        self.names.extend([""] * extra)
        self.nodes.extend([None] * extra)
        self.tasks.extend({} for _ in range(extra))
        self.free_rows.extend(range(capacity - 1, self.capacity - 1, -1))
        self.capacity = capacity
        self.epoch += 1

    # ------------------------------------------------------------------ nodes

    def row(self, name: str) -> int:
        """The row of a node, made now (not live) if the node is unknown."""
        row = self.rows.get(name)
        if row is None:
            if not self.free_rows:
                self._grow()
            row = self.free_rows.pop()
            self.height = max(self.height, row + 1)
            self.rows[name] = row
            self.names[row] = name
            self.ranking.add(name, row)
            self._touch(row, static=True)
        return row

    def upsert(self, node: Node) -> int:
        """Take over a node as it is now. Nothing is logged if nothing changed."""
        row = self.row(node.name)
        old = self.nodes[row]
        if old == node:
            return row
        if (old.images if old is not None else ()) != node.images:
            self.images.change(row, old.images if old is not None else (), node.images)
            if old is not None and replace(old, images=node.images) == node:
                self.nodes[row] = node  # nothing that is kept depends on them
                self.version += 1
                return row
        self._count_total(old, -1)
        self._count_total(node, 1)
        self.nodes[row] = node
        self.live[row] = True
        self.reshaped = True
        self.shape += 1
        for resource in node.allocatable:
            self.column(resource)
        if old is None or old.devices != node.devices or old.allocatable != node.allocatable:
            self._renew_devices(row, node)
        self.settle_allocatable(row)
        self._write_statics(row, node)
        if old is None or (old.labels, old.taints, old.unschedulable, old.ready) != (
            node.labels,
            node.taints,
            node.unschedulable,
            node.ready,
        ):
            self._touch(row, static=True)
            if old is None or old.labels != node.labels:
                self.relabelled.add(row)
        else:
            self._touch(row, static=False)
        self.improved.add(row)
        self._renew_zones(row, node)
        return row

    def _renew_zones(self, row: int, node: Node | None) -> None:
        zones = node.zones if node is not None else None
        if zones == self.zones.get(row):
            return
        if zones is None:
            del self.zones[row]
        else:
            self.zones[row] = zones
        self.on_zones(row)

    def remove(self, name: str) -> int | None:
        """The node is gone; its row stays, not live, while tasks are on it."""
        row = self.rows.get(name)
        node = self.nodes[row] if row is not None else None
        if row is None or node is None:
            return None
        self.images.change(row, node.images, ())
        self._count_total(node, -1)
        self.nodes[row] = None
        self.live[row] = False
        self.reshaped = True
        self.shape += 1
        self.planes[row, ALLOCATABLE] = 0
        self._write_statics(row, None)
        self._touch(row, static=True)
        self.relabelled.add(row)
        self._renew_zones(row, None)
        if self.planes[row, PROMISED, 0] > 0:
            self.improved.add(row)  # whoever was promised room here must look again
        self.release_row(row)
        return row

    def release_row(self, row: int) -> None:
        """Give the row back if neither a node nor a task needs it, nor one that was promised room on it."""
        needed = self.nodes[row] is not None or self.tasks[row] or self.planes[row, PROMISED, 0] > 0
        if self.names[row] and not needed:
            name = self.names[row]
            del self.rows[name]
            self.ranking.remove(name)
            self.names[row] = ""
            self.planes[row] = 0
            self.devices.rows[row] = {}
            self.ailing.discard(row)
            self.cards.suspend(row)
            self.free_rows.append(row)
            self._touch(row, static=True)

    def _count_total(self, node: Node | None, sign: int) -> None:
        if node is not None:
            self.total_changed = True
            for resource, units in (*node.allocatable.items(), *node.quota.items()):
                total = self.total.get(resource, 0) + sign * units
                if total:
                    self.total[resource] = total
                else:
                    self.total.pop(resource, None)

    def _touch(self, row: int, *, static: bool) -> None:
        self.touch(row)
        if static:
            self.statics.add(row)

    def touch(self, row: int) -> None:
        """The amounts of the row were written."""
        self.version += 1
        self.amounts.add(row)

    # ------------------------------------------------------------------ amounts

    def vacating(self) -> NDArray[np.int64]:
        """The rows that something is leaving."""
        return np.flatnonzero(self.planes[: self.height, RELEASING, 0] > 0)

    def leaves(self, entry: TaskEntry) -> NDArray[np.int64]:
        """What a task on a node gives back once it is gone: not those of its devices that nobody can be handed then, as
        they are not healthy."""
        vector = entry.cls.vector
        if entry.row in self.ailing:
            for resource, mask in entry.masks:
                sick = self.devices.rows[entry.row][resource].sick & mask
                if sick:
                    vector = vector.copy()
                    vector[self.resources.codes[resource]] -= sick.bit_count() * WHOLE
        return vector

    def release(self, entry: TaskEntry, sign: int) -> None:
        """A task begins to leave its node (1), or it is gone, or stays after all (-1): so its row says."""
        if sign > 0:
            self.planes[entry.row, RELEASING] += self.leaves(entry)
        else:
            self.planes[entry.row, RELEASING] -= self.leaves(entry)

    def settle_allocatable(self, row: int) -> None:
        """Write the allocatable plane: what the node says, less devices that cannot be handed out."""
        node = self.nodes[row]
        cells = self.planes[row, ALLOCATABLE]
        cells[:] = 0
        if node is None:
            return
        cells[0] = NO_POD_LIMIT
        listed = {device.resource for device in node.devices}
        for resource, units in node.allocatable.items():
            if resource in listed:
                slots = self.devices.rows[row][resource]
                units = min(units, slots.known.bit_count() * WHOLE) - slots.unusable * WHOLE
            cells[self.resources.codes[resource]] = max(0, min(units, CELL_LIMIT))

    def _renew_devices(self, row: int, node: Node) -> None:
        leaving = [entry for entry in self.tasks[row].values() if entry.state is TaskState.RELEASING]
        for entry in leaving:
            self.release(entry, -1)
        parts = self.cards.suspend(row)
        fresh = slots_of(node)
        self.devices.rows[row] = fresh
        if any(slots.sick for slots in fresh.values()):
            self.ailing.add(row)
        else:
            self.ailing.discard(row)
        for entry in self.tasks[row].values():
            self.devices.take(row, entry.masks)
        self.cards.resume(row, parts)
        for entry in leaving:
            self.release(entry, 1)

    def request_vector(self, request: Mapping[str, int]) -> NDArray[np.int64]:
        """A request as a row of the block, capped so that what exceeds the cap never fits."""
        for resource in request:
            self.column(resource)
        vector = np.zeros(self.width, dtype=np.int64)
        for resource, units in request.items():
            vector[self.resources.codes[resource]] = min(units, CELL_LIMIT + 1)
        return vector

    # ------------------------------------------------------------------ statics

    def _write_statics(self, row: int, node: Node | None) -> None:
        self.unschedulable[row] = node is not None and node.unschedulable
        self.ready[row] = node is not None and node.ready
        self.taint_codes[row] = self.taint_sets.code(node.taints if node else ())
        for key, (interner, codes) in self.labels.items():
            value = node.labels.get(key) if node else None
            old, new = int(codes[row]), 0 if value is None else interner.code(value)
            codes[row] = new
            if old != new and key in self._asked_carried:
                came, gone = new and int((codes == new).sum()) == 1, old and not (codes == old).any()
                if came or gone:
                    self.epoch += 1

    def carried(self, key: str) -> NDArray[np.bool_]:
        """By code of the label: whether a node carries it now. Whoever asked is judged anew when that changes."""
        interner, codes = self.label_column(key)
        self._asked_carried.add(key)
        return np.bincount(codes, minlength=len(interner.values)) > 0

    def label_column(self, key: str) -> tuple[Interner[str], NDArray[np.int64]]:
        """The values of a label as codes; the column is made at the first question."""
        found = self.labels.get(key)
        if found is None:
            # The zero entry is a text that no label value can be, so that "" has a code of its own.
            interner = Interner[str]("\0absent")
            codes = np.zeros(self.capacity, dtype=np.int64)
            for row, node in enumerate(self.nodes[: self.height]):
                value = node.labels.get(key) if node else None
                if value is not None:
                    codes[row] = interner.code(value)
            found = self.labels[key] = (interner, codes)
        return found
