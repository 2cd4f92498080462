"""Evictions.

the reason is written on the pod first, and a later pod of the same name is never
evicted.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest
from kubeobjects import pod
from scheduler_api import Recorder, SchedulerApi

from windlass.api import errors, views
from windlass.api.resources import PODS
from windlass.engine.decision import Eviction
from windlass.kits.clock import FakeClock
from windlass.scheduler.commit.evictor import EvictionOrder, EvictionResult, Evictor, order_for


class Harness:
    def __init__(self, clock: FakeClock) -> None:
        self.api = SchedulerApi(clock)
        self.pods: dict[str, views.Pod] = {}
        self.recorder = Recorder()
        self.results: list[EvictionResult] = []
        self.waits: list[tuple[EvictionOrder, str]] = []
        self.sure = True
        self.evictor = Evictor(
            self.api,  # type: ignore[arg-type]
            self.pods,
            self.recorder,  # type: ignore[arg-type]
            self.results.append,
            delayed=lambda order, why: self.waits.append((order, why)),
            holds_lease=lambda: self.sure,
            clock=clock,
            rng=random.Random(1),
        )

    async def pass_time(self, seconds: float) -> None:
        for _ in range(round(seconds * 4)):
            await self.api.clock.advance(0)
            await self.api.clock.advance(0.25)


@asynccontextmanager
async def at_work(clock: FakeClock) -> AsyncIterator[Harness]:
    harness = Harness(clock)
    task = asyncio.create_task(harness.evictor.run())
    await clock.advance(0)
    yield harness
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


ORDER = EvictionOrder("default/a", "u", "GangBindFailed", "the gang is not whole")


async def test_the_reason_is_written_before_the_pod_is_deleted(fake_clock: FakeClock) -> None:
    async with at_work(fake_clock) as harness:
        harness.api.add(pod("a", uid="u", node="n"))
        obj = pod("a", uid="u", node="n")
        obj["metadata"]["generation"] = 4
        harness.pods["default/a"] = views.decode_pod(msgspec.json.encode(obj))
        harness.evictor.submit(ORDER)
        harness.evictor.submit(ORDER)  # once is enough
        await harness.pass_time(1)
        assert harness.api.log == [("patch", "pods", "default/a"), ("delete", "pods", "default/a")]
        condition = harness.api.conditions(PODS, "default/a")["DisruptionTarget"]
        assert (condition["reason"], condition["message"]) == ("GangBindFailed", "the gang is not whole")
        assert condition["observedGeneration"] == 4
        assert condition["lastTransitionTime"]
        assert harness.results == [EvictionResult(ORDER, True)]
        assert harness.recorder.said == [("a", "GangBindFailed", "the gang is not whole")]


async def test_no_pod_is_evicted_while_another_instance_may_lead(fake_clock: FakeClock) -> None:
    async with at_work(fake_clock) as harness:
        harness.api.add(pod("a", uid="u", node="n"))
        harness.sure = False
        harness.evictor.submit(ORDER)
        await harness.pass_time(5)
        assert not harness.api.log
        harness.sure = True
        await harness.pass_time(1)
        assert harness.results == [EvictionResult(ORDER, True)]


async def test_a_later_pod_of_the_same_name_is_not_deleted(fake_clock: FakeClock) -> None:
    async with at_work(fake_clock) as harness:
        harness.api.add(pod("a", uid="another", node="n"))
        harness.api.reject = lambda verb, *_: (
            errors.conflict(
                PODS, "a", "the UID in the precondition (u) does not match the UID in record (another)"
            )
            if verb in ("patch", "delete")
            else None
        )
        harness.evictor.submit(ORDER)
        await harness.pass_time(1)
        assert not (harness.api.object(PODS, "default/a") or {})["metadata"].get("deletionTimestamp")
        assert [r.evicted for r in harness.results] == [True]


async def test_a_pod_that_is_gone_counts_as_evicted(fake_clock: FakeClock) -> None:
    async with at_work(fake_clock) as harness:
        harness.evictor.submit(ORDER)
        await harness.pass_time(1)
        assert [r.evicted for r in harness.results] == [True]


@pytest.mark.parametrize("code", [429, 503])
async def test_evictions_are_repeated_on_an_overloaded_server(fake_clock: FakeClock, code: int) -> None:
    async with at_work(fake_clock) as harness:
        harness.api.add(pod("a", uid="u", node="n"))
        problems = [errors.failure(code, "Busy", "later")]
        harness.api.reject = lambda verb, *_: problems.pop() if problems else None
        harness.evictor.submit(ORDER)
        await harness.pass_time(5)
        assert [r.evicted for r in harness.results] == [True]


async def test_a_failed_condition_prevents_no_eviction(fake_clock: FakeClock) -> None:
    async with at_work(fake_clock) as harness:
        harness.api.add(pod("a", uid="u", node="n"))
        harness.api.reject = lambda verb, *_: (
            errors.failure(403, "Forbidden", "no") if verb == "patch" else None
        )
        harness.evictor.submit(ORDER)
        await harness.pass_time(1)
        assert harness.results == [EvictionResult(ORDER, True)]


async def test_a_final_rejection_is_reported(fake_clock: FakeClock) -> None:
    async with at_work(fake_clock) as harness:
        harness.api.add(pod("a", uid="u", node="n"))
        harness.api.reject = lambda verb, *_: (
            errors.failure(422, "Invalid", "no") if verb == "delete" else None
        )
        harness.evictor.submit(ORDER)
        await harness.pass_time(1)
        assert harness.results == [EvictionResult(ORDER, False, "no")]


async def test_missing_rights_to_evict_are_reported_after_a_while(fake_clock: FakeClock) -> None:
    """A server that has just started forbids everything until it has loaded the
    cluster's rules."""
    async with at_work(fake_clock) as harness:
        harness.api.add(pod("a", uid="u", node="n"))
        harness.api.reject = lambda verb, *_: (
            errors.failure(403, "Forbidden", "no") if verb == "delete" else None
        )
        harness.evictor.submit(ORDER)
        await harness.pass_time(3)
        assert harness.results == []
        await harness.pass_time(30)
        assert harness.results == [EvictionResult(ORDER, False, "no")]
        harness.evictor.submit(ORDER)
        await harness.pass_time(1)
        harness.api.reject = lambda *_: None
        await harness.pass_time(5)
        assert harness.results[1:] == [EvictionResult(ORDER, True)]


