"""Progress of long work, and its end by Ctrl-C."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from math import ceil
from typing import TypeVar

from windlass.cli import errors
from windlass.cli.invocation import Invocation
from windlass.kits import durations

BAR = 24
ESTIMATE_AFTER_SECONDS = 2.0
"""Time of work in seconds after which the remaining time is estimated."""


@contextmanager
def progress(invocation: Invocation, title: str, total: int) -> Iterator[Callable[[int], None] | None]:
    """Show a bar on standard error with the remaining time, if a person watches.

    As long as nothing is done, the work has not started: processes start, files are
    read.
    """
    terminal = invocation.err
    if not terminal.interactive:
        yield None
        return
    shown = -1
    started = invocation.clock.monotonic()

    def tell(done: int) -> None:
        nonlocal shown, started
        if not done:
            started = invocation.clock.monotonic()
        percent = done * 100 // max(total, 1)
        if percent != shown:
            shown = percent
            full = percent * BAR // 100
            worked = invocation.clock.monotonic() - started
            left = worked * (total - done) / done if done and worked >= ESTIMATE_AFTER_SECONDS else 0.0
            more = f"  ~{durations.write(ceil(left))} left" if left >= 1.0 else ""
            terminal.write(f"\r{title:14} [{'#' * full}{'.' * (BAR - full)}] {percent:3}%{more}\x1b[K")

    try:
        yield tell
    finally:
        terminal.write("\r\x1b[K")


_Part = TypeVar("_Part")


def until_interrupted(parts: Iterable[_Part], tell: Callable[[int], None] | None = None) -> list[_Part]:
    """Return all parts, or those that were finished before Ctrl-C.

    Raises ``KeyboardInterrupt`` if none was finished.

    :param tell: receives the number of finished parts
    """
    finished: list[_Part] = []
    try:
        for part in parts:
            finished.append(part)
            if tell is not None:
                tell(len(finished))
    except KeyboardInterrupt:
        if not finished:
            raise
    return finished


def report_missing(invocation: Invocation, missing: Sequence[str]) -> int:
    """Warn about ``missing`` parts that were not finished, and return the exit status."""
    if not missing:
        return errors.OK
    invocation.warn(f"stopped by Ctrl-C; not finished: {', '.join(missing)}")
    return errors.INTERRUPTED
