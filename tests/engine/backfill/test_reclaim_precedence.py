"""Reservations where queues reclaim: room is not kept for who would be evicted as soon as he has it."""

from __future__ import annotations

import pytest
from cluster_dsl import Cluster

from windlass.engine.config import EngineConfig
from windlass.spi.objects import TaskState

RECLAIMING = ("allocate", "reclaim")


def cluster(*queues: str, nodes: int = 4, actions: tuple[str, ...] = RECLAIMING) -> Cluster:
    found = Cluster(EngineConfig(actions=actions, backfill="easy")).queues(*queues)
    return found.nodes(*(f"n{i + 1} gpu=8 cpu=64" for i in range(nodes)))


def submit(c: Cluster, name: str, queue: str, pods: int, gpus: int, seconds: float) -> None:
    c.gang(name, pods, f"gpu={gpus}", queue=queue)
    c.change_group(name, run_estimate=seconds)


def run(c: Cluster, seconds: float = 0.0) -> list[str]:
    """Cycles until all is decided; what was bound runs. Who was evicted."""
    evicted: list[str] = []
    for _ in range(4):
        decision = c.cycle(seconds)
        seconds = 0.0
        for bind in decision.binds:
            c.change_task(bind.task.removeprefix("ns/"), state=TaskState.RUNNING, started=c.now)
        evicted += [one.task for one in decision.evictions]
    return evicted


def borrowing(actions: tuple[str, ...] = RECLAIMING) -> Cluster:
    """Two queues of two nodes each. A gang of three nodes waits for one GPU of the third; beside that GPU is room for
    who is within his queue's share, but he runs for longer."""
    c = cluster("a deserved.gpu=16", "b deserved.gpu=16", actions=actions)
    submit(c, "small", "a", 1, 1, 100)
    submit(c, "theirs", "b", 1, 8, 1000)
    run(c)
    submit(c, "wide", "a", 3, 8, 500)
    run(c)
    assert [key for key, _, _ in c.engine.reservations.as_records()] == ["ns/wide"]
    submit(c, "mine", "b", 1, 4, 500)
    return c


def test_who_is_within_the_share_goes_before_who_will_be_beyond() -> None:
    c = borrowing()
    run(c)
    assert c.placed("mine") == 1
    ((_, start, _),) = c.engine.reservations.as_records()
    assert start == c.now + 500, "the gang is planned anew, behind who has gone before"
    c.finish("small")
    assert run(c, 100.0) == []
    assert c.placed("wide") == 0


def test_nobody_goes_before_where_nobody_reclaims() -> None:
    c = borrowing(("allocate",))
    run(c)
    assert c.placed("mine") == 0
    assert c.code("mine") == "BehindInQueue"
    c.finish("small")
    run(c, 100.0)
    assert c.placed("wide") == 3


def test_who_would_be_beyond_the_share_himself_waits() -> None:
    c = borrowing()
    c.queues("a deserved.gpu=22", "b deserved.gpu=10")
    run(c)
    assert c.placed("mine") == 0
    assert c.code("mine") == "BehindInQueue"


@pytest.mark.parametrize("changes", [{"preemptible": False}, {"queue": "c"}], ids=["firm", "own"])
def test_who_cannot_be_evicted_for_the_claim_keeps_his_room(changes: dict[str, object]) -> None:
    """A gang that nobody evicts; and one of the claimer's own queue."""
    c = cluster("a deserved.gpu=16", "c deserved.gpu=16")
    submit(c, "small", "a", 1, 1, 100)
    submit(c, "theirs", "c", 1, 8, 1000)
    run(c)
    submit(c, "wide", "a", 3, 8, 500)
    c.change_group("wide", **changes)
    run(c)
    submit(c, "mine", "c", 1, 4, 500)
    run(c)
    assert c.placed("mine") == 0


def test_share_is_reckoned_at_the_time_of_the_reservation() -> None:
    """Beyond its share now, and within it once what its queue runs has ended."""
    c = cluster("a deserved.gpu=16", "b deserved.gpu=8", "c deserved.gpu=8", nodes=3)
    submit(c, "old", "a", 1, 8, 100)
    submit(c, "theirs", "c", 1, 8, 1000)
    run(c)
    submit(c, "next", "a", 2, 8, 500)
    run(c)
    submit(c, "mine", "b", 1, 8, 500)
    assert run(c) == []
    assert c.placed("mine") == 0
    assert c.code("mine") == "BehindInQueue"
    c.finish("old")
    run(c, 100.0)
    assert c.placed("next") == 2


def test_those_that_begin_before_count_for_the_share() -> None:
    """Each of two gangs is within the share of its queue; both together are not."""
    c = Cluster(EngineConfig(actions=RECLAIMING, backfill="conservative"))
    c.queues("a deserved.gpu=16", "b deserved.gpu=16").nodes(*(f"n{i + 1} gpu=8 cpu=64" for i in range(4)))
    submit(c, "old", "a", 4, 5, 100)
    run(c)
    submit(c, "first", "a", 2, 8, 500)
    submit(c, "second", "a", 2, 8, 500)
    run(c)
    assert len(c.engine.reservations.as_records()) == 2
    submit(c, "mine", "b", 2, 3, 500)
    assert run(c) == []
    assert c.placed("mine") == 2
