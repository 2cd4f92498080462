"""Rows as Parquet, with the package arro3-io (extra ``parquet``) or pyarrow."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO

REMEDY = "pip install 'windlass[parquet]' in the image of the driver, or use JSON lines"
_BATCH = 4096
"""Number of rows of a batch that is written at once."""
_KINDS: Mapping[type, str] = {bool: "bool", int: "int64", float: "float64", str: "string"}


class ParquetError(ValueError):
    """A file that is not Parquet, or a package that is missing."""


def read_values(stream: BinaryIO) -> Iterator[dict[str, Any]]:
    """Yield the rows of a file. Raises :class:`ParquetError`."""
    try:
        from arro3 import io as arrow
    except ImportError:
        yield from _with_pyarrow(stream)
        return
    start = stream.read(4)
    stream.seek(-4, 2)
    if start != b"PAR1" or stream.read(4) != b"PAR1":  # the package would panic
        raise ParquetError("the file is not Parquet: its first and last four bytes are not PAR1")
    stream.seek(0)
    try:
        for batch in arrow.read_parquet(stream):
            yield from batch.to_struct_array().to_pylist()
    except (GeneratorExit, KeyboardInterrupt):
        raise
    except BaseException as error:  # the package panics for some files, which is no Exception
        raise ParquetError(f"the file is not valid Parquet: {error}") from None


def _with_pyarrow(stream: BinaryIO) -> Iterator[dict[str, Any]]:
    try:
        import pyarrow.parquet as parquet  # type: ignore[import-not-found]
    except ImportError:
        raise ParquetError(f"format parquet needs the package arro3-io: {REMEDY}") from None
    for batch in parquet.ParquetFile(stream).iter_batches(1024):
        yield from batch.to_pylist()


def available() -> bool:
    """Return whether Parquet can be written."""
    try:
        import arro3.io  # noqa: F401
    except ImportError:
        return False
    return True


def kinds_of(rows: Iterable[Mapping[str, Any]], columns: Iterable[str]) -> dict[str, str]:
    """Return the type of each column: one that all its values have; ``string`` for mixed ones and objects."""
    found: dict[str, str] = dict.fromkeys(columns, "")
    for row in rows:
        for name, value in row.items():
            if value is None or name not in found:
                continue
            kind = _KINDS.get(type(value), "string")
            before = found[name]
            if before and before != kind:
                kind = "float64" if {before, kind} == {"int64", "float64"} else "string"
            found[name] = kind
    return {name: kind or "string" for name, kind in found.items()}


def write(path: Path, rows: Iterable[Mapping[str, Any]], kinds: Mapping[str, str], text: Any) -> int:
    """Write rows and return their number. ``text``: turns a value into text for a column of texts."""
    from arro3 import core
    from arro3 import io as arrow

    types = {name: getattr(core.DataType, kind)() for name, kind in kinds.items()}
    schema = core.Schema([core.Field(name, kind, nullable=True) for name, kind in types.items()])
    count = 0

    def batches() -> Iterator[Any]:
        nonlocal count
        left = iter(rows)
        while chunk := list(itertools.islice(left, _BATCH)):
            count += len(chunk)
            columns = [
                core.Array([_value(row.get(name), kinds[name], text) for row in chunk], types[name])
                for name in kinds
            ]
            yield core.RecordBatch.from_arrays(columns, schema=schema)

    arrow.write_parquet(core.RecordBatchReader.from_batches(schema, list(batches())), str(path))
    return count


def _value(value: Any, kind: str, text: Any) -> Any:
    if value is None:
        return None
    if kind == "string":
        return text(value)
    return float(value) if kind == "float64" else value
