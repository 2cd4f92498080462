"""Order of node names as integers, so that one array comparison breaks ties.

Every row has a label of 32 bits, and a smaller name has a smaller label. A new name
gets a label between its neighbours. If there is no gap, all labels are assigned again
(``epoch`` counts this). ``tie`` is the inverted label, so that among equal scores the
*largest* combined key belongs to the *smallest* name.
"""

from __future__ import annotations

from bisect import bisect_left

import numpy as np
from numpy.typing import NDArray

SPAN = 1 << 32


class NameRanking:
    def __init__(self) -> None:
        self.epoch = 0
        self.tie: NDArray[np.int64] = np.zeros(0, dtype=np.int64)
        self._names: list[str] = []
        self._rows: dict[str, int] = {}
        self._labels: dict[str, int] = {}
        self._fresh: dict[str, int] = {}

    def resize(self, capacity: int) -> None:
        grown = np.zeros(capacity, dtype=np.int64)
        grown[: len(self.tie)] = self.tie
        self.tie = grown

    def add(self, name: str, row: int) -> None:
        """Add a name; the next :meth:`settle` assigns its label."""
        self._fresh[name] = row
        self._rows[name] = row

    def remove(self, name: str) -> None:
        self._rows.pop(name, None)
        if self._fresh.pop(name, None) is None:
            del self._names[bisect_left(self._names, name)]
            del self._labels[name]

    def settle(self) -> None:
        """Assign labels to the names added since the last call."""
        if not self._fresh:
            return
        fresh, self._fresh = sorted(self._fresh), {}
        if len(fresh) > 16 + len(self._names) // 8:
            self._names = sorted(self._names + fresh)
            self._spread()
            return
        for name in fresh:
            if not self._insert(name):
                self._names = sorted({*self._names, *fresh})
                self._spread()
                return

    def _insert(self, name: str) -> bool:
        at = bisect_left(self._names, name)
        low = self._labels[self._names[at - 1]] if at else 0
        high = self._labels[self._names[at]] if at < len(self._names) else SPAN
        if high - low < 2:
            return False
        self._names.insert(at, name)
        self._give(name, (low + high) // 2)
        return True

    def _spread(self) -> None:
        step = SPAN // (len(self._names) + 1)
        for position, name in enumerate(self._names, start=1):
            self._give(name, position * step)
        self.epoch += 1

    def _give(self, name: str, label: int) -> None:
        self._labels[name] = label
        self.tie[self._rows[name]] = SPAN - 1 - label
