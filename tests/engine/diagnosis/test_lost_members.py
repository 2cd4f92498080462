"""What a gang is told that holds less than it needs, and of which nothing waits."""

from __future__ import annotations

from cluster_dsl import Cluster
from msgspec.structs import replace as altered

from windlass.api.reasons import Reason
from windlass.spi.objects import TaskState


def test_a_gang_that_lost_a_member_whom_nobody_makes_anew_is_told_to_lack_it() -> None:
    c = Cluster().queues("default").nodes("n1 gpu=4").gang("g", 3, "gpu=1", min=3)
    c.cycle()
    assert c.code("g") == ""
    c.task(altered(c.tasks["ns/g-2"], state=TaskState.RELEASING))
    c.cycle()
    assert c.code("g") == ""  # it has its minimum as long as all of it is there
    c.remove_task("g-2")
    c.cycle()
    assert c.status["ns/g"].explanation.code is Reason.WAITING_FOR_MEMBERS
    assert c.explain("g").message == "It has 2 of the 3 pods that it needs."
    c.add_tasks("g", 1, "gpu=1")
    c.cycle()
    assert c.code("g") == ""


def test_a_gang_that_lost_more_than_who_is_leaving_is_told_so() -> None:
    c = Cluster().queues("default").nodes("n1 gpu=4").gang("g", 4, "gpu=1", min=4)
    c.cycle()
    c.task(altered(c.tasks["ns/g-3"], state=TaskState.RELEASING))
    c.task(altered(c.tasks["ns/g-2"], state=TaskState.FAILED))
    c.cycle()
    assert c.code("g") == ""
    c.remove_task("g-2")
    c.cycle()
    assert c.code("g") == "WaitingForMembers"
