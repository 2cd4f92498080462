"""View of the node table for plugins (``spi.nodes.NodeView``): all rows, or some."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import numpy as np
from numpy.typing import NDArray

from windlass.engine.devices.view import DeviceArrays
from windlass.engine.nodes.images import TableImages
from windlass.engine.nodes.table import ALLOCATABLE, NOMINATED, RELEASING, USED, NodeTable
from windlass.spi import renamed
from windlass.spi.devices import DeviceView
from windlass.spi.nodes import BoolArray, ImageView, IntArray
from windlass.spi.objects import Taint


@renamed.attributes_of("NodeView")
class TableView:
    """All rows 0 … height-1, or ``rows`` only. The engine masks rows that are not live.

    ``empty``: nodes without any task, for "can this ever run".
    ``future``: after all releases and nominations.
    """

    __slots__ = ("_block", "_rows", "_table", "empty", "future")

    def __init__(
        self,
        table: NodeTable,
        rows: NDArray[np.int64] | None = None,
        *,
        empty: bool = False,
        future: bool = False,
    ) -> None:
        self._table = table
        self.empty = empty
        self.future = future
        self._rows = rows
        self._block: NDArray[np.int64] | None = None

    @property
    def _selection(self) -> slice | NDArray[np.int64]:
        return slice(0, self._table.height) if self._rows is None else self._rows

    @property
    def size(self) -> int:
        return self._table.height if self._rows is None else len(self._rows)

    @property
    def rows(self) -> IntArray:
        return np.arange(self.size, dtype=np.int64) if self._rows is None else self._rows

    @property
    def version(self) -> int:
        return self._table.static_log.mark

    def resources(self) -> Sequence[str]:
        return self._table.resources.values

    def _plane(self, plane: int, resource: str) -> IntArray:
        table = self._table
        column = table.resources.codes.get(resource)
        if column is None or (self.empty and plane != ALLOCATABLE):
            return np.zeros(self.size, dtype=np.int64)
        return self._covered_rows()[:, plane, column]

    def _covered_rows(self) -> NDArray[np.int64]:
        """Return the covered rows of the table's block. A selection is gathered once."""
        if self._rows is None:
            return self._table.planes[: self._table.height]
        if self._block is None:
            self._block = self._table.planes[self._rows]
        return self._block

    def allocatable(self, resource: str) -> IntArray:
        return self._plane(ALLOCATABLE, resource)

    def used(self, resource: str) -> IntArray:
        if self.future:
            releasing = self._plane(RELEASING, resource)
            return self._plane(USED, resource) - releasing + self._plane(NOMINATED, resource)
        return self._plane(USED, resource)

    def releasing(self, resource: str) -> IntArray:
        if self.future:
            return np.zeros(self.size, dtype=np.int64)
        return self._plane(RELEASING, resource)

    def available(self, resource: str) -> IntArray:
        free = self._plane(ALLOCATABLE, resource) - self.used(resource)
        if self.future:
            return free
        nominated = self._plane(NOMINATED, resource)
        if nominated.any():
            free -= np.maximum(nominated - self._plane(RELEASING, resource), 0)
        return free

    def future_available(self, resource: str) -> IntArray:
        remaining = self._plane(USED, resource) - self._plane(RELEASING, resource)
        return self._plane(ALLOCATABLE, resource) - remaining - self._plane(NOMINATED, resource)

    def amounts(self, resources: tuple[str, ...]) -> tuple[IntArray, IntArray]:
        columns = self._table.columns(resources)
        if columns is None or self.empty or self.future:
            allocatable = [self.allocatable(resource) for resource in resources]
            used = [self.used(resource) for resource in resources]
            return np.stack(allocatable, axis=1), np.stack(used, axis=1)
        cells = self._covered_rows()
        return cells[:, ALLOCATABLE, columns], cells[:, USED, columns]

    def free(self, columns: IntArray) -> IntArray:
        """Return ``available`` for several columns of the table: rows × columns."""
        planes = self._covered_rows()[:, :, columns]
        allocatable, used, releasing, nominated = (planes[:, plane_index] for plane_index in range(4))
        if self.empty:
            return allocatable
        if self.future:
            return allocatable - used + releasing - nominated
        return allocatable - used - np.maximum(nominated - releasing, 0)

    def label(self, key: str) -> IntArray:
        return self._table.label_column(key)[1][self._selection]

    def label_values(self, key: str) -> Sequence[str]:
        return self._table.label_column(key)[0].values

    def label_carried(self, key: str) -> BoolArray:
        return self._table.label_in_use(key)

    def taints(self) -> IntArray:
        return self._table.taint_codes[self._selection]

    def taint_sets(self) -> Sequence[tuple[Taint, ...]]:
        return self._table.taint_sets.values

    def names(self) -> Sequence[str]:
        if self._rows is None:
            return self._table.names[: self.size]
        return [self._table.names[row] for row in self._rows.tolist()]

    def devices(self) -> DeviceView:
        return cast(
            DeviceView, DeviceArrays(self._table.shares, self.rows, later=self.future, empty=self.empty)
        )  # type checkers do not see a cached property as a property

    def images(self) -> ImageView:
        table = self._table
        return TableImages(table.images, self._selection, table.height, table.live[: table.height])

    def unschedulable(self) -> BoolArray:
        return self._table.unschedulable[self._selection]

    def ready(self) -> BoolArray:
        return self._table.ready[self._selection]


def view_of(table: NodeTable, rows: NDArray[np.int64], *, empty: bool = False) -> TableView:
    """Return the view of some rows, ascending; if these are all rows, nothing is gathered."""
    return TableView(table, None if len(rows) == table.height else rows, empty=empty)
