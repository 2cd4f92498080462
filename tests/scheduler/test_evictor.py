"""Evictions: told on the pod, then carried out, never on a pod that came later."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from kubeobjects import pod
from schedapi import Recorder, SchedulerApi

from windlass.api import errors
from windlass.api.resources import PODS
from windlass.engine.decision import Eviction
from windlass.kits.clock import FakeClock
from windlass.scheduler.evictor import Evictor, Order, Result, order_for


class Desk:
    def __init__(self, clock: FakeClock) -> None:
        self.api = SchedulerApi(clock)
        self.recorder = Recorder()
        self.results: list[Result] = []
        self.evictor = Evictor(
            self.api,  # type: ignore[arg-type]
            self.recorder,  # type: ignore[arg-type]
            self.results.append,
            clock=clock,
            rng=random.Random(1),
        )

    async def pass_time(self, seconds: float) -> None:
        for _ in range(round(seconds * 4)):
            await self.api.clock.advance(0)
            await self.api.clock.advance(0.25)


@asynccontextmanager
async def at_work(clock: FakeClock) -> AsyncIterator[Desk]:
    desk = Desk(clock)
    task = asyncio.create_task(desk.evictor.run())
    await clock.advance(0)
    yield desk
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


ORDER = Order("default/a", "u", "GangBindFailed", "the gang is not whole")


async def test_the_reason_stands_on_the_pod_before_it_goes(fake_clock: FakeClock) -> None:
    async with at_work(fake_clock) as desk:
        desk.api.add(pod("a", uid="u", node="n"))
        desk.evictor.submit(ORDER)
        desk.evictor.submit(ORDER)  # once is enough
        await desk.pass_time(1)
        assert desk.api.log == [("patch", "pods", "default/a"), ("delete", "pods", "default/a")]
        condition = desk.api.conditions(PODS, "default/a")["DisruptionTarget"]
        assert (condition["reason"], condition["message"]) == ("GangBindFailed", "the gang is not whole")
        assert desk.results == [Result(ORDER, True)]
        assert desk.recorder.said == [("a", "GangBindFailed", "the gang is not whole")]


async def test_a_later_pod_of_the_same_name_is_spared(fake_clock: FakeClock) -> None:
    async with at_work(fake_clock) as desk:
        desk.api.add(pod("a", uid="another", node="n"))
        desk.api.reject = lambda verb, *_: (
            errors.conflict(
                PODS, "a", "the UID in the precondition (u) does not match the UID in record (another)"
            )
            if verb in ("patch", "delete")
            else None
        )
        desk.evictor.submit(ORDER)
        await desk.pass_time(1)
        assert not (desk.api.object(PODS, "default/a") or {})["metadata"].get("deletionTimestamp")
        assert [r.evicted for r in desk.results] == [True]


async def test_a_pod_that_is_gone_counts_as_evicted(fake_clock: FakeClock) -> None:
    async with at_work(fake_clock) as desk:
        desk.evictor.submit(ORDER)
        await desk.pass_time(1)
        assert [r.evicted for r in desk.results] == [True]


@pytest.mark.parametrize("code", [429, 503])
async def test_an_overloaded_server_is_asked_again(fake_clock: FakeClock, code: int) -> None:
    async with at_work(fake_clock) as desk:
        desk.api.add(pod("a", uid="u", node="n"))
        problems = [errors.failure(code, "Busy", "later")]
        desk.api.reject = lambda verb, *_: problems.pop() if problems else None
        desk.evictor.submit(ORDER)
        await desk.pass_time(5)
        assert [r.evicted for r in desk.results] == [True]


async def test_a_refusal_for_good_is_told(fake_clock: FakeClock) -> None:
    async with at_work(fake_clock) as desk:
        desk.api.add(pod("a", uid="u", node="n"))
        desk.api.reject = lambda verb, *_: (
            errors.failure(403, "Forbidden", "no") if verb == "delete" else None
        )
        desk.evictor.submit(ORDER)
        await desk.pass_time(1)
        assert desk.results == [Result(ORDER, False, "no")]


def test_the_claimer_is_named() -> None:
    eviction: Any = Eviction("default/b", "v", "default/g", "n", "preempt", "default/claimer")
    order = order_for(eviction)
    assert order.reason == "PreemptionByScheduler"
    assert order.message == "evicted by preempt to make room for default/claimer"
