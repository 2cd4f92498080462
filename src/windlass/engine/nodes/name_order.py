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
        self._new: dict[str, int] = {}

    def resize(self, capacity: int) -> None:
        grown = np.zeros(capacity, dtype=np.int64)
        grown[: len(self.tie)] = self.tie
        self.tie = grown

    def add(self, name: str, row: int) -> None:
        """Add a name; the next :meth:`settle` assigns its label."""
        self._new[name] = row
        self._rows[name] = row

    def remove(self, name: str) -> None:
        self._rows.pop(name, None)
        if self._new.pop(name, None) is None:
            del self._names[bisect_left(self._names, name)]
            del self._labels[name]

    def settle(self) -> None:
        """Assign labels to the names added since the last call."""
        if not self._new:
            return
        names, self._new = sorted(self._new), {}
        if len(names) > 16 + len(self._names) // 8:
            self._names = sorted(self._names + names)
            self._spread()
            return
        for name in names:
            if not self._insert(name):
                self._names = sorted({*self._names, *names})
                self._spread()
                return

    def _insert(self, name: str) -> bool:
        index = bisect_left(self._names, name)
        low = self._labels[self._names[index - 1]] if index else 0
        high = self._labels[self._names[index]] if index < len(self._names) else SPAN
        if high - low < 2:
            return False
        self._names.insert(index, name)
        self._set_label(name, (low + high) // 2)
        return True

    def _spread(self) -> None:
        gap = SPAN // (len(self._names) + 1)
        for position, name in enumerate(self._names, start=1):
            self._set_label(name, position * gap)
        self.epoch += 1

    def _set_label(self, name: str, label: int) -> None:
        self._labels[name] = label
        self.tie[self._rows[name]] = SPAN - 1 - label
