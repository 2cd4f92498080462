"""``ssh`` of pods in single-node mode: it enters another pod through the node agent.

``mpirun`` and other launchers start processes on other hosts by ``ssh HOST COMMAND``. The pods of
a box are processes of one machine, so no SSH server is needed. A pod that serves SSH itself is
entered by the real ``ssh``. The program waits for a pod that is not running yet.

This module uses only the standard library and few imports, because it starts as a program.
"""

from __future__ import annotations

import json
import os
import select
import socket
import sys
from collections.abc import Sequence
from typing import Any

from windlass.kits import monotonic
from windlass.node.streams import framing
from windlass.node.streams.framing import FrameReader

SOCKET, NAMESPACE = "WINDLASS_NODE_SOCKET", "WINDLASS_POD_NAMESPACE"
"""Environment variables of a pod: the agent's socket, and the pod's namespace."""
_WITH_VALUE = "BbcDEeFIiJLlmOopPQRSWw"
_FAILED = 255
"""Exit status of ssh for all failures of its own."""
_WAIT_SECONDS = 120.0
"""Maximum time to wait for a pod that is not running yet."""
_RETRY_SECONDS = 0.1
_PROBE_SECONDS = 0.5
_SSH_PORT = 22
_BLOCK = 65_536
_REAL = ("/usr/bin/ssh", "/usr/local/bin/ssh", "/bin/ssh")


def main(argv: Sequence[str]) -> int:
    """Run ``ssh [OPTIONS] [USER@]HOST COMMAND…``; return the exit status of the command."""
    host, words = parse(argv)
    if not host or not words:
        print(
            "usage: ssh [OPTIONS] HOST COMMAND: pods of single-node mode have no login shell", file=sys.stderr
        )
        return _FAILED
    deadline = monotonic.monotonic() + _WAIT_SECONDS
    while True:
        real = next((path for path in _REAL if os.access(path, os.X_OK)), "")
        if real and _serves_ssh(host):
            os.execv(real, [real, *argv])
        try:
            return _run(host, " ".join(words))
        except PermissionError as error:
            refusal = error
        if monotonic.monotonic() >= deadline:
            print(f"ssh: pod {host}: {refusal}", file=sys.stderr)
            return _FAILED
        monotonic.pause(_RETRY_SECONDS)


def parse(argv: Sequence[str]) -> tuple[str, list[str]]:
    """Return host and command of the arguments of ssh."""
    rest = list(argv)
    while rest:
        word = rest.pop(0)
        if not word.startswith("-"):
            return word.rpartition("@")[2], rest
        if len(word) == 2 and word[1] in _WITH_VALUE and rest:
            rest.pop(0)
    return "", []


def _serves_ssh(host: str) -> bool:
    try:
        with socket.create_connection((host, _SSH_PORT), _PROBE_SECONDS):
            return True
    except OSError:
        return False


def _run(host: str, command: str) -> int:
    """Run a command in a pod. Raises ``PermissionError`` with the agent's words if it refuses."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        try:
            connection.connect(os.environ.get(SOCKET, ""))
        except OSError as error:
            raise PermissionError(f"the node agent does not answer: {error}") from error
        request = {
            "kind": "exec",
            "namespace": os.environ.get(NAMESPACE, "default"),
            "name": host.partition(".")[0],
        }
        connection.sendall(framing.encode(json.dumps(request).encode()))
        reader = FrameReader()
        frames = _frames(connection, reader)
        if not frames:
            raise PermissionError("the node agent closed the connection")
        response = json.loads(frames.pop(0))
        if "error" in response:
            raise PermissionError(response["error"])
        words = {"argv": ["/bin/sh", "-c", command], "stdin": True, "tty": False}
        connection.sendall(framing.encode(json.dumps(words).encode()))
        return _copy(connection, reader, frames)


def _frames(connection: socket.socket, reader: FrameReader) -> list[bytes]:
    """Return the next frames; none at the end."""
    while True:
        data = connection.recv(_BLOCK)
        if not data:
            return []
        if frames := reader.feed(data):
            return frames


def _copy(connection: socket.socket, reader: FrameReader, frames: list[bytes]) -> int:
    """Copy streams until the command ends; return its exit status."""
    poller = select.poll()
    poller.register(connection.fileno(), select.POLLIN)
    poller.register(0, select.POLLIN)
    while True:
        for frame in frames:
            code = _deliver(frame)
            if code is not None:
                return code
        frames = []
        for descriptor, _ in poller.poll():
            if descriptor == 0:
                data = os.read(0, _BLOCK)
                message = bytes([framing.STDIN]) + data if data else bytes([framing.CLOSE, framing.STDIN])
                connection.sendall(framing.encode(message))
                if not data:
                    poller.unregister(0)
                continue
            data = connection.recv(_BLOCK)
            if not data:
                print("ssh: the connection to the pod was lost", file=sys.stderr)
                return _FAILED
            frames = reader.feed(data)


def _deliver(frame: bytes) -> int | None:
    """Write output; return the exit status once the command has ended."""
    channel, data = frame[0], frame[1:]
    if channel in (framing.STDOUT, framing.STDERR):
        left = memoryview(data)
        while left:
            left = left[os.write(channel, left) :]
        return None
    return _exit_status(json.loads(data)) if channel == framing.ERROR else None


def _exit_status(status: dict[str, Any]) -> int:
    if status.get("status") == "Success":
        return 0
    for cause in (status.get("details") or {}).get("causes") or ():
        if cause.get("reason") == "ExitCode":
            return int(cause["message"])
    print(f"ssh: {status.get('message')}", file=sys.stderr)
    return _FAILED
