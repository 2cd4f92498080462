"""Blocking calls in threads that must end before the caller goes on."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


async def in_thread(call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Run ``call`` in a thread.

    If cancelled, it waits for the end of the thread before it raises: a library must not be closed
    during a call.
    """
    work = asyncio.ensure_future(asyncio.to_thread(call, *args, **kwargs))
    try:
        return await asyncio.shield(work)
    except asyncio.CancelledError:
        await asyncio.wait((work,))
        raise
