"""Reaching a pod from outside its network: a helper enters the box, connects, and hands the socket over."""

from __future__ import annotations

import asyncio
import json
import os
import socket
from pathlib import Path

from windlass.node.runtime.helpers import collect, start_helper
from windlass.node.sandbox import connect_helper


async def connect(folder: Path, address: str, port: int, timeout_seconds: float) -> socket.socket:
    """A connected TCP socket of the box's network. ``folder``: the agent's own. Raises ``OSError``."""
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
        pid, reader = start_helper("windlass.node.sandbox.connect_helper", json.dumps(request))
        os.close(reader)
        theirs.close()
        ours.setblocking(False)
        try:
            await _readable(ours)
            words, descriptors, _, _ = socket.recv_fds(ours, connect_helper.WORDS, 1)
        finally:
            collect(pid)
    if descriptors:
        return socket.socket(fileno=descriptors[0])
    if not words:
        raise OSError("the helper in the box ended without a word")
    refusal = json.loads(words)
    raise OSError(refusal["errno"], refusal["message"])


async def _readable(connection: socket.socket) -> None:
    loop = asyncio.get_running_loop()
    ready: asyncio.Future[None] = loop.create_future()
    loop.add_reader(connection, lambda: ready.done() or ready.set_result(None))
    try:
        await ready
    finally:
        loop.remove_reader(connection)
