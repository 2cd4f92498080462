from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from windlass.controllers.work_queue import WorkQueue
from windlass.kits.clock import FakeClock


async def taken(queue: WorkQueue) -> list[str]:
    found = []
    while len(queue):
        key = await queue.get()
        found.append(key)
        queue.done(key)
    return found


@asynccontextmanager
async def ticking(queue: WorkQueue) -> AsyncIterator[None]:
    timers = asyncio.ensure_future(queue.run_timers())
    await asyncio.sleep(0)
    try:
        yield
    finally:
        timers.cancel()
        await asyncio.gather(timers, return_exceptions=True)


async def test_a_key_waits_once() -> None:
    queue = WorkQueue(FakeClock())
    for key in ("a", "b", "a"):
        queue.add(key)
    assert await taken(queue) == ["a", "b"]


async def test_a_key_is_worked_on_by_one_at_a_time() -> None:
    queue = WorkQueue(FakeClock())
    queue.add("a")
    assert await queue.get() == "a"
    queue.add("a")
    assert len(queue) == 0
    assert not queue.idle
    queue.done("a")
    assert await queue.get() == "a"
    queue.done("a")
    assert queue.idle


async def test_get_waits_for_a_key() -> None:
    queue = WorkQueue(FakeClock())
    waiting = asyncio.ensure_future(queue.get())
    await asyncio.sleep(0)
    assert not waiting.done()
    queue.add("a")
    assert await waiting == "a"


async def test_later() -> None:
    clock = FakeClock()
    queue = WorkQueue(clock)
    async with ticking(queue):
        queue.add_after("slow", 10)
        queue.add_after("fast", 1)
        await clock.advance(0.9)
        assert len(queue) == 0
        await clock.advance(0.2)
        assert await taken(queue) == ["fast"]
        await clock.advance(9)
        assert await taken(queue) == ["slow"]


async def test_the_earlier_wish_holds() -> None:
    clock = FakeClock()
    queue = WorkQueue(clock)
    async with ticking(queue):
        queue.add_after("a", 10)
        queue.add_after("a", 2)
        queue.add_after("a", 5)
        await clock.advance(2)
        assert await taken(queue) == ["a"]
        await clock.advance(20)
        assert await taken(queue) == []


async def test_what_is_added_now_is_not_added_later_as_well() -> None:
    clock = FakeClock()
    queue = WorkQueue(clock)
    async with ticking(queue):
        queue.add_after("a", 5)
        queue.add("a")
        assert await taken(queue) == ["a"]
        await clock.advance(20)
        assert len(queue) == 0


async def test_no_time_is_now() -> None:
    queue = WorkQueue(FakeClock())
    queue.add_after("a", 0)
    assert await taken(queue) == ["a"]
