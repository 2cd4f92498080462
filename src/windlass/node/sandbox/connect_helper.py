"""A helper process: enter the box, connect to a pod, hand the connection over
(:mod:`windlass.node.sandbox.connect`)."""

from __future__ import annotations

import errno
import json
import socket

from windlass.node.runtime import attempt_files, syscalls
from windlass.node.sandbox import network_namespace

WORDS = 4096
"""The longest answer, in bytes."""


def main(text: str) -> int:
    """Connect inside the box; send the connection, or what refused it, to the asker.

    A socket stays in the network in which it was made, so whoever asked can use it outside.
    """
    request = json.loads(text)
    with socket.socket(fileno=request["answer"]) as answer:
        try:
            holder = attempt_files.read(request["folder"], network_namespace.RECORD)
            if holder is None:
                raise OSError("there is no box")
            names = ("user", "net") if holder["user_namespace"] else ("net",)
            syscalls.enter(holder["pid"], holder["start_time"], names)
            connection = socket.create_connection((request["address"], request["port"]), request["timeout"])
            connection.setblocking(True)
        except OSError as error:
            number = errno.ETIMEDOUT if isinstance(error, TimeoutError) else error.errno or 0
            refusal = {"errno": number, "message": str(error) or type(error).__name__}
            answer.send(json.dumps(refusal).encode()[:WORDS])
            return 1
        with connection:
            socket.send_fds(answer, [b"s"], [connection.fileno()])
    return 0
