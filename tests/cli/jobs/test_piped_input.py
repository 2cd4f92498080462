"""Data that waits on standard input, which no job reads, is told; what is no data is not."""

from __future__ import annotations

import os
import pty
import socket
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from windlass.cli.invocation import Invocation, InvocationContext, target
from windlass.cli.jobs.requests.job_flags import warn_about_piped_input

TOLD = "Warning: a job has no standard input"


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[int], None]]:
    """Has standard input be a file descriptor."""
    streams = []

    def use(number: int) -> None:
        streams.append(os.fdopen(number))
        monkeypatch.setattr(sys, "stdin", streams[-1])

    yield use
    for stream in streams:
        stream.close()


def told(capsys: pytest.CaptureFixture[str]) -> bool:
    warn_about_piped_input(Invocation(InvocationContext(), target(None, None, None)))
    return TOLD in capsys.readouterr().err


def test_bytes_in_a_pipe_wait_and_an_empty_one_tells_nothing(opened, capsys):
    reader, writer = os.pipe()
    opened(reader)
    assert not told(capsys)
    os.write(writer, b"a text\n")
    assert told(capsys)
    assert os.read(reader, 100) == b"a text\n", "nothing of it may be taken"
    os.close(writer)
    assert not told(capsys)


def test_bytes_in_a_socket_wait(opened, capsys):
    ours, theirs = socket.socketpair()
    with theirs:
        opened(ours.detach())
        assert not told(capsys)
        theirs.send(b"x")
        assert told(capsys)


def test_a_file_waits_from_its_beginning_and_what_a_loop_reads_does_not(opened, capsys, tmp_path: Path):
    file = tmp_path / "texts"
    file.write_text("one\ntwo\n")
    number = os.open(file, os.O_RDONLY)
    opened(number)
    assert told(capsys)
    os.lseek(number, 4, os.SEEK_SET)
    assert not told(capsys)
    (tmp_path / "empty").write_text("")
    opened(os.open(tmp_path / "empty", os.O_RDONLY))
    assert not told(capsys)


def test_terminals_the_null_device_and_a_closed_input_tell_nothing(opened, capsys, monkeypatch):
    leader, follower = pty.openpty()
    opened(follower)
    os.write(leader, b"typed ahead\n")
    assert not told(capsys)
    os.close(leader)
    opened(os.open(os.devnull, os.O_RDONLY))
    assert not told(capsys)
    monkeypatch.setattr(sys, "stdin", None)
    assert not told(capsys)
