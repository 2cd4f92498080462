"""Plain tables: columns padded to their widest cell, two spaces between, nothing else."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Collection, Sequence

ELLIPSIS = "…"
_GAP = "  "
_LEAST = 8
"""Cells to which a column of texts is narrowed at most."""


def cells(text: str) -> int:
    """Terminal cells that ``text`` takes (East Asian wide characters take two, combining ones none)."""
    if text.isascii():
        return len(text)
    total = 0
    for character in text:
        if unicodedata.combining(character):
            continue
        total += 2 if unicodedata.east_asian_width(character) in "WF" else 1
    return total


def shorten(text: str, width: int) -> str:
    """``text`` in at most ``width`` cells, with an ellipsis if something is left out."""
    if cells(text) <= width:
        return text
    if width <= 1:
        return ELLIPSIS[:width]
    kept = ""
    for character in text:
        if cells(kept) + cells(character) > width - 1:
            break
        kept += character
    return kept.rstrip() + ELLIPSIS


def render(
    header: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    width: int = 0,
    limits: Sequence[int] = (),
    right: frozenset[int] = frozenset(),
    show_header: bool = True,
    give_way: Callable[[str, int], str] = shorten,
) -> str:
    """The table as text, one line per row, each ending in a line feed.

    ``width`` > 0: no line is longer. The last column gives way first, by ``give_way``, then the widest of texts, then
    the end of the line. ``limits``: most cells per column (0: any). ``right``: columns set flush right. Line breaks in
    a cell become spaces.
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
            shown = (give_way if last else shorten)(cell, widths[column])
            padding = " " * max(0, widths[column] - cells(shown))
            parts.append(padding + shown if column in right else shown + padding)
        whole = _GAP.join(parts).rstrip()
        text.append((shorten(whole, width) if width else whole) + "\n")
    return "".join(text)


def too_wide(header: Sequence[str], rows: Sequence[Sequence[str]], width: int) -> bool:
    """Whether the table as it is has no room in ``width`` (0: there is room for all)."""
    return bool(width) and _across(_widths(_cleaned([header, *rows], ()), len(header))) > width


def left_out(
    header: Sequence[str],
    rows: Sequence[Sequence[str]],
    width: int,
    spare: Sequence[str],
    *,
    limits: Sequence[int] = (),
    least: int = 0,
) -> list[str]:
    """Which of the columns ``spare`` have no room in ``width`` (0: there is room for all); the first goes first.
    ``least``: cells that the last column needs; ``limits`` as of :func:`render`."""
    spare = [name for name in spare if name in header]
    widths = dict(zip(header, _widths(_cleaned([header, *rows], limits), len(header)), strict=True))
    widths[header[-1]] = min(widths[header[-1]], least or _LEAST)
    gone: list[str] = []
    for name in spare:
        if not width or _across(widths.values()) <= width:
            break
        del widths[name]
        gone.append(name)
    return gone


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
    """Make columns narrower until they fit, as far as something of each remains; numbers are left as they are."""
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
    """``Name:   value`` lines with the values under one another; empty values are left out."""
    shown = [(name, value) for name, value in items if value]
    longest = max((cells(name) for name, _ in shown), default=0) + 1
    lines = []
    for name, value in shown:
        label = f"{name}:" + " " * (longest - cells(name) - 1)
        first, *rest = value.split("\n")
        lines.append(f"{indent}{label}  {first}".rstrip() + "\n")
        lines += [f"{indent}{' ' * longest}  {line}".rstrip() + "\n" for line in rest]
    return "".join(lines)


def _one_line(cell: str) -> str:
    """Without line breaks, and without control characters: a cell's text may come from anybody's object."""
    if cell.isprintable():
        return cell
    shown = "".join(letter if letter.isprintable() or letter.isspace() else "?" for letter in cell)
    return " ".join(shown.split())
