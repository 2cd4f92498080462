"""Binds of which nobody knows whether the server carried them out: their room is kept until that is known."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from kubeobjects import group, node, pod, queue
from schedapi import Running, SchedulerApi

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
    """The first binding of ``a`` is carried out, and nobody is told, neither by its answer, which is ``first`` or lost,
    nor by the watch. Further ones, and who asks for the pod, meet ``answers`` while there are any."""
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
    """A node for one pod: ``a`` comes, then ``b``, which has to wait."""
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
        "and nobody says",
        "a conflict of which nobody says",
        "no answer for long",
        "a server that does not know the rules yet",
        "a proxy that does not know the way",
    ],
)
async def test_its_room_is_kept_until_it_is_known(
    api: SchedulerApi, monkeypatch: pytest.MonkeyPatch, answers: list[BaseException]
) -> None:
    asked = binds_a_then(api, monkeypatch, iter(answers))
    async with Running(api) as running:
        await a_holds_its_room(api, running, 120.0)
        assert len(asked) > len(answers), asked
        assert not api.conditions(PODS, "default/a").get("DisruptionTarget")


@pytest.mark.parametrize("code", [408, 500, 502, 503, 504])
async def test_a_proxy_that_fails_may_have_passed_it_on(
    api: SchedulerApi, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    asked = binds_a_then(api, monkeypatch, iter([refused(500)]), refused(code))
    async with Running(api) as running:
        await a_holds_its_room(api, running, 20.0)
        assert len(asked) > 1


async def test_where_nobody_may_look_it_is_given_up(
    api: SchedulerApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a scheduler without that right would keep the room for ever."""
    binds_a_then(api, monkeypatch, iter([refused(400), *(refused(403) for _ in range(1000))]))
    api.add(node("n1", gpus=1), pod("a"))
    async with Running(api) as running:
        await running.settle(20.0)
        assert running.service.model.assumed
        await running.settle(20.0)
        assert not running.service.model.assumed


async def test_what_certainly_failed_is_not_looked_up(
    api: SchedulerApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(namespace: str, name: str, where: str) -> BaseException | None:
        return refused(400) if name == "a" else None

    async def get(*_: Any, **__: Any) -> Any:
        raise AssertionError("nobody needs to ask")

    api.refuse_bind = refuse
    monkeypatch.setattr(api, "get", get)
    api.add(node("n1", gpus=1), pod("a"))
    async with Running(api) as running:
        await running.settle(0.5)
        assert not running.service.model.assumed
        assert "FailedScheduling" in running.reasons("a")


def one_too_many(api: SchedulerApi) -> None:
    """Another scheduler's pod comes to the room of ``g-2`` while that is on its way."""

    def refuse(namespace: str, name: str, where: str) -> BaseException | None:
        if name == "g-2" and not api.object(PODS, "default/theirs"):
            wanted = {"nvidia.com/gpu": "4"}
            api.add(pod("theirs", scheduler="other", node=where, requests=wanted))
        return None

    api.refuse_bind = refuse


async def test_a_gang_whose_last_member_had_to_go_gives_back_what_it_holds(api: SchedulerApi) -> None:
    """It stood with its minimum for a moment, so it was told to be Running; nobody makes its pod anew."""
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


async def test_a_gang_whose_member_comes_again_in_time_stays(api: SchedulerApi) -> None:
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


async def test_a_gang_that_was_at_work_is_not_taken_back_for_one(api: SchedulerApi) -> None:
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
