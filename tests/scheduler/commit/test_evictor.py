"""Evictions: told on the pod, then carried out, never on a pod that came later."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest
from kubeobjects import pod
from schedapi import Recorder, SchedulerApi

from windlass.api import errors, views
from windlass.api.resources import PODS
from windlass.engine.decision import Eviction
from windlass.kits.clock import FakeClock
from windlass.scheduler.commit.evictor import EvictionOrder, EvictionResult, Evictor, order_for


class Desk:
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
async def at_work(clock: FakeClock) -> AsyncIterator[Desk]:
    desk = Desk(clock)
    task = asyncio.create_task(desk.evictor.run())
    await clock.advance(0)
    yield desk
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


ORDER = EvictionOrder("default/a", "u", "GangBindFailed", "the gang is not whole")


async def test_the_reason_stands_on_the_pod_before_it_goes(fake_clock: FakeClock) -> None:
    async with at_work(fake_clock) as desk:
        desk.api.add(pod("a", uid="u", node="n"))
        obj = pod("a", uid="u", node="n")
        obj["metadata"]["generation"] = 4
        desk.pods["default/a"] = views.decode_pod(msgspec.json.encode(obj))
        desk.evictor.submit(ORDER)
        desk.evictor.submit(ORDER)  # once is enough
        await desk.pass_time(1)
        assert desk.api.log == [("patch", "pods", "default/a"), ("delete", "pods", "default/a")]
        condition = desk.api.conditions(PODS, "default/a")["DisruptionTarget"]
        assert (condition["reason"], condition["message"]) == ("GangBindFailed", "the gang is not whole")
        assert condition["observedGeneration"] == 4
        assert condition["lastTransitionTime"]
        assert desk.results == [EvictionResult(ORDER, True)]
        assert desk.recorder.said == [("a", "GangBindFailed", "the gang is not whole")]


async def test_nobody_is_evicted_while_another_may_lead(fake_clock: FakeClock) -> None:
    async with at_work(fake_clock) as desk:
        desk.api.add(pod("a", uid="u", node="n"))
        desk.sure = False
        desk.evictor.submit(ORDER)
        await desk.pass_time(5)
        assert not desk.api.log
        desk.sure = True
        await desk.pass_time(1)
        assert desk.results == [EvictionResult(ORDER, True)]


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


async def test_a_condition_that_cannot_be_written_keeps_nobody_from_going(fake_clock: FakeClock) -> None:
    async with at_work(fake_clock) as desk:
        desk.api.add(pod("a", uid="u", node="n"))
        desk.api.reject = lambda verb, *_: errors.failure(403, "Forbidden", "no") if verb == "patch" else None
        desk.evictor.submit(ORDER)
        await desk.pass_time(1)
        assert desk.results == [EvictionResult(ORDER, True)]


async def test_a_refusal_for_good_is_told(fake_clock: FakeClock) -> None:
    async with at_work(fake_clock) as desk:
        desk.api.add(pod("a", uid="u", node="n"))
        desk.api.reject = lambda verb, *_: errors.failure(422, "Invalid", "no") if verb == "delete" else None
        desk.evictor.submit(ORDER)
        await desk.pass_time(1)
        assert desk.results == [EvictionResult(ORDER, False, "no")]


async def test_who_may_not_evict_is_told_after_a_while(fake_clock: FakeClock) -> None:
    """A server that has just started forbids everything until it knows the cluster's rules."""
    async with at_work(fake_clock) as desk:
        desk.api.add(pod("a", uid="u", node="n"))
        desk.api.reject = lambda verb, *_: (
            errors.failure(403, "Forbidden", "no") if verb == "delete" else None
        )
        desk.evictor.submit(ORDER)
        await desk.pass_time(3)
        assert desk.results == []
        await desk.pass_time(30)
        assert desk.results == [EvictionResult(ORDER, False, "no")]
        desk.evictor.submit(ORDER)
        await desk.pass_time(1)
        desk.api.reject = lambda *_: None
        await desk.pass_time(5)
        assert desk.results[1:] == [EvictionResult(ORDER, True)]


def stray(code: int) -> errors.StatusError:
    """What a proxy or a server in trouble says, of no request in particular."""
    return errors.failure(code, "", 'Operation cannot be fulfilled on pods "druid-0": try again')


