"""Sources of rows: inline, ConfigMap, file, folder, volume, HTTP; object stores with the package obstore."""

from __future__ import annotations

import gzip
import io
import shutil
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import BinaryIO, cast

from windlass.items import object_store
from windlass.items.rows import InputError, Row, is_among, read, read_folder
from windlass.items.spec import INPUT_MOUNT, InputSpec

SAMPLE_ROWS = 16
"""Number of rows of a job without input."""
_TOPICS = ("a lamp", "a chair", "a kettle", "a bicycle", "a tent", "a guitar", "a backpack", "a clock")
_HTTP_TIMEOUT = 60.0
"""Timeout of one read of an HTTP source (seconds)."""
_ENDINGS = {"jsonl": (".jsonl", ".ndjson", ".json"), "csv": (".csv",), "parquet": (".parquet", ".pq")}


def open_rows(
    given: InputSpec, environment: Mapping[str, str], scratch: Path, omitted: Collection[Path] = ()
) -> Iterator[Row]:
    """Return the rows of an input. Raises :class:`InputError` if it cannot be read at all.

    ``scratch``: folder for the copy of what is fetched. ``omitted``: files of a folder that are
    no input, such as outputs.
    """
    if not given.source:
        return _samples()
    if given.source == "inline":
        return read(given.format, io.BytesIO(given.inline.encode()))
    if given.source == "http":
        return _from_path(_fetch(given, scratch), given.format)
    if given.source == "s3":
        return _from_path(_fetch_object(given, scratch), given.format)
    return _from_path(_file_path(given, environment), given.format, omitted)


def _samples() -> Iterator[Row]:
    for number in range(1, SAMPLE_ROWS + 1):
        topic = _TOPICS[(number - 1) % len(_TOPICS)]
        yield Row(number, {"id": f"sample-{number}", "prompt": f"Describe {topic} (sample {number})."})


def input_path(given: InputSpec, environment: Mapping[str, str]) -> Path | None:
    """Return the file or folder of an input; ``None`` if its rows come from elsewhere."""
    if given.source in ("", "inline", "http", "s3"):
        return None
    return _file_path(given, environment)


def _file_path(given: InputSpec, environment: Mapping[str, str]) -> Path:
    mount = environment.get(INPUT_MOUNT, "")
    if given.source == "configMap":
        return Path(mount or ".") / given.key
    if given.source == "pvc" and mount:
        return Path(mount) / given.path.lstrip("/")
    return Path(given.path)


def _from_path(path: Path, format: str, omitted: Collection[Path] = ()) -> Iterator[Row]:
    try:
        is_folder = path.is_dir()
        if not is_folder:
            path.open("rb").close()
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}") from None
    if format == "dir":
        if not is_folder:
            raise InputError(f"{path} is not a folder: format is dir")
        return read_folder(path, omitted)
    if not is_folder:
        return _file(path, format)
    endings = _ENDINGS[format]
    names = (one for one in sorted(path.iterdir()) if not one.name.startswith("."))
    files = [
        one for one in names if one.name.removesuffix(".gz").endswith(endings) and not is_among(one, omitted)
    ]
    if not files:
        raise InputError(f"{path} has no file that ends with {' or '.join(endings)}{_other_formats(path)}")
    return _files(files, format)


def _other_formats(path: Path) -> str:
    """Return the formats that would find rows in a folder; without one, each file is a row."""
    found = [
        name
        for name, endings in _ENDINGS.items()
        if any(one.name.removesuffix(".gz").endswith(endings) for one in path.iterdir())
    ]
    return f": spec.input.format is {' or '.join([*found, 'dir'])}, where dir takes each file as one row"


def _files(files: list[Path], format: str) -> Iterator[Row]:
    base = last = 0
    for path in files:
        base = last
        for row in _file(path, format):
            row.number = last = row.number + base
            if row.error:
                row.error = f"{path.name}: {row.error}"
            yield row


def _file(path: Path, format: str) -> Iterator[Row]:
    try:
        with gzip.open(path, "rb") if path.name.endswith(".gz") else path.open("rb") as stream:
            yield from read(format, cast(BinaryIO, stream))
    except (OSError, EOFError) as error:
        raise InputError(f"{path} cannot be read: {error}") from None


def _fetch(given: InputSpec, scratch: Path) -> Path:
    import urllib.error
    import urllib.request

    name = given.url.split("?", 1)[0].rsplit("/", 1)[-1]
    target = scratch / ("input.fetched.gz" if name.endswith(".gz") else "input.fetched")
    request = urllib.request.Request(given.url, headers=dict(given.headers))
    try:
        with urllib.request.urlopen(request, timeout=_HTTP_TIMEOUT) as response, target.open("wb") as out:
            shutil.copyfileobj(response, out, 1 << 20)
    except urllib.error.HTTPError as error:
        raise InputError(f"{given.url} answered {error.code} {error.reason}") from None
    except (OSError, ValueError) as error:
        raise InputError(f"{given.url} cannot be read: {error}") from None
    return target


def _fetch_object(given: InputSpec, scratch: Path) -> Path:
    """Copy an object of a store."""
    target = scratch / ("input.fetched.gz" if given.url.endswith(".gz") else "input.fetched")
    try:
        object_store.fetch(given.url, target)
    except object_store.ObjectError as error:
        if error.package:
            raise InputError(f"{error}, or use source http with a presigned URL") from None
        told = str(error) if "names no object" in str(error) else f"{given.url} cannot be read: {error}"
        raise InputError(told) from None
    except OSError as error:
        raise InputError(f"{given.url} cannot be read: {error}") from None
    return target
