"""Nothing is bound, or written for a bind, without the lease.

it is checked before each request.
"""

from __future__ import annotations

import pytest
from kubeobjects import group, node, pod, queue
from scheduler_api import Running, SchedulerApi

from windlass.api import errors
from windlass.api.annotations import RESERVATION
from windlass.api.resources import POD_GROUPS
from windlass.client.errors import UNREACHABLE, Unreachable
from windlass.kits.clock import FakeClock

BUSY = errors.failure(429, "TooManyRequests", "not now")
LOST = Unreachable(UNREACHABLE, "the connection broke", processed=True)


@pytest.fixture
def api(fake_clock: FakeClock) -> SchedulerApi:
    made = SchedulerApi(fake_clock)
    made.add(queue("root"), queue("default"))
    return made


class Lease:
    """Held until the first response about a bind, which is ``answer``.

    Uncertain afterwards.
    """

    def __init__(self, api: SchedulerApi, answer: Exception, *, carried_out: bool = False) -> None:
        self.sure = True
        self.sends = 0

        def refuse(namespace: str, name: str, where: str) -> BaseException | None:
            self.sends += 1
            self.sure = False
            if carried_out:
                api._bind(f"{namespace}/{name}", where, f"uid-{namespace}-{name}", None)
            return answer

        api.refuse_bind = refuse


def reserved(api: SchedulerApi) -> bool:
    stored = api.object(POD_GROUPS, "default/g")
    assert stored is not None
    return RESERVATION in stored["metadata"].get("annotations", {})


@pytest.mark.parametrize("answer", [BUSY, LOST], ids=["refused", "lost"])
async def test_a_bind_is_not_repeated_once_another_instance_may_lead(
    api: SchedulerApi, answer: Exception
) -> None:
    lease = Lease(api, answer)
    api.add(node("n1", gpus=1), pod("a"))
    async with Running(api, stands_by=True) as running:
        running.service.lead(lambda: lease.sure)
        await running.settle(20.0)
        assert lease.sends == 1
        assert not api.bindings
        assert not running.service.model.binds.assumed  # and its room is not kept for it


async def test_a_former_leader_finds_out_that_its_bind_succeeded(api: SchedulerApi) -> None:
    lease = Lease(api, LOST, carried_out=True)
    api.add(node("n1", gpus=1), pod("a"))
    async with Running(api, stands_by=True) as running:
        running.service.lead(lambda: lease.sure)
        await running.settle(20.0)
        assert lease.sends == 1
        assert api.bindings == [("default/a", "n1")]
        assert running.reasons("a") == ["Scheduled"]


async def test_a_reservation_waits_for_the_lease(api: SchedulerApi) -> None:
    """It would replace the reservation of the other instance."""
    sure = False
    api.add(node("n1", gpus=2), group("g", 2), pod("g-1", group="g"), pod("g-2", group="g"))
    async with Running(api, stands_by=True) as running:
        running.service.lead(lambda: sure)
        await running.settle(20.0)
        assert not reserved(api)
        sure = True
        await running.settle(1.0)
        assert reserved(api)
        assert sorted(api.bindings) == [("default/g-1", "n1"), ("default/g-2", "n1")]
