"""Groups of a pending class in order, and the first of them that ends soon enough.

A group may pass the groups ahead of it where capacity is reserved, if it ends before
that capacity is needed. Groups of one pending class differ in nothing else. This module
finds the first group that ends within some time: at once if there is none, else by a
walk that ends at this group.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator
from typing import Any

_MAX_EMPTY = 32
"""Maximum number of empty entries at the front."""


class OrderedGroups:
    """Sorted pairs ``(order key, key)`` of all members.

    ``times``: key → seconds of running after which a member has certainly ended, if
    known.
    """

    __slots__ = ("_ends", "_first", "_order", "_order_keys", "times")

    def __init__(self) -> None:
        self._order: list[tuple[Any, str]] = []
        self._order_keys: dict[str, Any] = {}
        """Key → its order key here."""
        self._first = 0
        """Entries before this index are empty."""
        self._ends: list[tuple[float, str]] = []
        """Heap over ``times``; outdated entries are dropped when found."""
        self.times: dict[str, float] = {}

    def __iter__(self) -> Iterator[str]:
        """Yield the keys in order."""
        order = self._order
        return (order[index][1] for index in range(self._first, len(order)))

    def add(self, order_key: Any, key: str, time: float | None) -> None:
        """Add a member."""
        entry = (order_key, key)
        self._order_keys[key] = order_key
        order = self._order
        if not order or order[-1] < entry:
            order.append(entry)
        else:
            insort(order, entry, lo=self._first)
        if time is not None:
            self.set_time(key, time)

    def set_time(self, key: str, time: float | None) -> None:
        """Set the run time of a member; ``None`` if unknown."""
        if time is None:
            self.times.pop(key, None)
        elif self.times.get(key) != time:
            self.times[key] = time
            heapq.heappush(self._ends, (time, key))

    def remove(self, key: str) -> None:
        """Remove a member. Raises ``KeyError`` if it is not one."""
        order, order_key = self._order, self._order_keys.pop(key)
        first = self._first
        index = first if order[first][1] == key else bisect_left(order, (order_key, key), lo=first)
        if index == first:
            order[index] = ((), "")
            self._first += 1
            if self._first > _MAX_EMPTY and 2 * self._first > len(order):
                del order[: self._first]
                self._first = 0
        else:
            del order[index]
        if self.times:
            self.times.pop(key, None)

    def order_key(self, key: str) -> Any:
        """Return the order key of a member. Raises ``KeyError`` if it is not one."""
        return self._order_keys[key]

    def head(self) -> str | None:
        """Return the first member."""
        return self._order[self._first][1] if self._first < len(self._order) else None

    def first_of(self, keys: Iterable[str]) -> str:
        """Return the first in order of some members."""
        order_keys = self._order_keys
        return min([(order_keys[key], key) for key in keys])[1]

    def ends_within(self, key: str, seconds: float) -> bool:
        """Return whether a member is known to end within ``seconds``."""
        time = self.times.get(key)
        return time is not None and time <= seconds

    def first_within(self, seconds: float) -> str | None:
        """Return the first member that ends within ``seconds``."""
        times, ends = self.times, self._ends
        while ends and times.get(ends[0][1]) != ends[0][0]:
            heapq.heappop(ends)
        if not ends or ends[0][0] > seconds:
            return None
        for key in self:
            time = times.get(key)
            if time is not None and time <= seconds:
                return key
        return None
