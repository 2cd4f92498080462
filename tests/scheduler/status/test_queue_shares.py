"""Shares of queues with their explanation, written no more often than needed."""

from __future__ import annotations

import json
from typing import Any

from kubeobjects import group, node, pod, queue
from scheduler_api import Running, SchedulerApi

from windlass.api.annotations import ADOPTED, ADOPTED_SUFFIX, QUEUE_SHARE
from windlass.api.resources import QUEUES
from windlass.kits.clock import FakeClock
from windlass.model.cluster.ownership import OtherScheduler

GPU = "nvidia.com/gpu"


def share(api: SchedulerApi, name: str) -> dict[str, Any]:
    obj = api.object(QUEUES, name) or {}
    return json.loads((obj["metadata"].get("annotations") or {}).get(QUEUE_SHARE, "{}"))


async def test_only_queues_that_were_handed_over_have_a_share(
    fake_clock: FakeClock,
) -> None:
    """Shares on other queues are of an earlier installation."""
    api = SchedulerApi(fake_clock)
    old = {QUEUE_SHARE: '{"fairShare": {"nvidia.com/gpu": "9"}}'}
    theirs, ours = queue("theirs"), queue("ours")
    theirs["metadata"]["annotations"] = dict(old)
    ours["metadata"]["annotations"] = {ADOPTED: "true", **old}
    api.add(queue("root"), theirs, ours, node("n1", gpus=4))
    api.add(group("g", 1, queue=f"ours{ADOPTED_SUFFIX}"))
    api.add(*[pod(f"g-{i}", group="g", scheduler="volcano") for i in range(6)])
    beside = (OtherScheduler.parse("volcano"),)
    async with Running(api, scheduler_names=("windlass", "volcano"), other_schedulers=beside) as running:
        await running.settle(5.0)
        assert len(api.bound()) == 4
        assert share(api, "ours")["fairShare"][GPU] == "4"
        assert share(api, "theirs") == {}
        assert ("patch", "theirs") in api.writes("queues")
        assert not (api.object(QUEUES, "ours") or {}).get("status", {}).get("allocated"), (
            "the other one counts what queues hold"
        )
        api.change(QUEUES, "ours", metadata={"annotations": {ADOPTED: None}})
        api.end("g-0")
        await running.settle(5.0)
        assert share(api, "ours") == {}, "it was given back"


async def test_a_queue_has_its_share_with_the_explanation(fake_clock: FakeClock) -> None:
    api = SchedulerApi(fake_clock)
    api.add(queue("root"), queue("default"), node("n1", gpus=4))
    api.add(group("g", 1), *[pod(f"g-{i}", group="g") for i in range(6)])
    async with Running(api) as running:
        await running.settle(3.0)
        record = share(api, "default")
        assert (record["fairShare"][GPU], record["allocated"][GPU], record["requested"][GPU]) == (
            "4",
            "4",
            "6",
        )
        assert record["why"][GPU] == "4: 4 of the surplus by weight 1 of 1, it requests 6"
        assert share(api, "root")["fairShare"][GPU] == "4"
        before = (api.object(QUEUES, "default") or {})["metadata"]["resourceVersion"]
        await running.settle(10.0)  # nothing moves: nothing is written
        assert (api.object(QUEUES, "default") or {})["metadata"]["resourceVersion"] == before
        for i in range(6):
            api.end(f"g-{i}")
        await running.settle(6.0)
        assert share(api, "default")["fairShare"] == {}
