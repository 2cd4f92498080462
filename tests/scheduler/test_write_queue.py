"""Queue of background writes: latest request, intervals, failures."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from windlass.api.errors import failure, not_found
from windlass.api.resources import PODS
from windlass.client.errors import UNREACHABLE, Unreachable
from windlass.client.outages import OUTAGE_SECONDS, Outages
from windlass.kits.clock import FakeClock
from windlass.scheduler.write_queue import MAX_FORBIDDEN_ATTEMPTS, WriteQueue


class Harness:
    """Records when each key was written."""

    def __init__(self, clock: FakeClock, concurrency: int = 2) -> None:
        self.clock = clock
        self.written: list[tuple[str, float]] = []
        self.problems: dict[str, list[BaseException]] = {}
        self.hold: dict[str, asyncio.Event] = {}
        self.kept: dict[str, int] = {}
        """Number of checks of a key that must not be written yet."""
        self.outages = Outages(clock)
        self.queue = WriteQueue(
            self.write,
            clock=clock,
            rng=random.Random(1),
            concurrency=concurrency,
            outages=self.outages,
            postpone=self.later,
        )

    def later(self, key: str) -> float:
        if key not in self.kept:
            return 0.0
        self.kept[key] += 1
        return 0.5

    async def write(self, key: str) -> None:
        self.written.append((key, self.clock.monotonic()))
        if key in self.hold:
            await self.hold[key].wait()
        if self.problems.get(key):
            raise self.problems[key].pop(0)

    async def pass_time(self, seconds: float) -> None:
        """In small steps, so that tasks that wake up can act and sleep again."""
        for _ in range(round(seconds * 4)):
            await self.clock.advance(0)
            await self.clock.advance(0.25)

    def times(self, key: str) -> list[float]:
        return [at for written, at in self.written if written == key]


@asynccontextmanager
async def at_work(harness: Harness) -> AsyncIterator[asyncio.Task[None]]:
    task = asyncio.create_task(harness.queue.run())
    await harness.clock.advance(0)
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_a_postponed_write_is_checked_again_and_delays_no_other(fake_clock: FakeClock) -> None:
    harness = Harness(fake_clock, concurrency=1)
    harness.kept["a"] = 0
    async with at_work(harness):
        begun = fake_clock.monotonic()
        harness.queue.enqueue("a")
        harness.queue.enqueue("b")
        await harness.pass_time(2.25)
        assert harness.times("a") == []
        assert harness.kept["a"] == 5
        assert harness.times("b") == [begun]
        del harness.kept["a"]
        await harness.pass_time(2.0)
        assert harness.times("a") == [begun + 2.5]


async def test_a_request_that_is_due_first_wakes_the_queue(fake_clock: FakeClock) -> None:
    harness = Harness(fake_clock)
    async with at_work(harness):
        begun = fake_clock.monotonic()
        for key, seconds in (("c", 3.0), ("d", 4.0), ("a", 1.0), ("b", 2.0)):
            harness.queue.enqueue(key, seconds)
            await fake_clock.advance(0)
        await harness.pass_time(5.0)
        assert [(key, at - begun) for key, at in harness.written] == [("a", 1), ("b", 2), ("c", 3), ("d", 4)]


async def test_the_earliest_request_counts_and_many_are_one_write(fake_clock: FakeClock) -> None:
    harness = Harness(fake_clock)
    async with at_work(harness):
        harness.queue.enqueue("a", 5.0)
        harness.queue.enqueue("a", 1.0)
        harness.queue.enqueue("a", 3.0)
        await harness.pass_time(10)
    assert harness.times("a") == [1.0]


async def test_a_request_during_a_write_is_written_after_it(fake_clock: FakeClock) -> None:
    harness = Harness(fake_clock)
    harness.hold["a"] = asyncio.Event()
    async with at_work(harness):
        harness.queue.enqueue("a")
        await harness.pass_time(1)
        harness.queue.enqueue("a")
        harness.queue.enqueue("b")  # is not held up by it
        await harness.pass_time(1)
        assert harness.times("b") == [1.0]
        assert len(harness.times("a")) == 1
        assert not harness.queue.idle
        harness.hold["a"].set()
        await harness.pass_time(1)
    assert len(harness.times("a")) == 2
    assert harness.queue.idle


async def test_concurrency_is_limited(fake_clock: FakeClock) -> None:
    harness = Harness(fake_clock, concurrency=2)
    harness.hold = {key: asyncio.Event() for key in "abc"}
    async with at_work(harness):
        for key in "abc":
            harness.queue.enqueue(key)
        await harness.pass_time(1)
        assert [key for key, _ in harness.written] == ["a", "b"]
        harness.hold["b"].set()
        await harness.pass_time(1)
        assert [key for key, _ in harness.written] == ["a", "b", "c"]


@pytest.mark.parametrize(
    ("problem", "again"),
    [
        (failure(409, "Conflict", "x"), True),
        (failure(410, "Gone", "x"), True),
        (failure(502, "", "x"), True),
        (failure(403, "Forbidden", "x"), True),
        (failure(409, "AlreadyExists", "x"), False),
        (failure(503, "ServiceUnavailable", "x"), True),
        (Unreachable(UNREACHABLE, "x"), True),
        (not_found(PODS, "x"), False),
        (failure(404, "NotFound", "404 page not found"), True),
        (failure(422, "Invalid", "x"), False),
    ],
)
async def test_temporary_errors_are_retried(
    fake_clock: FakeClock, problem: BaseException, again: bool
) -> None:
    harness = Harness(fake_clock)
    harness.problems["a"] = [problem]
    async with at_work(harness):
        harness.queue.enqueue("a")
        await harness.pass_time(20)
    assert len(harness.times("a")) == (2 if again else 1)


async def test_a_forbidden_write_is_given_up_after_some_attempts(fake_clock: FakeClock) -> None:
    harness = Harness(fake_clock)
    harness.problems["a"] = [failure(403, "Forbidden", "x")] * 100
    async with at_work(harness):
        harness.queue.enqueue("a")
        await harness.pass_time(100)
        assert len(harness.times("a")) == MAX_FORBIDDEN_ATTEMPTS
        assert 10.0 < harness.times("a")[-1] < 30.0
        assert harness.queue._backoffs == {}


async def test_retry_after_is_respected(fake_clock: FakeClock) -> None:
    harness = Harness(fake_clock)
    harness.problems["a"] = [failure(429, "TooManyRequests", "x", {"retryAfterSeconds": 7})]
    async with at_work(harness):
        harness.queue.enqueue("a")
        await harness.pass_time(20)
    assert harness.times("a") == [0.0, 7.0]


async def test_a_defect_ends_the_queue(fake_clock: FakeClock) -> None:
    harness = Harness(fake_clock)
    harness.problems["a"] = [ZeroDivisionError()]
    async with at_work(harness) as task:
        harness.queue.enqueue("a")
        await harness.pass_time(1)
        assert isinstance(task.exception(), ZeroDivisionError)


async def test_a_dropped_request_is_not_written(fake_clock: FakeClock) -> None:
    harness = Harness(fake_clock)
    async with at_work(harness):
        harness.queue.enqueue("a", 1.0)
        harness.queue.drop("a")
        await harness.pass_time(5)
    assert not harness.written


async def test_a_rejected_key_leaves_no_state(fake_clock: FakeClock) -> None:
    """Keys are names of pods: there are always new ones."""
    harness = Harness(fake_clock)
    harness.problems["a"] = [failure(503, "ServiceUnavailable", "later"), not_found(PODS, "a")]
    async with at_work(harness):
        harness.queue.enqueue("a")
        await harness.pass_time(3)
        assert len(harness.times("a")) == 2
        assert harness.queue._backoffs == {}


async def outage(harness: Harness, seconds: float) -> None:
    """No server answers, then a write of another key succeeds."""
    harness.outages.failed("PATCH")
    await harness.pass_time(seconds)
    harness.outages.failed("PATCH")
    harness.outages.answered("PATCH", 200)


async def test_failed_writes_are_repeated_soon_once_the_server_answers(fake_clock: FakeClock) -> None:
    harness = Harness(fake_clock, concurrency=8)
    for number in range(6):
        harness.problems[f"k{number}"] = [Unreachable(UNREACHABLE, "gone") for _ in range(9)]
    async with at_work(harness):
        for number in range(6):
            harness.queue.enqueue(f"k{number}")
        await outage(harness, 80.0)
        before, ended = len(harness.written), fake_clock.monotonic()
        harness.problems.clear()
        await harness.pass_time(1.25)
        assert {key for key, _ in harness.written[before:]} == {f"k{number}" for number in range(6)}
        moments = [at - ended for _, at in harness.written[before:]]
        assert len(set(moments)) > 2, "all at once"


async def test_a_requested_pause_is_kept_when_other_writes_succeed(fake_clock: FakeClock) -> None:
    harness = Harness(fake_clock)
    harness.problems["k"] = [failure(429, "TooManyRequests", "later", {"retryAfterSeconds": 20})]
    async with at_work(harness):
        harness.queue.enqueue("k")
        await harness.pass_time(1.0)
        await outage(harness, OUTAGE_SECONDS)
        await harness.pass_time(15.0)
        assert len(harness.times("k")) == 1
        await harness.pass_time(5.0)
        assert len(harness.times("k")) == 2


async def test_writes_forbidden_by_a_restarted_server_are_retried(
    fake_clock: FakeClock,
) -> None:
    """A server that has just started may not have loaded its rules yet."""
    harness = Harness(fake_clock)
    gone = [Unreachable(UNREACHABLE, "gone") for _ in range(MAX_FORBIDDEN_ATTEMPTS)]
    no = [failure(403, "Forbidden", "no") for _ in range(MAX_FORBIDDEN_ATTEMPTS - 2)]
    harness.problems["k"] = [*gone, *no]
    async with at_work(harness):
        harness.queue.enqueue("k")
        await harness.pass_time(120.0)
        assert harness.problems["k"] == []
        assert len(harness.times("k")) == len(gone) + len(no) + 1
