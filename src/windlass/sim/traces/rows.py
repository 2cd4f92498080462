"""Rows of a table of text, and what is wrong with one: named by file, line and column."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

MOST = 1 << 53
"""No number of a trace is greater: up to here, each whole one is told apart."""
MOST_GPUS = 1 << 20
"""No job has more."""
UNCLOSED = "unexpected end of data"
"""Message for a text that ends within quotes."""


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


class CsvReader(Protocol):
    """Type of the standard library's CSV reader, which has no public name."""

    @property
    def line_num(self) -> int: ...

    def __next__(self) -> list[str]: ...

    def __iter__(self) -> Iterator[list[str]]: ...


@dataclass(frozen=True, slots=True)
class TraceRow:
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
        """Return the number of devices of a job. Raises :class:`TraceError`."""
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
            if "_" in text or not text.isascii():  # float() would read these
                raise ValueError
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
) -> Iterator[TraceRow]:
    """The lines below the header. ``free`` names a column of text in which nothing is quoted, not even the delimiter:
    the cells that a line has too many are its. Raises :class:`TraceError` where a needed column is missing, or a line
    has another number of cells than the header."""
    reader = csv.reader(
        lines, delimiter=delimiter, quoting=csv.QUOTE_NONE if free else csv.QUOTE_MINIMAL, strict=True
    )
    header = _next(reader, file)
    if header is None:
        raise TraceError(file, 0, "", "the file is empty")
    names = [name.strip().lstrip("\ufeff") for name in header]
    for name in needed:
        if name not in names:
            raise TraceError(file, 1, name, f"there is no such column; there are {', '.join(names)}")
    for at, name in enumerate(names):
        if name and name in names[:at]:
            raise TraceError(
                file, 1, name, "there are two columns of this name: rename or remove one of them"
            )
    count = len(names)
    loose = names.index(free) if free in names else None
    while (cells := _next(reader, file)) is not None:
        if not cells:
            continue
        if loose is not None and len(cells) > count:
            end = loose + 1 + len(cells) - count
            cells[loose:end] = [delimiter.join(cells[loose:end])]
        if len(cells) != count:
            raise TraceError(file, reader.line_num, "", f"{len(cells)} cells, the header has {count}")
        yield TraceRow(file, reader.line_num, dict(zip(names, cells, strict=True)))


def _next(reader: CsvReader, file: str) -> list[str] | None:
    """The cells of the next row; ``None`` at the end. Raises :class:`TraceError` for quotes that are wrong, at the line
    in which the row begins: one that nothing closes would take all lines below it for one cell."""
    begun = reader.line_num + 1
    try:
        return next(reader, None)
    except csv.Error as error:
        unclosed = reader.line_num > begun or UNCLOSED in str(error)
        said = 'a quote (") in it is closed nowhere as it should be' if unclosed else str(error)
        raise TraceError(file, begun, "", said) from None
