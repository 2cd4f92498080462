"""Measured loads: read from the cluster's metrics API for plugins that take them."""

from __future__ import annotations

from typing import Any

import pytest
from kubeobjects import node
from scheduler_api import SchedulerApi

from windlass.api import errors, resources, views
from windlass.kits.clock import FakeClock
from windlass.kits.timestamps import rfc3339
from windlass.scheduler.loads.load_feed import LoadFeed, load_of
from windlass.spi.inputs import NodeLoad


def metrics(name: str, cpu: str = "500m", memory: str = "1Gi", at: float = 1000.0) -> dict[str, Any]:
    return {
        "apiVersion": "metrics.k8s.io/v1beta1",
        "kind": "NodeMetrics",
        "metadata": {"name": name},
        "timestamp": rfc3339(at),
        "window": "30s",
        "usage": {"cpu": cpu, "memory": memory},
    }


def view(name: str) -> views.NodeObject:
    return views.decode_node(views.encode(node(name)))


class Taker:
    def __init__(self) -> None:
        self.got: list[Any] = []

    def take_loads(self, loads: Any) -> None:
        self.got.append(loads)


def test_usage_is_a_percentage_of_what_is_allocatable() -> None:
    place = view("n1")
    cpu, memory = place.allocatable["cpu"], place.allocatable["memory"]
    found = load_of(metrics("n1", "500000000n", "1Gi"), place)
    assert found == NodeLoad(100 * 500 / cpu, 100 * 2**30 / memory, 1000.0)


@pytest.mark.parametrize(
    "wrong",
    [
        {"usage": None},
        {"usage": {"cpu": "x", "memory": "1Gi"}},
        {"usage": {"cpu": "1"}},
        {"timestamp": "soon"},
    ],
)
def test_invalid_loads_are_left_out(wrong: dict[str, Any]) -> None:
    assert load_of({**metrics("n1"), **wrong}, view("n1")) is None


async def test_plugins_get_loads_every_half_minute(fake_clock: FakeClock) -> None:
    import asyncio

    api = SchedulerApi(fake_clock)
    taker, fed = Taker(), []
    plugins: list[object] = []
    feed = LoadFeed(
        api,  # type: ignore[arg-type]
        {"n1": view("n1")},
        lambda: plugins,
        lambda: fed.append(1),
        clock=fake_clock,
    )
    answers: list[Any] = [errors.not_found(resources.NODE_METRICS, ""), [metrics("n1"), metrics("unknown")]]
    asked = 0

    async def answer(resource: Any, *_: Any, **__: Any) -> Any:
        nonlocal asked
        asked += 1
        found = answers.pop(0)
        if isinstance(found, Exception):
            raise found
        return type("Listed", (), {"items": found})

    api.list = answer  # type: ignore[method-assign]
    task = asyncio.create_task(feed.run())
    await fake_clock.advance(0)
    assert asked == 0  # no plugin takes them
    plugins.append(taker)
    await fake_clock.advance(30)
    assert (asked, taker.got, fed) == (1, [], [])
    await fake_clock.advance(30)
    assert [sorted(loads) for loads in taker.got] == [["n1"]]
    assert fed == [1]
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
