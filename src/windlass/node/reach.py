"""Reaching a pod from outside its network: a helper enters the box, connects, and hands the socket over."""

from __future__ import annotations

import json
import os
import socket
from pathlib import Path

from windlass.node import box, linux, records
from windlass.node.spawning import collect, start_helper

_WORDS = 4096


def connect(folder: Path, address: str, port: int, timeout_seconds: float) -> socket.socket:
    """Blocks. Raises ``OSError``."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        os.set_inheritable(theirs.fileno(), True)
        request = {
            "folder": str(folder),
            "address": address,
            "port": port,
            "timeout": timeout_seconds,
            "answer": theirs.fileno(),
        }
        pid, reader = start_helper("reach", json.dumps(request))
        os.close(reader)
        theirs.close()
        ours.settimeout(timeout_seconds + 2)
        words, descriptors, _, _ = socket.recv_fds(ours, _WORDS, 1)
    collect(pid)
    if not descriptors:
        raise OSError(words.decode(errors="replace") or "the helper in the box ended without a word")
    return socket.socket(fileno=descriptors[0])


def main(text: str) -> int:
    """The helper: connect inside the box, send the connection (or why not) to the asker."""
    request = json.loads(text)
    with socket.socket(fileno=request["answer"]) as answer:
        try:
            holder = records.read(request["folder"], box.RECORD)
            if holder is None:
                raise OSError("there is no box")
            names = ("user", "net") if holder["user_namespace"] else ("net",)
            linux.enter(holder["pid"], holder["start_time"], names)
            connection = socket.create_connection((request["address"], request["port"]), request["timeout"])
            connection.setblocking(True)
        except OSError as error:
            answer.send((str(error) or type(error).__name__).encode()[:_WORDS])
            return 1
        with connection:
            socket.send_fds(answer, [b"s"], [connection.fileno()])
    return 0
