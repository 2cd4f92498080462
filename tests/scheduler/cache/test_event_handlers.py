"""Optional kinds, while the server does not say which of them it serves."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from kubeobjects import node, pod, queue
from scheduler_api import Running, SchedulerApi

from windlass.api.errors import StatusError
from windlass.api.resources import PERSISTENT_VOLUME_CLAIMS, Resource
from windlass.client.errors import UNREACHABLE, Unreachable
from windlass.kits.clock import FakeClock


@pytest.fixture
def api(fake_clock: FakeClock) -> SchedulerApi:
    made = SchedulerApi(fake_clock)
    made.add(queue("root"), queue("default"), node("n1"))
    claims = pod("claims")
    claims["spec"]["volumes"] = [{"name": "v", "persistentVolumeClaim": {"claimName": "nobodys"}}]
    made.add(claims, pod("plain"))
    return made


def silent(api: SchedulerApi, kind: Resource | None, until: float, problem: Exception) -> None:
    """Let lists of one kind, or of all, fail until a time."""
    known = api.list

    async def listed(resource: Resource, *args: Any, **options: Any) -> Any:
        if kind in (None, resource) and api.clock.monotonic() < until:
            raise problem
        return await known(resource, *args, **options)

    api.list = listed  # type: ignore[method-assign]


async def test_nothing_is_decided_before_the_server_answers_about_optional_kinds(api: SchedulerApi) -> None:
    """A pod with a missing claim would be bound, and wait on its node for ever."""
    silent(api, None, 5.0, Unreachable(UNREACHABLE, "it starts"))
    async with Running(api) as running:
        await running.settle(4.0)
        assert api.bound() == []
        await running.settle(3.0)
        assert api.bound() == ["plain"]


async def test_a_kind_without_any_answer_delays_the_start_for_a_limited_time(
    api: SchedulerApi, caplog: pytest.LogCaptureFixture
) -> None:
    """For example a kind with a broken conversion webhook."""
    overloaded = StatusError({"code": 500, "message": "conversion webhook failed"})
    silent(api, PERSISTENT_VOLUME_CLAIMS, float("inf"), overloaded)
    async with Running(api) as running:
        await running.settle(20.0)
        assert api.bound() == []
        await running.settle(20.0)
        assert "plain" in api.bound()
    assert "does not say whether it has them" in caplog.text


async def test_kinds_forbidden_by_a_starting_server_are_checked_again(api: SchedulerApi) -> None:
    """It has not loaded the cluster's rules yet.

    Otherwise claims, budgets and quotas would not count for a minute.
    """
    forbidden = StatusError({"code": 403, "message": 'RBAC: clusterrole "windlass-scheduler" not found'})
    known, asked = api.list, set()

    async def listed(resource: Resource, *args: Any, **options: Any) -> Any:
        if resource not in asked:
            asked.add(resource)
            raise forbidden
        return await known(resource, *args, **options)

    api.list = listed  # type: ignore[method-assign]
    async with Running(api) as running:
        await running.settle(5.0)
        assert PERSISTENT_VOLUME_CLAIMS in asked
        assert api.bound() == ["plain"]


async def test_two_checks_at_once_follow_a_kind_once(api: SchedulerApi) -> None:
    """The first check may be slow, while the regular one begins."""
    silent(api, None, 35.0, Unreachable(UNREACHABLE, "it starts"))
    async with Running(api) as running:
        await running.settle(1.0)
        known, event_handlers = api.list, running.service.components.event_handlers

        async def slow(*args: Any, **options: Any) -> Any:
            await asyncio.sleep(0)
            return await known(*args, **options)

        api.list = slow  # type: ignore[method-assign]
        api.clock.jump(60.0)
        await asyncio.gather(event_handlers._follow_served(), event_handlers._follow_served())
        followed = [informer.resource.qualified for informer in event_handlers._informers]
        assert len(followed) == len(set(followed)) > 10
