"""Helper process that connects to a port of a pod from inside the pod.

Its stdout is the connection to the API server, which receives the connected socket. A socket stays
in the network in which it was created, so the API server can use it outside.
"""

from __future__ import annotations

import json
import os
import socket

from windlass.node.runtime import syscalls
from windlass.node.streams import framing

_CONNECT_SECONDS = 5.0
LOOPBACK = "127.0.0.1"


def main(text: str) -> int:
    """Connect and send the socket, or an error record.

    ``text``: ``{"holder": identity of the process that holds the pod's network or null,
    "namespaces", "addresses": those to try, "port"}``.
    """
    request = json.loads(text)
    with socket.socket(fileno=os.dup(1)) as answer:
        answer.setblocking(True)  # the agent's setting is shared
        try:
            holder = request["holder"]
            if holder is not None:
                syscalls.enter(holder["pid"], holder["start_time"], tuple(request["namespaces"]))
            connection = _connect(request["addresses"], request["port"])
        except OSError as error:
            refusal = {"error": error.strerror or str(error) or type(error).__name__}
            answer.sendall(framing.encode(json.dumps(refusal).encode()))
            return 1
        with connection:
            socket.send_fds(answer, [framing.encode(b'{"connected": true}')], [connection.fileno()])
    return 0


def _connect(addresses: list[str], port: int) -> socket.socket:
    """Return a connection to the first address that accepts one. Raises ``OSError`` of the last one."""
    refused: OSError = OSError("no address")
    for address in addresses:
        try:
            connection = socket.create_connection((address, port), _CONNECT_SECONDS)
        except OSError as error:
            refused = error
            continue
        connection.setblocking(True)
        return connection
    raise refused
