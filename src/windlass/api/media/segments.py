"""Segments of streams by media time, and which of them a segment needs before it.

Pure. A segment is the number of an item. Its context is the media time of the window
before its start, however long anything takes to process.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

START, END, DURATION = "start", "end", "duration"
"""Fields of a row: media time in seconds or as a time code, and the length of the segment."""
_CODE = re.compile(r"(?:(\d+):)?(\d{1,2}):(\d{1,2})(?:[.,](\d{1,9}))?")
_NUMBER = re.compile(r"\d+(?:\.\d+)?")


class MediaTimeError(ValueError):
    """A row without usable media times."""


@dataclass(frozen=True, slots=True)
class Segment:
    """Item with its place in a stream. ``end`` is ``None`` where the row does not tell it."""

    number: int
    id: str
    stream: str
    start: float
    end: float | None


def media_time(value: Any) -> float | None:
    """Return seconds of a number, a text such as ``120.5``, or a time code such as ``00:02:00,500``."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float(value) if value == value and 0 <= value < float("inf") else None
    if not isinstance(value, str):
        return None
    text = value.strip()
    if _NUMBER.fullmatch(text):
        return float(text)
    match = _CODE.fullmatch(text)
    if match is None:
        return None
    hours, minutes, seconds, part = match.groups()
    return int(hours or 0) * 3600 + int(minutes) * 60 + int(seconds) + float(f"0.{part or 0}")


def times_of(row: Mapping[str, Any]) -> tuple[float, float | None]:
    """Return start and end of a row. Raises :class:`MediaTimeError`."""
    start = media_time(row.get(START))
    if start is None:
        raise MediaTimeError(_words(row, START))
    if row.get(END) is not None:
        end = media_time(row[END])
        if end is None:
            raise MediaTimeError(_words(row, END))
    elif row.get(DURATION) is not None:
        length = media_time(row[DURATION])
        if length is None:
            raise MediaTimeError(_words(row, DURATION))
        end = start + length
    else:
        return start, None
    if end < start:
        raise MediaTimeError(f"the segment ends at {end:g} s, before its start at {start:g} s")
    return start, end


def _words(row: Mapping[str, Any], name: str) -> str:
    what = f"is {row[name]!r}" if name in row else "is missing"
    return (
        f"the field {name!r} {what}: spec.contextCache needs media time in seconds or as a time code "
        "such as 00:02:00.500"
    )


@dataclass(slots=True)
class _Stream:
    """Segments of one stream by start. ``latest[n]``: greatest end of the first n + 1 segments."""

    segments: list[Segment] = field(default_factory=list)
    starts: list[float] = field(default_factory=list)
    ends: list[float] = field(default_factory=list)
    latest: list[float] = field(default_factory=list)


def _ends(segments: list[Segment]) -> list[float]:
    """Return the ends of sorted segments. One without an end lasts until the next one begins."""
    ends: list[float] = []
    start = later = 0.0
    for one in reversed(segments):
        if not ends or one.start < start:
            later = start if ends else one.start
            start = one.start
        ends.append(max(one.start, later) if one.end is None else one.end)
    return ends[::-1]


class SegmentIndex:
    """All segments of a batch. ``window``: media time of a context (seconds)."""

    def __init__(self, segments: Iterable[Segment], window: float) -> None:
        self.window = window
        self.streams: dict[str, _Stream] = {}
        self._place: dict[int, tuple[_Stream, int]] = {}
        for one in segments:
            self.streams.setdefault(one.stream, _Stream()).segments.append(one)
        for stream in self.streams.values():
            stream.segments.sort(key=lambda one: (one.start, one.number))
            stream.starts = [one.start for one in stream.segments]
            stream.ends = _ends(stream.segments)
            for at, one in enumerate(stream.segments):
                stream.latest.append(max(stream.ends[at], stream.latest[-1] if at else 0.0))
                self._place[one.number] = stream, at

    def __contains__(self, number: int) -> bool:
        return number in self._place

    def segment(self, number: int) -> Segment:
        stream, at = self._place[number]
        return stream.segments[at]

    def end(self, number: int) -> float:
        """Return the end of a segment: its own, or the start of the next one."""
        stream, at = self._place[number]
        return stream.ends[at]

    def range(self, number: int) -> tuple[float, float]:
        """Return the media time that the context of a segment covers."""
        start = self.segment(number).start
        return max(0.0, start - self.window), start

    def before(self, number: int) -> list[int]:
        """Return the segments that lie in the window before a segment, in the order of time."""
        if number not in self._place:
            return []
        stream, at = self._place[number]
        low, start = self.range(number)
        found: list[int] = []
        at = bisect_left(stream.starts, start) - 1
        while at >= 0 and stream.latest[at] > low:
            if stream.ends[at] > low:
                found.append(stream.segments[at].number)
            at -= 1
        return found[::-1]

    def after(self, number: int) -> Iterator[int]:
        """Yield the segments that have a segment in the window before them."""
        if number not in self._place:
            return
        stream, at = self._place[number]
        start, end = stream.starts[at], stream.ends[at]
        for other in range(at + 1, len(stream.segments)):
            if max(0.0, stream.starts[other] - self.window) >= end:
                return
            if stream.starts[other] > start:
                yield stream.segments[other].number

    def numbers(self) -> Iterator[int]:
        """Yield all segments, stream by stream, in the order of time."""
        for stream in self.streams.values():
            yield from (one.number for one in stream.segments)
