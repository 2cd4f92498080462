"""Output of a job on the way from its log to the terminal: byte for byte, and as it comes."""

from __future__ import annotations

import io
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windlass.cli.jobs.logs.log_lines import PROGRESS_FIRST_SECONDS, PROGRESS_SECONDS, LogView, Printer
from windlass.cli.jobs.logs.log_pieces import Piece, PieceParser, parsed
from windlass.cli.terminal import Terminal
from windlass.node.runtime.log_file import RecordEncoder
from windlass.node.runtime.log_reader import LogDecoder


class Screen:
    """An output stream in memory with its printer."""

    def __init__(self, *, prefixed: bool = False, interactive: bool = False, **options: Any) -> None:
        self._buffer = io.BytesIO()
        stream = io.TextIOWrapper(self._buffer, encoding="ascii")
        self.printer = Printer(
            Terminal(stream, interactive, 80, False), LogView(**options), prefixed=prefixed
        )

    @property
    def shown(self) -> bytes:
        return self._buffer.getvalue()

    def feed(self, parser: PieceParser, text: bytes, rank: str = "0", now: float = 0.0) -> None:
        self.printer.pieces(rank, parser.feed(text), now)


STAMP = b"2026-01-01T12:00:00.5Z "


@given(st.lists(st.binary(max_size=40), max_size=6), st.data())
def test_output_is_handed_through_byte_for_byte(blocks: list[bytes], data: st.DataObject) -> None:
    encoder = RecordEncoder("stdout")
    records = []
    for block in blocks:
        records.append(encoder.feed(block))
        if data.draw(st.booleans()):
            records.append(encoder.flush())
    records.append(encoder.finish())
    log = LogDecoder(timestamps=True).decode(b"".join(records))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(log)), max_size=6)))
    chunks = [log[start:end] for start, end in zip([0, *cuts], [*cuts, len(log)], strict=True)]
    screen = Screen()
    for pieces in parsed(chunks):
        screen.printer.pieces("0", pieces, 0.0)
    screen.printer.end()
    assert screen.shown == b"".join(blocks)


def test_progress_is_shown_before_its_line_ends() -> None:
    screen, parser = Screen(), PieceParser()
    screen.feed(parser, STAMP + b"\r10%")
    assert screen.shown == b"\r10%"
    screen.feed(parser, b"\r20%")
    assert screen.shown == b"\r10%\r20%"


def test_a_stamp_that_comes_in_two_chunks_is_not_shown() -> None:
    screen, parser = Screen(), PieceParser()
    screen.feed(parser, STAMP[:9])
    screen.feed(parser, STAMP[9:])
    assert screen.shown == b""
    screen.feed(parser, b"Password: ")
    assert screen.shown == b"Password: "


def test_stamps_are_shown_once_for_each_line() -> None:
    screen, parser = Screen(timestamps=True), PieceParser()
    screen.feed(parser, STAMP + b"10%")
    screen.feed(parser, b"\r20%\n" + STAMP + b"x\n")
    assert screen.shown == STAMP + b"10%\r20%\n" + STAMP + b"x\n"


def test_progress_of_several_ranks_is_shown_now_and_then() -> None:
    screen, parser = Screen(prefixed=True), PieceParser()
    screen.feed(parser, STAMP + b"\r10%", "1")
    assert screen.printer.due == PROGRESS_FIRST_SECONDS
    screen.printer.flush_due(PROGRESS_FIRST_SECONDS)
    screen.feed(parser, b"\r20%\r", "1", 2.0)
    screen.printer.flush_due(3.0)
    assert screen.shown == b"[1] 10%\n"
    screen.printer.flush_due(PROGRESS_FIRST_SECONDS + PROGRESS_SECONDS)
    screen.feed(parser, b"done\n", "1", 12.0)
    assert screen.shown == b"[1] 10%\n[1] 20%\n[1] \r10%\r20%\rdone\n"


def test_terminal_shows_the_last_state_of_an_overwritten_line_behind_the_rank() -> None:
    screen, parser = Screen(prefixed=True, interactive=True), PieceParser()
    screen.feed(parser, STAMP + b"\r10%\r20%\r\n", "1")
    assert screen.shown == b"[1] 20%\n"


@pytest.mark.parametrize("interactive", [True, False])
def test_only_a_terminal_gets_a_newline_after_an_unfinished_line(interactive: bool) -> None:
    screen = Screen(interactive=interactive)
    screen.printer.pieces("0", [Piece("", b"20%", complete=False)], 0.0)
    screen.printer.end()
    assert screen.shown == (b"20%\n" if interactive else b"20%")


def test_output_of_the_next_start_begins_on_a_line_of_its_own() -> None:
    screen = Screen()
    for _ in range(2):
        screen.feed(PieceParser(), STAMP + b"20%")
    assert screen.shown == b"20%\n20%"


def test_matching_lines_keep_their_bytes() -> None:
    screen, parser = Screen(pattern=re.compile("a")), PieceParser()
    screen.feed(parser, STAMP + b"\xffa\n" + STAMP + b"b\n" + STAMP + b"\xfea")
    screen.printer.end()
    assert screen.shown == b"\xffa\n\xfea\n"
