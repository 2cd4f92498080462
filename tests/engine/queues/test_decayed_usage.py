"""``engine.queues.decayed_usage``: what was used fades, and bends the surplus."""

from __future__ import annotations

import pytest
from cluster_dsl import GPU, Cluster
from hypothesis import given, settings
from hypothesis import strategies as st

from windlass.engine.config import EngineConfig
from windlass.engine.deltas import QueueUpserted
from windlass.engine.engine import Engine
from windlass.engine.queues.decayed_usage import MILLION, RENEW_SECONDS, Meter
from windlass.plugins.defaults import default_plugins
from windlass.spi.objects import Dialect, Queue

HOUR = 3600.0


def cluster(half_life: float) -> Cluster:
    c = Cluster(EngineConfig(usage_half_life_seconds=half_life)).nodes("n1 gpu=8")
    for name in "ab":
        c.engine.apply(
            [
                QueueUpserted(
                    Queue(
                        f"kai/{name}",
                        unlimited=("cpu", "memory"),
                        surplus_weights={GPU: 1.0},
                        dialect=Dialect.KAI,
                        created=0.0 if name == "a" else 1.0,
                    )
                )
            ]
        )
    return c


def fair(c: Cluster, name: str) -> float:
    return c.engine.state.queues.entries[f"kai/{name}"].fair_share.get(GPU, 0) / 1000


def usage(c: Cluster, name: str) -> float:
    return c.engine.state.queues.entries[f"kai/{name}"].usage.get(GPU, 0) / MILLION


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 9), st.floats(0.5, 5000.0)), min_size=1, max_size=8))
def test_a_meter_is_the_fading_sum_of_small_steps(history: list[tuple[int, float]]) -> None:
    half_life = 1000.0
    meter, now, total = Meter(0.0), 0.0, 0.0
    for level, seconds in history:
        meter.level = {"x": level}
        steps = 2000
        for _ in range(steps):
            dt = seconds / steps
            total = (total + level * dt / 2) * 0.5 ** (dt / half_life) + level * dt / 2
        now += seconds
        meter.advance(now, half_life)
    assert meter.sums["x"] == pytest.approx(total, rel=1e-3, abs=1e-6)


def test_a_queue_that_used_all_for_long_gets_less_of_the_surplus() -> None:
    c = cluster(HOUR)
    c.gang("a", 8, "gpu=1", min=1, queue="kai/a")
    c.cycle()
    c.cycle(10 * HOUR)
    assert usage(c, "a") == pytest.approx(1.0, abs=0.01)
    c.gang("b", 8, "gpu=1", min=1, queue="kai/b")
    c.cycle(RENEW_SECONDS)
    # n = 1/2 each, w(a) = max(0, 1/2 + (1/2 - 1)) = 0, w(b) = 1/2 + 1/2
    assert (fair(c, "a"), fair(c, "b")) == (0, 8)


def test_past_usage_fades_by_half_in_a_half_life() -> None:
    c = cluster(HOUR)
    c.gang("a", 8, "gpu=1", min=1, queue="kai/a")
    c.cycle()
    c.cycle(HOUR)
    c.remove("a")
    c.cycle()
    before = usage(c, "a")
    c.cycle(HOUR)
    assert 0 < usage(c, "a") < before
    c.cycle(20 * HOUR)
    assert usage(c, "a") < 0.001


def test_it_is_renewed_once_a_minute_and_asks_to_be_woken_while_something_waits() -> None:
    c = cluster(HOUR)
    c.gang("a", 8, "gpu=1", min=1, queue="kai/a")
    assert c.cycle().wake_at is None
    c.gang("b", 1, "gpu=1", queue="kai/b")
    assert c.cycle(1.0).wake_at == pytest.approx(c.now + RENEW_SECONDS - 1.0)
    seen = usage(c, "a")
    c.cycle(5.0)
    assert usage(c, "a") == seen
    c.cycle(RENEW_SECONDS)
    assert usage(c, "a") > seen


def test_without_a_half_life_nothing_is_kept() -> None:
    c = cluster(0.0)
    c.gang("a", 8, "gpu=1", min=1, queue="kai/a")
    c.cycle()
    c.cycle(HOUR)
    assert c.engine.state.usage.meters == {}
    assert c.engine.state.queues.entries["kai/a"].usage == {}


def test_a_dump_keeps_the_past() -> None:
    c = cluster(HOUR)
    c.gang("a", 8, "gpu=1", min=1, queue="kai/a")
    c.cycle()
    c.cycle(HOUR)
    other = Engine.load(c.engine.dump(), default_plugins())
    assert other.dump() == c.engine.dump()
    for engine in (c.engine, other):
        engine.cycle(c.now + 2 * HOUR)
    assert other.state.queues.entries["kai/a"].usage == c.engine.state.queues.entries["kai/a"].usage != {}
