"""Log lines of several ranks: prefix, filter, merge, collapse."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

from windlass.api.errors import WindlassError
from windlass.cli.jobs.logs.log_pieces import Piece, joined, parsed, whole_lines
from windlass.cli.terminal import RANK_COLOURS, Terminal
from windlass.cli.text import natural_key
from windlass.kits import durations

COLLAPSE_SECONDS = 0.15
PROGRESS_FIRST_SECONDS = 1.0
"""Time (seconds) after which an unfinished line of several ranks is shown."""
PROGRESS_SECONDS = 10.0
"""Interval (seconds) between the states of an unfinished line of several ranks."""


@dataclass(frozen=True, slots=True)
class LogView:
    """Selection of log lines, and their format."""

    rank: str | None = None
    task: str | None = None
    container: str | None = None
    since_seconds: int | None = None
    tail: int | None = None
    previous: bool = False
    pattern: re.Pattern[str] | None = None
    timestamps: bool = False
    collapse: bool = False
    as_json: bool = False


def pattern_of(text: str | None, command: str) -> re.Pattern[str] | None:
    """Return the compiled pattern. ``command``: the command line before the option, for the remedy.

    Raises :class:`WindlassError` if it is not a regular expression.
    """
    if text is None:
        return None
    try:
        return re.compile(text)
    except (re.error, OverflowError, RecursionError) as error:
        raise WindlassError(
            "WL-USE-400",
            f"--grep {shlex.quote(text)} is not a regular expression: {error}",
            evidence="special characters have a backslash before them if they stand for themselves",
            remedies=(f"{command} --grep={shlex.quote(re.escape(text))}",),
        ) from error


MAX_SECONDS = (1 << 31) - 1
"""Maximum of a duration in seconds, which Kubernetes stores in 32 bits."""


def duration_seconds(option: str, text: str, *, least: int = 0) -> int:
    """Return a duration (``90``, ``90s``, ``1.5h``, ``1h30m``, ``2d``) in whole seconds.

    Raises :class:`WindlassError`, which names the option, also if it is below
    ``least``.
    """
    try:
        total = round(durations.parse_long(f"{text}s" if text.isascii() and text.isdecimal() else text))
    except ValueError:
        raise WindlassError(
            "WL-USE-400",
            f"{option} {text}: {text!r} is not a duration",
            evidence="durations read like 45s, 10m, 1h30m, 2d",
            remedies=(f"{option} 30m",),
        ) from None
    if not least <= total <= MAX_SECONDS:
        raise WindlassError(
            "WL-USE-400",
            f"{option} {text} is not between {least}s and {MAX_SECONDS}s",
            remedies=(f"{option} 30m",),
        )
    return total


class Printer:
    """Writes output, with its rank in front of each line if there are several.

    The output of a single rank is written byte for byte as it comes. All other output is
    written line by line; an unfinished line of several ranks is shown now and then, so that
    progress bars are seen.
    """

    def __init__(self, out: Terminal, options: LogView, *, prefixed: bool) -> None:
        self._out = out
        self._options = options
        self.prefixed = prefixed
        self._held: dict[bytes, list[str]] = {}
        self._held_since = 0.0
        self._colours: dict[str, str] = {}
        self._in_line = False
        self._unfinished: dict[str, _Unfinished] = {}

    def pieces(self, rank: str, pieces: Iterable[Piece], now: float) -> None:
        """Print pieces of one rank's output."""
        if not (self.prefixed or self._options.as_json or self._options.pattern is not None):
            self._write_through(pieces)
            return
        for piece in pieces:
            unfinished = self._unfinished.get(rank)
            if unfinished is not None and piece.first:  # the output began again in the middle of a line
                self._finish(rank)
                unfinished = None
            if unfinished is None:
                unfinished = self._unfinished[rank] = _Unfinished(now + PROGRESS_FIRST_SECONDS)
            unfinished.parts.append(piece)
            if piece.complete:
                self._finish(rank, now)

    def _write_through(self, pieces: Iterable[Piece]) -> None:
        out = bytearray()
        for piece in pieces:
            if piece.first:
                if self._in_line:
                    out += b"\n"
                if self._options.timestamps and piece.time:
                    out += piece.time.encode() + b" "
            out += piece.data
            if piece.complete:
                out += b"\n"
            self._in_line = not piece.complete
        if out:
            self._out.write_bytes(bytes(out))

    def _finish(self, rank: str, now: float = 0.0) -> None:
        line = joined(self._unfinished.pop(rank).parts)
        self.line(rank, line.time, line.data, now)

    def line(self, rank: str, stamp: str, data: bytes, now: float) -> None:
        """Print one line of a rank; ``stamp`` is the time at which it was written, if known."""
        data = data.removesuffix(b"\r")
        if self._options.pattern is not None or self._options.as_json:
            text = data.decode(errors="replace")
            if self._options.pattern is not None and not self._options.pattern.search(text):
                return
            if self._options.as_json:
                self.record({"rank": rank, "time": stamp, "text": text})
                return
        if self.prefixed and self._out.interactive:
            data = _last_state(data)
        if self._options.timestamps and stamp:
            data = stamp.encode() + b" " + data
        if not (self._options.collapse and self.prefixed):
            self._write(rank, data, (rank,))
            return
        ranks = self._held.get(data)
        if ranks is not None and rank in ranks:
            self.flush()  # the same rank printed it again: the held lines are complete
            ranks = None
        if ranks is None:
            if not self._held:
                self._held_since = now
            self._held[data] = ranks = []
        ranks.append(rank)

    def break_line(self) -> None:
        """End the line that the output left unfinished on a terminal, before other text is shown."""
        if self._in_line and self._out.interactive:
            self._out.line()
            self._in_line = False

    def end(self) -> None:
        """Print all that is left at the end of the output."""
        for rank in list(self._unfinished):
            self._finish(rank)
        self.flush()
        self.break_line()

    def record(self, value: dict[str, object]) -> None:
        """Print a line of JSON."""
        import msgspec

        self._out.line(msgspec.json.encode(value).decode())

    @property
    def due(self) -> float | None:
        """Next deadline for printing held or unfinished lines, on the clock of ``pieces``."""
        times = [self._held_since + COLLAPSE_SECONDS] if self._held else []
        if self.prefixed and not self._options.as_json and self._options.pattern is None:
            times += [unfinished.show_at for unfinished in self._unfinished.values()]
        return min(times, default=None)

    def flush_due(self, now: float) -> None:
        """Print held lines, and the state of unfinished lines, that are due."""
        if self._held and self._held_since + COLLAPSE_SECONDS <= now:
            self.flush()
        for rank, unfinished in self._unfinished.items():
            if unfinished.show_at > now:
                continue
            unfinished.show_at = now + PROGRESS_SECONDS
            state = _last_state(joined(unfinished.parts).data)
            if state != unfinished.shown:
                unfinished.shown = state
                self._write(rank, state, (rank,))

    def flush(self) -> None:
        held, self._held = self._held, {}
        for data, ranks in held.items():
            self._write(ranks[0], data, ranks)

    def _write(self, rank: str, data: bytes, ranks: Iterable[str]) -> None:
        if not self.prefixed:
            self._out.write_bytes(data + b"\n")
            return
        together = list(ranks)
        label = f"[{rank}]" if len(together) == 1 else f"[{ranks_text(together)} ×{len(together)}]"
        colour = self._colours.setdefault(rank, RANK_COLOURS[len(self._colours) % len(RANK_COLOURS)])
        self._out.write_bytes(self._out.paint(label, colour).encode() + b" " + data + b"\n")


