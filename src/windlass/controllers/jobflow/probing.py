"""Probes of pods by TCP and HTTP."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable

from windlass.controllers.jobflow.flow import PodCondition

TIMEOUT_SECONDS = 1.0
"""Timeout (seconds) of one probe."""

Probe = Callable[[str, PodCondition], Awaitable[bool]]
"""``probe(address, condition)``: return whether the pod with this address meets the condition."""


async def probe_pod(address: str, condition: PodCondition) -> bool:
    """Connect to the port, and send a GET request if the condition has a path."""
    try:
        async with asyncio.timeout(TIMEOUT_SECONDS):
            return await _probe(address, condition)
    except (OSError, TimeoutError, ValueError):
        return False


async def _probe(address: str, condition: PodCondition) -> bool:
    reader, writer = await asyncio.open_connection(address, condition.port)
    try:
        if not condition.path:
            return True
        host = f"[{address}]" if ":" in address else address
        lines = [f"GET {condition.path} HTTP/1.1", f"Host: {host}:{condition.port}", "Connection: close"]
        if condition.header is not None:
            lines.append(": ".join(condition.header))
        writer.write(("\r\n".join(lines) + "\r\n\r\n").encode())
        status = (await reader.readline()).split()
        return len(status) > 1 and 200 <= int(status[1]) < 400
    finally:
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()
