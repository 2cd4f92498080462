import asyncio
import time

import pytest

from windlass.kits import clock as clock_module
from windlass.kits.clock import FakeClock, SystemClock


async def test_sleepers_wake_in_order_and_at_their_own_moment():
    clock = FakeClock(start=1000.0)
    woken = []

    async def sleeper(name: str, seconds: float) -> None:
        await clock.sleep(seconds)
        woken.append((name, clock.monotonic()))

    tasks = [asyncio.create_task(sleeper("late", 5)), asyncio.create_task(sleeper("early", 2))]
    await asyncio.sleep(0)
    await clock.advance(3)
    assert woken == [("early", 2.0)]
    await clock.advance(10)
    assert woken == [("early", 2.0), ("late", 5.0)]
    assert clock.now() == 1013.0
    await asyncio.gather(*tasks)


async def test_a_sleeper_that_sleeps_again_is_served_within_one_advance():
    clock = FakeClock()
    ticks = []

    async def ticker() -> None:
        for _ in range(3):
            await clock.sleep(1)
            ticks.append(clock.monotonic())

    task = asyncio.create_task(ticker())
    await asyncio.sleep(0)
    await clock.advance(3)
    assert ticks == [1.0, 2.0, 3.0]
    await task


async def test_no_time_passes_in_a_sleep_of_nothing():
    clock = FakeClock()
    await clock.sleep(0)
    assert clock.monotonic() == 0


def test_a_machine_that_was_suspended_is_as_much_later(monkeypatch: pytest.MonkeyPatch) -> None:
    if not hasattr(time, "CLOCK_BOOTTIME"):
        pytest.skip("no CLOCK_BOOTTIME: this kernel does not tell")
    night, told = 8 * 3600.0, time.clock_gettime
    clock, before = SystemClock(), SystemClock().elapsed()
    monkeypatch.setattr(
        time, "clock_gettime", lambda which: told(which) + night * (which == time.CLOCK_BOOTTIME)
    )
    assert night <= clock.elapsed() - before < night + 60


def test_where_the_kernel_does_not_tell_the_other_clock_has_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(which: int) -> float:
        raise OSError(22, "Invalid argument")

    monkeypatch.setattr(time, "clock_gettime", refuse)
    assert clock_module._since_boot() is None
    monkeypatch.setattr(clock_module, "_SINCE_BOOT", None)
    before = time.monotonic()
    assert before <= SystemClock().elapsed() <= time.monotonic()


def test_a_fake_machine_is_suspended_without_its_sleepers() -> None:
    clock = FakeClock(start=100.0)
    clock.suspend(50.0)
    assert (clock.now(), clock.monotonic(), clock.elapsed()) == (150.0, 0.0, 50.0)