@pytest.mark.parametrize("code", [401, 404, 408, 409, 410, 500, 502, 504])
@pytest.mark.parametrize("guarded", [False, True])
async def test_a_stray_no_ends_no_eviction(fake_clock: FakeClock, code: int, guarded: bool) -> None:
    order = EvictionOrder("default/druid-0", "u", "NodeOvercommitted", "one too many", guarded=guarded)
    async with at_work(fake_clock) as desk:
        desk.api.add(pod("druid-0", uid="u", node="n"))
        problems = [stray(code)] * 3
        desk.api.reject = lambda verb, *_: problems.pop() if verb == "delete" and problems else None
        desk.evictor.submit(order)
        await desk.pass_time(10)
        assert not problems
        assert (desk.api.object(PODS, "default/druid-0") or {})["metadata"]["deletionTimestamp"]
        assert desk.results == [EvictionResult(order, True)]


async def test_who_has_to_go_goes_untold_where_telling_fails_for_long(fake_clock: FakeClock) -> None:
    """A webhook on pods/status that nobody answers."""
    broken = errors.failure(500, "InternalError", 'failed calling webhook "w": connection refused')
    async with at_work(fake_clock) as desk:
        desk.api.add(pod("a", uid="u", node="n"))
        desk.api.reject = lambda verb, *_: broken if verb == "patch" else None
        desk.evictor.submit(ORDER)
        await desk.pass_time(2)
        assert desk.results == []
        await desk.pass_time(20)
        assert desk.results == [EvictionResult(ORDER, True)]


def test_the_claimer_is_named() -> None:
    eviction: Any = Eviction("default/b", "v", "default/g", "n", "preempt", "default/claimer")
    order = order_for(eviction)
    assert order.reason == "PreemptionByScheduler"
    assert order.message == "evicted by preempt to free capacity for default/claimer"


# ------------------------------------------------------------------ who goes to make room asks the budgets

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


async def test_an_eviction_goes_through_its_own_api_and_ours_is_the_last_word(fake_clock: FakeClock) -> None:
    async with at_work(fake_clock) as desk:
        desk.api.add(pod("a", uid="u", node="n"))
        desk.evictor.submit(CLAIM)
        await desk.pass_time(1)
        assert desk.api.log == [("delete", "pods", "default/a"), ("patch", "pods", "default/a")]
        assert desk.api.conditions(PODS, "default/a")["DisruptionTarget"]["reason"] == "PreemptionByScheduler"
        assert desk.results == [EvictionResult(CLAIM, True)]
        assert [reason for _, reason, _ in desk.recorder.said] == ["PreemptionByScheduler"]


async def test_one_that_is_gone_before_it_is_told_was_evicted(fake_clock: FakeClock) -> None:
    async with at_work(fake_clock) as desk:
        desk.api.add(pod("a", uid="u"))  # not bound: it goes at once
        desk.evictor.submit(CLAIM)
        await desk.pass_time(1)
        assert desk.results == [EvictionResult(CLAIM, True)]
        assert desk.api.object(PODS, "default/a") is None


async def test_the_word_is_repeated_without_evicting_twice(fake_clock: FakeClock) -> None:
    async with at_work(fake_clock) as desk:
        desk.api.add(pod("a", uid="u", node="n"))
        problems = [errors.failure(503, "ServiceUnavailable", "later")]
        desk.api.reject = lambda verb, *_: problems.pop() if verb == "patch" and problems else None
        desk.evictor.submit(CLAIM)
        await desk.pass_time(5)
        assert [verb for verb, *_ in desk.api.log] == ["delete", "patch"]
        assert desk.results == [EvictionResult(CLAIM, True)]


async def test_a_budget_that_gives_way_in_time_is_waited_for(fake_clock: FakeClock) -> None:
    async with at_work(fake_clock) as desk:
        desk.api.add(pod("a", uid="u", node="n"))
        until = fake_clock.monotonic() + 5.0
        desk.api.refuse_eviction = lambda *_: budget_says_no() if fake_clock.monotonic() < until else None
        desk.evictor.submit(CLAIM)
        await desk.pass_time(1)
        assert desk.waits
        assert desk.waits[0] == (CLAIM, "The disruption budget b needs 2 healthy pods and has 2 currently")
        assert not desk.results
        assert not desk.api.conditions(PODS, "default/a")
        await desk.pass_time(12)
        assert desk.results == [EvictionResult(CLAIM, True)]


