"""Error responses that concern no particular request do not make a pod count as deleted."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest
from kubeobjects import pod
from scheduler_api import SchedulerApi

from windlass.api import errors
from windlass.api.resources import PODS
from windlass.kits.clock import FakeClock
from windlass.node.device_reporter import DeviceReporter
from windlass.node.lifecycle.state_machine import PodStep
from windlass.node.pods.status_publisher import StatusPublisher

CODES = [409, 410, 500, 502, 504]


@pytest.fixture
def api(fake_clock: FakeClock) -> SchedulerApi:
    made = SchedulerApi(fake_clock)
    made.add(pod("guide", uid="u", node="n"))
    return made


def strays(api: SchedulerApi, code: int) -> list[errors.StatusError]:
    """The next two deletions are answered so."""
    words = 'Operation cannot be fulfilled on pods "guide": try again'
    left = [errors.failure(code, "", words)] * 2
    api.reject = lambda verb, *_: left.pop() if verb == "delete" and left else None
    return left


async def settle(clock: FakeClock) -> None:
    for _ in range(40):
        await clock.advance(0.5)


@pytest.mark.parametrize("code", CODES)
async def test_ended_pod_is_deleted_after_stray_errors(api: SchedulerApi, code: int) -> None:
    left = strays(api, code)
    ended = cast(Any, SimpleNamespace(key="default/guide", step=PodStep.ENDED))
    publisher = StatusPublisher(cast(Any, api), api.clock, api.object(PODS, "default/guide") or {}, ended, "")
    publisher._status = dict  # type: ignore[method-assign]
    publisher.mark_published()
    publisher.delete()
    task = asyncio.ensure_future(publisher.run())
    await settle(api.clock)
    assert task.done()
    assert not left
    assert api.object(PODS, "default/guide") is None


async def test_pod_that_ends_during_a_request_gets_its_last_phase_before_its_deletion(
    api: SchedulerApi,
) -> None:
    """A Job keeps the deleted pod by a finalizer until it has read the phase."""
    phases = iter(["Pending", "Running"])
    machine = cast(Any, SimpleNamespace(key="default/guide", step=PodStep.ENDED))
    publisher = StatusPublisher(
        cast(Any, api), api.clock, api.object(PODS, "default/guide") or {}, machine, ""
    )
    publisher._status = lambda: {"phase": next(phases, "Failed"), "conditions": []}  # type: ignore[method-assign]
    publisher.mark_published()
    at_deletion: list[str] = []

    def look(verb: str, *_: Any) -> None:
        if verb == "delete":
            at_deletion.append((api.object(PODS, "default/guide") or {})["status"]["phase"])

    api.reject = look
    publisher.delete()
    task = asyncio.ensure_future(publisher.run())
    await settle(api.clock)
    assert task.done()
    assert at_deletion == ["Failed"]


@pytest.mark.parametrize("code", CODES)
async def test_pod_on_unhealthy_gpu_is_evicted_after_stray_errors(api: SchedulerApi, code: int) -> None:
    left = strays(api, code)
    unused = cast(Any, SimpleNamespace())
    recorder = cast(Any, SimpleNamespace(event=lambda *_: None))
    device_reporter = DeviceReporter(cast(Any, api), api.clock, recorder, unused, unused, {})
    task = asyncio.ensure_future(device_reporter._delete(api.object(PODS, "default/guide") or {}, "XID 79"))
    await settle(api.clock)
    assert task.done()
    assert not left
    assert (api.object(PODS, "default/guide") or {})["metadata"]["deletionTimestamp"]
