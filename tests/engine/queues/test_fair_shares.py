"""Fair shares in the engine: up to date at every decision, level by level, over both APIs."""

from __future__ import annotations

from typing import Any

from cluster_dsl import GPU, Cluster, needs, queue

from windlass.engine.config import EngineConfig
from windlass.engine.deltas import QueueUpserted
from windlass.plugins.defaults import default_plugins
from windlass.spi.objects import Dialect, Queue, Task, TaskState


def kai(name: str, parent: str = "", *, gpus: int | None = 0, weight: float = 1, **rest: Any) -> Queue:
    """A queue of KAI's that says nothing about CPU and memory; ``gpus`` deserved, ``None``: any amount."""
    unlimited = ("cpu", "memory", *((GPU,) if gpus is None else ()))
    return Queue(
        f"kai/{name}",
        f"kai/{parent}" if parent else "",
        priority=rest.pop("priority", 100),
        deserved={GPU: gpus * 1000} if gpus else {},
        unlimited=unlimited,
        surplus_weights={GPU: weight},
        dialect=Dialect.KAI,
        **rest,
    )


def cluster(*queues: Queue | str, gpus: int = 8) -> Cluster:
    c = Cluster().nodes(f"n1 gpu={gpus}")
    for spec in queues:
        c.engine.apply([QueueUpserted(spec if isinstance(spec, Queue) else queue(spec))])
    return c


def gpus(c: Cluster, name: str) -> float:
    c.cycle()
    return c.engine.state.queues.entries[name].fair_share.get(GPU, 0) / 1000


def test_deserved_amounts_come_first_and_the_surplus_follows_the_weights() -> None:
    c = cluster(kai("org", gpus=None), kai("a", "org", gpus=2, weight=2), kai("b", "org", gpus=2, weight=1))
    for name in "ab":
        c.gang(name, 8, "gpu=1", min=1, queue=f"kai/{name}")
    assert gpus(c, "kai/a") == 5  # 2, then 2 of 4 by weight 2:1, then the unit that rounding left
    assert gpus(c, "kai/b") == 3
    parts = c.engine.state.queues.entries["kai/a"].share.parts[GPU]
    assert [(part.cause, part.units) for part in parts] == [
        ("deserved", 2000),
        ("surplus", 2000),
        ("rounding", 1000),
    ]


def test_shares_follow_the_demand_and_stand_still_for_binds() -> None:
    c = cluster(kai("org", gpus=None), kai("a", "org"), kai("b", "org"))
    c.gang("one", 6, "gpu=1", min=1, queue="kai/a")
    assert (gpus(c, "kai/a"), gpus(c, "kai/b")) == (6, 0)
    before = c.engine.state.queues.entries["kai/a"].share
    c.cycle()
    assert c.engine.state.queues.entries["kai/a"].share is before
    c.gang("two", 6, "gpu=1", min=1, queue="kai/b")
    assert (gpus(c, "kai/a"), gpus(c, "kai/b")) == (4, 4)
    c.remove("one")
    assert (gpus(c, "kai/a"), gpus(c, "kai/b")) == (0, 6)


def test_children_divide_what_their_parent_is_due() -> None:
    c = cluster(
        kai("x", gpus=6),
        kai("y", gpus=2),
        kai("x1", "x"),
        kai("x2", "x", weight=2),
        kai("y1", "y", gpus=None),
    )
    for leaf in ("x1", "x2", "y1"):
        c.gang(leaf, 8, "gpu=1", min=1, queue=f"kai/{leaf}")
    assert [gpus(c, f"kai/{q}") for q in ("x", "y", "x1", "x2", "y1")] == [6, 2, 2, 4, 2]
    c.nodes("n2 gpu=3")
    assert [gpus(c, f"kai/{q}") for q in ("x", "y", "x1", "x2", "y1")] == [8, 3, 3, 5, 3]


def test_nodes_that_are_not_ready_and_work_of_other_schedulers_are_not_divided() -> None:
    c = cluster(kai("a", gpus=None), gpus=8).nodes("n2 gpu=8 notready")
    c.gang("a", 20, "gpu=1", min=1, queue="kai/a")
    assert gpus(c, "kai/a") == 8
    c.overcommitted = True
    c.task(Task("ns/stranger", "u", "", needs("gpu=3"), state=TaskState.RUNNING, node="n1"))
    assert gpus(c, "kai/a") == 5


