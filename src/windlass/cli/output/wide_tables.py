"""Tables: complete for programs and with ``-o wide``, else as wide as the terminal."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from windlass.cli import tables
from windlass.cli.invocation import Invocation


def max_width(invocation: Invocation) -> int:
    """Return the maximum width of a line in cells; 0: unlimited."""
    return 0 if invocation.wide else invocation.out.width


def show(
    invocation: Invocation,
    header: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    optional: Sequence[str] = (),
    limits: Sequence[int] = (),
    right: Sequence[str] = (),
    least: int = 0,
    shorten_last: Callable[[str, int], str] = tables.shorten,
) -> None:
    """Print a table.

    If the terminal is too narrow, ``limits`` are applied first. Then columns of
    ``optional`` are omitted, the first ones first, and named on standard error.

    :param optional: columns that may be omitted
    :param limits: maximum width of each column in cells; 0: unlimited
    :param right: columns of numbers
    :param least: cells that the last column needs
    """
    width = max_width(invocation)
    if not tables.too_wide(header, rows, width):
        limits = ()
    omitted = tables.columns_to_drop(header, rows, width, optional, limits=limits, least=least)
    shown = [column for column, name in enumerate(header) if name not in omitted]
    invocation.out.write(
        tables.render(
            [header[column] for column in shown],
            [[row[column] for column in shown] for row in rows],
            width=width,
            limits=[limits[column] for column in shown] if limits else (),
            right=frozenset(
                column for column, name in enumerate(header[column] for column in shown) if name in right
            ),
            shorten_last=shorten_last,
        )
    )
    if omitted:
        invocation.note(f"not shown in this width: {', '.join(omitted)} (-o wide shows all columns)")
