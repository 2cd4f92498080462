"""What each of the three processes is made of.

Each runs one asyncio program on uvloop, ends in order on SIGTERM, and dies with the supervisor. A
failure that trying again cannot help (a damaged database, say) is written to a file for the supervisor
and told by the exit status ``EX_CONFIG``.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import socket
import sys
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from windlass.api.errors import WindlassError
from windlass.app.options import ChildOptions, parse_gpus
from windlass.app.supervisor import USELESS_TO_RETRY, failure_file
from windlass.kits import processes
from windlass.kits import rng as chance
from windlass.kits.clock import SystemClock
from windlass.kits.files import write_atomic

STOP_GRACE_SECONDS = 10.0
"""How long pods get to end on ``windlass down``; those with a longer grace of their own are cut short."""


def run_child(options: ChildOptions) -> int:
    """Run the process named by ``options.role`` until it is told to stop. Returns the exit status."""
    if not processes.die_with_parent(options.parent):
        return 0
    processes.set_name(f"wl-{options.role}")
    programs: dict[str, Callable[[ChildOptions], Coroutine[Any, Any, None]]] = {
        "server": _server,
        "control": _control,
        "node": _node,
    }
    try:
        import uvloop

        uvloop.run(programs[options.role](options))
    except WindlassError as error:
        print(f"error[{error.code}]: {error.message}\nwhy: {error.evidence}", file=sys.stderr, flush=True)
        write_atomic(failure_file(options.state, options.role), json.dumps(error.as_dict()), durable=False)
        return USELESS_TO_RETRY
    return 0


async def until_signal(work: Awaitable[None], stop: Callable[[int], Awaitable[None]] | None = None) -> None:
    """Run ``work`` until it ends or a signal comes; then ``stop(signum)``, then cancel what is left.

    Whatever ``work`` raises is raised here.
    """
    loop = asyncio.get_running_loop()
    told: asyncio.Future[int] = loop.create_future()

    def receive(number: int) -> None:
        if not told.done():
            told.set_result(number)

    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGQUIT):
        loop.add_signal_handler(number, receive, number)
    task = asyncio.ensure_future(work)
    await asyncio.wait((task, told), return_when=asyncio.FIRST_COMPLETED)
    if told.done() and not task.done():
        if stop is not None:
            await stop(told.result())
        task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task


async def _server(options: ChildOptions) -> None:
    raise NotImplementedError


async def _control(options: ChildOptions) -> None:
    raise NotImplementedError


async def _node(options: ChildOptions) -> None:
    raise NotImplementedError


def _inherited(descriptor: int) -> socket.socket:
    listener = socket.socket(fileno=descriptor)
    os.set_inheritable(descriptor, False)
    listener.setblocking(False)
    return listener


__all__ = ["SystemClock", "chance", "parse_gpus", "run_child"]