@dataclass(slots=True)
class _Unfinished:
    """Line of which the end has not come yet."""

    show_at: float
    parts: list[Piece] = field(default_factory=list)
    shown: bytes = b""


def _last_state(data: bytes) -> bytes:
    """Return what a terminal shows of a line that was overwritten from its beginning (``\\r``)."""
    return data.rstrip(b"\r").rpartition(b"\r")[2]


def ranks_text(ranks: list[str]) -> str:
    """Return ranks in short form: ``0-3``, ``0,2,5``, ``worker-0..worker-3``."""
    ordered = sorted(ranks, key=natural_key)
    numbers = [int(rank) for rank in ordered if rank.isascii() and rank.isdigit()]
    if len(numbers) == len(ordered):
        if numbers == list(range(numbers[0], numbers[0] + len(numbers))):
            return f"{numbers[0]}-{numbers[-1]}"
        return ",".join(map(str, numbers))
    return f"{ordered[0]}..{ordered[-1]}"


def merged(streams: dict[str, Callable[[], Iterator[bytes]]]) -> Iterator[tuple[str, Piece]]:
    """Yield ``(rank, line)`` of several ranks in the order of time stamps.

    Each stream yields lines as the API writes them with ``timestamps=true``. A line
    without a stamp follows the line before it.
    """
    import heapq

    def numbered(
        rank: str, number: int, chunks: Iterator[bytes]
    ) -> Iterator[tuple[str, int, int, str, Piece]]:
        for count, line in enumerate(whole_lines(parsed(chunks))):
            yield line.time, number, count, rank, line

    feeds = [
        numbered(rank, number, start())
        for number, (rank, start) in enumerate(sorted(streams.items(), key=lambda item: natural_key(item[0])))
    ]
    for _, _, _, rank, line in heapq.merge(*feeds):
        yield rank, line
