"""``engine.diagnosis.limit_remedies``: remedies name the queues with the binding limits."""

from __future__ import annotations

from cluster_dsl import GPU, Cluster

from windlass.api.reasons import Reason
from windlass.engine.deltas import QueueUpserted
from windlass.spi.objects import Dialect, Queue


def waiting(*queues: str) -> Cluster:
    """Group ``g`` of 2 GPUs waits in queue ``b``; ``a`` runs 2 GPUs in queue ``a``."""
    c = Cluster().queues(*queues).nodes("n1 gpu=16")
    c.gang("a", 2, "gpu=1", queue="a")
    c.cycle()
    c.gang("g", 2, "gpu=1", queue="b").cycle()
    return c


def raise_limits(c: Cluster, *queues: str) -> int:
    """Return the number of placed pods of ``g`` after the limits changed."""
    c.queues(*queues).cycle()
    return c.placed("g")


def test_limit_of_the_queue_above_is_named() -> None:
    c = waiting("org limit.gpu=2", "a parent=org", "b parent=org")
    explanation = c.explain("g")
    assert explanation.remedies == (
        "Wait for work of queue org to end, or raise the limit: "
        "windlass queue set org capability.nvidia.com/gpu=4",
    )
    assert raise_limits(c, "org limit.gpu=4") == 2


def test_limit_far_above_is_named() -> None:
    c = waiting("top limit.gpu=3", "org parent=top", "a parent=top", "b parent=org limit.gpu=8")
    smaller, remedy = c.explain("g").remedies
    assert smaller == "With minAvailable (minMember) 1 it could start now."
    assert "windlass queue set top capability.nvidia.com/gpu=4" in remedy
    assert "queue set b" not in remedy
    assert raise_limits(c, "top limit.gpu=4") == 2


def test_all_limits_that_bind_are_raised_from_the_top() -> None:
    c = waiting("org limit.gpu=2", "a parent=org", "b parent=org limit.gpu=1")
    assert c.explain("g").code is Reason.EXCEEDS_QUEUE_LIMIT
    assert c.explain("g").remedies == (
        "Ask for less, or raise the limits: windlass queue set org capability.nvidia.com/gpu=4 "
        "&& windlass queue set b capability.nvidia.com/gpu=2",
    )
    assert raise_limits(c, "org limit.gpu=4") == 0
    assert raise_limits(c, "b parent=org limit.gpu=2") == 2


def test_limit_of_a_kai_department_is_named_by_its_field() -> None:
    c = Cluster().nodes("n1 gpu=8")
    limits = {GPU: 2500, "cpu": 500, "memory": 1_500_000}
    department = Queue("kai/dep", capability=limits, dialect=Dialect.KAI)
    c.engine.apply([QueueUpserted(department)])
    c.engine.apply([QueueUpserted(Queue("kai/team", parent="kai/dep", dialect=Dialect.KAI))])
    for name, request in (("gpu", "gpu=4"), ("cpu", "cpu=4")):
        c.gang(name, 1, request, queue="kai/team")
        c.change_group(name, dialect=Dialect.KAI)
    c.cycle()
    edit = "Ask for less, or raise the limit: kubectl edit queues.scheduling.run.ai dep"
    assert c.explain("gpu").remedies == (f"{edit}   (spec.resources.gpu.limit: 4)",)
    assert c.explain("cpu").remedies == (f"{edit}   (spec.resources.cpu.limit: 4000)",)


def test_limit_of_queues_in_a_ring_is_named_once() -> None:
    c = waiting("x parent=y", "y parent=x limit.gpu=2", "a parent=y", "b parent=y")
    remedies = c.explain("g").remedies
    assert len(remedies) == 1
    assert remedies[0].count("windlass queue set y capability.nvidia.com/gpu=4") == 1


def test_limit_of_the_root_is_not_to_be_raised() -> None:
    """The API server does not accept it."""
    c = waiting("root limit.gpu=2", "a parent=root", "b parent=root")
    assert c.explain("g").remedies == ("Wait for work of queue root to end.",)


def test_minimum_is_not_lowered_below_a_used_up_limit() -> None:
    c = Cluster().queues("team limit.gpu=2", "other").nodes("n1 gpu=8")
    c.gang("a", 2, "gpu=1", queue="team").gang("b", 2, "gpu=1", queue="other")
    c.cycle()
    c.gang("g", 6, "gpu=1", queue="team").cycle()
    assert not [remedy for remedy in c.explain("g").remedies if "it could start" in remedy]
    c.queues("team limit.gpu=4").cycle()
    assert "With minAvailable (minMember) 2 it could start now." in c.explain("g").remedies
    c.change_group("g", min_member=2)
    c.cycle()
    assert c.placed("g") == 2


def test_minimum_has_the_name_of_its_api() -> None:
    c = Cluster().queues("default").nodes("n1 gpu=2")
    c.gang("g", 3, "gpu=1")
    c.change_group("g", minimum_name="annotation example.com/count")
    c.cycle()
    assert "With annotation example.com/count 2 it could start now." in c.explain("g").remedies
