"""Log lines of several ranks: prefix, filter, merge, collapse."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from windlass.api.errors import WindlassError
from windlass.cli.terminal import RANK_COLOURS, Terminal
from windlass.cli.text import natural_key
from windlass.kits import durations

COLLAPSE_SECONDS = 0.15


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
        total = round(durations.parse_long(f"{text}s" if text.isdecimal() else text))
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


class Splitter:
    """Splits bytes into lines.

    An incomplete line is kept until its rest comes or the stream ends.
    """

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, chunk: bytes) -> list[str]:
        *lines, self._rest = (self._rest + chunk).split(b"\n")
        return [line.decode(errors="replace").removesuffix("\r") for line in lines]

    def end(self) -> list[str]:
        rest, self._rest = self._rest, b""
        return [rest.decode(errors="replace")] if rest else []


class Printer:
    """Writes lines, with their rank in front if there are several."""

    def __init__(self, out: Terminal, options: LogView, *, prefixed: bool) -> None:
        self._out = out
        self._options = options
        self.prefixed = prefixed
        self._held: dict[str, list[str]] = {}
        self._held_since = 0.0
        self._colours: dict[str, str] = {}

    def line(self, rank: str, stamp: str, text: str, now: float) -> None:
        """Print one line of a rank; ``stamp`` is the time at which it was written, if known."""
        if self._options.pattern is not None and not self._options.pattern.search(text):
            return
        if self._options.as_json:
            self.record({"rank": rank, "time": stamp, "text": text})
            return
        if self._options.timestamps and stamp:
            text = f"{stamp} {text}"
        if not (self._options.collapse and self.prefixed):
            self._write(rank, text, (rank,))
            return
        ranks = self._held.get(text)
        if ranks is not None and rank in ranks:
            self.flush()  # the same rank printed it again: the held lines are complete
            ranks = None
        if ranks is None:
            if not self._held:
                self._held_since = now
            self._held[text] = ranks = []
        ranks.append(rank)

    def record(self, value: dict[str, object]) -> None:
        """Print a line of JSON."""
        import msgspec

        self._out.line(msgspec.json.encode(value).decode())

    @property
    def due(self) -> float | None:
        """Deadline for printing held lines, on the clock of ``line``; ``None`` without such
        lines.
        """
        return self._held_since + COLLAPSE_SECONDS if self._held else None

    def flush(self) -> None:
        held, self._held = self._held, {}
        for text, ranks in held.items():
            self._write(ranks[0], text, ranks)

    def _write(self, rank: str, text: str, ranks: Iterable[str]) -> None:
        if not self.prefixed:
            self._out.line(text)
            return
        together = list(ranks)
        label = f"[{rank}]" if len(together) == 1 else f"[{ranks_text(together)} ×{len(together)}]"
        colour = self._colours.setdefault(rank, RANK_COLOURS[len(self._colours) % len(RANK_COLOURS)])
        self._out.line(f"{self._out.paint(label, colour)} {text}")


def ranks_text(ranks: list[str]) -> str:
    """Return ranks in short form: ``0-3``, ``0,2,5``, ``worker-0..worker-3``."""
    ordered = sorted(ranks, key=natural_key)
    numbers = [int(rank) for rank in ordered if rank.isdigit()]
    if len(numbers) == len(ordered):
        if numbers == list(range(numbers[0], numbers[0] + len(numbers))):
            return f"{numbers[0]}-{numbers[-1]}"
        return ",".join(map(str, numbers))
    return f"{ordered[0]}..{ordered[-1]}"


def merged(streams: dict[str, Callable[[], Iterator[bytes]]]) -> Iterator[tuple[str, str, str]]:
    """Yield ``(rank, time, text)`` of several ranks in the order of time stamps.

    Each stream yields lines as the API writes them with ``timestamps=true``. A line
    without a stamp follows the line before it.
    """
    import heapq

    def stamped(rank: str, number: int, chunks: Iterator[bytes]) -> Iterator[tuple[str, int, int, str, str]]:
        splitter = Splitter()
        last, count = "", 0
        for chunk in chunks:
            for line in splitter.feed(chunk):
                last, text = split_stamp(line, last)
                count += 1
                yield last, number, count, rank, text
        for line in splitter.end():
            last, text = split_stamp(line, last)
            yield last, number, count + 1, rank, text

    feeds = [
        stamped(rank, number, start())
        for number, (rank, start) in enumerate(sorted(streams.items(), key=lambda item: natural_key(item[0])))
    ]
    for stamp, _, _, rank, text in heapq.merge(*feeds):
        yield rank, stamp, text


_STAMP = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|[+-]\d\d:\d\d) ")


def split_stamp(line: str, last: str) -> tuple[str, str]:
    """Split a line into time stamp and text.

    Without a stamp it is that of the line before, ``last``.
    """
    match = _STAMP.match(line)
    return (match[0][:-1], line[match.end() :]) if match else (last, line)
