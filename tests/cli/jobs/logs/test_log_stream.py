"""Output of a container over broken connections: no byte is lost or printed twice."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from windlass.cli.jobs.logs.log_lines import LogView
from windlass.cli.jobs.logs.log_stream import LogFeed
from windlass.client.errors import Unreachable
from windlass.kits.clock import FakeClock


class Log:
    """A log that grows; each connection in ``cuts`` breaks after so many bytes, the one after them does not."""

    def __init__(self, text: bytes, cuts: list[int]) -> None:
        self.text = text
        self.cuts = cuts
        self.asked: list[dict[str, Any]] = []

    def __call__(self) -> Log:
        return self

    def close(self) -> None:
        """Nothing is open."""

    def logs(self, _namespace: str, _pod: str, **options: Any) -> Iterator[bytes]:
        self.asked.append(options)
        if not self.cuts:
            yield self.text
            return
        yield self.text[: self.cuts.pop(0)]
        raise Unreachable("WL-SERVER-503", "the connection broke")


def read(log: Log, **options: Any) -> list[str]:
    feed = LogFeed("ns", "pod", "c", LogView(**options))
    clock = FakeClock()
    pieces = [piece for pieces in feed.pieces(log, clock) for piece in pieces]  # type: ignore[arg-type]
    return (
        b"".join(piece.data + b"\n" * piece.complete for piece in pieces).decode().splitlines(keepends=True)
    )


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(0, 3), max_size=12), st.data())
def test_no_line_is_lost_or_told_twice(stamps: list[int], data: st.DataObject) -> None:
    rows, moment = [], 0
    for number, step in enumerate(stamps):
        moment += step
        fraction = f".{moment:03d}".rstrip("0").rstrip(".")
        rows.append(f"2026-01-01T12:00:00{fraction}Z line {number}\n")
    if data.draw(st.booleans()):
        rows.append(f"2026-01-01T12:00:00.{moment:03d}Z 10%\r20%")
        expected = [f"line {number}\n" for number in range(len(stamps))] + ["10%\r", "20%"]
    else:
        expected = [f"line {number}\n" for number in range(len(stamps))]
    text = "".join(rows).encode()
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=4)))
    assert read(Log(text, cuts)) == expected


def test_what_was_asked_for_is_asked_once() -> None:
    log = Log(b"2026-01-01T12:00:00Z a\n2026-01-01T12:00:01Z b\n", [len(b"2026-01-01T12:00:00Z a\n")])
    assert read(log, tail=2, since_seconds=9) == ["a\n", "b\n"]
    assert [(asked["tail_lines"], asked["since_seconds"]) for asked in log.asked] == [(2, 9), (None, None)]


def test_a_server_that_stays_away_is_told() -> None:
    with pytest.raises(Unreachable):
        read(Log(b"", [0] * 1000))
