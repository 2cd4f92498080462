"""Events about successes wait until nothing more important is in progress, but not for
ever."""

from __future__ import annotations

import asyncio

from scheduler_api import Recorder

from windlass.client.recorder import ObjectRef
from windlass.kits.clock import FakeClock
from windlass.scheduler.status.event_buffer import MAX_DELAY_SECONDS, EventBuffer


async def test_events_wait_for_calm_but_not_for_ever(fake_clock: FakeClock) -> None:
    recorder, busy = Recorder(), [True]
    event_buffer = EventBuffer(recorder, fake_clock, lambda: busy[0])  # type: ignore[arg-type]
    task = asyncio.create_task(event_buffer.run())

    async def pass_time(seconds: float) -> None:
        for _ in range(round(seconds * 20)):
            await fake_clock.advance(0)
            await fake_clock.advance(0.05)

    event_buffer.record(ObjectRef("v1", "Pod", "default", "a", "u"), "Scheduled", "m")
    await pass_time(1.0)
    assert recorder.said == []
    busy[0] = False
    await pass_time(0.5)
    assert recorder.said == [("a", "Scheduled", "m")]
    busy[0] = True
    event_buffer.record(ObjectRef("v1", "Pod", "default", "b", "u"), "Scheduled", "m")
    await pass_time(MAX_DELAY_SECONDS - 0.5)
    assert recorder.said == [("a", "Scheduled", "m")]
    await pass_time(1.0)
    assert recorder.said[-1] == ("b", "Scheduled", "m")
    recorder.waiting = 1024  # it has enough to do: what is too much for it would be lost
    busy[0] = False
    event_buffer.record(ObjectRef("v1", "Pod", "default", "c", "u"), "Scheduled", "m")
    await pass_time(MAX_DELAY_SECONDS + 1.0)
    assert recorder.said[-1] == ("b", "Scheduled", "m")
    recorder.waiting = 0
    await pass_time(0.5)
    assert recorder.said[-1] == ("c", "Scheduled", "m")
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_no_event_is_lost_however_many_wait(fake_clock: FakeClock) -> None:
    recorder = Recorder()
    event_buffer = EventBuffer(recorder, fake_clock, lambda: True)  # type: ignore[arg-type]
    for index in range(25_000):
        event_buffer.record(ObjectRef("v1", "Pod", "default", f"p{index}"), "Scheduled", "m")
    assert event_buffer.waiting == 25_000
    task = asyncio.create_task(event_buffer.run())
    event_buffer.drain()
    for _ in range(110):
        await fake_clock.advance(0)
        await fake_clock.advance(0.05)
    assert event_buffer.waiting == 0
    assert len(recorder.said) == 25_000
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
