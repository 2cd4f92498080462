"""Virtual time: events in the order of their moments; of one moment, first what ends, then what comes."""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Iterator
from enum import IntEnum
from typing import Any


class EventKind(IntEnum):
    """Kinds of events, in the order of processing at equal times."""

    END = 0
    REPAIR = 1
    FAILURE = 2
    GIVE_UP = 3
    ARRIVAL = 4
    COME_BACK = 5
    NODE_CHANGE = 6


_Event = tuple[float, int, int, Any]
"""Moment, kind, number, and what."""


class Agenda:
    """Agenda of future events. ``now`` never decreases.

    Events that are added in order, such as arrivals of a trace, are kept in a queue; all others in a heap, which
    stays small.
    """

    def __init__(self) -> None:
        self.now = 0.0
        self._heap: list[_Event] = []
        self._line: deque[_Event] = deque()
        self._numbers = 0

    def add(self, moment: float, kind: EventKind, what: Any) -> None:
        """Have it happen at ``moment`` seconds; at once if that is past."""
        self._numbers += 1
        event = (max(moment, self.now), int(kind), self._numbers, what)
        if not self._line or self._line[-1] < event:
            self._line.append(event)
        else:
            heapq.heappush(self._heap, event)

    def moment(self) -> float | None:
        """Time of the next event; ``None`` if there is none."""
        heap, line = self._heap, self._line
        if heap:
            return min(heap[0][0], line[0][0]) if line else heap[0][0]
        return line[0][0] if line else None

    def due(self, now: float) -> Iterator[tuple[int, Any]]:
        """Yield the events until ``now`` in order, and advance the time to ``now``."""
        heap, line = self._heap, self._line
        self.now = now
        while True:
            if heap and heap[0][0] <= now and not (line and line[0] < heap[0]):
                _, kind, _, what = heapq.heappop(heap)
            elif line and line[0][0] <= now:
                _, kind, _, what = line.popleft()
            else:
                return
            yield kind, what

    def __len__(self) -> int:
        return len(self._heap) + len(self._line)
