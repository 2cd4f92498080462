"""Names of resources that come up while work runs: what was placed before leaves its node as it came."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from cluster_dsl import Cluster

from windlass.engine.invariants import check
from windlass.spi.objects import Needs, Node, TaskState

MANY = {f"example.com/r{i}": 1000 for i in range(100)}
"""More than there is room for beside the usual ones, however that is rounded."""
WAYS: dict[str, Callable[[Cluster], None]] = {
    "ends": lambda world: world.finish("a"),
    "is gone": lambda world: world.remove("a"),
    "terminates": lambda world: world.finish("a", TaskState.RELEASING),
    "was not bound": lambda world: world.fail_bind("a-0"),
    "loses its node": lambda world: world.remove_node("n1"),
}


@pytest.mark.parametrize("by", ["a node", "a pod"])
@pytest.mark.parametrize("way", WAYS)
def test_work_from_before_leaves_in_order(way: str, by: str) -> None:
    world = Cluster().nodes("n1 gpu=4 cpu=8").queues("default")
    world.gang("a", 2, "gpu=1 cpu=1")
    assert len(world.engine.cycle(1.0).binds) == 2
    if by == "a node":
        world.nodes(Node("n2", {"cpu": 1000, "pods": 10, **MANY}, {}))
    else:
        world.gang("odd", 1, Needs(request=tuple(MANY.items())))
    WAYS[way](world)
    check(world.engine)
    world.nodes("n3 gpu=2 cpu=8").gang("b", 2, "gpu=1 cpu=1")
    decided = world.engine.cycle(2.0)
    assert {bind.task.split("-")[0] for bind in decided.binds} >= {"ns/b"}
    check(world.engine)
