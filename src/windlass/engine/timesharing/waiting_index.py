"""Index of waiting time-sharing groups by queue and rank."""

from __future__ import annotations

from bisect import bisect_left, insort


class MeasuredContention:
    """Contention in a queue during a search (:class:`windlass.spi.timeshare.QueueContention`).

    ``was_used``: whether the number of waiting groups was used.
    """

    __slots__ = ("_ranks", "running", "was_used")

    def __init__(self, ranks: list[float], running: int) -> None:
        self._ranks = ranks
        self.running = running
        self.was_used = False

    @property
    def waiting(self) -> int:
        return len(self._ranks)

    def before(self, rank: float) -> int:
        self.was_used = True
        return bisect_left(self._ranks, rank)


class WaitingIndex:
    """Ranks of the waiting groups by queue, always sorted."""

    def __init__(self) -> None:
        self._ranks: dict[str, list[float]] = {}
        self._positions: dict[str, tuple[str, float]] = {}

    def put(self, key: str, queue: str, rank: float) -> None:
        """Set the queue and rank of a waiting group."""
        self.drop(key)
        self._positions[key] = queue, rank
        insort(self._ranks.setdefault(queue, []), rank)

    def drop(self, key: str) -> None:
        """Remove a group, if it was waiting."""
        position = self._positions.pop(key, None)
        if position is not None:
            queue, rank = position
            ranks = self._ranks[queue]
            del ranks[bisect_left(ranks, rank)]

    def set_queue(self, key: str, queue: str) -> None:
        """Set the queue of a group."""
        position = self._positions.get(key)
        if position is not None and position[0] != queue:
            self.put(key, queue, position[1])

    def contention(self, queue: str, running: int) -> MeasuredContention:
        return MeasuredContention(self._ranks.get(queue, []), running)

    def level(self, queue: str) -> int:
        """Return a number that changes when the number of waiting groups doubles or halves."""
        return len(self._ranks.get(queue, ())).bit_length()