def stray(code: int) -> errors.StatusError:
    """A response of a proxy or of a failing server, not about this request."""
    return errors.failure(code, "", 'Operation cannot be fulfilled on pods "druid-0": try again')


@pytest.mark.parametrize("code", [401, 404, 408, 409, 410, 500, 502, 504])
@pytest.mark.parametrize("guarded", [False, True])
async def test_a_stray_rejection_ends_no_eviction(fake_clock: FakeClock, code: int, guarded: bool) -> None:
    order = EvictionOrder("default/druid-0", "u", "NodeOvercommitted", "one too many", guarded=guarded)
    async with at_work(fake_clock) as harness:
        harness.api.add(pod("druid-0", uid="u", node="n"))
        problems = [stray(code)] * 3
        harness.api.reject = lambda verb, *_: problems.pop() if verb == "delete" and problems else None
        harness.evictor.submit(order)
        await harness.pass_time(10)
        assert not problems
        assert (harness.api.object(PODS, "default/druid-0") or {})["metadata"]["deletionTimestamp"]
        assert harness.results == [EvictionResult(order, True)]


async def test_a_pod_is_evicted_without_a_condition_after_a_timeout(fake_clock: FakeClock) -> None:
    """A webhook on pods/status does not answer."""
    broken = errors.failure(500, "InternalError", 'failed calling webhook "w": connection refused')
    async with at_work(fake_clock) as harness:
        harness.api.add(pod("a", uid="u", node="n"))
        harness.api.reject = lambda verb, *_: broken if verb == "patch" else None
        harness.evictor.submit(ORDER)
        await harness.pass_time(2)
        assert harness.results == []
        await harness.pass_time(20)
        assert harness.results == [EvictionResult(ORDER, True)]


