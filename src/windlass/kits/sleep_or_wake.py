"""Sleeping with one ear open."""

from __future__ import annotations

import asyncio

from windlass.kits.clock import Clock


async def sleep_or_wake(clock: Clock, seconds: float, wake: asyncio.Event) -> None:
    """Until so many seconds have passed or ``wake`` is set, whichever is first. ``wake`` is left as it is."""
    sleeper = asyncio.ensure_future(clock.sleep(seconds))
    woken = asyncio.ensure_future(wake.wait())
    try:
        await asyncio.wait((sleeper, woken), return_when=asyncio.FIRST_COMPLETED)
    finally:
        sleeper.cancel()
        woken.cancel()
