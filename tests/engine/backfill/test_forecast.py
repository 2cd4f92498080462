"""When something starts: what is known of run times, and the order."""

from __future__ import annotations

import json
from typing import Any

import pytest
from cluster_dsl import Cluster
from msgspec.structs import replace as altered

from windlass.engine.state.expected_ends import end_of
from windlass.spi.objects import TaskState


def running(cluster: Cluster, name: str, n: int, request: str, *, seconds: float | None) -> None:
    """A group that runs since now, and is estimated to take so long."""
    cluster.gang(name, n, request)
    cluster.change_group(name, run_estimate=seconds)
    cluster.cycle(0.0)
    assert cluster.placed(name) == n
    for i in range(n):
        cluster.change_task(f"{name}-{i}", state=TaskState.RUNNING, started=cluster.now)


def state_of(cluster: Cluster) -> dict[str, Any]:
    """But for the notes that figures of queues are to be looked at."""
    notes = ("changed", "stirred")
    return {key: value for key, value in json.loads(cluster.engine.dump()).items() if key not in notes}


def estimate(cluster: Cluster, name: str) -> float | None:
    return cluster.explain(name).estimate_seconds


@pytest.fixture
def box() -> Cluster:
    return Cluster().queues("default").nodes("n1 gpu=4 cpu=64", "n2 gpu=4 cpu=64")


def test_a_gang_starts_when_enough_of_those_before_it_have_ended(box: Cluster) -> None:
    running(box, "short", 4, "gpu=1", seconds=100)
    running(box, "long", 4, "gpu=1", seconds=300)
    box.gang("half", 2, "gpu=2")
    box.cycle()
    box.gang("whole", 4, "gpu=2")
    box.cycle(9.0)
    assert estimate(box, "half") == 90.0
    assert box.explain("half").planned_nodes in ({"n1": 2}, {"n2": 2}), "F50: where it starts"
    assert box.explain("half").estimate_basis == "when ns/short ends, as its owner estimates"
    assert estimate(box, "whole") is None, "nobody knows how long half runs"
    box.change_group("half", run_estimate=1000.0)
    box.cycle(0.0)
    assert estimate(box, "whole") == 1090.0
    basis = "when ns/short, ns/long and ns/half end, as their owners estimate"
    assert box.explain("whole").estimate_basis == basis
    assert box.explain("whole").planned_nodes == {"n1": 2, "n2": 2}
    box.settle()


def test_of_many_that_have_to_end_the_last_three_are_named(box: Cluster) -> None:
    for number in range(1, 6):
        running(box, f"r{number}", 1, "gpu=1", seconds=100.0 * number)
    running(box, "rest", 3, "gpu=1", seconds=5000)
    box.gang("five", 5, "gpu=1")
    box.cycle()
    words = "when ns/r3, ns/r4, ns/r5 and 2 more end, as their owners estimate"
    assert box.explain("five").estimate_basis == words
    box.settle()


def test_without_any_estimate_nothing_is_said(box: Cluster) -> None:
    running(box, "busy", 8, "gpu=1", seconds=None)
    box.gang("g", 2, "gpu=2")
    box.cycle()
    assert estimate(box, "g") is None
    assert box.explain("g").estimate_basis == ""


def test_who_cannot_run_does_not_stand_in_the_way(box: Cluster) -> None:
    running(box, "busy", 8, "gpu=1", seconds=50)
    box.gang("never", 1, "gpu=5")
    box.gang("g", 2, "gpu=4")
    box.cycle(10.0)
    assert estimate(box, "never") is None
    assert estimate(box, "g") == 40.0


def test_an_estimate_that_was_too_short_is_doubled(box: Cluster) -> None:
    running(box, "late", 8, "gpu=1", seconds=100)
    box.gang("g", 2, "gpu=4")
    box.cycle(350.0)
    assert estimate(box, "g") == 50.0


def test_a_hard_limit_is_believed(box: Cluster) -> None:
    running(box, "late", 8, "gpu=1", seconds=100)
    for i in range(8):
        box.change_task(f"late-{i}", run_limit=360.0)
    box.gang("g", 2, "gpu=4")
    box.cycle(350.0)
    assert estimate(box, "g") == 10.0


def test_many_ends_are_bisected(box: Cluster) -> None:
    for i in range(8):
        running(box, f"r{i}", 1, "gpu=1", seconds=10.0 * (i + 1))
    box.gang("g", 6, "gpu=1")
    box.cycle(0.0)
    assert estimate(box, "g") == 60.0


def test_a_forecast_leaves_nothing_behind(box: Cluster) -> None:
    running(box, "busy", 8, "gpu=1", seconds=100)
    box.gang("g", 2, "gpu=4")
    box.cycle()
    before = state_of(box)
    assert estimate(box, "g") == 99.0
    assert state_of(box) == before
    assert box.cycle().queues == ()


def test_who_was_promised_room_and_finds_some_sooner_ends_once(box: Cluster) -> None:
    """Between two cycles a node became free: in the forecast it goes there, and its end is not that of the room which
    it was promised."""
    box.nodes("n3 gpu=4 cpu=64")
    running(box, "first", 1, "gpu=4", seconds=None)
    running(box, "other", 1, "gpu=4", seconds=5000)
    for i in range(4):
        running(box, f"r{i}", 1, "gpu=1", seconds=200.0 + 100 * i)
    box.change_task("first-0", state=TaskState.RELEASING)
    box.gang("next", 1, "gpu=4")
    box.change_group("next", run_estimate=100.0)
    box.cycle(0.0)
    box.gang("all", 3, "gpu=4")
    box.cycle(0.0)
    assert box.engine.state.groups["ns/next"].nominations == 1
    box.remove_task("other-0")
    before = state_of(box)
    assert estimate(box, "all") == 500.0
    basis = "when ns/r1, ns/r2, ns/r3 and 2 more end, as their owners estimate"
    assert box.explain("all").estimate_basis == basis
    assert state_of(box) == before
    box.cycle(0.0)
    assert box.placed("next") == 1


def test_what_terminates_ends_now_and_what_is_stuck_never(box: Cluster) -> None:
    running(box, "busy", 1, "gpu=1", seconds=100)
    entry = box.engine.state.tasks["ns/busy-0"]
    assert end_of(entry, box.now) == box.now + 100
    box.change_task("busy-0", state=TaskState.RELEASING)
    assert end_of(entry, box.now) == box.now
    box.task(altered(box.tasks["ns/busy-0"], state=TaskState.STUCK))
    assert end_of(entry, box.now) is None


def test_without_an_estimate_the_limits_of_all_its_tasks_are_one(box: Cluster) -> None:
    running(box, "limited", 8, "gpu=1", seconds=None)
    for i in range(7):
        box.change_task(f"limited-{i}", run_limit=60.0)
    box.gang("g", 2, "gpu=4")
    box.cycle(0.0)
    assert estimate(box, "g") is None
    box.change_task("limited-7", run_limit=40.0)
    box.cycle(0.0)
    assert estimate(box, "g") == 60.0
    assert box.engine.state.groups["ns/limited"].timed
