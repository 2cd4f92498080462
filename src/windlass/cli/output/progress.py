"""A bar for work that takes a while."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from math import ceil

from windlass.cli.invocation import Invocation
from windlass.kits import durations

BAR = 24
SOON_SECONDS = 2.0
"""What is left is told once so much has been worked: before, nobody knows how fast it goes."""


@contextmanager
def progress(invocation: Invocation, title: str, total: int) -> Iterator[Callable[[int], None] | None]:
    """A bar on standard error as long as somebody watches, with the time that is left if it goes on as it went; nothing
    otherwise. As long as nothing is done the work has not begun: processes are started, files are read."""
    terminal = invocation.err
    if not terminal.interactive:
        yield None
        return
    shown = -1
    begun = invocation.clock.monotonic()

    def tell(done: int) -> None:
        nonlocal shown, begun
        if not done:
            begun = invocation.clock.monotonic()
        part = done * 100 // max(total, 1)
        if part != shown:
            shown = part
            full = part * BAR // 100
            worked = invocation.clock.monotonic() - begun
            left = worked * (total - done) / done if done and worked >= SOON_SECONDS else 0.0
            more = f"  ~{durations.write(ceil(left))} left" if left >= 1.0 else ""
            terminal.write(f"\r{title:14} [{'#' * full}{'.' * (BAR - full)}] {part:3}%{more}\x1b[K")

    try:
        yield tell
    finally:
        terminal.write("\r\x1b[K")
