"""The event loop on which a process runs."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


def run(main: Coroutine[Any, Any, T]) -> T:
    """Like ``asyncio.run``, on uvloop where that is installed (the extra ``uvloop``).

    It saves a client that speaks TLS a third of its CPU per request, one on a Unix socket next to nothing.
    """
    try:
        import uvloop
    except ImportError:
        return asyncio.run(main)
    return uvloop.run(main)
