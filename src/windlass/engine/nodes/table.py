"""Node table: all nodes as columns.

One block ``planes[row, plane, resource]`` of int64 holds all resources. The bytes of a
row are its state: two nodes with equal bytes are equal to every plugin that reads
resources only. The row of a node is stable while it exists, and is reused afterwards.
An unknown node that a task names has a row that is not ``live``. It holds the accounts
and is never offered.

Amounts are limited to ``CELL_LIMIT`` (4.5e15: 4 PiB of memory), so no sum over the pods
of a node can overflow. A larger request never fits.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Protocol
from weakref import WeakSet

import numpy as np
from numpy.typing import NDArray

from windlass.engine.devices.share_table import ShareTable, TaskShares
from windlass.engine.devices.whole_device_table import WHOLE, Masks, WholeDeviceTable, slots_of
from windlass.engine.nodes.images import ImageTable
from windlass.engine.nodes.interning import Interner
from windlass.engine.nodes.name_order import NameRanking
from windlass.spi.numa import NumaTopology
from windlass.spi.objects import Node, Taint, TaskState

ALLOCATABLE, USED, RELEASING, NOMINATED = range(4)
PLANES = 4
CELL_LIMIT = 1 << 52
NO_POD_LIMIT = 1 << 31
PODS = "pods"


class WideRow(Protocol):
    """Object that keeps a row of the block, or something of equal width."""

    def widen(self) -> None:
        """Adapt to a block that may have become wider."""
        ...


class RowClass(Protocol):
    """Class of a task, as far as the table reads it."""

    @property
    def vector(self) -> NDArray[np.int64]:
        """Request of one task by column."""
        ...


class RowTask(Protocol):
    """Task on a row, as far as the table and the allocation of devices read it."""

    @property
    def key(self) -> str: ...

    @property
    def row(self) -> int: ...

    @property
    def state(self) -> TaskState: ...

    @property
    def cls(self) -> RowClass: ...

    @property
    def masks(self) -> Masks: ...

    @property
    def shares(self) -> TaskShares: ...


def _no_numa_accounting(row: int) -> None:
    """Do nothing: no plugin accounts for NUMA."""


class ChangeLog:
    """Every changed row once, with the number of its latest change, the latest last.

    A reader keeps a mark. What it reads is as long as the number of changed rows,
    however often each of them changed.
    """

    __slots__ = ("_last", "mark", "stamps")

    def __init__(self) -> None:
        self.mark = 0
        """Number of changes so far."""
        self.stamps: dict[int, int] = {}
        """Row → number of its latest change."""
        self._last = -1

    def add(self, row: int) -> None:
        """Record a change of the row."""
        self.mark += 1
        if row != self._last:
            self._last = row
            self.stamps.pop(row, None)
        self.stamps[row] = self.mark

    def since(self, mark: int) -> list[int]:
        """Return the rows that changed after ``mark``, the latest first."""
        if self.mark - mark == 1:
            return [self._last]
        found = []
        for row, stamp in reversed(self.stamps.items()):
            if stamp <= mark:
                break
            found.append(row)
        return found


class NodeTable:
    """All nodes of the cluster."""

    def __init__(self) -> None:
        self.resources = Interner[str](PODS)
        """Resource name → column; column 0 is ``pods``."""
        self._column_sets: dict[tuple[str, ...], NDArray[np.int64]] = {}
        self.capacity = 0
        self.height = 0
        """Upper bound of the rows in use."""
        self.planes: NDArray[np.int64] = np.zeros((0, PLANES, 1), dtype=np.int64)
        self.live: NDArray[np.bool_] = np.zeros(0, dtype=np.bool_)
        self.unschedulable: NDArray[np.bool_] = np.zeros(0, dtype=np.bool_)
        self.ready: NDArray[np.bool_] = np.zeros(0, dtype=np.bool_)
        self.taint_codes: NDArray[np.int64] = np.zeros(0, dtype=np.int64)
        self.taint_sets = Interner[tuple[Taint, ...]](())
        self.labels: dict[str, tuple[Interner[str], NDArray[np.int64]]] = {}
        self.names: list[str] = []
        self.nodes: list[Node | None] = []
        self.tasks: list[dict[str, RowTask]] = []
        self.nominated_tasks: dict[int, dict[str, RowTask]] = {}
        """Row → tasks that are nominated to it."""
        self.devices = WholeDeviceTable()
        self.unhealthy_rows: set[int] = set()
        """Rows with unhealthy devices."""
        self.numa: dict[int, NumaTopology] = {}
        """Row → NUMA topology of the node, if known."""
        self.on_numa_change: Callable[[int], None] = _no_numa_accounting
        """Called for rows with a new, removed or changed NUMA topology."""
        self.shares = ShareTable(self)
        self.images = ImageTable()
        self.ranking = NameRanking()
        self.rows: dict[str, int] = {}
        self.free_rows: list[int] = []
        self.total: dict[str, int] = {}
        """Exact sum of allocatable over all live nodes."""
        self.total_changed = False
        self.nodes_changed = False
        """True if nodes were added, removed or changed since the last check by the engine."""
        self.shape = 0
        """Number of such changes."""
        self.resource_log = ChangeLog()
        self.static_log = ChangeLog()
        self.improved: set[int] = set()
        """Rows on which something became possible since the last check by the engine."""
        self.epoch = 0
        """Number of events that invalidate every cached array."""
        self.width_listeners: WeakSet[WideRow] = WeakSet()
        """Objects to notify when the block becomes wider."""
        self._watched_labels: set[str] = set()
        self.relabelled: set[int] = set()
        self.version = 0
        """Number of changes of any kind."""

    # ------------------------------------------------------------------ shape

    def column(self, resource: str) -> int:
        """Return the column of a resource; a new resource gets a new column."""
        column = self.resources.code(resource)
        if column >= self.planes.shape[2]:
            width = max(8, 2 * self.planes.shape[2])
            grown = np.zeros((self.capacity, PLANES, width), dtype=np.int64)
            grown[:, :, : self.planes.shape[2]] = self.planes
            self.planes = grown
            self.epoch += 1
            for listener in self.width_listeners:
                listener.widen()
        return column

    def columns(self, resources: tuple[str, ...]) -> NDArray[np.int64] | None:
        """Return the columns of several resources; ``None`` if one of them has no column yet."""
        columns = self._column_sets.get(resources)
        if columns is None and all(resource in self.resources.codes for resource in resources):
            columns = np.array([self.resources.codes[resource] for resource in resources], dtype=np.int64)
            self._column_sets[resources] = columns
        return columns

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
        self.shares.resize(capacity)
        extra = capacity - self.capacity
        self.names.extend([""] * extra)
        self.nodes.extend([None] * extra)
        self.tasks.extend({} for _ in range(extra))
        self.free_rows.extend(range(capacity - 1, self.capacity - 1, -1))
        self.capacity = capacity
        self.epoch += 1

    # ------------------------------------------------------------------ nodes

    def row(self, name: str) -> int:
        """Return the row of a node; an unknown node gets a row that is not live."""
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
        """Add or replace a node. An unchanged node is not logged."""
        row = self.row(node.name)
        old = self.nodes[row]
        if old == node:
            return row
        if (old.images if old is not None else ()) != node.images:
            self.images.change(row, old.images if old is not None else (), node.images)
            if old is not None and replace(old, images=node.images) == node:
                self.nodes[row] = node  # nothing that is cached depends on them
                self.version += 1
                return row
        self._count_total(old, -1)
        self._count_total(node, 1)
        self.nodes[row] = node
        self.live[row] = True
        self.nodes_changed = True
        self.shape += 1
        for resource in node.allocatable:
            self.column(resource)
        if old is None or old.devices != node.devices or old.allocatable != node.allocatable:
            self._update_devices(row, node)
        self.write_allocatable(row)
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
        self._update_numa(row, node)
        return row

    def _update_numa(self, row: int, node: Node | None) -> None:
        numa = node.zones if node is not None else None
        if numa == self.numa.get(row):
            return
        if numa is None:
            del self.numa[row]
        else:
            self.numa[row] = numa
        self.on_numa_change(row)

    def remove(self, name: str) -> int | None:
        """Remove a node. Its row stays, not live, while tasks are on it."""
        row = self.rows.get(name)
        node = self.nodes[row] if row is not None else None
        if row is None or node is None:
            return None
        self.images.change(row, node.images, ())
        self._count_total(node, -1)
        self.nodes[row] = None
        self.live[row] = False
        self.nodes_changed = True
        self.shape += 1
        self.planes[row, ALLOCATABLE] = 0
        self._write_statics(row, None)
        self._touch(row, static=True)
        self.relabelled.add(row)
        self._update_numa(row, None)
        if self.planes[row, NOMINATED, 0] > 0:
            self.improved.add(row)  # groups with nominations on this row have to be tried again
        self.release_row(row)
        return row

    def release_row(self, row: int) -> None:
        """Free the row, unless a node, a task or a nomination still needs it."""
        needed = self.nodes[row] is not None or self.tasks[row] or self.planes[row, NOMINATED, 0] > 0
        if self.names[row] and not needed:
            name = self.names[row]
            del self.rows[name]
            self.ranking.remove(name)
            self.names[row] = ""
            self.planes[row] = 0
            self.devices.rows[row] = {}
            self.unhealthy_rows.discard(row)
            self.shares.detach(row)
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
            self.static_log.add(row)

    def touch(self, row: int) -> None:
        """Record that resources of the row were written."""
        self.version += 1
        self.resource_log.add(row)

    # ------------------------------------------------------------------ resources

    def releasing_rows(self) -> NDArray[np.int64]:
        """Return the rows with terminating tasks."""
        return np.flatnonzero(self.planes[: self.height, RELEASING, 0] > 0)

    def released_by(self, entry: RowTask) -> NDArray[np.int64]:
        """Return what a task on a node releases, without its unhealthy devices."""
        vector = entry.cls.vector
        if entry.row in self.unhealthy_rows:
            for resource, mask in entry.masks:
                unhealthy = self.devices.rows[entry.row][resource].unhealthy & mask
                if unhealthy:
                    vector = vector.copy()
                    vector[self.resources.codes[resource]] -= unhealthy.bit_count() * WHOLE
        return vector

    def mark_releasing(self, entry: RowTask, sign: int) -> None:
        """Add a task to the releasing plane of its row (1), or remove it (-1)."""
        if sign > 0:
            self.planes[entry.row, RELEASING] += self.released_by(entry)
        else:
            self.planes[entry.row, RELEASING] -= self.released_by(entry)

    def write_allocatable(self, row: int) -> None:
        """Write the allocatable plane: what the node reports, without unusable devices."""
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

    def _update_devices(self, row: int, node: Node) -> None:
        releasing = [entry for entry in self.tasks[row].values() if entry.state is TaskState.RELEASING]
        for entry in releasing:
            self.mark_releasing(entry, -1)
        shares = self.shares.detach(row)
        slots_by_resource = slots_of(node)
        self.devices.rows[row] = slots_by_resource
        if any(slots.unhealthy for slots in slots_by_resource.values()):
            self.unhealthy_rows.add(row)
        else:
            self.unhealthy_rows.discard(row)
        for entry in self.tasks[row].values():
            self.devices.take(row, entry.masks)
        self.shares.reattach(row, shares)
        for entry in releasing:
            self.mark_releasing(entry, 1)

    def request_vector(self, request: Mapping[str, int]) -> NDArray[np.int64]:
        """Return a request as a row of the block. A request above the limit never fits."""
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
            if old != new and key in self._watched_labels:
                added, removed = new and int((codes == new).sum()) == 1, old and not (codes == old).any()
                if added or removed:
                    self.epoch += 1

    def label_in_use(self, key: str) -> NDArray[np.bool_]:
        """Return by code of the label whether any node has the value now.

        A change invalidates the cached arrays.
        """
        interner, codes = self.label_column(key)
        self._watched_labels.add(key)
        return np.bincount(codes, minlength=len(interner.values)) > 0

    def label_column(self, key: str) -> tuple[Interner[str], NDArray[np.int64]]:
        """Return the values of a label as codes. The column is built on first use."""
        columns = self.labels.get(key)
        if columns is None:
            # The text of code 0 cannot be a label value, so "" has a code of its own.
            interner = Interner[str]("\0absent")
            codes = np.zeros(self.capacity, dtype=np.int64)
            for row, node in enumerate(self.nodes[: self.height]):
                value = node.labels.get(key) if node else None
                if value is not None:
                    codes[row] = interner.code(value)
            columns = self.labels[key] = (interner, codes)
        return columns
