"""Quota per device model: counted where a task is placed."""

from __future__ import annotations

from dataclasses import replace

import pytest
from cluster_dsl import GPU, Cluster, needs, node

from windlass.api.reasons import Reason
from windlass.engine.deltas import NodeUpserted, QueueUpserted
from windlass.spi.objects import Queue, TaskState
from windlass.spi.plugins import flavor_matches, flavor_of

H100, A100 = f"{GPU}@H100", f"{GPU}@A100"
PRODUCT = f"{GPU}.product"


def cluster(**limits: float) -> Cluster:
    """Queue ``q`` below ``top``; two nodes of eight GPUs, of one model each."""
    c = Cluster().nodes(
        f"h gpu=8 {PRODUCT}=NVIDIA-H100-80GB-HBM3", f"a gpu=8 {PRODUCT}=NVIDIA-A100-SXM4-80GB"
    )
    limit(c, **limits)
    return c


def limit(c: Cluster, parent: str = "", name: str = "q", **limits: float) -> None:
    capability = {f"{GPU}@{model}": int(units * 1000) for model, units in limits.items()}
    c.engine.apply([QueueUpserted(Queue(name, parent, capability=capability))])


def held(c: Cluster, name: str, queue: str = "q") -> float:
    return c.engine.state.queues.entries[queue].allocated.get(name, 0) / 1000


@pytest.mark.parametrize(
    ("name", "model", "matches"),
    [
        (H100, "NVIDIA-H100-80GB-HBM3", True),
        (f"{GPU}@h100", "NVIDIA-H100-80GB-HBM3", True),
        (f"{GPU}@NVIDIA-H100-80GB-HBM3", "NVIDIA-H100-80GB-HBM3", True),
        (f"{GPU}@H10", "NVIDIA-H100-80GB-HBM3", False),
        (H100, "", False),
        (GPU, "NVIDIA-H100-80GB-HBM3", False),
        (f"{GPU}@", "", False),
    ],
)
def test_names_of_models(name: str, model: str, matches: bool) -> None:
    assert flavor_matches(name, model) is matches
    assert flavor_of(H100) == (GPU, "H100")


def test_a_queue_holds_no_more_of_a_model_than_it_may() -> None:
    c = cluster(H100=2)
    c.gang("g", 10, "gpu=1", min=1, queue="q")
    c.settle()
    assert c.where("g") == {"h": 2, "a": 8}
    assert (held(c, H100), held(c, GPU)) == (2, 10)
    c.gang("more", 1, "gpu=1", queue="q")
    c.cycle()
    assert c.where("more") == {}
    limit(c, H100=3)
    c.cycle()
    assert c.where("more") == {"h": 1}


def test_gangs_start_whole_or_not_at_all_and_say_why_not() -> None:
    c = cluster(H100=2, A100=3)
    c.gang("six", 6, "gpu=1", queue="q")
    c.cycle()
    assert c.where("six") == {}
    told = c.engine.explain("ns/six", c.now)
    assert told is not None
    assert (told.code, told.blockers[0].needed, told.blockers[0].available) == (
        Reason.EXCEEDS_QUEUE_LIMIT,
        "6",
        "5",
    )
    c.gang("five", 5, "gpu=1", queue="q")
    c.cycle()
    assert c.where("five") == {"h": 2, "a": 3}
    c.gang("one", 1, needs("gpu=1", node_selector={PRODUCT: "NVIDIA-H100-80GB-HBM3"}), queue="q")
    c.cycle()
    told = c.engine.explain("ns/one", c.now)
    assert told is not None
    assert told.code is Reason.WAITING_FOR_QUOTA
    assert H100 in told.message or told.blockers[0].resource == H100
    c.remove("five")
    c.cycle()
    assert c.where("one") == {"h": 1}
    assert (held(c, H100), held(c, A100)) == (1, 0)


def test_the_limit_of_a_parent_holds_for_all_below() -> None:
    c = cluster()
    limit(c, name="top", H100=3, A100=0)
    limit(c, "top", "q1")
    limit(c, "top", "q2")
    for name in ("q1", "q2"):
        c.gang(name, 4, "gpu=1", min=1, queue=name)
    c.settle()
    assert held(c, H100, "top") == 3
    assert held(c, H100, "q1") + held(c, H100, "q2") == 3
    assert held(c, A100, "top") == 0


def test_books_by_model_are_right_when_rules_or_labels_change() -> None:
    c = cluster()
    c.gang("g", 4, "gpu=1", min=1, queue="q")
    c.settle()
    where = c.where("g")
    assert held(c, H100) == 0  # nobody asks
    limit(c, H100=8, A100=8)
    c.cycle()
    assert (held(c, H100), held(c, A100)) == (where.get("h", 0), where.get("a", 0))
    for name in ("h", "a"):
        spec = node(f"{name} gpu=8 {PRODUCT}=NVIDIA-H100-80GB-HBM3")
        c.engine.apply([NodeUpserted(replace(spec, labels={**spec.labels}))])
    c.cycle()
    assert (held(c, H100), held(c, A100)) == (4, 0)
    limit(c)
    c.cycle()
    assert c.engine.state.queues.flavors == ()
    assert held(c, H100) == 0


def test_what_asks_for_no_device_counts_for_no_model() -> None:
    c = cluster(H100=2)
    c.remove_node("a")
    c.gang("g", 2, "cpu=1", queue="q").gang("h", 1, "gpu=1", queue="q")
    c.settle()
    assert (c.where("g"), held(c, H100)) == ({"h": 2}, 1)


def test_promises_count_for_their_model() -> None:
    c = cluster(H100=1, A100=0)
    c.gang("old", 1, "gpu=1", queue="q")
    c.cycle()
    c.gang("new", 1, "gpu=1", queue="q")
    c.cycle()
    assert c.where("new") == {}
    c.remove("old")
    c.cycle()
    assert c.where("new") == {"h": 1}


@pytest.mark.parametrize("limit_of_model", [1, 2])
def test_what_leaves_makes_room_for_promises_only(limit_of_model: int) -> None:
    """A pod that terminates still counts for what is placed now, and no more for what is promised."""
    c = cluster(H100=limit_of_model, A100=0)
    c.gang("old", 1, "gpu=1", queue="q")
    c.cycle()
    c.change_task("old-0", state=TaskState.RELEASING)
    c.gang("new", 2, "gpu=1", min=1, queue="q")
    c.cycle()
    assert c.placed("new") == limit_of_model - 1
    queue = c.engine.state.queues.entries["q"]
    assert queue.committed.get(H100, 0) / 1000 <= limit_of_model
    c.remove("old")
    c.cycle()
    c.cycle()
    assert c.placed("new") == limit_of_model


def test_who_leaves_a_model_counts_until_he_is_gone() -> None:
    """Also where another model, full of other work, has no limit."""
    c = cluster(H100=1)
    limit(c, name="z")
    c.gang("full", 8, needs("gpu=1", node_selector={PRODUCT: "NVIDIA-A100-SXM4-80GB"}), queue="z")
    c.cycle()
    c.gang("old", 1, "gpu=1", queue="q")
    c.cycle()
    assert c.where("old") == {"h": 1}
    c.change_task("old-0", state=TaskState.RELEASING)
    c.gang("new", 1, "gpu=1", queue="q")
    c.cycle()
    assert c.placed("new") == 0
    c.remove("old")
    c.cycle()
    c.cycle()
    assert c.where("new") == {"h": 1}
