"""Binds with an unknown result: their capacity is kept until the result is known."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from kubeobjects import group, node, pod, queue
from scheduler_api import Running, SchedulerApi

from windlass.api import errors
from windlass.api.resources import PODS, Resource
from windlass.client.errors import UNREACHABLE, Unreachable
from windlass.kits.clock import FakeClock
from windlass.kits.timestamps import rfc3339


@pytest.fixture
def api(fake_clock: FakeClock) -> SchedulerApi:
    made = SchedulerApi(fake_clock)
    made.add(queue("root"), queue("default"))
    return made


def lost() -> Unreachable:
    return Unreachable(UNREACHABLE, "the connection broke", processed=True)


def refused(code: int) -> errors.StatusError:
    return errors.failure(code, "Injected", "not now")


def binds_a_then(
    api: SchedulerApi,
    monkeypatch: pytest.MonkeyPatch,
    answers: Iterator[Any],
    first: BaseException | None = None,
) -> list[str]:
    """Carry out the first binding of ``a`` without a sign.

    its response is ``first`` or lost, and the watch is silent. Further bindings and
    look-ups get ``answers`` while there are any.
    """
    asked: list[str] = []

    def refuse(namespace: str, name: str, where: str) -> BaseException | None:
        if name != "a":
            return None
        asked.append("bind")
        if len(asked) == 1:
            api.lagging = True
            api._bind(f"{namespace}/{name}", where, f"uid-{namespace}-{name}", None)
            return first or lost()
        return next(answers, None)

    plain = api.get

    async def get(resource: Resource, name: str, namespace: str | None = None, **more: Any) -> Any:
        if resource is PODS:
            asked.append("get")
            if (problem := next(answers, None)) is not None:
                raise problem
        return await plain(resource, name, namespace, **more)

    api.refuse_bind = refuse
    monkeypatch.setattr(api, "get", get)
    return asked


async def a_holds_its_room(api: SchedulerApi, running: Running, seconds: float) -> None:
    """A node for one pod: ``a`` arrives, then ``b``, which has to wait."""
    api.add(node("n1", gpus=1), pod("a"))
    await running.settle(0.5)
    api.lagging = False
    api.add(pod("b"))
    for _ in range(round(seconds / 2)):
        await running.settle(2.0)
    assert api.bindings == [("default/a", "n1")]
    assert running.reasons("a") == ["Scheduled"]


@pytest.mark.parametrize(
    "answers",
    [
        [refused(410)],
        [refused(400), lost(), refused(429), refused(500), refused(409), refused(410)],
        [refused(409), refused(500), refused(504), lost()],
        [refused(504) for _ in range(20)],
        [refused(400), *(refused(code) for code in (401, 403, 403, 403))],
        [refused(404), refused(404)],
    ],
    ids=[
        "another refusal after it",
        "and the server does not answer",
        "a conflict without an answer",
        "no answer for long",
        "a server that does not know the rules yet",
        "a proxy that does not know the way",
    ],
)
async def test_the_capacity_is_kept_until_the_result_is_known(
    api: SchedulerApi, monkeypatch: pytest.MonkeyPatch, answers: list[BaseException]
) -> None:
    asked = binds_a_then(api, monkeypatch, iter(answers))
    async with Running(api) as running:
        await a_holds_its_room(api, running, 120.0)
        assert len(asked) > len(answers), asked
        assert not api.conditions(PODS, "default/a").get("DisruptionTarget")


@pytest.mark.parametrize("code", [408, 500, 502, 503, 504])
async def test_a_failing_proxy_may_have_forwarded_the_bind(
    api: SchedulerApi, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    asked = binds_a_then(api, monkeypatch, iter([refused(500)]), refused(code))
    async with Running(api) as running:
        await a_holds_its_room(api, running, 20.0)
        assert len(asked) > 1


async def test_a_denied_look_up_ends_after_a_timeout(
    api: SchedulerApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise a scheduler without the right would keep the capacity for ever."""
    binds_a_then(api, monkeypatch, iter([refused(400), *(refused(403) for _ in range(1000))]))
    api.add(node("n1", gpus=1), pod("a"))
    async with Running(api) as running:
        await running.settle(20.0)
        assert running.service.model.binds.assumed
        await running.settle(20.0)
        assert not running.service.model.binds.assumed


