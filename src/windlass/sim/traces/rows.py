"""Rows of a table of text, and what is wrong with one: named by file, line and column."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

MOST = 1 << 53
"""No number of a trace is greater: up to here, each whole one is told apart."""
MOST_GPUS = 1 << 20
"""No job has more."""


class TraceError(ValueError):
    """A trace that cannot be used. ``line`` counts from 1, 0 for the file as a whole; ``column`` is the name of
    the column (of the field, where the file as a whole is meant), empty for all of it."""

    def __init__(self, file: str, line: int, column: str, message: str) -> None:
        kind = "column" if line else "field"
        place = file + (f", line {line}" if line else "") + (f", {kind} {column}" if column else "")
        super().__init__(f"{place}: {message}")
        self.file = file
        self.line = line
        self.column = column
        self.message = message


@dataclass(frozen=True, slots=True)
class Row:
    """One line of a table."""

    file: str
    line: int
    cells: dict[str, str]

    def fail(self, column: str, message: str) -> TraceError:
        return TraceError(self.file, self.line, column, message)

    def text(self, column: str, default: str = "") -> str:
        return self.cells.get(column, default) or default

    def whole(self, column: str, *, least: int = 0, default: int | None = None) -> int:
        """A whole number of at least ``least``; ``default`` where the cell is empty. Raises :class:`TraceError`."""
        value = self.number(column, least=float(least), default=None if default is None else float(default))
        if value != int(value):
            raise self.fail(column, f"{self.cells[column]!r} is no whole number")
        return int(value)

    def gpus(self, column: str, *, least: int = 0) -> int:
        """How many cards a job has. Raises :class:`TraceError`."""
        count = self.whole(column, least=least)
        if count > MOST_GPUS:
            raise self.fail(
                column, f"{self.cells[column]!r} is more than the {MOST_GPUS} GPUs that a job may have"
            )
        return count

    def number(self, column: str, *, least: float = 0.0, default: float | None = None) -> float:
        """A number from ``least`` to :data:`MOST`; ``default`` where the cell is empty. Raises
        :class:`TraceError`."""
        text = self.cells.get(column, "")
        if not text and default is not None:
            return default
        try:
            value = float(text)
        except ValueError:
            raise self.fail(column, f"{text!r} is no number") from None
        if not value >= least:
            raise self.fail(column, f"{text!r} is no number of at least {least:g}")
        if value > MOST:
            raise self.fail(column, f"{text!r} is more than the {MOST} that a number may be")
        return value


def rows(
    lines: Iterable[str], file: str, needed: Sequence[str], delimiter: str = ",", free: str = ""
) -> Iterator[Row]:
    """The lines below the header. ``free`` names a column of text in which nothing is quoted, not even the delimiter:
    the cells that a line has too many are its. Raises :class:`TraceError` where a needed column is missing, or a line
    has another number of cells than the header."""
    reader = csv.reader(lines, delimiter=delimiter, quoting=csv.QUOTE_NONE if free else csv.QUOTE_MINIMAL)
    try:
        header = next(reader, None)
    except csv.Error as error:
        raise TraceError(file, 1, "", str(error)) from None
    if header is None:
        raise TraceError(file, 0, "", "the file is empty")
    names = [name.strip().lstrip("\ufeff") for name in header]
    for name in needed:
        if name not in names:
            raise TraceError(file, 1, name, f"there is no such column; there are {', '.join(names)}")
    count = len(names)
    loose = names.index(free) if free in names else None
    try:
        for cells in reader:
            if not cells:
                continue
            if loose is not None and len(cells) > count:
                end = loose + 1 + len(cells) - count
                cells[loose:end] = [delimiter.join(cells[loose:end])]
            if len(cells) != count:
                raise TraceError(file, reader.line_num, "", f"{len(cells)} cells, the header has {count}")
            yield Row(file, reader.line_num, dict(zip(names, cells, strict=True)))
    except csv.Error as error:
        raise TraceError(file, reader.line_num, "", str(error)) from None
