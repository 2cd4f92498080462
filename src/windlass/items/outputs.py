"""Output rows: one schema for good and error rows, written whole.

A good row has its ``id`` and the fields of the output. An error row has ``id``, ``error``,
``reason`` and ``attempts``, and the fields of the output if only its scorer failed. In CSV each
row has all columns.
"""

from __future__ import annotations

import csv
import io
import logging
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO, cast

import msgspec

from windlass.items import parquet
from windlass.items.ledger.changes import Flag, ItemChange, ItemState
from windlass.items.ledger.database import DeadLetter
from windlass.items.places import Places
from windlass.items.rows import read

ERROR_COLUMNS = ("error", "reason", "attempts")
_ENDINGS = (".jsonl", ".ndjson", ".csv", ".parquet")
_FORMATS = {".csv": "csv", ".parquet": "parquet"}
_log = logging.getLogger(__name__)
_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode


def flagged(row: bytes, flag: Flag) -> bytes:
    """Return an output row with the field ``quality`` if it is below the minimum."""
    return row if flag == Flag.NONE else row.rstrip()[:-1] + b',"quality":"low"}'


def stored_row(change: ItemChange) -> bytes:
    """Return the row of a new output, or the error row of an item that keeps its output."""
    if change.state != ItemState.DEAD or not change.row:
        return flagged(change.row, change.flag)
    error = {
        "error": change.message or change.reason,
        "reason": change.reason,
        "attempts": change.attempts,
    }
    return _encode({**_decode(change.row), **error})


def error_row(letter: DeadLetter) -> dict[str, Any]:
    return {
        "id": letter.id,
        "error": letter.message or letter.reason,
        "reason": letter.reason,
        "attempts": letter.attempts,
    }


def existing_rows(path: Path) -> Iterator[tuple[str, bytes, float | None]]:
    """Return id, row and score of each good row of an output file. Bad lines are skipped."""
    try:
        stream = path.open("rb")
    except OSError:
        return
    with stream:
        for row in read(_FORMATS.get(path.suffix, "jsonl"), cast(BinaryIO, stream)):
            values = row.values
            if path.suffix == ".parquet":
                values = {name: value for name, value in values.items() if value is not None}
            if row.error or values.get("id") in (None, "") or values.get("error"):
                continue
            if path.suffix == ".csv":
                values = {
                    name: value
                    for name, value in values.items()
                    if name not in ERROR_COLUMNS and (value != "" or name == "id")
                }
            values.pop("error", None)
            yield str(values["id"]), _encode(values), score_of(values)


def has_ids(path: Path) -> Iterator[bool]:
    """Return of each row of a file whether it has an id, as rows of outputs have."""
    with path.open("rb") as stream:
        for row in read(_FORMATS.get(path.suffix, "jsonl"), cast(BinaryIO, stream)):
            yield not row.error and row.values.get("id") not in (None, "")


def show_rows(places: Places) -> None:
    """Let the output file show the rows as they come, in the order in which they end.

    It is another name of the journal until the end, when the whole output replaces it.
    """
    temporary = places.output.with_name(f".{places.output.name}.rows")
    try:
        temporary.unlink(missing_ok=True)
        os.link(places.journal, temporary)
        temporary.replace(places.output)
        temporary.unlink(missing_ok=True)  # it is left where both were names of one file
    except OSError as error:  # some volumes have no links
        _log.warning("%s shows its rows at the end only: %s", places.output, error)


def score_of(values: Mapping[str, Any]) -> float | None:
    """Return the field ``score`` of a row as a number; ``None`` without one."""
    try:
        score = float(values["score"])
    except (KeyError, TypeError, ValueError):
        return None
    return score if score == score and not isinstance(values["score"], bool) else None


def files_of(folder: Path) -> list[Path]:
    """Return the files with output rows in a folder."""
    try:
        names = sorted(folder.iterdir())
    except OSError:
        return []
    return [path for path in names if path.suffix in _ENDINGS and not path.name.startswith(".")]


class RowWriter:
    """Writes an output file under a temporary name, and gives it its own at the end."""

    def __init__(self, path: Path, format: str) -> None:
        self._path = path
        self._temporary = path.with_name(f".{path.name}.new")
        self._stream = self._temporary.open("wb", buffering=1 << 20)
        self._format = format
        self._writer: Any = None
        self._text: io.TextIOWrapper | None = None
        self.count = 0

    def columns(self, names: Iterable[str]) -> None:
        """Set the columns of a CSV file. Must be called before the first row."""
        if self._format == "csv":
            self._text = io.TextIOWrapper(self._stream, "utf-8", newline="", write_through=False)
            self._writer = csv.DictWriter(self._text, list(names), restval="", lineterminator="\n")
            self._writer.writeheader()

    def write(self, row: bytes) -> None:
        self.count += 1
        if self._writer is None:
            self._stream.write(row)
            self._stream.write(b"\n")
        else:
            self._writer.writerow({name: cell(value) for name, value in _decode(row).items()})

    def close(self) -> None:
        """Make the file durable and replace the earlier one."""
        if self._text is not None:
            self._text.flush()
        self._stream.flush()
        os.fsync(self._stream.fileno())
        self._stream.close()
        os.replace(self._temporary, self._path)

    def abandon(self) -> None:
        self._stream.close()
        self._temporary.unlink(missing_ok=True)


def cell(value: Any) -> Any:
    """Return a value as text of a CSV cell."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    return value if isinstance(value, str | int | float) else _encode(value).decode()


def write_outputs(path: Path, format: str, rows: Iterable[bytes], columns: Iterable[str]) -> int:
    """Replace an output file of JSON lines or CSV. Returns the number of rows. Raises ``OSError``."""
    writer = RowWriter(path, format)
    try:
        writer.columns(columns)
        for row in rows:
            writer.write(row)
        writer.close()
    except BaseException:
        writer.abandon()
        raise
    return writer.count


def write_parquet(path: Path, rows: Callable[[], Iterable[bytes]]) -> int:
    """Replace an output file of Parquet: the same columns for good and error rows. Raises ``OSError``."""
    columns = columns_of(rows())
    kinds = parquet.kinds_of(map(_decode, rows()), columns)
    kinds |= {"error": "string", "reason": "string", "attempts": "int64"}
    temporary = path.with_name(f".{path.name}.new")
    try:
        count = parquet.write(temporary, map(_decode, rows()), kinds, cell_text)
        with temporary.open("rb") as stream:
            os.fsync(stream.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
    return count


def cell_text(value: Any) -> str:
    """Return a value as text of a column with values of different types."""
    return str(cell(value))


def columns_of(rows: Iterable[bytes]) -> list[str]:
    """Return the columns of rows in the order of their first appearance."""
    names: dict[str, None] = {"id": None}
    for row in rows:
        names.update(dict.fromkeys(_decode(row)))
    for name in ERROR_COLUMNS:
        names.pop(name, None)
    return [*names, *ERROR_COLUMNS]


def encode_row(values: dict[str, Any]) -> bytes:
    return _encode(values)
