"""Tables of what there is: whole for a program and with ``-o wide``, else within the terminal."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from windlass.cli import tables
from windlass.cli.invocation import Invocation


def room(invocation: Invocation) -> int:
    """Cells that a line may take; 0: any number."""
    return 0 if invocation.wide else invocation.out.width


def show(
    invocation: Invocation,
    header: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    spare: Sequence[str] = (),
    limits: Sequence[int] = (),
    right: Sequence[str] = (),
    least: int = 0,
    shorten_last: Callable[[str, int], str] = tables.shorten,
) -> None:
    """Print a table.

    Where a terminal has no room for it and ``least`` cells of the last column, those of the columns ``spare`` are left
    out that have to be, the first of them first, and named; before that ``limits`` hold (most cells per column).
    ``right``: columns of numbers.
    """
    width = room(invocation)
    if not tables.too_wide(header, rows, width):
        limits = ()
    gone = tables.columns_to_drop(header, rows, width, spare, limits=limits, least=least)
    kept = [at for at, name in enumerate(header) if name not in gone]
    invocation.out.write(
        tables.render(
            [header[at] for at in kept],
            [[row[at] for at in kept] for row in rows],
            width=width,
            limits=[limits[at] for at in kept] if limits else (),
            right=frozenset(at for at, name in enumerate(header[at] for at in kept) if name in right),
            shorten_last=shorten_last,
        )
    )
    if gone:
        invocation.note(f"not shown for want of room: {', '.join(gone)} (-o wide)")
