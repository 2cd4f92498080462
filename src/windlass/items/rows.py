"""Rows of an input: JSONL, CSV, Parquet and folders, with an error for each bad row."""

from __future__ import annotations

import csv
import hashlib
import io
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

import msgspec

from windlass.items.expressions import ExpressionError, field_of
from windlass.items.parquet import ParquetError, read_values

MAX_ROW_BYTES = 64 * 2**20
"""Maximum size of one row in bytes."""
DUPLICATE_ID = "duplicate id"
"""Beginning of the error of a row with the id of an earlier one."""
MAX_TEXT_BYTES = 2**20
"""Maximum size in bytes of a file to make its text part of the row (format ``dir``)."""
_TEXTS = frozenset((".txt", ".md", ".json", ".csv", ".html", ".srt", ".vtt", ".xml", ".yaml", ".py"))
"""Suffixes of files that hold text, which becomes part of the row."""


@dataclass(slots=True)
class Row:
    """One row. ``number`` counts from 1. ``error`` is empty for a good row."""

    number: int
    values: dict[str, Any] = field(default_factory=dict)
    error: str = ""


class InputError(ValueError):
    """An input that cannot be read at all."""


class EmptyInputError(InputError):
    """An input without rows. Reading it again does not help."""


def read(format: str, stream: BinaryIO) -> Iterator[Row]:
    """Return the rows of a file. Raises :class:`InputError`."""
    if format == "csv":
        return read_csv(stream)
    if format == "parquet":
        return read_parquet(stream)
    return read_jsonl(stream)


def read_jsonl(lines: Iterable[bytes]) -> Iterator[Row]:
    """Return the rows of JSON lines. Blank lines are skipped."""
    decode = msgspec.json.Decoder().decode
    for number, line in enumerate(lines, 1):
        if number == 1:
            line = line.removeprefix(b"\xef\xbb\xbf")
        if not line.strip():
            continue
        if len(line) > MAX_ROW_BYTES:
            yield Row(number, error=f"the row has {len(line)} bytes: at most {MAX_ROW_BYTES} are allowed")
            continue
        try:
            values = decode(line)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            yield Row(number, error=f"line {number} is not valid JSON: {error}")
            continue
        if isinstance(values, dict):
            yield Row(number, values)
        else:
            yield Row(
                number,
                error=f"line {number} is not a JSON object: {line[:40].decode(errors='replace').strip()}",
            )


def read_csv(stream: BinaryIO) -> Iterator[Row]:
    """Return the rows of a CSV file with a first line that names the columns."""
    text = io.TextIOWrapper(stream, encoding="utf-8-sig", errors="surrogateescape", newline="")
    try:
        yield from _csv_rows(text)
    finally:
        text.detach()  # the caller closes the stream


def _next(reader: Iterator[list[str]]) -> list[str]:
    """Return the next row with cells up to :data:`MAX_ROW_BYTES`. The limit is one of the whole process."""
    before = csv.field_size_limit(MAX_ROW_BYTES)
    try:
        return next(reader)
    finally:
        csv.field_size_limit(before)


def _csv_rows(text: io.TextIOWrapper) -> Iterator[Row]:
    reader = csv.reader(text)
    try:
        columns = _next(reader)
    except StopIteration:
        return
    except csv.Error as error:
        raise InputError(f"line 1 is not valid CSV: {error}") from None
    if not columns:
        return
    repeated = {name for name in columns if columns.count(name) > 1}
    if repeated:
        raise InputError(f"the first line names the column {sorted(repeated)[0]!r} more than once")
    number = 0
    while True:
        number += 1
        try:
            cells = _next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            yield Row(number, error=f"line {reader.line_num} is not valid CSV: {error}")
            continue
        if not cells:
            number -= 1
            continue
        if len(cells) != len(columns):
            error = f"line {reader.line_num} has {len(cells)} columns: the first line names {len(columns)}"
            yield Row(number, error=error)
        elif any("\udc80" <= letter <= "\udcff" for cell in cells for letter in cell if letter > "\ud7ff"):
            yield Row(number, error=f"line {reader.line_num} is not valid UTF-8")
        else:
            yield Row(number, dict(zip(columns, cells, strict=True)))


def read_parquet(stream: BinaryIO) -> Iterator[Row]:
    """Return the rows of a Parquet file. Raises :class:`InputError`."""
    try:
        for number, values in enumerate(read_values(stream), 1):
            yield Row(number, values)
    except ParquetError as error:
        raise InputError(str(error)) from None


def is_among(path: Path, others: Collection[Path]) -> bool:
    """Return whether a path leads to one of other files, also through links and mounts."""
    found = (other for other in others if other.name == path.name)
    return any(other.exists() and path.samefile(other) for other in found)


def read_folder(folder: Path, omitted: Collection[Path] = ()) -> Iterator[Row]:
    """Return one row for each file below a folder, in the order of their paths, without ``omitted`` files."""
    number = 0
    for path in sorted(folder.rglob("*")):
        relative = path.relative_to(folder)
        hidden = any(part.startswith(".") for part in relative.parts)
        if hidden or not path.is_file() or is_among(path, omitted):
            continue
        number += 1
        size = path.stat().st_size
        values: dict[str, Any] = {"id": str(relative), "path": str(path), "name": path.name, "bytes": size}
        if path.suffix.lower() in _TEXTS and size <= MAX_TEXT_BYTES:
            try:
                values["text"] = path.read_text("utf-8")
            except UnicodeDecodeError:
                yield Row(number, values, f"{relative} is not valid UTF-8")
                continue
            except OSError as error:
                yield Row(number, values, f"{relative} cannot be read: {error.strerror}")
                continue
        yield Row(number, values)


class Identities:
    """Ids of rows: a field, or the content where no field is named.

    Equal rows without an id get different ids: the hash, then the hash with ``-2``.
    """

    def __init__(self, id_field: str) -> None:
        self._field = id_field
        self._seen: dict[str, int] = {}
        self._repeats: dict[str, int] = {}
        self._encode = msgspec.json.Encoder(order="deterministic").encode

    def assign(self, row: Row) -> str:
        """Return the id of a row and write it to ``row.values["id"]``.

        An id that is not valid, or that was seen before, sets ``row.error``. The id of such
        a row is its number, so that its error is told apart.
        """
        key = self._field or ("id" if "id" in row.values else "")
        if row.error:
            return self._number(row)
        if not key:
            return self._content(row)
        try:
            value = field_of(row.values, key)
        except ExpressionError as error:
            row.error = str(error)
            return self._number(row)
        if isinstance(value, bool) or not isinstance(value, str | int) or value == "":
            row.error = f"the field {key!r} is {value!r}: an id is text or a whole number"
            return self._number(row)
        text = str(value)
        first = self._seen.setdefault(text, row.number)
        if first != row.number:
            row.error = f"{DUPLICATE_ID} {text!r}: row {first} has it, too"
            return f"{text}#{row.number}"
        row.values["id"] = value
        return text

    def _number(self, row: Row) -> str:
        return f"row-{row.number}"

    def _content(self, row: Row) -> str:
        digest = hashlib.sha256(self._encode(row.values)).hexdigest()[:16]
        count = self._repeats[digest] = self._repeats.get(digest, 0) + 1
        text = digest if count == 1 else f"{digest}-{count}"
        row.values["id"] = text
        return text
