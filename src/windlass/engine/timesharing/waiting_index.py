"""Index of waiting time-sharing groups by queue and rank."""

from __future__ import annotations

from bisect import bisect_left, insort


class MeasuredContention:
    """Contention in a queue during a search (:class:`windlass.spi.timeshare.QueueContention`).

    ``is_used``: whether the number of waiting groups was used.
    """

    __slots__ = ("_line", "asked", "running")

    def __init__(self, line: list[float], running: int) -> None:
        self._line = line
        self.running = running
        self.asked = False

    @property
    def waiting(self) -> int:
        return len(self._line)

    def before(self, rank: float) -> int:
        self.asked = True
        return bisect_left(self._line, rank)


class WaitingIndex:
    """Ranks of the waiting groups by queue, always sorted."""

    def __init__(self) -> None:
        self._lines: dict[str, list[float]] = {}
        self._places: dict[str, tuple[str, float]] = {}

    def put(self, key: str, queue: str, rank: float) -> None:
        """Set the queue and rank of a waiting group."""
        self.drop(key)
        self._places[key] = queue, rank
        insort(self._lines.setdefault(queue, []), rank)

    def drop(self, key: str) -> None:
        """Remove a group, if it was waiting."""
        place = self._places.pop(key, None)
        if place is not None:
            queue, rank = place
            line = self._lines[queue]
            del line[bisect_left(line, rank)]

    def moved(self, key: str, queue: str) -> None:
        """Set the queue of a group."""
        place = self._places.get(key)
        if place is not None and place[0] != queue:
            self.put(key, queue, place[1])

    def crowd(self, queue: str, running: int) -> MeasuredContention:
        return MeasuredContention(self._lines.get(queue, []), running)

    def level(self, queue: str) -> int:
        """Return a number that changes when the number of waiting groups doubles or halves."""
        return len(self._lines.get(queue, ())).bit_length()