def test_the_preemptor_is_named() -> None:
    eviction: Any = Eviction("default/b", "v", "default/g", "n", "preempt", "default/claimer")
    order = order_for(eviction)
    assert order.reason == "PreemptionByScheduler"
    assert order.message == "evicted by preempt to free capacity for default/claimer"


# ------------------------------------------------------------------ victims respect budgets

CLAIM = EvictionOrder("default/a", "u", "PreemptionByScheduler", "room for g", "default/g", guarded=True)


def budget_says_no() -> errors.StatusError:
    cause = {
        "reason": "DisruptionBudget",
        "message": "The disruption budget b needs 2 healthy pods and has 2 currently",
    }
    return errors.failure(
        429,
        "TooManyRequests",
        "Cannot evict pod as it would violate the pod's disruption budget.",
        {"causes": [cause]},
    )


async def test_the_eviction_api_is_used_and_windlass_condition_comes_last(fake_clock: FakeClock) -> None:
    async with at_work(fake_clock) as harness:
        harness.api.add(pod("a", uid="u", node="n"))
        harness.evictor.submit(CLAIM)
        await harness.pass_time(1)
        assert harness.api.log == [("delete", "pods", "default/a"), ("patch", "pods", "default/a")]
        assert (
            harness.api.conditions(PODS, "default/a")["DisruptionTarget"]["reason"] == "PreemptionByScheduler"
        )
        assert harness.results == [EvictionResult(CLAIM, True)]
        assert [reason for _, reason, _ in harness.recorder.said] == ["PreemptionByScheduler"]


async def test_a_pod_that_is_gone_before_its_condition_counts_as_evicted(fake_clock: FakeClock) -> None:
    async with at_work(fake_clock) as harness:
        harness.api.add(pod("a", uid="u"))  # not bound: it goes at once
        harness.evictor.submit(CLAIM)
        await harness.pass_time(1)
        assert harness.results == [EvictionResult(CLAIM, True)]
        assert harness.api.object(PODS, "default/a") is None


async def test_the_condition_is_repeated_without_a_second_eviction(fake_clock: FakeClock) -> None:
    async with at_work(fake_clock) as harness:
        harness.api.add(pod("a", uid="u", node="n"))
        problems = [errors.failure(503, "ServiceUnavailable", "later")]
        harness.api.reject = lambda verb, *_: problems.pop() if verb == "patch" and problems else None
        harness.evictor.submit(CLAIM)
        await harness.pass_time(5)
        assert [verb for verb, *_ in harness.api.log] == ["delete", "patch"]
        assert harness.results == [EvictionResult(CLAIM, True)]


async def test_a_temporary_rejection_by_a_budget_is_awaited(fake_clock: FakeClock) -> None:
    async with at_work(fake_clock) as harness:
        harness.api.add(pod("a", uid="u", node="n"))
        until = fake_clock.monotonic() + 5.0
        harness.api.refuse_eviction = lambda *_: budget_says_no() if fake_clock.monotonic() < until else None
        harness.evictor.submit(CLAIM)
        await harness.pass_time(1)
        assert harness.waits
        assert harness.waits[0] == (CLAIM, "The disruption budget b needs 2 healthy pods and has 2 currently")
        assert not harness.results
        assert not harness.api.conditions(PODS, "default/a")
        await harness.pass_time(12)
        assert harness.results == [EvictionResult(CLAIM, True)]


