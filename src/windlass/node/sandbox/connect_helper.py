"""Helper process that connects to a pod from inside the pod network.

:mod:`windlass.node.sandbox.connect` starts it and receives the connection.
"""

from __future__ import annotations

import errno
import json
import socket

from windlass.node.runtime import attempt_files, syscalls
from windlass.node.sandbox import network_namespace

MAX_RESPONSE_BYTES = 4096
"""Maximum length of a response in bytes."""


def main(text: str) -> int:
    """Connect inside the pod network. Send the connection or the error to the agent.

    A socket stays in the network in which it was created, so the agent can use it outside.
    """
    request = json.loads(text)
    with socket.socket(fileno=request["answer"]) as answer:
        try:
            holder = attempt_files.read(request["folder"], network_namespace.RECORD)
            if holder is None:
                raise OSError("the pod network does not exist")
            names = ("user", "net") if holder["user_namespace"] else ("net",)
            syscalls.enter(holder["pid"], holder["start_time"], names)
            connection = socket.create_connection((request["address"], request["port"]), request["timeout"])
            connection.setblocking(True)
        except OSError as error:
            number = errno.ETIMEDOUT if isinstance(error, TimeoutError) else error.errno or 0
            refusal = {"errno": number, "message": str(error) or type(error).__name__}
            answer.send(json.dumps(refusal).encode()[:MAX_RESPONSE_BYTES])
            return 1
        with connection:
            socket.send_fds(answer, [b"s"], [connection.fileno()])
    return 0
