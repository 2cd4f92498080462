"""Bind guard.

a binding of another scheduler is allowed if there is capacity, and counted from then
on.
"""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from kubeobjects import node, pod, queue
from scheduler_api import Running, SchedulerApi

from windlass.api.resources import PODS
from windlass.kits.clock import FakeClock
from windlass.scheduler.commit.bind_guard import BOOKED_SECONDS, BYPASSED_SECONDS
from windlass.scheduler.commit.bind_webhook import WebhookRequest, encode_review


@pytest.fixture
def api(fake_clock: FakeClock) -> SchedulerApi:
    made = SchedulerApi(fake_clock)
    made.add(queue("root"), queue("default"))
    return made


def gpus(count: int) -> dict[str, Any]:
    return {"requests": {"nvidia.com/gpu": str(count)}}


def theirs(name: str, count: int = 1, **fields: Any) -> dict[str, Any]:
    return pod(name, scheduler="other", **gpus(count), **fields)


async def ask(running: Running, name: str, where: str, *, dry_run: bool = False, uid: str = "") -> str | None:
    """Ask the guard whether a pod may be bound, as the API server does."""
    binding = {"metadata": {"name": name, "uid": uid or f"uid-default-{name}"}, "target": {"name": where}}
    asked = WebhookRequest(
        "1", "default", name, dry_run, msgspec.Raw(json.dumps({"kind": "Binding", **binding}))
    )
    return await running.service.webhook().evaluate(asked)


def guarded(running: Running, what: str) -> float:
    return running.service.metrics.guarded.labels(what)._value.get()


async def test_a_pod_without_capacity_is_rejected_and_an_allowed_one_is_counted_at_once(
    api: SchedulerApi,
) -> None:
    api.add(node("n1", gpus=4), theirs("a", 3), theirs("b", 2), theirs("c", 1))
    async with Running(api, bind_guard=True) as running:
        assert await ask(running, "a", "n1") == ""
        refused = await ask(running, "b", "n1")
        assert refused == "node n1 has too little capacity for pod default/b: 2 nvidia.com/gpu of 1 left"
        assert await ask(running, "c", "n1") == ""
        assert await ask(running, "a", "n1") == ""  # asked again, it takes nothing more
        assert (guarded(running, "allowed"), guarded(running, "refused")) == (3.0, 1.0)


async def test_own_decisions_and_allowed_bindings_count_for_each_other(api: SchedulerApi) -> None:
    """Neither binding has been seen yet."""
    api.add(node("n1", gpus=4), theirs("a", 2), theirs("b", 2))
    async with Running(api, bind_guard=True) as running:
        api.lagging = True
        assert await ask(running, "a", "n1") == ""
        api.add(pod("big", **gpus(3)), pod("small", **gpus(2)))
        api.lagging = False
        api.catch_up()
        api.lagging = True
        await running.settle(1.0)
        assert [key for key, _ in api.bindings] == ["default/small"]
        assert await ask(running, "b", "n1")
        api.lagging = False
        api.catch_up()
        await running.settle(1.0)
        assert await ask(running, "b", "n1")


async def test_devices_named_by_a_binding_are_checked(api: SchedulerApi) -> None:
    """Volcano's scheduler and other instances of Windlass write them with the Binding.

    The pod does not have them before.
    """
    api.add(node("n1", gpus=4), theirs("a"), theirs("b"), pod("ours"))
    async with Running(api, bind_guard=True) as running:
        await running.settle(0.5)
        card = api.object(PODS, "default/ours")["metadata"]["annotations"]["windlass.dev/devices"]

        async def named(name: str, words: str) -> str | None:
            metadata = {"name": name, "annotations": {"windlass.dev/devices": words}}
            binding = {"kind": "Binding", "metadata": metadata, "target": {"name": "n1"}}
            asked = WebhookRequest("1", "default", name, False, msgspec.Raw(json.dumps(binding)))
            return await running.service.webhook().evaluate(asked)

        refused = await named("a", card)
        assert refused is not None
        assert refused.endswith(f"device {card} (nvidia.com/gpu) is allocated twice")
        assert await named("a", str(int(card) + 1)) == ""
        assert (await named("b", str(int(card) + 1))) != ""


async def test_binds_do_not_yield_while_the_guard_is_effective(api: SchedulerApi) -> None:
    api.add(node("n1", gpus=2))
    async with Running(api, bind_guard=True) as running:
        api.add(theirs("t"), pod("ours", **gpus(2)))
        await running.settle(0.2)
        assert api.bound() == ["ours"]
        assert await ask(running, "t", "n1")


async def test_after_an_unchecked_binding_binds_yield_again(api: SchedulerApi) -> None:
    api.add(node("n1", gpus=3))
    async with Running(api, bind_guard=True, yield_seconds=3.0, max_yield_seconds=15.0) as running:
        api.add(theirs("early"), theirs("t"))
        api._bind("default/early", "n1", "uid-default-early", None)
        api.add(pod("ours", **gpus(2)))
        await running.settle(1.0)
        assert api.bound() == ["early"]
        await running.settle(BYPASSED_SECONDS)
        assert api.bound() == ["early", "ours"]