async def test_a_certain_failure_is_not_looked_up(api: SchedulerApi, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(namespace: str, name: str, where: str) -> BaseException | None:
        return refused(400) if name == "a" else None

    async def get(*_: Any, **__: Any) -> Any:
        raise AssertionError("no look-up is needed")

    api.refuse_bind = refuse
    monkeypatch.setattr(api, "get", get)
    api.add(node("n1", gpus=1), pod("a"))
    async with Running(api) as running:
        await running.settle(0.5)
        assert not running.service.model.binds.assumed
        assert "FailedScheduling" in running.reasons("a")


def one_too_many(api: SchedulerApi) -> None:
    """Another scheduler's pod takes the capacity of ``g-2`` while that is being bound."""

    def refuse(namespace: str, name: str, where: str) -> BaseException | None:
        if name == "g-2" and not api.object(PODS, "default/theirs"):
            wanted = {"nvidia.com/gpu": "4"}
            api.add(pod("theirs", scheduler="other", node=where, requests=wanted))
        return None

    api.refuse_bind = refuse


async def test_a_gang_is_evicted_after_its_last_member_was(api: SchedulerApi) -> None:
    """It had its minimum for a moment, so it was reported as Running.

    Its pod is not recreated.
    """
    one_too_many(api)
    api.add(node("n1", gpus=1), node("n2", gpus=1), node("n3", gpus=1), group("g", 3))
    async with Running(api) as running:
        api.add(*[pod(f"g-{i}", group="g") for i in range(3)])
        await running.settle(1.0)
        reasons = [api.conditions(PODS, f"default/g-{i}").get("DisruptionTarget", {}) for i in range(3)]
        assert [r.get("reason") for r in reasons] == [None, None, "NodeOvercommitted"]
        api.finish_deletions()
        await running.settle(25.0)
        assert not api.conditions(PODS, "default/g-0").get("DisruptionTarget")
        await running.settle(10.0)
        for name in ("g-0", "g-1"):
            assert api.conditions(PODS, f"default/{name}")["DisruptionTarget"]["reason"] == "GangBindFailed"


async def test_a_gang_with_a_member_recreated_in_time_stays(api: SchedulerApi) -> None:
    one_too_many(api)
    api.add(node("n1", gpus=1), node("n2", gpus=1), node("n3", gpus=1), group("g", 3))
    async with Running(api) as running:
        api.add(*[pod(f"g-{i}", group="g") for i in range(3)])
        await running.settle(1.0)
        api.finish_deletions()
        api.add(node("n4", gpus=1), pod("g-3", group="g"))
        await running.settle(60.0)
        assert api.bound() == ["g-0", "g-1", "g-3", "theirs"]
        assert not api.conditions(PODS, "default/g-0").get("DisruptionTarget")


async def test_a_gang_that_ran_is_not_evicted_for_one_member(api: SchedulerApi) -> None:
    one_too_many(api)
    api.add(node("n1", gpus=1), node("n2", gpus=1), node("n3", gpus=1), group("g", 2))
    api.add(pod("g-0", group="g"), pod("g-1", group="g"))
    async with Running(api) as running:
        await running.settle(1.0)
        for name in ("g-0", "g-1"):
            started = {"phase": "Running", "startTime": rfc3339(api.clock.now())}
            api.change(PODS, f"default/{name}", status=started)
        await running.settle(60.0)
        api.remove(PODS, "default/g-1")
        api.add(pod("g-2", group="g"))
        await running.settle(60.0)
        assert api.conditions(PODS, "default/g-2")["DisruptionTarget"]["reason"] == "NodeOvercommitted"
        assert not api.conditions(PODS, "default/g-0").get("DisruptionTarget")
