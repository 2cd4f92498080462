"""How many groups that share time wait in each queue, and how many of those rank before a given rank."""

from __future__ import annotations

from bisect import bisect_left, insort


class MeasuredContention:
    """A queue at the moment of a claim (:class:`windlass.spi.timeshare.QueueContention`). ``asked``: whether anybody
    went by how many wait."""

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
    """The ranks of those that wait, by queue, sorted at all times."""

    def __init__(self) -> None:
        self._lines: dict[str, list[float]] = {}
        self._places: dict[str, tuple[str, float]] = {}

    def put(self, key: str, queue: str, rank: float) -> None:
        """The group waits there with that rank."""
        self.drop(key)
        self._places[key] = queue, rank
        insort(self._lines.setdefault(queue, []), rank)

    def drop(self, key: str) -> None:
        """The group waits no more, if it did."""
        place = self._places.pop(key, None)
        if place is not None:
            queue, rank = place
            line = self._lines[queue]
            del line[bisect_left(line, rank)]

    def moved(self, key: str, queue: str) -> None:
        """The group stands in this queue now."""
        place = self._places.get(key)
        if place is not None and place[0] != queue:
            self.put(key, queue, place[1])

    def crowd(self, queue: str, running: int) -> MeasuredContention:
        return MeasuredContention(self._lines.get(queue, []), running)

    def level(self, queue: str) -> int:
        """Changes as the number of those that wait there doubles or halves."""
        return len(self._lines.get(queue, ())).bit_length()
