"""Virtual time: events in the order of their moments; of one moment, first what ends, then what comes."""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from enum import IntEnum
from typing import Any


class Kind(IntEnum):
    """What happens, in the order in which it is looked at within one moment."""

    END = 0
    REPAIR = 1
    FAILURE = 2
    GIVE_UP = 3
    ARRIVAL = 4
    COME_BACK = 5


class Agenda:
    """What is to come. ``now`` never runs backwards."""

    def __init__(self) -> None:
        self.now = 0.0
        self._heap: list[tuple[float, int, int, Any]] = []
        self._numbers = 0

    def add(self, moment: float, kind: Kind, what: Any) -> None:
        """Have it happen at ``moment`` seconds; at once if that is past."""
        self._numbers += 1
        heapq.heappush(self._heap, (max(moment, self.now), int(kind), self._numbers, what))

    def moment(self) -> float | None:
        """When something happens next; ``None``: never."""
        return self._heap[0][0] if self._heap else None

    def due(self, now: float) -> Iterator[tuple[int, Any]]:
        """What happens until ``now``, in order; time is then ``now``."""
        heap = self._heap
        self.now = now
        while heap and heap[0][0] <= now:
            _, kind, _, what = heapq.heappop(heap)
            yield kind, what

    def __len__(self) -> int:
        return len(self._heap)
