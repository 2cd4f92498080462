"""Order of segments that need the results of others."""

from __future__ import annotations

from collections.abc import Iterable

from windlass.api.media.segments import SegmentIndex


class SegmentGate:
    """Rule of mode ``Output``: a segment waits for the results in the window before it.

    ``waiting``: segments that must not be leased yet. A segment that was given up counts as
    ended, so that the rest of its stream goes on without its result.
    """

    def __init__(self, index: SegmentIndex, ended: Iterable[int]) -> None:
        self.index = index
        self._ended = set(ended)
        self.waiting = {n for n in index.numbers() if n not in self._ended and not self.ready(n)}

    def ready(self, number: int) -> bool:
        """Return whether everything before a segment has ended."""
        return all(other in self._ended for other in self.index.before(number))

    def end(self, numbers: Iterable[int]) -> list[int]:
        """Record ends that are stored. Return the segments that may be leased now."""
        freed: list[int] = []
        for number in numbers:
            self._ended.add(number)
            self.waiting.discard(number)
            for other in self.index.after(number):
                if other in self.waiting and self.ready(other):
                    self.waiting.discard(other)
                    freed.append(other)
        return freed

    def reopen(self, numbers: Iterable[int]) -> list[int]:
        """Take ends back. Return those of the segments that may be leased at once."""
        opened = list(numbers)
        self._ended.difference_update(opened)
        self.waiting.update(number for number in opened if not self.ready(number))
        return [number for number in opened if number not in self.waiting]
