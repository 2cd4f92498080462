"""Digests of local files that decide what output rows say: the program, the scorer, the model."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote, urlsplit

from windlass.items.spec import SCORERS, BatchSpec

MAX_BYTES = 16 * 2**20
"""Maximum size in bytes of a file that is read. A larger one is told by its size and time."""
MAX_FILES = 500
"""Maximum number of files of a Python package that are read."""


def file_digests(batch: BatchSpec) -> dict[str, str]:
    """Return a digest for each part of the batch that has local files; an image has none.

    Files are looked for where the workers find them: by absolute paths, and in the working
    directory of the container.
    """
    runtime, quality = batch.runtime, batch.outputs.quality
    folder = Path(runtime.working_dir or "/")
    scorer = quality.scorer if quality is not None and quality.scorer not in SCORERS else ""
    parts = {
        "program file": [*_of_command(runtime.command, folder), *_of_function(runtime.function, folder)],
        "scorer file": _of_function(scorer, folder),
        "model file": _of_address(batch.model_source),
    }
    return {name: _digest(files) for name, files in parts.items() if files}


def _of_address(address: str) -> list[Path]:
    parts = urlsplit(address)
    return [Path(unquote(parts.path))] if parts.scheme == "file" else []


def _of_command(command: tuple[str, ...], folder: Path) -> Iterator[Path]:
    """Return the words of a command that are files. A program of the search path is none."""
    for number, word in enumerate(command):
        if number or "/" in word:
            path = folder / word
            if word and _is_file(path):
                yield path


def _of_function(reference: str, folder: Path) -> list[Path]:
    """Return the source files of ``module:name``: one module, or all of its package."""
    module, colon, _ = reference.partition(":")
    top, *inner = module.split(".")
    if not colon or not top.isidentifier():
        return []
    for place in (folder, *map(Path, filter(None, sys.path))):
        if not inner and _is_file(place / f"{top}.py"):
            return [place / f"{top}.py"]
        if (place / top).is_dir():
            return sorted((place / top).rglob("*.py"))[:MAX_FILES]
    return []


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except (OSError, ValueError):
        return False  # not a path: a long word, or one with a null character


def _digest(files: list[Path]) -> str:
    found = hashlib.sha256()
    for path in files:
        try:
            status = path.stat()
            large = status.st_size > MAX_BYTES
            content = f"{status.st_size} {status.st_mtime_ns}".encode() if large else path.read_bytes()
        except OSError:
            content = b""
        found.update(f"{path.name} {len(content)}\n".encode())
        found.update(content)
    return found.hexdigest()[:16]
