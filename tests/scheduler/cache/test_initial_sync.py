"""Initial sync.

pods are delivered to the engine in batches, while others still arrive.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any, cast

import pytest
from kubeobjects import group, node, pod, queue
from scheduler_api import Running, SchedulerApi

from windlass.api import views
from windlass.api.resources import PODS
from windlass.engine import deltas
from windlass.kits.clock import FakeClock
from windlass.model.cluster.cluster_model import ClusterModel
from windlass.scheduler import engine_feed
from windlass.scheduler.cache import initial_sync
from windlass.scheduler.cache.event_handlers import EventHandlers
from windlass.scheduler.cache.initial_sync import InitialSync
from windlass.spi.configuration import SchedulerConfig

PIECE = 10


class Scene:
    """A model to which pods are added, and the deltas delivered to the engine."""

    def __init__(self) -> None:
        self.model = ClusterModel(["windlass"])
        self.model.objects.upsert_node(views.decode_node(views.encode(node("n1"))))
        self.all = asyncio.Event()
        self.wake = asyncio.Event()
        self.begun = 0
        self.told: list[list[deltas.Delta]] = []
        self.initial_sync = InitialSync(
            cast(EventHandlers, self),
            self.model,
            self.wake,
            begin=self.begin,
            deliver=self.told.append,
            now=lambda: 1000.0,
        )

    async def wait_pods(self) -> None:
        await self.all.wait()

    async def begin(self) -> None:
        self.begun += 1

    async def come(self, *names: str, **more: Any) -> None:
        for name in names:
            self.model.objects.upsert_pod(views.decode_pod(views.encode(pod(name, node="n1", **more))))
        self.wake.set()
        for _ in range(20):
            await asyncio.sleep(0)

    def tasks(self) -> list[str]:
        return [one.task.key for told in self.told for one in told if isinstance(one, deltas.TaskUpserted)]


@pytest.fixture
async def scene(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Scene]:
    monkeypatch.setattr(initial_sync, "BATCH_PODS", PIECE)
    made = Scene()
    running = asyncio.create_task(made.initial_sync.pods())
    yield made
    made.all.set()
    await running


def names(first: int, last: int) -> list[str]:
    return [f"p{i}" for i in range(first, last)]


async def test_pods_are_delivered_while_others_arrive(scene: Scene) -> None:
    await scene.come(*names(0, 9))
    assert (scene.told, scene.begun) == ([], 0)  # less than a piece is left for later
    await scene.come(*names(9, 34))
    assert (len(scene.told), scene.begun) == (3, 1)
    assert scene.tasks() == [f"default/{name}" for name in names(0, 30)]
    assert all(sum(type(one) is deltas.TaskUpserted for one in told) == PIECE for told in scene.told)
    scene.all.set()
    await scene.initial_sync.rest()
    assert scene.model.marked_pods == 4
    assert scene.begun == 1


async def test_labels_that_change_all_pods_are_delivered_at_the_end(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each pod selects on a label of its own.

    After some repeated deliveries the end is awaited.
    """
    monkeypatch.setattr(initial_sync, "MAX_REPEATED_PODS", 5 * PIECE)
    for number in range(20):
        spread = {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}
        selector = {"matchExpressions": [{"key": f"k{number}", "operator": "Exists"}]}
        constraint = {**spread, "labelSelector": selector}
        labels = {f"k{number}": "x"}
        await scene.come(
            *names(number * PIECE, (number + 1) * PIECE),
            labels=labels,
            topologySpreadConstraints=[constraint],
        )
    assert len(scene.tasks()) < 12 * PIECE
    scene.all.set()
    await scene.initial_sync.rest()
    scene.told.append(scene.model.take())
    told = {
        one.task.key: one.task for told in scene.told for one in told if isinstance(one, deltas.TaskUpserted)
    }
    assert len(told) == 20 * PIECE
    assert {task.needs.labels for task in told.values()} == {((f"k{n}", "x"),) for n in range(20)}


@pytest.mark.parametrize("piece", [500, 3])
async def test_a_full_cluster_is_delivered_in_batches_and_decided_on_as_a_whole(
    fake_clock: FakeClock, monkeypatch: pytest.MonkeyPatch, piece: int
) -> None:
    monkeypatch.setattr(initial_sync, "BATCH_PODS", piece)
    api = SchedulerApi(fake_clock)
    api.add(queue("root"), queue("default"), *[node(f"n{i}", gpus=8) for i in range(4)])
    api.add(*[pod(f"old-{i}", node=f"n{i % 3}", phase="Running") for i in range(24)])
    api.add(group("g", 4), *[pod(f"g-{i}", group="g") for i in range(4)])
    async with Running(api) as running:
        await running.settle(1.0)
        assert {api.node_of(f"g-{i}") for i in range(4)} == {"n3"}
        assert len(running.service.engine.state.tasks) == 28
        assert running.service.last_decision.cycle >= 1


async def test_an_instance_that_stands_by_is_up_to_date_and_decides_at_once(
    fake_clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A new leader reads nothing again.

    Whatever changes meanwhile, its engine does not grow.
    """
    monkeypatch.setattr(engine_feed, "MIN_REPLACE_PODS", 20)
    api = SchedulerApi(fake_clock)
    api.add(queue("root"), queue("default"), *[node(f"n{i}", gpus=8) for i in range(4)])
    api.add(*[pod(f"old-{i}", node=f"n{i % 3}", phase="Running") for i in range(24)])
    async with Running(api, stands_by=True) as running:
        first = running.service.engine
        for _ in range(8):
            api.add(*[pod(f"churn-{i}", node="n3") for i in range(30)])
            await running.settle(6.0)
            for i in range(30):
                api.remove(PODS, f"default/churn-{i}")
            await running.settle(6.0)
        assert running.service.engine is not first
        assert len(running.service.engine.state.tasks) == 24
        api.add(group("g", 4), *[pod(f"g-{i}", group="g") for i in range(4)])
        await running.settle(6.0)
        assert len(running.service.engine.state.tasks) == 28
        assert (api.bindings, api.log) == ([], [])
        told: list[int] = []
        take = running.service.model.take
        monkeypatch.setattr(
            running.service.model, "take", lambda *a: told.append(len(found := take(*a))) or found
        )
        running.service.lead()
        await running.settle(1.0)
        assert {api.node_of(f"g-{i}") for i in range(4)} == {"n3"}
        assert api.phase("g") == "Running"
        assert told[0] == 0, "it was all told before"


async def test_another_policy_gets_the_whole_state_in_batches(
    fake_clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(initial_sync, "BATCH_PODS", 10)
    api = SchedulerApi(fake_clock)
    api.add(queue("root"), queue("default"), *[node(f"n{i}", gpus=8) for i in range(4)])
    api.add(*[pod(f"old-{i}", node=f"n{i % 3}", phase="Running") for i in range(60)])
    async with Running(api) as running:
        told: list[list[deltas.Delta]] = []
        take = running.service.model.take
        monkeypatch.setattr(running.service.model, "take", lambda *a: told.append(found := take(*a)) or found)
        running.service.use(SchedulerConfig())
        await running.settle(1.0)
        assert len(running.service.engine.state.tasks) == 60
        most = max(sum(type(one) is deltas.TaskUpserted for one in piece) for piece in told)
        assert most == 10
        api.add(pod("new", requests={"nvidia.com/gpu": "1"}))
        await running.settle(1.0)
        assert "new" in api.bound()
