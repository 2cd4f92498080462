"""A bar for work that takes a while."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from windlass.cli.invocation import Invocation

BAR = 24


@contextmanager
def progress(invocation: Invocation, title: str, total: int) -> Iterator[Callable[[int], None] | None]:
    """A bar on standard error as long as somebody watches; nothing otherwise."""
    terminal = invocation.err
    if not terminal.interactive:
        yield None
        return
    shown = -1

    def tell(done: int) -> None:
        nonlocal shown
        part = done * 100 // max(total, 1)
        if part != shown:
            shown = part
            full = part * BAR // 100
            terminal.write(f"\r{title:14} [{'#' * full}{'.' * (BAR - full)}] {part:3}%")

    try:
        yield tell
    finally:
        terminal.write("\r\x1b[K")
