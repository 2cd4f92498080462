"""Where text goes: width, colour, and whether a person is watching."""

from __future__ import annotations

import contextlib
import io
import os
import signal
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TextIO

from windlass.api.errors import WindlassError

DEFAULT_WIDTH = 80

_CODES = {"red": "31", "green": "32", "yellow": "33", "blue": "34", "magenta": "35", "cyan": "36", "dim": "2"}
RANK_COLOURS = ("cyan", "yellow", "green", "magenta", "blue")


class ReaderGone(Exception):
    """Nobody reads what is printed any more (``windlass ps | head -1``). No ``OSError``, which click would end the
    process for, with 1."""


@contextlib.contextmanager
def reader_watched() -> Iterator[None]:
    """Raises :class:`ReaderGone` where what is within breaks off for want of a reader."""
    try:
        yield
    except BrokenPipeError as error:
        raise ReaderGone from error


def hushed() -> int:
    """The exit status of a program whose reader has gone, as a shell tells it; what is left to print goes nowhere."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError, AttributeError):
            os.dup2(nowhere, stream.fileno())
    return 128 + signal.SIGPIPE


@dataclass(frozen=True, slots=True)
class Terminal:
    """``interactive``: a person looks at it. ``colour`` only then, and not with ``NO_COLOR``. ``width``: cells of a
    line; 0 where nobody looks: what another program reads is not cut."""

    stream: TextIO
    interactive: bool
    width: int
    colour: bool

    @staticmethod
    def of(stream: TextIO) -> Terminal:
        interactive = stream.isatty()
        colour = interactive and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
        return Terminal(stream, interactive, _width(stream, interactive), colour)

    @property
    def height(self) -> int:
        """Lines that are seen at a time; 0 where nobody looks."""
        return _size(self.stream).lines if self.interactive else 0

    def paint(self, text: str, colour: str) -> str:
        return f"\x1b[{_CODES[colour]}m{text}\x1b[0m" if self.colour and text else text

    def write(self, text: str) -> None:
        """Raises :class:`BrokenPipeError` when the reader has gone, and :class:`WindlassError` for a full disk."""
        try:
            self.stream.write(text)
            self.stream.flush()
        except BrokenPipeError:
            raise
        except OSError as error:
            raise WindlassError(
                "WL-OUTPUT-500",
                f"the output cannot be written: {error.strerror or error}",
                evidence="what the command was asked to do may be done; only its words are lost",
                remedies=("df -h .", "write it elsewhere"),
            ) from error

    def line(self, text: str = "") -> None:
        self.write(f"{text}\n")


def _width(stream: TextIO, interactive: bool) -> int:
    if not interactive:
        return 0
    told = os.environ.get("COLUMNS", "")
    if told.isdigit() and int(told) > 0:
        return int(told)
    return _size(stream).columns or DEFAULT_WIDTH


def _size(stream: TextIO) -> os.terminal_size:
    """Zeroes where it cannot be told."""
    try:
        return os.get_terminal_size(stream.fileno())
    except (OSError, ValueError):
        return os.terminal_size((0, 0))


def output() -> Terminal:
    return Terminal.of(_open(sys.stdout))


def errors() -> Terminal:
    return Terminal.of(_open(sys.stderr))


def _open(stream: TextIO | None) -> TextIO:
    """A stream that was closed before the command began (``>&-``) is none for Python; nobody reads it. Programs read
    UTF-8, whatever the locale; a terminal that has no such letter shows ``?``."""
    if stream is None:
        return open(os.devnull, "w")
    if isinstance(stream, io.TextIOWrapper):
        encoding = stream.encoding if stream.isatty() else "utf-8"
        errors = "replace" if stream.errors == "strict" else stream.errors
        if (encoding, errors) != (stream.encoding, stream.errors):
            stream.reconfigure(encoding=encoding, errors=errors)
    return stream
