"""Groups with an earliest start: their capacity is lent until then, and theirs afterwards."""

from __future__ import annotations

import pytest
from cluster_dsl import Cluster

from windlass.engine.config import EngineConfig
from windlass.engine.engine import Engine
from windlass.plugins.defaults import default_plugins
from windlass.spi.objects import TaskState


def scene(backfill: str = "easy", *, gated: bool = False) -> Cluster:
    """Eight GPUs are free, and a gang of six needs them from 100 s on."""
    c = Cluster(EngineConfig(backfill=backfill)).queues("default").nodes("n1 gpu=8 cpu=64")
    c.gang("early", 6, "gpu=1")
    c.change_group("early", run_estimate=500.0, earliest_start=c.now + 100)
    if gated:
        gate(c, closed=True)
    run(c)
    return c


def gate(c: Cluster, *, closed: bool) -> None:
    for index in range(6):
        c.change_task(f"early-{index}", gated=closed)


def submit(c: Cluster, name: str, n: int, seconds: float | None, priority: int = 0) -> None:
    c.gang(name, n, "gpu=1", priority=priority)
    c.change_group(name, run_estimate=seconds)


def run(c: Cluster, seconds: float = 0.0) -> None:
    """A cycle. Bound tasks run from now on."""
    for bind in c.cycle(seconds).binds:
        c.change_task(bind.task.removeprefix("ns/"), state=TaskState.RUNNING, started=c.now)


def end(c: Cluster, name: str) -> None:
    for key in [key for key in c.tasks if key.startswith(f"ns/{name}-")]:
        c.change_task(key.removeprefix("ns/"), state=TaskState.SUCCEEDED)


@pytest.mark.parametrize("gated", [False, True])
@pytest.mark.parametrize("backfill", ["easy", "conservative"])
def test_capacity_is_lent_until_the_earliest_start(backfill: str, gated: bool) -> None:
    c = scene(backfill, gated=gated)
    assert c.placed("early") == 0
    for name, n, seconds in (("short", 5, 90.0), ("beside", 2, None), ("long", 1, 110.0)):
        submit(c, name, n, seconds)
        run(c)
    assert [c.placed(name) for name in ("short", "beside", "long")] == [5, 2, 0]
    assert "reserved for ns/early" in c.explain("long").message
    end(c, "short")
    run(c, 80)
    submit(c, "late", 6, 30.0)
    run(c)
    assert c.placed("late") == c.placed("long") == 0
    if gated:
        run(c, 50)
        assert c.placed("early") == c.placed("late") == 0  # the gate is closed, the capacity is kept
        gate(c, closed=False)
    run(c, 20)
    assert c.placed("early") == 6


def test_a_claim_moves_the_start_to_now_and_waits_for_borrowers_only() -> None:
    c = scene()
    submit(c, "short", 6, 90.0)
    run(c)
    c.change_group("early", earliest_start=c.now)
    run(c)
    submit(c, "next", 6, 40.0)
    run(c, 20)
    assert (c.placed("early"), c.placed("next")) == (0, 0)
    end(c, "short")
    run(c, 10)
    assert (c.placed("early"), c.placed("next")) == (6, 0)


@pytest.mark.parametrize("gated", [False, True])
def test_an_unused_reservation_expires(gated: bool) -> None:
    c = scene(gated=gated)
    c.change_group("early", earliest_start=c.now + 1000, reserve_until=c.now + 200)
    submit(c, "long", 8, 5000.0)
    run(c)
    assert c.placed("long") == 0
    run(c, 250)
    run(c)
    assert c.placed("long") == 8
    assert "expired" in c.explain("early").message


def test_a_higher_priority_precedes_and_the_reservation_is_made_again() -> None:
    c = scene()
    submit(c, "urgent", 4, 300.0, priority=10)
    run(c)
    run(c)
    assert c.placed("urgent") == 4
    assert c.engine.reservations.early.by_group["ns/early"].start == pytest.approx(c.now + 300)


def test_the_engine_asks_to_be_woken_and_a_dump_keeps_the_reservation() -> None:
    c = scene()
    submit(c, "long", 6, 500.0)
    assert c.cycle(0).wake_at == c.now + 100
    copy = Engine.load(c.engine.dump(), default_plugins())
    assert copy.dump() == c.engine.dump()
    for seconds in (10.0, 100.0, 120.0, 800.0):
        assert copy.cycle(c.now + seconds) == c.engine.cycle(c.now + seconds), seconds


def test_the_explanation_tells_the_time_and_the_borrowers() -> None:
    c = scene()
    submit(c, "short", 4, 90.0)
    run(c)
    told = c.explain("early")
    assert told.code == "EarliestStart"
    assert "reserved from 00:18:20 UTC on n1, lent to ns/short until then" in told.message


@pytest.mark.parametrize("backfill", ["none", "strict"])
def test_without_reservations_the_group_just_waits(backfill: str) -> None:
    c = scene(backfill)
    submit(c, "long", 4, 500.0)
    run(c)
    assert c.placed("early") == 0
    assert c.placed("long") == 4
    run(c, 150)
    assert c.code("early") != "EarliestStart"


@pytest.mark.parametrize("how", ["removed", "ended"])
def test_a_group_that_still_does_not_fit_is_explained_again_without_the_reservation(how: str) -> None:
    c = scene(gated=True)
    c.gang("long", 1, "gpu=8")
    c.change_group("long", run_estimate=5000.0)
    run(c)
    submit(c, "small", 2, 400.0)
    run(c)
    assert (c.placed("small"), c.placed("long")) == (2, 0)
    assert "reserved for ns/early" in c.explain("long").message
    if how == "removed":
        c.remove("early")
    else:
        end(c, "early")
    decision = c.cycle()
    assert c.engine.reservations.early.by_group == {}
    assert "early" not in c.explain("long").message
    (told,) = (status for status in decision.groups if status.group == "ns/long")
    assert told.explanation is not None
    assert "early" not in told.explanation.message
    submit(c, "short", 6, 300.0)
    run(c)
    assert c.placed("short") == 6