def test_the_roots_of_both_apis_divide_the_cluster_once() -> None:
    c = cluster("root", "v parent=root", kai("a", gpus=2), gpus=9)
    c.gang("v", 9, "gpu=1", min=1, queue="v")
    assert (gpus(c, "kai/a"), gpus(c, "root"), gpus(c, "v")) == (0, 9, 9)
    c.gang("a", 9, "gpu=1", min=1, queue="kai/a")
    assert (gpus(c, "kai/a"), gpus(c, "root"), gpus(c, "v")) == (6, 3, 3)  # 2, then 7 by weight 1:1
    c.queues("v parent=root deserved.gpu=6")
    assert (gpus(c, "kai/a"), gpus(c, "root"), gpus(c, "v")) == (3, 6, 6)


def test_a_level_that_nothing_moved_in_is_not_divided_again() -> None:
    c = cluster(kai("x"), kai("y"), kai("x1", "x"), kai("y1", "y"))
    asked: list[str] = []
    fair_shares = c.engine.state.fair_shares
    division = fair_shares._kai
    assert division is not None

    class Counting:
        name, dialect, flat = "counting", Dialect.KAI, False

        def divide(self, parent, queues, total):
            asked.append(parent.name if parent is not None else "")
            return division.divide(parent, queues, total)

    fair_shares._kai = Counting()
    c.gang("a", 1, "gpu=1", queue="kai/x1")
    c.cycle()
    asked.clear()
    c.gang("b", 1, "gpu=1", queue="kai/x1")
    c.cycle()
    assert asked == ["", "kai/x"]
    asked.clear()
    c.cycle()
    c.gang("c", 1, "gpu=1", queue="kai/y1")
    c.cycle()
    assert asked == ["", "kai/y"]


def test_neither_api_takes_what_the_other_is_due() -> None:
    c = Cluster(EngineConfig(actions=("allocate", "reclaim")), default_plugins()).nodes("n1 gpu=8")
    c.queues("root", "v parent=root deserved.gpu=4")
    c.engine.apply([QueueUpserted(kai("k", gpus=4))])
    for i in range(6):
        c.gang(f"v{i}", 1, "gpu=1", queue="v")
    c.gang("k1", 1, "gpu=2", queue="kai/k")
    c.change_group("k1", dialect=Dialect.KAI)
    c.cycle()
    assert c.where("k1") == {"n1": 1}
    c.gang("k2", 1, "gpu=2", queue="kai/k")
    c.change_group("k2", dialect=Dialect.KAI)
    gone = c.cycle().evictions
    assert {eviction.group.partition("/")[2][0] for eviction in gone} == {"v"}
    assert len(gone) == 2  # v is left with the four that it deserves
    for eviction in gone:
        c.remove_task(eviction.task.removeprefix("ns/"))
    c.cycle()
    assert c.where("k2") == {"n1": 1}
    for eviction in gone:  # they come back, and wait: k holds no more than it is due
        c.add_tasks(eviction.group.removeprefix("ns/"), 1, "gpu=1")
    for _ in range(5):
        decision = c.cycle()
        assert (decision.evictions, decision.binds) == ((), ())


def test_the_next_job_decides_between_queues_of_kai() -> None:
    c = cluster(kai("org", gpus=None), kai("a", "org", gpus=2), kai("b", "org", gpus=2), gpus=3)
    c.gang("wide", 3, "gpu=1", queue="kai/b")  # older, but beyond what b deserves
    c.gang("narrow", 1, "gpu=1", queue="kai/a")
    c.cycle()
    assert c.where("narrow") == {"n1": 1}
    assert c.where("wide") == {}
    c.gang("small", 2, "gpu=1", queue="kai/b")
    c.change_group("small", priority=1)  # now the next job of b is another one
    c.cycle()
    assert c.where("small") == {"n1": 2}


def test_the_order_is_looked_at_again_after_every_placement() -> None:
    c = cluster(kai("org", gpus=None), kai("a", "org", gpus=4), kai("b", "org", gpus=4), gpus=8)
    for i in range(8):
        c.gang(f"a{i}", 1, "gpu=1", queue="kai/a")
        c.gang(f"b{i}", 1, "gpu=1", queue="kai/b")
    turns = [bind.group[3] for bind in c.cycle().binds]
    assert turns == ["a", "b"] * 4


def test_work_of_others_beyond_all_there_is_leaves_nothing_to_divide() -> None:
    c = cluster("default", gpus=2)
    c.overcommitted = True
    c.task(Task("o/x", "o", "", needs("gpu=4"), state=TaskState.RUNNING, node="n1"))
    c.gang("g", 1, "gpu=1")
    assert gpus(c, "default") == 0
