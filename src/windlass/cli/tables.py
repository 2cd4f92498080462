"""Plain tables: columns padded to their widest cell, with two spaces between them."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Collection, Sequence

from windlass.kits.printable import visible

ELLIPSIS = "…"
_GAP = "  "
_LEAST = 8
"""Minimum width in cells to which a text column is narrowed."""


def cells(text: str) -> int:
    """Return the number of terminal cells of ``text``.

    East Asian wide characters take two, combining characters none.
    """
    if text.isascii():
        return len(text)
    total = 0
    for character in text:
        if unicodedata.combining(character):
            continue
        total += 2 if unicodedata.east_asian_width(character) in "WF" else 1
    return total


def shorten(text: str, width: int) -> str:
    """Return ``text`` in at most ``width`` cells, with an ellipsis if it was cut."""
    if cells(text) <= width:
        return text
    if width <= 1:
        return ELLIPSIS[:width]
    head = ""
    for character in text:
        if cells(head) + cells(character) > width - 1:
            break
        head += character
    return head.rstrip() + ELLIPSIS


def render(
    header: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    width: int = 0,
    limits: Sequence[int] = (),
    right: frozenset[int] = frozenset(),
    show_header: bool = True,
    shorten_last: Callable[[str, int], str] = shorten,
) -> str:
    """Return the table as text, one line per row, each ending in a line feed.

    Line breaks in a cell become spaces.

    :param width: maximum length of a line; 0: unlimited. The last column is cut first,
        by
      ``give_way``, then the widest text column, then the end of the line.
    :param limits: maximum width of each column in cells; 0: unlimited
    :param right: columns that are aligned to the right
    """
    clean = _cleaned([header, *rows] if show_header else rows, limits)
    widths = _widths(clean, len(header))
    if width:
        _squeeze(widths, width, right)
    text = []
    for line in clean:
        parts = []
        for column, cell in enumerate(line):
            last = column == len(widths) - 1
            shown = (shorten_last if last else shorten)(cell, widths[column])
            padding = " " * max(0, widths[column] - cells(shown))
            parts.append(padding + shown if column in right else shown + padding)
        whole = _GAP.join(parts).rstrip()
        text.append((shorten(whole, width) if width else whole) + "\n")
    return "".join(text)


def too_wide(header: Sequence[str], rows: Sequence[Sequence[str]], width: int) -> bool:
    """Return whether the uncut table exceeds ``width`` (0: never)."""
    return bool(width) and _across(_widths(_cleaned([header, *rows], ()), len(header))) > width


def columns_to_drop(
    header: Sequence[str],
    rows: Sequence[Sequence[str]],
    width: int,
    optional: Sequence[str],
    *,
    limits: Sequence[int] = (),
    least: int = 0,
) -> list[str]:
    """Return the columns of ``spare`` to omit so that the table fits in ``width`` (0: none).

    They are omitted in the order given.

    :param limits: as for :func:`render`
    :param least: cells that the last column needs
    """
    optional = [name for name in optional if name in header]
    widths = dict(zip(header, _widths(_cleaned([header, *rows], limits), len(header)), strict=True))
    widths[header[-1]] = min(widths[header[-1]], least or _LEAST)
    dropped: list[str] = []
    for name in optional:
        if not width or _across(widths.values()) <= width:
            break
        del widths[name]
        dropped.append(name)
    return dropped


def _cleaned(lines: Sequence[Sequence[str]], limits: Sequence[int]) -> list[list[str]]:
    clean = [[_one_line(cell) for cell in line] for line in lines]
    for column, limit in enumerate(limits):
        if limit:
            for line in clean:
                line[column] = shorten(line[column], limit)
    return clean


def _widths(clean: Sequence[Sequence[str]], count: int) -> list[int]:
    return [max((cells(line[column]) for line in clean), default=0) for column in range(count)]


def _across(widths: Collection[int]) -> int:
    return sum(widths) + len(_GAP) * (len(widths) - 1)


def _squeeze(widths: list[int], width: int, right: frozenset[int]) -> None:
    """Narrow text columns until the table fits; numbers keep their width."""
    over = _across(widths) - width
    texts = [column for column in range(len(widths) - 1) if column not in right]
    while over > 0:
        widest = max(texts, key=widths.__getitem__, default=-1)
        column = -1 if widths[-1] > _LEAST else widest
        if widths[column] <= _LEAST:
            return
        widths[column] -= 1
        over -= 1


def pairs(items: Sequence[tuple[str, str]], indent: str = "") -> str:
    """Return ``Name:   value`` lines with aligned values; empty values are omitted."""
    shown = [(name, value) for name, value in items if value]
    longest = max((cells(name) for name, _ in shown), default=0) + 1
    lines = []
    for name, value in shown:
        label = f"{name}:" + " " * (longest - cells(name) - 1)
        first, *more = visible(value).split("\n")
        lines.append(f"{indent}{label}  {first}".rstrip() + "\n")
        lines += [f"{indent}{' ' * longest}  {line}".rstrip() + "\n" for line in more]
    return "".join(lines)


def _one_line(cell: str) -> str:
    """Return the text without line breaks, and with control characters as escapes.

    It comes from objects, which any user may have written.
    """
    return cell if cell.isprintable() else " ".join(visible(cell).split())
