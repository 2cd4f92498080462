"""Files that people name, and standard input: their text, or why there is none."""

from __future__ import annotations

import io
import sys
from pathlib import Path
from typing import NamedTuple

from windlass.api.errors import WindlassError

STDIN, STDIN_WORDS = "-", "standard input"


class FileCodes(NamedTuple):
    """Codes of the errors of one kind of file. ``no_text``: it is not UTF-8."""

    no_text: str
    missing: str = "WL-USE-400"
    unreadable: str = "WL-USE-400"


def words_of(name: str) -> str:
    """Return the name of a file in messages; ``-`` is standard input."""
    return STDIN_WORDS if name == STDIN else name


def read_text(path: str, codes: FileCodes) -> str:
    """The text of a file in UTF-8. Raises :class:`WindlassError`."""
    try:
        return Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise unread(path, error, codes) from error


def read_stdin(codes: FileCodes) -> str:
    """All of standard input as text in UTF-8. Raises :class:`WindlassError`."""
    check_stdin(codes)
    if isinstance(sys.stdin, io.TextIOWrapper):  # whatever the locale: manifests and tables are UTF-8
        sys.stdin.reconfigure(encoding="utf-8", errors="strict")
    try:
        return sys.stdin.read()
    except UnicodeDecodeError as error:
        raise WindlassError(
            codes.no_text,
            f"{STDIN_WORDS} is not text in UTF-8",
            evidence=str(error),
            remedies=("iconv -f latin1 -t utf-8 FILE | windlass …",),
        ) from error


def check_stdin(codes: FileCodes) -> None:
    """Raises :class:`WindlassError` where this process was started without a standard input."""
    if sys.stdin is None:
        raise WindlassError(codes.missing, f"{STDIN_WORDS} is closed", remedies=("name a file instead of -",))


def unread(path: str, error: OSError | UnicodeDecodeError, codes: FileCodes) -> WindlassError:
    """Return the error for a file that cannot be read, with a remedy."""
    if isinstance(error, UnicodeDecodeError):
        return WindlassError(
            codes.no_text,
            f"{path} is not text in UTF-8",
            evidence=str(error),
            remedies=(f"file {path}", f"iconv -f latin1 -t utf-8 {path}"),
        )
    if isinstance(error, FileNotFoundError):
        return WindlassError(
            codes.missing,
            f"{path} does not exist",
            evidence=f"looked in {Path.cwd()}",
            remedies=(*_alike(Path(path)), f"ls {Path(path).parent}"),
        )
    return WindlassError(
        codes.unreadable,
        f"{path} cannot be read",
        evidence=error.strerror or str(error),
        remedies=(f"ls -ld {path}",),
    )


def _alike(path: Path) -> list[str]:
    """Return the file of the same directory with the most similar name, as a question."""
    import difflib

    try:
        there = [one.name for one in path.parent.iterdir()]
    except OSError:
        return []
    return [f"did you mean {path.parent / one}?" for one in difflib.get_close_matches(path.name, there, 1)]
