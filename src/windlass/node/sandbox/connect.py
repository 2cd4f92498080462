"""Connections into the pod network: a helper inside it connects and passes the socket on."""

from __future__ import annotations

import asyncio
import json
import os
import socket
from pathlib import Path

from windlass.node.runtime.helpers import reap, start_helper
from windlass.node.sandbox import connect_helper


async def connect(directory: Path, address: str, port: int, timeout_seconds: float) -> socket.socket:
    """Return a connected TCP socket of the pod network. Raises ``OSError``.

    ``directory``: the agent's own.
    """
    ours, theirs = socket.socketpair()
    with ours, theirs:
        os.set_inheritable(theirs.fileno(), True)
        request = {
            "folder": str(directory),
            "address": address,
            "port": port,
            "timeout": timeout_seconds,
            "answer": theirs.fileno(),
        }
        pid, reader = start_helper("windlass.node.sandbox.connect_helper", json.dumps(request))
        os.close(reader)
        theirs.close()
        ours.setblocking(False)
        try:
            await _readable(ours)
            response, descriptors, _, _ = socket.recv_fds(ours, connect_helper.MAX_RESPONSE_BYTES, 1)
        finally:
            reap(pid)
    if descriptors:
        return socket.socket(fileno=descriptors[0])
    if not response:
        raise OSError("the helper in the pod network ended without a response")
    refusal = json.loads(response)
    raise OSError(refusal["errno"], refusal["message"])


async def _readable(connection: socket.socket) -> None:
    loop = asyncio.get_running_loop()
    ready: asyncio.Future[None] = loop.create_future()
    loop.add_reader(connection, lambda: ready.done() or ready.set_result(None))
    try:
        await ready
    finally:
        loop.remove_reader(connection)
