"""Plain tables: columns padded to their widest cell, two spaces between, nothing else."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Sequence

ELLIPSIS = "…"
_GAP = "  "


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

    ``width`` > 0: no line is longer; the last column gives way, by ``give_way``. ``limits``: most cells per column
    (0: any). ``right``: columns set flush right. Line breaks in a cell become spaces.
    """
    lines = [list(header), *rows] if show_header else list(rows)
    clean = [[_one_line(cell) for cell in line] for line in lines]
    for column, limit in enumerate(limits):
        if limit:
            for line in clean:
                line[column] = shorten(line[column], limit)
    count = len(header)
    widths = [max((cells(line[column]) for line in clean), default=0) for column in range(count)]
    if width:
        room = width - sum(widths[:-1]) - len(_GAP) * (count - 1)
        widths[-1] = max(min(widths[-1], room), min(8, widths[-1]))
    text = []
    for line in clean:
        parts = []
        for column, cell in enumerate(line):
            shown = give_way(cell, widths[column]) if column == count - 1 else cell
            padding = " " * max(0, widths[column] - cells(shown))
            parts.append(padding + shown if column in right else shown + padding)
        text.append(_GAP.join(parts).rstrip() + "\n")
    return "".join(text)


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
