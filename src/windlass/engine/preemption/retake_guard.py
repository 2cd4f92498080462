"""Exchanges in full: who gets no more than those leave who go.

Policies may forbid a set of units as the claimer's queue would get more with it than it has a right to, which others
would take back at once. The units found first are the cheapest, beside what is free; a set that leaves as much as the
claimer needs is found where what is free is not his.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import numpy as np
from numpy.typing import NDArray

from windlass.engine.nodes.table import PROMISED, NodeTable
from windlass.engine.pending.capacity_if_evicted import future_free
from windlass.spi.victims import CompetingGroup, Preemption


class CompetingGroups:
    """Who may take back what a claimer gets (:attr:`Preemption.rivals`)."""

    def __init__(self, found: Iterable[CompetingGroup]) -> None:
        self._found = found
        self._known: list[CompetingGroup] | None = None

    @property
    def asked(self) -> bool:
        """Whether a policy wanted to know: some set of units would have had the claimer's queue grow too much."""
        return self._known is not None

    def __call__(self) -> list[CompetingGroup]:
        if self._known is None:
            self._known = list(self._found)
        return self._known


def beyond(preemption: Preemption) -> list[str]:
    """Of what the queue of the claimer, or one above it, would have more than its fair share with all that is asked."""
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
    """Inside, what is left of these resources once everything that terminates is gone is booked as promised."""
    codes = table.resources.codes
    columns = [codes[name] for name in names if name in codes]
    free = np.maximum(future_free(table)[:, columns], 0)
    rows = np.flatnonzero(free.any(axis=1)).tolist()
    _book(table, rows, columns, free)
    try:
        yield
    finally:
        _book(table, rows, columns, -free)


def _book(table: NodeTable, rows: Iterable[int], columns: list[int], units: NDArray[np.int64]) -> None:
    for row in rows:
        table.planes[row, PROMISED, columns] += units[row]
        table.touch(row)