async def test_an_unused_booking_is_removed(api: SchedulerApi) -> None:
    api.add(node("n1", gpus=2), theirs("a", 2))
    async with Running(api, bind_guard=True) as running:
        assert await ask(running, "a", "n1") == ""
        api.change(PODS, "default/a", status={"conditions": [{"type": "PodScheduled", "status": "False"}]})
        api.add(pod("ours", **gpus(2)))
        await running.settle(BOOKED_SECONDS - 10)
        assert api.bound() == []
        await running.settle(12.0)
        assert api.bound() == ["ours"]
        assert await ask(running, "a", "n1")


async def test_a_pod_that_is_gone_or_elsewhere_has_no_booking(api: SchedulerApi) -> None:
    api.add(node("n1", gpus=2), node("n2", gpus=2), theirs("a", 2), theirs("b", 2), theirs("c", 2))
    async with Running(api, bind_guard=True) as running:
        assert await ask(running, "a", "n1") == ""
        assert await ask(running, "a", "n2") == ""  # its scheduler tries again; either may still arrive
        assert await ask(running, "b", "n1")
        api._bind("default/a", "n2", "uid-default-a", None)
        await running.settle(0.1)
        assert await ask(running, "b", "n1") == ""
        await api.delete(PODS, "b", "default")
        await running.settle(0.1)
        assert await ask(running, "c", "n1") == ""


async def test_a_dry_run_books_nothing_and_an_unknown_pod_is_looked_up(api: SchedulerApi) -> None:
    api.add(node("n1", gpus=1), theirs("a"), theirs("b"))
    async with Running(api, bind_guard=True) as running:
        assert await ask(running, "a", "n1", dry_run=True) == ""
        assert await ask(running, "nobody", "n1") == ""  # the API server itself will say so
        assert await ask(running, "a", "n1", uid="another") == ""
        api.lagging = True
        api.add(theirs("fresh"))
        assert await ask(running, "fresh", "n1") == ""
        assert await ask(running, "b", "n1")
        # The engine has not heard of it: what it decides meanwhile is not sent.
        api.lagging = False
        assert guarded(running, "unknown") == 2.0


async def test_a_pod_created_on_a_node_is_checked(api: SchedulerApi) -> None:
    api.add(node("n1", gpus=1))
    async with Running(api, bind_guard=True) as running:

        async def created(name: str, **spec: Any) -> str | None:
            made = {"kind": "Pod", **theirs(name, 1, node="n1", **spec)}
            return await running.service.webhook().evaluate(
                WebhookRequest("1", "default", name, False, msgspec.Raw(json.dumps(made)))
            )

        assert await created("a") == ""
        assert await created("b")
        assert await created("critical", priority=2_000_000_000) == ""
        api.add(pod("ours"))
        await running.settle(1.0)
        assert api.bound() == []


async def test_pod_slots_count_and_unknown_resources_do_not(api: SchedulerApi) -> None:
    one = node("n1", gpus=8)
    one["status"]["allocatable"]["pods"] = "1"
    odd = pod("odd", scheduler="other", requests={"vendor.test/thing": "1"})
    api.add(one, odd, theirs("b", 0))
    async with Running(api, bind_guard=True) as running:
        assert await ask(running, "odd", "n1") == ""
        assert "pods" in (await ask(running, "b", "n1") or "")


async def test_an_instance_that_stands_by_does_not_answer(api: SchedulerApi) -> None:
    api.add(node("n1", gpus=1), theirs("a"))
    async with Running(api, bind_guard=True, stands_by=True) as running:
        assert await ask(running, "a", "n1") is None
        running.service.lead()
        await running.settle(6.0)
        assert await ask(running, "a", "n1") == ""


async def test_a_pod_with_an_owner_is_evicted_instead_of_a_bare_one(api: SchedulerApi) -> None:
    """Another scheduler fills the node while the bare pod is being bound.

    It would not be recreated.
    """
    owner = [{"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "u", "controller": True}]
    owned = pod("owned", node="n1")
    owned["metadata"]["ownerReferences"] = owner
    important = pod("important", node="n1", priority=1000)
    important["metadata"]["ownerReferences"] = owner
    api.add(node("n1", gpus=4), owned, important)
    async with Running(api) as running:
        bind = api.bind

        async def late(*args: Any, **options: Any) -> None:
            api._bind("default/t", "n1", "uid-default-t", None)
            await bind(*args, **options)

        api.add(theirs("t", 2))
        await running.settle(45.0)  # it has had its turn
        api.bind = late  # type: ignore[method-assign]
        api.add(pod("bare"))
        await running.settle(60.0)
        assert api.conditions(PODS, "default/owned")["DisruptionTarget"]["reason"] == "NodeOvercommitted"
        for kept in ("bare", "important", "t"):
            assert not api.conditions(PODS, f"default/{kept}").get("DisruptionTarget")


def test_the_response_is_an_admission_review() -> None:
    assert json.loads(encode_review("u", "no room"))["response"] == {
        "uid": "u",
        "allowed": False,
        "status": {"code": 403, "reason": "Forbidden", "message": "no room"},
    }
    assert json.loads(encode_review("u", ""))["response"] == {"uid": "u", "allowed": True}