async def test_a_budget_that_does_not_give_way_is_not_asked_again_for_a_while(fake_clock: FakeClock) -> None:
    asked: list[float] = []

    def refuse(*_: object) -> errors.StatusError:
        asked.append(fake_clock.monotonic())
        return budget_says_no()

    async with at_work(fake_clock) as desk:
        desk.api.add(pod("a", uid="u", node="n"))
        desk.api.refuse_eviction = refuse
        desk.evictor.submit(CLAIM)
        await desk.pass_time(40)
        (result,) = desk.results
        assert (result.evicted, result.refused) == (False, True)
        assert "needs 2 healthy pods" in result.message
        last = asked[-1]
        desk.evictor.submit(CLAIM)  # whoever decides comes back to it
        await desk.pass_time(10)
        assert asked[-1] == last
        await desk.pass_time(60)
        assert asked[-1] > last
        before = len(desk.results)
        desk.evictor.submit(ORDER)  # it has to go for another reason: no budget is asked
        await desk.pass_time(1)
        assert desk.results[before:] == [EvictionResult(ORDER, True)]


async def test_a_pod_of_several_budgets_cannot_be_evicted(fake_clock: FakeClock) -> None:
    text = "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."
    async with at_work(fake_clock) as desk:
        desk.api.add(pod("a", uid="u", node="n"))
        desk.api.refuse_eviction = lambda *_: errors.failure(500, "InternalError", text)
        desk.evictor.submit(CLAIM)
        await desk.pass_time(1)
        assert desk.results == [EvictionResult(CLAIM, False, text, refused=True)]


async def test_an_overloaded_server_is_no_budget(fake_clock: FakeClock) -> None:
    async with at_work(fake_clock) as desk:
        desk.api.add(pod("a", uid="u", node="n"))
        problems = [errors.failure(429, "TooManyRequests", "slow down", {"retryAfterSeconds": 1})] * 30
        desk.api.refuse_eviction = lambda *_: problems.pop() if problems else None
        desk.evictor.submit(CLAIM)
        await desk.pass_time(60)
        assert not desk.waits
        assert desk.results == [EvictionResult(CLAIM, True)]


async def test_an_eviction_that_fails_inside_the_server_does_not_hold_up_its_claimer_for_ever(
    fake_clock: FakeClock,
) -> None:
    """A webhook on evictions that nobody answers: said why, and given up; a gang that is not whole goes on trying."""
    broken = errors.failure(500, "InternalError", 'failed calling webhook "w": connection refused')
    guarded = EvictionOrder("default/a", "u", "PreemptionByScheduler", "room", "default/claimer", True)
    async with at_work(fake_clock) as desk:
        desk.api.add(pod("a", uid="u", node="n"), pod("b", uid="u", node="n"))
        desk.api.reject = lambda verb, *_: broken if verb in ("evict", "delete") else None
        desk.evictor.submit(guarded)
        desk.evictor.submit(EvictionOrder("default/b", "u", "GangBindFailed", "not whole"))
        await desk.pass_time(30)
        assert desk.results == []
        assert (desk.waits[0][0], "failed calling webhook" in desk.waits[0][1]) == (guarded, True)
        await desk.pass_time(70)
        (result,) = desk.results
        assert (result.order, result.evicted, result.refused) == (guarded, False, False)
        desk.api.reject = lambda verb, *_: None
        await desk.pass_time(60)
        assert [one.order.key for one in desk.results] == ["default/a", "default/b"]
        assert desk.evictor._failing_since == {}


async def test_a_later_pod_of_the_same_name_is_not_evicted(fake_clock: FakeClock) -> None:
    async with at_work(fake_clock) as desk:
        desk.api.add(pod("a", uid="another", node="n"))
        desk.evictor.submit(CLAIM)
        await desk.pass_time(1)
        assert not (desk.api.object(PODS, "default/a") or {})["metadata"].get("deletionTimestamp")
        assert [r.evicted for r in desk.results] == [True]


def test_what_is_worth_nothing_as_it_is_goes_without_asking_budgets() -> None:
    def guarded(action: str) -> bool:
        return order_for(Eviction("default/b", "v", "default/g", "n", action, "")).guarded

    assert [guarded(action) for action in ("preempt", "reclaim", "consolidate", "shuffle", "stale-gang")] == [
        True,
        True,
        True,
        True,
        False,
    ]
