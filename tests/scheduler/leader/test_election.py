"""Leader election by a Lease."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest
from fakeapi import FakeApi

from windlass.api import errors
from windlass.api.resources import LEASES, Resource
from windlass.client.errors import UNREACHABLE, Unreachable
from windlass.kits.clock import FakeClock
from windlass.kits.timestamps import rfc3339
from windlass.scheduler.leader.election import Election, LeaderLost

KEY = "kube-system/windlass-scheduler"


def election(api: FakeApi, name: str) -> Election:
    return Election(api, name, clock=api.clock, rng=random.Random(1))  # type: ignore[arg-type]


def holder(api: FakeApi) -> str:
    return (api.object(LEASES, KEY) or {})["spec"]["holderIdentity"]


async def start(api: FakeApi, coroutine: Any) -> asyncio.Task[None]:
    task = asyncio.create_task(coroutine)
    await api.clock.advance(0)
    return task


async def passes(clock: FakeClock, seconds: float, step: float = 0.5) -> None:
    """Let time pass in which responses arrive.

    each step is followed by a few turns of the loop.
    """
    for _ in range(round(seconds / step)):
        await clock.advance(step)
        for _ in range(8):
            await asyncio.sleep(0)


async def end(*tasks: asyncio.Task[None]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def test_the_first_leads_and_renews(fake_clock: FakeClock) -> None:
    api = FakeApi(fake_clock)
    first = election(api, "first")
    await first.acquire()
    lease = (api.object(LEASES, KEY) or {})["spec"]
    assert (lease["holderIdentity"], lease["leaseDurationSeconds"], lease["leaseTransitions"]) == (
        "first",
        15,
        0,
    )
    holding = await start(api, first.hold())
    await passes(fake_clock, 10)
    renewed = (api.object(LEASES, KEY) or {})["spec"]
    assert renewed["renewTime"] > lease["renewTime"]
    assert renewed["acquireTime"] == lease["acquireTime"]
    await end(holding)


class Noting(FakeApi):
    """Records in its own time when a lease was written, as an API server does.

    ``ahead``: of its clients.
    """

    ahead = 0.0

    async def create(self, resource: Resource, obj: Any, namespace: str | None = None, **more: Any) -> Any:
        return self._noted(await super().create(resource, obj, namespace, **more))

    async def update(self, resource: Resource, obj: Any, **more: Any) -> Any:
        return self._noted(await super().update(resource, obj, **more))

    def _noted(self, written: Any) -> Any:
        now = rfc3339(self.clock.now() + self.ahead)
        first = {"time": rfc3339(0), "fieldsV1": {"f:metadata": {}}}
        written["metadata"]["managedFields"] = [
            first,
            {"time": now, "fieldsV1": {"f:spec": {"f:renewTime": {}}}},
        ]
        return written


async def test_a_differing_clock_is_logged_once(
    fake_clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    api = Noting(fake_clock)
    first = election(api, "first")
    caplog.set_level("INFO", logger="windlass.leader")
    await first.acquire()
    assert first.ahead == 0.0, "they go together"
    holding = await start(api, first.hold())
    api.ahead = -7200.0  # it was set right; ours was not
    await passes(fake_clock, 20)
    assert first.ahead == pytest.approx(7200.0, abs=1.0)
    api.ahead = 3.0
    await passes(fake_clock, 20)
    assert first.ahead == 0.0
    told = [record.getMessage() for record in caplog.records if "clock" in record.getMessage()]
    assert told == [
        "this machine's clock is 120m ahead of the API server's",
        "this machine's clock agrees with the API server's again",
    ]
    await end(holding)


async def test_a_server_without_times_is_trusted(fake_clock: FakeClock) -> None:
    first = election(FakeApi(fake_clock), "first")
    await first.acquire()
    assert first.ahead == 0.0


async def test_the_second_waits_for_a_whole_duration_without_renewal(fake_clock: FakeClock) -> None:
    api = FakeApi(fake_clock)
    first, second = election(api, "first"), election(api, "second")
    await first.acquire()
    holding = await start(api, first.hold())
    waiting = await start(api, second.acquire())
    await passes(fake_clock, 40)
    assert holder(api) == "first"
    await end(holding)  # it died
    await passes(fake_clock, 14)
    assert holder(api) == "first"
    await passes(fake_clock, 6)
    assert waiting.done()
    assert holder(api) == "second"
    assert (api.object(LEASES, KEY) or {})["spec"]["leaseTransitions"] == 1


async def test_differing_clocks_do_not_matter(fake_clock: FakeClock) -> None:
    """The leader's timestamps are years in the past.

    Only when they were seen counts.
    """
    api = FakeApi(fake_clock)
    old = {"holderIdentity": "first", "leaseDurationSeconds": 15, "renewTime": "2001-01-01T00:00:00.000000Z"}
    api.put(LEASES, {"metadata": {"name": "windlass-scheduler", "namespace": "kube-system"}, "spec": old})
    waiting = await start(api, election(api, "second").acquire())
    await passes(fake_clock, 14)
    assert holder(api) == "first"
    await passes(fake_clock, 5)
    assert waiting.done()


async def test_a_released_lease_is_taken_at_once(fake_clock: FakeClock) -> None:
    api = FakeApi(fake_clock)
    first = election(api, "first")
    await first.acquire()
    await first.release()
    await election(api, "second").acquire()
    assert holder(api) == "second"


async def test_a_leader_that_cannot_renew_stops_before_another_may_start(fake_clock: FakeClock) -> None:
    api = FakeApi(fake_clock)
    first = election(api, "first")
    await first.acquire()
    holding = await start(api, first.hold())

    def cut(*_: Any) -> Any:
        raise Unreachable(UNREACHABLE, "cut off")

    api.reject = cut
    await passes(fake_clock, 9)
    assert not holding.done()
    await passes(fake_clock, 5)
    with pytest.raises(LeaderLost, match="could not be renewed"):
        holding.result()


async def test_a_leader_that_was_replaced_stops_at_once(fake_clock: FakeClock) -> None:
    api = FakeApi(fake_clock)
    first = election(api, "first")
    await first.acquire()
    holding = await start(api, first.hold())
    api.change(LEASES, KEY, spec={"holderIdentity": "thief", "renewTime": "2030-01-01T00:00:00.000000Z"})
    await passes(fake_clock, 3)
    with pytest.raises(LeaderLost, match="another instance"):
        holding.result()


async def test_one_of_two_concurrent_candidates_leads(fake_clock: FakeClock) -> None:
    api = FakeApi(fake_clock)
    collisions = iter([errors.already_exists(LEASES, "windlass-scheduler"), None, None, None])
    api.reject = lambda verb, *_: next(collisions) if verb == "create" else None
    one = await start(api, election(api, "one").acquire())
    two = await start(api, election(api, "two").acquire())
    await passes(fake_clock, 10)
    assert [one.done(), two.done()].count(True) == 1
    await end(one, two)


async def test_an_instance_that_reads_another_lease_stands_by(fake_clock: FakeClock) -> None:
    api = FakeApi(fake_clock)
    first, second = election(api, "first"), election(api, "second")
    assert not second.standing_by  # it knows of no leader yet
    await first.acquire()
    holding = await start(api, first.hold())
    waiting = await start(api, second.acquire())
    await passes(fake_clock, 5)
    assert second.standing_by
    assert (first.leading, first.standing_by, second.leading) == (True, False, False)
    await end(waiting)  # it asks no more, as when the server does not answer it
    await passes(fake_clock, 11)
    assert not second.standing_by
    await end(holding)
    await first.release()
    await second.acquire()
    assert (second.leading, second.standing_by, first.leading) == (True, False, False)


async def test_a_leader_without_any_response_gives_up_in_time(fake_clock: FakeClock) -> None:
    """It must not wait for the response.

    after the lease's duration another instance leads.
    """
    api = FakeApi(fake_clock)
    first = election(api, "first")
    await first.acquire()

    async def silence(*_: Any) -> None:
        await asyncio.get_running_loop().create_future()

    api.find = api.update = silence  # type: ignore[method-assign]
    holding = await start(api, first.hold())
    for _ in range(11):
        await passes(fake_clock, 1)
    assert holding.done()
    with pytest.raises(LeaderLost, match="in time"):
        await holding


async def test_the_next_attempt_is_at_the_end_of_the_lease(fake_clock: FakeClock) -> None:
    api = FakeApi(fake_clock)
    first, second = election(api, "first"), election(api, "second")
    await first.acquire()
    waiting = await start(api, second.acquire())  # it sees the lease now
    for _ in range(149):
        await fake_clock.advance(0.1)
    assert not waiting.done()
    await fake_clock.advance(0.2)
    assert waiting.done()
    assert holder(api) == "second"


async def test_the_retry_interval_changes_while_the_lease_is_held(fake_clock: FakeClock) -> None:
    api = FakeApi(fake_clock)
    one = election(api, "one")
    await one.acquire()
    holding = await start(api, one.hold())
    one.set_retry_seconds(0.5)
    await fake_clock.advance(2.0)  # the pause that had begun
    before = len(api.log)
    for _ in range(8):
        await fake_clock.advance(0.5)
        for _ in range(6):
            await asyncio.sleep(0)
    assert len(api.log) - before >= 7
    with pytest.raises(ValueError, match="12 s between renewals"):
        one.set_retry_seconds(12.0)
    await end(holding)


async def test_one_unanswered_request_does_not_cost_the_lease(fake_clock: FakeClock) -> None:
    api = FakeApi(fake_clock)
    first = election(api, "first")
    await first.acquire()
    holding = await start(api, first.hold())
    update, lost = api.update, [True]

    async def once_silent(*args: Any, **options: Any) -> Any:
        if lost and lost.pop():
            await asyncio.get_running_loop().create_future()
        return await update(*args, **options)

    api.update = once_silent  # type: ignore[method-assign]
    await passes(fake_clock, 30)
    assert not holding.done()
    assert first.holds_lease()
    await end(holding)


async def test_the_lease_is_uncertain_after_failed_renewals(fake_clock: FakeClock) -> None:
    api = FakeApi(fake_clock)
    first = election(api, "first")
    assert not first.holds_lease()
    await first.acquire()
    assert first.holds_lease()
    fake_clock.jump(9.9)  # no instance renews meanwhile
    assert first.holds_lease()
    fake_clock.jump(0.2)
    assert not first.holds_lease()


async def test_after_suspension_the_old_lease_is_not_trusted(
    fake_clock: FakeClock,
) -> None:
    """Another instance took it meanwhile.

    Earlier decisions must not be sent before that is seen.
    """
    api = FakeApi(fake_clock)
    first = election(api, "first")
    await first.acquire()
    fake_clock.suspend(8 * 3600)
    assert not first.holds_lease()


async def test_the_leader_renews_by_one_request(fake_clock: FakeClock) -> None:
    api = FakeApi(fake_clock)
    first = election(api, "first")
    await first.acquire()
    looks = 0
    find = api.find

    async def counted(*args: Any) -> Any:
        nonlocal looks
        looks += 1
        return await find(*args)

    api.find = counted  # type: ignore[method-assign]
    holding = await start(api, first.hold())
    await passes(fake_clock, 20)
    assert looks == 0
    assert len([entry for entry in api.log if entry[0] == "update"]) >= 9
    api.change(LEASES, KEY, metadata={"labels": {"by": "somebody"}})  # not a new holder
    await passes(fake_clock, 20)
    assert looks == 1
    assert not holding.done()
    await end(holding)


async def test_a_renewal_in_progress_does_not_prevent_the_release(
    fake_clock: FakeClock,
) -> None:
    api = FakeApi(fake_clock)
    first = election(api, "first")
    await first.acquire()
    conflicts = iter([errors.conflict(LEASES, "windlass-scheduler")])
    api.reject = lambda verb, *_: next(conflicts, None) if verb == "update" else None
    await first.release()
    assert holder(api) == ""
