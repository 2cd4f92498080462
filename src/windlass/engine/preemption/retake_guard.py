"""Guard against evictions that other groups would take back at once.

Plugins may reject victim sets because the preemptor's queue would get more than its
fair share with them. Competing groups would reclaim the excess at once. The cheapest
victim sets are found first, in addition to free capacity. If the preemptor may not have
the free capacity, the search is repeated for victim sets that release everything it
needs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import numpy as np
from numpy.typing import NDArray

from windlass.engine.nodes.table import NOMINATED, NodeTable
from windlass.engine.pending.capacity_if_evicted import future_free
from windlass.spi.victims import CompetingGroup, Preemption


class CompetingGroups:
    """Groups that may take back what a preemptor gets (:attr:`Preemption.competitors`)."""

    def __init__(self, found: Iterable[CompetingGroup]) -> None:
        self._source = found
        self._groups: list[CompetingGroup] | None = None

    @property
    def was_used(self) -> bool:
        """Return whether a plugin asked for the groups.

        If so, some victim sets would have grown the preemptor's queue too much.
        """
        return self._groups is not None

    def __call__(self) -> list[CompetingGroup]:
        if self._groups is None:
            self._groups = list(self._source)
        return self._groups


def exceeded_resources(preemption: Preemption) -> list[str]:
    """Return the resources in which a queue of the preemptor's path exceeds its fair share.

    The whole request of the preemptor is included.
    """
    return [
        name
        for name, units in preemption.request.items()
        if any(
            name in queue.fair_share and preemption.held(queue).get(name, 0) + units > queue.fair_share[name]
            for queue in preemption.path
        )
    ]


@contextmanager
def nothing_free(table: NodeTable, names: Iterable[str]) -> Iterator[None]:
    """Book all free capacity of these resources as nominated, inside the context.

    Free is what remains after all releases.
    """
    codes = table.resources.codes
    columns = [codes[name] for name in names if name in codes]
    free = np.maximum(future_free(table)[:, columns], 0)
    rows = np.flatnonzero(free.any(axis=1)).tolist()
    _book_nominated(table, rows, columns, free)
    try:
        yield
    finally:
        _book_nominated(table, rows, columns, -free)


def _book_nominated(
    table: NodeTable, rows: Iterable[int], columns: list[int], units: NDArray[np.int64]
) -> None:
    for row in rows:
        table.planes[row, NOMINATED, columns] += units[row]
        table.touch(row)
