"""``engine.actions.preemptor_order``: whose turn it is among those who claim."""

from __future__ import annotations

from cluster_dsl import GPU, Cluster

from windlass.engine.actions.preemptor_order import PreemptorOrder
from windlass.spi.plugins import QueueView, StepView


class ByName:
    """A root that is asked for much comes late; below it the first by name goes first."""

    name = "by-name"

    def queue_key(self, queue: QueueView, step: StepView | None) -> tuple[bool, str]:
        assert step is not None
        return queue.name == "root" and step.request[GPU] > 1000, queue.name


def lines(c: Cluster) -> PreemptorOrder:
    return PreemptorOrder(c.engine.scheduling_queue.pending_classes.values(), [ByName()])


def waiting() -> Cluster:
    """``a`` asks for much, then for little, ``b`` for little and for much."""
    c = Cluster().nodes("n1 gpu=1")
    c.queues("root", "a parent=root", "b parent=root", "other")
    c.gang("big", 1, "gpu=4", queue="a").gang("next", 1, "gpu=2", queue="a")
    c.gang("small", 1, "gpu=3", queue="b").gang("last", 1, "gpu=4", queue="b").gang(
        "else", 1, "gpu=2", queue="other"
    )
    c.cycle()
    return c


def names(found: list) -> list[str]:
    return [next(iter(bucket.members)).removeprefix("ns/") for bucket in found]


def test_siblings_are_compared_and_not_what_each_makes_of_the_queues_above() -> None:
    c = waiting()
    assert names(list(lines(c))) == ["else", "big", "next", "small", "last"]


def test_a_queue_comes_late_with_what_is_next_below_it() -> None:
    c = Cluster().nodes("n1 gpu=1").queues("root", "a parent=root", "z")
    c.gang("big", 1, "gpu=4", queue="a").gang("zed", 1, "gpu=4", queue="z")
    c.cycle()
    assert names(list(lines(c))) == ["zed", "big"]


def test_who_was_given_last_is_left_with_the_others() -> None:
    c = waiting()
    found = lines(c)
    given = iter(found)
    assert names([next(given), next(given)]) == ["else", "big"]
    assert sorted(names(found.remaining())) == ["big", "last", "next", "small"]


def test_nobody_claims() -> None:
    assert list(PreemptorOrder([], [ByName()])) == []
