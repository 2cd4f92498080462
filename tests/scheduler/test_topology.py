"""HyperNodes in a running scheduler.

gangs stay below one, and their status is written.
"""

from __future__ import annotations

import json
from typing import Any

import pytest
from kubeobjects import group, node, pod
from scheduler_api import Running, SchedulerApi

from windlass.api.resources import HYPERNODES, POD_GROUPS

HARD = {"mode": "hard", "highestTierAllowed": 1}


@pytest.fixture
def api() -> SchedulerApi:
    found = SchedulerApi()
    for at in range(4):
        found.add(node(f"n{at}", gpus=2))
    for leaf in range(2):
        found.put(HYPERNODES, hypernode(f"leaf{leaf}", f"n{leaf}", f"n{leaf + 2}"))
    return found


def hypernode(name: str, *nodes: str) -> dict[str, Any]:
    return {
        "apiVersion": "topology.volcano.sh/v1alpha1",
        "kind": "HyperNode",
        "metadata": {"name": name, "uid": name},
        "spec": {
            "tier": 1,
            "members": [{"type": "Node", "selector": {"exactMatch": {"name": one}}} for one in nodes],
        },
    }


def gang(api: SchedulerApi, name: str, n: int) -> None:
    obj = group(name, n)
    obj["spec"]["networkTopology"] = HARD
    api.add(obj)
    for at in range(n):
        api.add(pod(f"{name}{at}", group=name, scheduler="volcano"))


async def test_a_gang_is_placed_below_one_hypernode_which_is_recorded(api: SchedulerApi) -> None:
    async with Running(api) as running:
        gang(api, "g", 3)
        await running.settle(8.0)
        where = {api.node_of(f"g{at}") for at in range(3)}
        assert where in ({"n0", "n2"}, {"n1", "n3"})
        notes = api.object(POD_GROUPS, "default/g")["metadata"]["annotations"]
        assert notes["volcano.sh/job-allocated-hypernode"] == ("leaf0" if "n0" in where else "leaf1")
        assert api.object(HYPERNODES, "leaf0")["status"]["nodeCount"] == 2
        api.put(HYPERNODES, hypernode("leaf0", "n0"))
        await running.settle(8.0)
        assert api.object(HYPERNODES, "leaf0")["status"]["nodeCount"] == 1


async def test_a_gang_that_fits_no_hypernode_is_reported_until_the_tree_changes(api: SchedulerApi) -> None:
    async with Running(api) as running:
        gang(api, "g", 5)
        await running.settle(8.0)
        assert not api.bound()
        said = json.loads(
            api.object(POD_GROUPS, "default/g")["metadata"]["annotations"]["windlass.dev/explanation"]
        )
        assert said["code"] == "ExceedsEveryDomain"
        assert "leaf0 would hold 4" in said["message"]
        condition = api.conditions(POD_GROUPS, "default/g")["Unschedulable"]
        assert "5 pods must lie in one domain of tier 1 (HyperNodes)" in condition["message"]
        api.put(HYPERNODES, hypernode("leaf0", "n0", "n1", "n2"))
        await running.settle(8.0)
        assert len(api.bound()) == 5
        assert {api.node_of(f"g{at}") for at in range(5)} == {"n0", "n1", "n2"}


async def test_contradictory_hypernodes_are_reported_once(api: SchedulerApi) -> None:
    async with Running(api) as running:
        api.put(HYPERNODES, hypernode("leaf1", "n0", "n1"))
        gang(api, "g", 1)
        await running.settle(8.0)
        assert running.reasons("leaf1") == ["Contradiction"]
        api.put(HYPERNODES, hypernode("leaf2", "n3"))
        await running.settle(8.0)
        assert running.reasons("leaf1") == ["Contradiction"]
