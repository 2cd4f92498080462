"""Context of one segment, as its worker gets it: range, rows and text before its start."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from windlass.api.media.segments import media_time

PIECES = ("cues", "words")
"""Fields of a row with parts that have media times of their own; they are cut to the window."""


def number(value: float) -> float | int:
    """Return seconds rounded to a microsecond, as a whole number where they are one."""
    value = round(value, 6)
    return int(value) if value == int(value) else value


def cut(row: Mapping[str, Any], low: float, start: float, end: float) -> dict[str, Any]:
    """Return a row without the parts that end before ``low``. Its text follows its parts."""
    found = {name: value for name, value in row.items() if name != "context"}
    found["start"], found["end"] = number(start), number(end)
    if start >= low:
        return found
    for name in PIECES:
        pieces = row.get(name)
        if not isinstance(pieces, Sequence) or isinstance(pieces, str):
            continue
        kept = [one for one in pieces if not _over(one, low)]
        if len(kept) != len(pieces):
            found[name] = kept
            found["start"] = number(low)
            texts = [str(one.get("text", "")) for one in kept if isinstance(one, Mapping)]
            if "text" in row:
                found["text"] = " ".join(filter(None, texts))
    return found


def _over(piece: Any, low: float) -> bool:
    if not isinstance(piece, Mapping):
        return False
    end = media_time(piece.get("end", piece.get("start")))
    return end is not None and end <= low


def text_of(row: Mapping[str, Any]) -> str:
    """Return the text of a row: its own, or that of its parts."""
    if isinstance(row.get("text"), str):
        return row["text"]
    for name in PIECES:
        pieces = row.get(name)
        if isinstance(pieces, Sequence) and not isinstance(pieces, str):
            texts = [str(one.get("text", "")) for one in pieces if isinstance(one, Mapping)]
            return " ".join(filter(None, texts))
    return ""


def assemble(
    stream: str,
    mode: str,
    bounds: tuple[float, float],
    rows: Iterable[Mapping[str, Any]],
    missing: Sequence[str] = (),
) -> dict[str, Any]:
    """Return the object ``context``. ``missing``: ids of segments without a result."""
    segments = list(rows)
    found: dict[str, Any] = {
        "stream": stream,
        "mode": mode,
        "start": number(bounds[0]),
        "end": number(bounds[1]),
        "text": " ".join(filter(None, map(text_of, segments))),
        "segments": segments,
    }
    if missing:
        found["missing"] = list(missing)
    return found
