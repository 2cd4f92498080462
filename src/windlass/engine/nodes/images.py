"""Container images of the nodes, by image: few are requested, and nodes have hundreds."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from windlass.spi.nodes import IntArray


class ImageTable:
    """Image → row → bytes. If a node lists a name twice, the first entry counts."""

    def __init__(self) -> None:
        self._rows: dict[str, dict[int, int]] = {}
        self._columns: dict[str, NDArray[np.int64]] = {}
        """Columns of images that were requested since the last change of their nodes."""

    def change(self, row: int, old: Iterable[tuple[str, int]], new: Iterable[tuple[str, int]]) -> None:
        """Replace the images of a node."""
        before, after = dict(reversed(tuple(old))), dict(reversed(tuple(new)))
        for name in before.keys() - after.keys():
            rows = self._rows[name]
            del rows[row]
            if not rows:
                del self._rows[name]
            self._columns.pop(name, None)
        for name, size in after.items():
            if before.get(name) != size:
                self._rows.setdefault(name, {})[row] = size
                self._columns.pop(name, None)

    def carriers(self, name: str) -> int:
        return len(self._rows.get(name, ()))

    def column(self, name: str, height: int) -> NDArray[np.int64]:
        """Return the bytes by row, for rows below ``height``."""
        column = self._columns.get(name)
        if column is None or len(column) < height:
            column = np.zeros(height, dtype=np.int64)
            rows = self._rows.get(name)
            if rows:
                column[list(rows)] = list(rows.values())
            self._columns[name] = column
        return column[:height]


class TableImages:
    """``rows`` of the table as an :class:`~windlass.spi.nodes.ImageView`.

    ``pick``: selects the rows from a column.
    """

    def __init__(
        self, table: ImageTable, pick: slice | NDArray[np.int64], height: int, live: NDArray[np.bool_]
    ) -> None:
        self._table = table
        self._selection = pick
        self._height = height
        self._live = live

    @property
    def nodes(self) -> int:
        return int(self._live.sum())

    def sizes(self, image: str) -> IntArray:
        return self._table.column(image, self._height)[self._selection]

    def carriers(self, image: str) -> int:
        return self._table.carriers(image)
