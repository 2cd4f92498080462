"""Who sleeps wakes when it is time, or when called."""

from __future__ import annotations

import asyncio

from windlass.kits.clock import FakeClock
from windlass.kits.tasks import sleep_or_wake


async def started(clock: FakeClock, wake: asyncio.Event) -> asyncio.Task[None]:
    task = asyncio.create_task(sleep_or_wake(clock, 5.0, wake))
    for _ in range(3):
        await asyncio.sleep(0)
    return task


async def settled(task: asyncio.Task[None]) -> bool:
    for _ in range(5):
        await asyncio.sleep(0)
    return task.done()


async def test_it_ends_when_the_time_is_over():
    clock, wake = FakeClock(), asyncio.Event()
    task = await started(clock, wake)
    await clock.advance(4.9)
    assert not await settled(task)
    await clock.advance(0.2)
    assert await settled(task)
    assert not wake.is_set()


async def test_it_ends_when_woken():
    clock, wake = FakeClock(), asyncio.Event()
    task = await started(clock, wake)
    assert not await settled(task)
    wake.set()
    assert await settled(task)
    assert wake.is_set()
