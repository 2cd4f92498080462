"""Consoles of containers: clients that are attached to a real shim."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from shim_attempt import Attempt

from windlass.node.runtime import console
from windlass.node.streams import framing
from windlass.node.streams.framing import FrameReader

EVERYTHING = {"stdin": True, "stdout": True, "stderr": True}


@pytest.fixture
def attempts(tmp_path: Path) -> Iterator[Any]:
    made: list[Attempt] = []

    def start(script: str, **spec: Any) -> Attempt:
        attempt = Attempt(tmp_path / str(len(made)), "sh", "-c", script, **spec)
        made.append(attempt)
        assert attempt.start() == "s"
        return attempt

    yield start
    for attempt in made:
        attempt.close()


class Client:
    """One attached client."""

    def __init__(self, attempt: Attempt, **wanted: bool) -> None:
        self.socket, theirs = socket.socketpair()
        with theirs:
            console.pass_connection(str(attempt.folder), {**EVERYTHING, **wanted}, theirs.fileno())
        self.socket.settimeout(60)
        self.reader = FrameReader()

    def send(self, channel: int, data: bytes) -> None:
        self.socket.sendall(framing.encode(bytes([channel]) + data))

    def end_input(self) -> None:
        self.send(framing.CLOSE, bytes([framing.STDIN]))

    def read(self) -> dict[int, bytes]:
        """Return what comes on each channel until the end."""
        found: dict[int, bytes] = {}
        with self.socket:
            while data := self.socket.recv(65_536):
                for frame in self.reader.feed(data):
                    found[frame[0]] = found.get(frame[0], b"") + frame[1:]
        return found


def test_slow_client_delays_the_output_and_loses_none(attempts: Any) -> None:
    attempt = attempts("read go; head -c 6000000 /dev/zero; echo end >&2", stdin=True, stdin_once=True)
    client = Client(attempt)
    client.send(framing.STDIN, b"go\n")
    time.sleep(1.0)
    assert not (attempt.folder / "exit.json").exists()  # the command waits for its reader
    found = client.read()
    assert found[framing.STDOUT] == bytes(6_000_000)
    assert found[framing.STDERR] == b"end\n"
    assert json.loads(found[framing.ERROR])["status"] == "Success"
    assert attempt.wait()["code"] == 0


def test_first_client_gets_the_output_so_far_and_others_what_comes(attempts: Any) -> None:
    attempt = attempts("echo first; read a; echo $a; read b; echo $b", stdin=True)
    attempt.until(lambda: "first" in attempt.text())
    first, second = Client(attempt), Client(attempt, stdin=False, stderr=False)
    first.send(framing.STDIN, b"one\n")
    attempt.until(lambda: "one" in attempt.text())
    first.end_input()  # the input stays open for the next client
    assert first.read()[framing.STDOUT] == b"first\none\n"
    third = Client(attempt)
    third.send(framing.STDIN, b"two\n")
    assert second.read()[framing.STDOUT] == b"one\ntwo\n"
    assert third.read()[framing.STDOUT] == b"two\n"
    assert attempt.wait()["code"] == 0


def test_container_without_a_reader_keeps_only_the_last_output(attempts: Any) -> None:
    attempt = attempts("head -c 3000000 /dev/zero; echo; echo last; read x", stdin=True)
    attempt.until(lambda: "last" in attempt.text())
    client = Client(attempt)
    client.send(framing.STDIN, b"\n")
    kept = client.read()[framing.STDOUT]
    assert kept.endswith(b"\0\nlast\n")
    assert len(kept) < 600_000


def test_terminal_is_one_stream_and_a_message_changes_its_size(attempts: Any) -> None:
    attempt = attempts("stty -echo; read x; stty size; echo err >&2; exit 4", stdin=True, tty=True)
    client = Client(attempt)
    client.send(framing.RESIZE, b'{"Width": 100, "Height": 30}')
    client.send(framing.RESIZE, b"not a size")
    client.send(framing.STDIN, b"\n")
    found = client.read()
    assert found[framing.STDOUT].endswith(b"30 100\r\nerr\r\n")
    assert framing.STDERR not in found
    assert attempt.wait()["code"] == 4
