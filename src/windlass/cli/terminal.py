"""Output streams: width, colour, and whether a person is watching."""

from __future__ import annotations

import contextlib
import io
import os
import signal
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TextIO

from windlass.api.errors import WindlassError

DEFAULT_WIDTH = 80

_CODES = {"red": "31", "green": "32", "yellow": "33", "blue": "34", "magenta": "35", "cyan": "36", "dim": "2"}
RANK_COLOURS = ("cyan", "yellow", "green", "magenta", "blue")


class OutputClosed(Exception):
    """Signal that the reader of the output has gone (``windlass ps | head -1``).

    Not an ``OSError``, for which click would end the process with status 1.
    """


@contextlib.contextmanager
def detect_closed_output() -> Iterator[None]:
    """Raise :class:`OutputClosed` if the block ends because its reader has gone."""
    try:
        yield
    except BrokenPipeError as error:
        raise OutputClosed from error


def discard_output() -> int:
    """Discard all further output, and return the exit status of a process ended by SIGPIPE."""
    null = os.open(os.devnull, os.O_WRONLY)
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError, AttributeError):
            os.dup2(null, stream.fileno())
    return 128 + signal.SIGPIPE


@dataclass(frozen=True, slots=True)
class Terminal:
    """One output stream.

    ``interactive``: a person watches it. ``colour`` is used only then, and not with
    ``NO_COLOR``. ``width``: cells of a line; 0 if another program reads, so that
    nothing is cut.
    """

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
        """Lines of the window; 0 if no person watches."""
        return _size(self.stream).lines if self.interactive else 0

    def paint(self, text: str, colour: str) -> str:
        return f"\x1b[{_CODES[colour]}m{text}\x1b[0m" if self.colour and text else text

    def write(self, text: str) -> None:
        """Write text and flush.

        Raises :class:`BrokenPipeError` if the reader has gone, and
        :class:`WindlassError` for a full disk.
        """
        self._write(lambda: self.stream.write(text))

    def write_bytes(self, data: bytes) -> None:
        """Write bytes as they are, and flush. Raises as :meth:`write` does."""
        buffer = getattr(self.stream, "buffer", None)
        if buffer is None:  # a stream of text alone
            self.write(data.decode(errors="replace"))
        else:
            self._write(lambda: buffer.write(data))

    def _write(self, write: Callable[[], object]) -> None:
        try:
            write()
            self.stream.flush()
        except BrokenPipeError:
            raise
        except OSError as error:
            raise WindlassError(
                "WL-OUTPUT-500",
                f"the output cannot be written: {error.strerror or error}",
                evidence="the command may have done its work; only its output is lost",
                remedies=("df -h .", "write the output to another file system"),
            ) from error

    def line(self, text: str = "") -> None:
        self.write(f"{text}\n")


def _width(stream: TextIO, interactive: bool) -> int:
    if not interactive:
        return 0
    columns = os.environ.get("COLUMNS", "")
    if columns.isdigit() and int(columns) > 0:
        return int(columns)
    return _size(stream).columns or DEFAULT_WIDTH


def _size(stream: TextIO) -> os.terminal_size:
    """Return the size of the window; zeros if it is unknown."""
    try:
        return os.get_terminal_size(stream.fileno())
    except (OSError, ValueError):
        return os.terminal_size((0, 0))


def output() -> Terminal:
    return Terminal.of(_open(sys.stdout))


def errors() -> Terminal:
    return Terminal.of(_open(sys.stderr))


def _open(stream: TextIO | None) -> TextIO:
    """Return the stream, in the encoding that its reader expects.

    A stream that was closed before the command began (``>&-``) is ``None`` in Python;
    its output is discarded. Programs read UTF-8, whatever the locale. A terminal
    without some letter shows ``?``.
    """
    if stream is None:
        return open(os.devnull, "w")
    if isinstance(stream, io.TextIOWrapper):
        encoding = stream.encoding if stream.isatty() else "utf-8"
        errors = "replace" if stream.errors == "strict" else stream.errors
        if (encoding, errors) != (stream.encoding, stream.errors):
            stream.reconfigure(encoding=encoding, errors=errors)
    return stream