async def test_after_a_lasting_rejection_no_eviction_is_tried_for_a_while(fake_clock: FakeClock) -> None:
    asked: list[float] = []

    def refuse(*_: object) -> errors.StatusError:
        asked.append(fake_clock.monotonic())
        return budget_says_no()

    async with at_work(fake_clock) as harness:
        harness.api.add(pod("a", uid="u", node="n"))
        harness.api.refuse_eviction = refuse
        harness.evictor.submit(CLAIM)
        await harness.pass_time(40)
        (result,) = harness.results
        assert (result.evicted, result.rejected) == (False, True)
        assert "needs 2 healthy pods" in result.message
        last = asked[-1]
        harness.evictor.submit(CLAIM)  # the engine decides again
        await harness.pass_time(10)
        assert asked[-1] == last
        await harness.pass_time(60)
        assert asked[-1] > last
        before = len(harness.results)
        harness.evictor.submit(ORDER)  # it has to go for another reason: no budget is asked
        await harness.pass_time(1)
        assert harness.results[before:] == [EvictionResult(ORDER, True)]


async def test_a_pod_of_several_budgets_cannot_be_evicted(fake_clock: FakeClock) -> None:
    text = "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."
    async with at_work(fake_clock) as harness:
        harness.api.add(pod("a", uid="u", node="n"))
        harness.api.refuse_eviction = lambda *_: errors.failure(500, "InternalError", text)
        harness.evictor.submit(CLAIM)
        await harness.pass_time(1)
        assert harness.results == [EvictionResult(CLAIM, False, text, rejected=True)]


async def test_overload_is_not_a_rejection_by_a_budget(fake_clock: FakeClock) -> None:
    async with at_work(fake_clock) as harness:
        harness.api.add(pod("a", uid="u", node="n"))
        problems = [errors.failure(429, "TooManyRequests", "slow down", {"retryAfterSeconds": 1})] * 30
        harness.api.refuse_eviction = lambda *_: problems.pop() if problems else None
        harness.evictor.submit(CLAIM)
        await harness.pass_time(60)
        assert not harness.waits
        assert harness.results == [EvictionResult(CLAIM, True)]


async def test_an_eviction_that_fails_inside_the_server_has_a_timeout(
    fake_clock: FakeClock,
) -> None:
    """A webhook on evictions does not answer.

    The failure is reported and given up, except for an incomplete gang.
    """
    broken = errors.failure(500, "InternalError", 'failed calling webhook "w": connection refused')
    guarded = EvictionOrder("default/a", "u", "PreemptionByScheduler", "room", "default/claimer", True)
    async with at_work(fake_clock) as harness:
        harness.api.add(pod("a", uid="u", node="n"), pod("b", uid="u", node="n"))
        harness.api.reject = lambda verb, *_: broken if verb in ("evict", "delete") else None
        harness.evictor.submit(guarded)
        harness.evictor.submit(EvictionOrder("default/b", "u", "GangBindFailed", "not whole"))
        await harness.pass_time(30)
        assert harness.results == []
        assert (harness.waits[0][0], "failed calling webhook" in harness.waits[0][1]) == (guarded, True)
        await harness.pass_time(70)
        (result,) = harness.results
        assert (result.order, result.evicted, result.rejected) == (guarded, False, False)
        harness.api.reject = lambda verb, *_: None
        await harness.pass_time(60)
        assert [one.order.key for one in harness.results] == ["default/a", "default/b"]
        assert harness.evictor._failing_since == {}


async def test_a_later_pod_of_the_same_name_is_not_evicted(fake_clock: FakeClock) -> None:
    async with at_work(fake_clock) as harness:
        harness.api.add(pod("a", uid="another", node="n"))
        harness.evictor.submit(CLAIM)
        await harness.pass_time(1)
        assert not (harness.api.object(PODS, "default/a") or {})["metadata"].get("deletionTimestamp")
        assert [r.evicted for r in harness.results] == [True]


def test_stale_gangs_are_evicted_without_budgets() -> None:
    def guarded(action: str) -> bool:
        return order_for(Eviction("default/b", "v", "default/g", "n", action, "")).guarded

    assert [guarded(action) for action in ("preempt", "reclaim", "consolidate", "shuffle", "stale-gang")] == [
        True,
        True,
        True,
        True,
        False,
    ]
