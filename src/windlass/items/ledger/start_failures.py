"""Failures of a program that cannot start: another attempt of the job would repeat them."""

from __future__ import annotations

import re

PROGRAM_DOES_NOT_START = "ProgramDoesNotStart"
"""Reason of a batch that fails because its program never starts."""
EXITS = 5
"""Number of equal ends of the program, without any answer, that fail the batch."""
_LASTING = re.compile(
    r"exit code (2|126|127) before it answered"
    r"|exit code \d+ before it answered: (ModuleNotFoundError|ImportError|SyntaxError|IndentationError)\b"
)
"""Ends that do not pass by themselves: wrong arguments, no such file, not executable, not importable."""


class StartFailures:
    """Equal ends of the program before its first answer.

    Signals, and errors such as a refused connection, may pass: they do not count.
    """

    def __init__(self) -> None:
        self._message, self._count = "", 0
        self._rows: set[int] = set()

    def clear(self) -> None:
        """Forget the ends: a row was answered, or the rows are processed again."""
        self._message, self._count = "", 0
        self._rows.clear()

    def add(self, number: int, reason: str, message: str) -> None:
        """Record the failure of a row."""
        if reason != "ProcessExited" or not _LASTING.search(message):
            self.clear()
            return
        if message != self._message:
            self.clear()
            self._message = message
        self._count += 1
        self._rows.add(number)

    def failure(self, rows: int) -> tuple[str, str] | None:
        """Return reason and message of a program that does not start. ``rows``: of the batch."""
        if self._count < EXITS or len(self._rows) < min(EXITS, rows):
            return None
        return PROGRAM_DOES_NOT_START, f"{self._message} ({self._count} times, and it answered no row)"
