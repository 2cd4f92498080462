"""What grows clusters reads ``PodScheduled=False, reason Unschedulable`` as a call for nodes: true always, and prompt.

Every condition that was ever written is looked at, not only the last one.
"""

from __future__ import annotations

from typing import Any

import pytest
from kubeobjects import group, node, pod, priority_class, queue
from schedapi import Running, SchedulerApi

from windlass.api import errors
from windlass.api.resources import PODS, PRIORITY_CLASSES, Resource
from windlass.kits.clock import FakeClock
from windlass.model import scheduler_config

UNSCHEDULABLE = "Unschedulable"
PROMPT_SECONDS = 2.0


class Watched(SchedulerApi):
    """Remembers every reason of ``PodScheduled`` that a pod was ever given, in order."""

    def __init__(self, clock: FakeClock) -> None:
        super().__init__(clock)
        self.said: dict[str, list[str]] = {}

    async def patch(self, resource: Resource, name: str, patch: Any, *args: Any, **options: Any) -> Any:
        if resource is PODS:
            for one in patch.get("status", {}).get("conditions", ()):
                if one["type"] == "PodScheduled":
                    self.said.setdefault(name, []).append(one["reason"])
        return await super().patch(resource, name, patch, *args, **options)

    def called(self) -> set[str]:
        """Pods that ever called for nodes."""
        return {name for name, reasons in self.said.items() if UNSCHEDULABLE in reasons}


@pytest.fixture
def api(fake_clock: FakeClock) -> Watched:
    made = Watched(fake_clock)
    made.add(queue("root"), queue("default"))
    return made


def members(count: int, name: str = "g", **fields: Any) -> list[dict[str, Any]]:
    return [pod(f"{name}{i}", group=name, **fields) for i in range(count)]


# ---------------------------------------------------------------------- never where it is false


@pytest.mark.parametrize("gpus", [1, 8], ids=["too little room", "room enough"])
async def test_a_gang_whose_pods_are_not_all_there_calls_for_nothing(api: Watched, gpus: int) -> None:
    api.add(node("n1", gpus=gpus), group("g", 4))
    async with Running(api) as running:
        for one in members(3):
            api.add(one)
            await running.settle(12.0)
        assert api.called() == set()
        assert {reason for reasons in api.said.values() for reason in reasons} <= {"SchedulingGated"}
        assert api.bound() == []


async def test_nothing_is_said_before_the_nodes_are_known(api: Watched) -> None:
    """Start-up: pods are listed before nodes."""
    api.add(*members(2), group("g", 2))
    nodes = node("n1", gpus=2)
    api.lagging = True
    api.add(nodes)
    async with Running(api) as running:
        api.lagging = False
        api.catch_up()
        await running.settle(10.0)
        assert api.bound() == ["g0", "g1"]
        assert api.called() == set()


async def test_who_asks_for_its_nodes_by_a_request_calls_for_none_beside(api: Watched) -> None:
    """The pod would take a free node in the autoscaler's mind, which then counts it out for the request."""
    asked = {"autoscaling.x-k8s.io/consume-provisioning-request": "g"}
    api.add(
        node("n1", gpus=1), group("g", 2), *members(2, annotations=asked), group("h", 2), *members(2, "h")
    )
    async with Running(api) as running:
        await running.settle(20.0)
        assert api.called() == {"h0", "h1"}
        assert api.said["g0"] == api.said["g1"] == ["SchedulingGated"]
        api.add(node("n2", gpus=4))
        await running.settle(PROMPT_SECONDS)
        assert len(api.bound()) == 4


async def test_binds_that_fail_call_for_nothing(api: Watched) -> None:
    api.add(node("n1", gpus=2), group("g", 2), *members(2))
    api.refuse_bind = lambda *_: errors.forbidden(PODS, "g0", "a webhook says no")
    async with Running(api) as running:
        for _ in range(10):
            await running.settle(6.0)
        assert api.called() == set()
        assert api.said["g0"][-1] == "SchedulerError"


async def test_room_that_is_being_vacated_calls_for_nothing(api: Watched) -> None:
    api.put(PRIORITY_CLASSES, priority_class("high", 1000))
    api.add(node("n1", gpus=2), pod("low0", node="n1"), pod("low1", node="n1"))
    async with Running(api) as running:
        await running.settle(1.0)
        api.add(group("g", 2, priorityClassName="high"), *members(2, priorityClassName="high"))
        for _ in range(5):
            await running.settle(5.0)
        assert sum(bool(o["metadata"].get("deletionTimestamp")) for o in api.objects(PODS)) == 2
        assert api.called() == set()
        api.finish_deletions()
        await running.settle(2.0)
        assert api.bound() == ["g0", "g1"]


async def test_who_may_not_pass_another_calls_for_nothing_and_the_other_does(api: Watched) -> None:
    """There is room for it, and that is kept for who comes first."""
    hour = {"windlass.dev/run-estimate": "1h"}
    api.add(node("n1", gpus=2), pod("there", node="n1", annotations=hour))
    api.add(group("first", 2), *members(2, "first", annotations=hour))
    async with Running(api) as running:
        await running.settle(5.0)
        api.add(group("g", 1), *members(1))
        await running.settle(20.0)
        assert api.said["g0"] == ["SchedulingGated"]
        assert api.called() == {"first0", "first1"}


async def test_a_queue_at_its_limit_calls_for_nothing_until_nodes_are_what_lacks(api: Watched) -> None:
    api.add(node("n1", gpus=2), queue("default", capability={"nvidia.com/gpu": "1"}))
    api.add(group("g", 2), *members(2))
    async with Running(api) as running:
        await running.settle(20.0)
        assert api.called() == set()
        api.add(queue("default", capability={"nvidia.com/gpu": "9"}))
        await running.settle(1.0)
        assert api.bound() == ["g0", "g1"]
        api.add(group("more", 2), *members(2, "more"))
        await running.settle(PROMPT_SECONDS)
        assert api.called() == {"more0", "more1"}


LIMIT = {"nvidia.com/gpu": "4"}


@pytest.mark.parametrize(
    "spec", [{}, {"nodeSelector": {"pool": "gone"}}], ids=["too small", "shrunk to nothing"]
)
async def test_a_queue_at_its_limit_calls_for_nothing_where_the_cluster_is_too_small_too(
    api: Watched, spec: dict[str, Any]
) -> None:
    """A cluster that follows the load has no more than the load: whoever comes does not fit, even if it were empty."""
    api.add(node("n1", gpus=2), queue("default", capability=LIMIT), pod("a", node="n1"), pod("b", node="n1"))
    api.add(group("g", 4), *members(4, **spec))
    async with Running(api) as running:
        await running.settle(20.0)
        assert api.said["g0"] == ["SchedulingGated"]
        assert api.called() == set()
        api.add(queue("default", capability={"nvidia.com/gpu": "6"}))
        await running.settle(PROMPT_SECONDS)
        assert api.called() == {f"g{i}" for i in range(4)}


async def test_a_gang_that_lacks_pods_calls_for_nothing_though_it_will_need_nodes(api: Watched) -> None:
    """One that its quota lets make no more pods would else have nodes that stand idle."""
    api.add(node("n1", gpus=1), group("g", 4, minResources=LIMIT), *members(3))
    async with Running(api) as running:
        await running.settle(20.0)
        assert api.said["g0"] == ["SchedulingGated"]
        assert api.called() == set()
        api.add(pod("g3", group="g"))
        await running.settle(6.0)
        assert api.called() == {f"g{i}" for i in range(4)}


async def test_who_waits_for_a_claim_calls_for_nothing_though_others_of_its_gang_lack_nodes(
    api: Watched,
) -> None:
    volumes = [{"name": "v", "persistentVolumeClaim": {"claimName": "nobody-made-it"}}]
    api.add(node("n1", gpus=1), group("g", 3), *members(2), pod("g2", group="g", volumes=volumes))
    async with Running(api) as running:
        await running.settle(20.0)
        assert api.said["g0"] == ["SchedulingGated"]
        assert api.called() == set()


async def test_who_takes_over_does_not_call_anew_for_what_has_room(api: Watched) -> None:
    api.add(node("n1", gpus=2), group("g", 2), *members(2))
    condition = {"type": "PodScheduled", "status": "False", "reason": UNSCHEDULABLE, "message": "0/1 nodes"}
    api.change(PODS, "default/g0", status={"conditions": [condition]})
    async with Running(api) as running:
        await running.settle(5.0)
        assert api.bound() == ["g0", "g1"]
        assert api.called() == set()


# ---------------------------------------------------------------------- soon where it is true


async def test_a_gang_that_does_not_fit_calls_for_nodes_with_all_its_pods(api: Watched) -> None:
    """With some of them only, the cluster would be grown by too little, again and again."""
    api.add(node("n1", gpus=2), group("g", 4), *members(4))
    async with Running(api) as running:
        await running.settle(PROMPT_SECONDS)
        assert api.called() == {f"g{i}" for i in range(4)}
        assert api.said["g0"] == [UNSCHEDULABLE]
        api.add(node("n2", gpus=2))
        await running.settle(PROMPT_SECONDS)
        assert api.bound() == [f"g{i}" for i in range(4)]
        assert all(reasons == [UNSCHEDULABLE] for reasons in api.said.values())


async def test_a_pod_that_comes_later_to_a_gang_that_calls_calls_too(api: Watched) -> None:
    api.add(node("n1", gpus=1), group("g", 2), *members(2))
    async with Running(api) as running:
        await running.settle(PROMPT_SECONDS)
        assert api.called() == {"g0", "g1"}
        api.add(pod("late", group="g"))
        await running.settle(PROMPT_SECONDS)
        assert "late" in api.called()


async def test_an_empty_cluster_is_called_for(api: Watched) -> None:
    """Node pools that have shrunk to nothing."""
    api.add(group("g", 2), *members(2), pod("alone"))
    async with Running(api) as running:
        await running.settle(PROMPT_SECONDS)
        assert api.called() == {"g0", "g1", "alone"}


SHARES = """
actions: "enqueue, allocate, reclaim"
tiers:
- plugins:
  - name: priority
  - name: gang
- plugins:
  - name: proportion
  - name: predicates
"""


async def test_a_full_cluster_is_called_for_though_the_queue_has_its_share_of_it(api: Watched) -> None:
    """A share of what there is grows with it."""
    api.add(node("n1", gpus=1), pod("there", node="n1"), pod("alone"), group("g", 2), *members(2))
    async with Running(api, policy=scheduler_config.parse(SHARES).config) as running:
        await running.settle(PROMPT_SECONDS)
        assert api.called() == {"alone", "g0", "g1"}


ENQUEUE = """
actions: "enqueue, allocate"
tiers:
- plugins:
  - name: gang
- plugins:
  - name: overcommit
  - name: predicates
"""


async def test_a_cluster_that_lets_nobody_in_for_being_full_is_called_for(api: Watched) -> None:
    api.add(node("n1", gpus=1), pod("there", node="n1"), group("g", 2, minResources=LIMIT), *members(2))
    async with Running(api, policy=scheduler_config.parse(ENQUEUE).config) as running:
        await running.settle(PROMPT_SECONDS)
        assert api.called() == {"g0", "g1"}


async def test_a_full_cluster_is_not_called_for_by_a_queue_at_its_own_limit(api: Watched) -> None:
    api.add(queue("default", capability={"nvidia.com/gpu": "1"}))
    api.add(node("n1", gpus=1), pod("there", node="n1"), pod("alone"))
    async with Running(api, policy=scheduler_config.parse(SHARES).config) as running:
        await running.settle(20.0)
        assert api.said == {"alone": ["SchedulingGated"]}


async def test_who_waits_for_disruption_budgets_calls_for_nodes(api: Watched) -> None:
    """Others would have to go, and may not: more nodes would do, too."""
    api.add(node("n1", gpus=1), pod("low", node="n1", priority=0), pod("high", priority=100))
    cause = {"reason": "DisruptionBudget", "message": "The disruption budget b needs 1 healthy pods"}
    refusal = errors.failure(429, "TooManyRequests", "no", {"causes": [cause]})
    api.refuse_eviction = lambda *_: refusal
    async with Running(api) as running:
        for _ in range(6):
            await running.settle(10.0)
        assert "high" in api.called()


# ---------------------------------------------------------------------- nodes that are about to go

TO_BE_DELETED = {"key": "ToBeDeletedByClusterAutoscaler", "value": "1795377600", "effect": "NoSchedule"}
CANDIDATE = {
    "key": "DeletionCandidateOfClusterAutoscaler",
    "value": "1795377600",
    "effect": "PreferNoSchedule",
}
"""What the cluster autoscaler writes on a node that it drains, and on one that it will if nobody comes."""


async def test_a_node_that_is_to_be_deleted_is_no_room(api: Watched) -> None:
    """Else a gang would wait for what is gone in a moment, and nobody would make nodes for it."""
    api.add(node("going", gpus=2, taints=[TO_BE_DELETED]), node("n1", gpus=2), group("g", 4), *members(4))
    async with Running(api) as running:
        await running.settle(PROMPT_SECONDS)
        assert api.called() == {f"g{i}" for i in range(4)}
        assert api.bound() == []
        api.add(node("n2", gpus=2))
        await running.settle(PROMPT_SECONDS)
        assert {where for _, where in api.bindings} == {"n1", "n2"}
        assert len(api.bound()) == 4


async def test_room_is_not_kept_on_a_node_that_is_to_be_deleted(api: Watched) -> None:
    """Victims leave it for a gang when the autoscaler comes: the gang calls for nodes, and is nominated no more."""
    api.put(PRIORITY_CLASSES, priority_class("high", 1000))
    api.add(node("n1", gpus=2), pod("low0", node="n1"), pod("low1", node="n1"))
    async with Running(api) as running:
        api.add(group("g", 2, priorityClassName="high"), *members(2, priorityClassName="high"))
        await running.settle(1.0)
        assert {api.object(PODS, f"default/g{i}")["status"].get("nominatedNodeName") for i in (0, 1)} == {
            "n1"
        }
        assert api.called() == set()
        api.add(node("n1", gpus=2, taints=[TO_BE_DELETED]))
        await running.settle(10.0)
        assert api.called() == {"g0", "g1"}
        assert not any(api.object(PODS, f"default/g{i}")["status"].get("nominatedNodeName") for i in (0, 1))
        api.finish_deletions()
        await running.settle(5.0)
        assert api.bound() == []
        api.add(node("n2", gpus=2))
        await running.settle(PROMPT_SECONDS)
        assert {where for _, where in api.bindings} == {"n2"}


async def test_who_fits_elsewhere_lets_a_candidate_for_deletion_go(api: Watched) -> None:
    """Though it is the fuller one, which else comes first."""
    api.add(node("n1", gpus=4), node("n2", gpus=4, taints=[CANDIDATE]), pod("there", node="n2"))
    async with Running(api) as running:
        api.add(group("g", 4), *members(4))
        await running.settle(PROMPT_SECONDS)
        assert {where for _, where in api.bindings} == {"n1"}
        api.add(pod("last"))
        await running.settle(PROMPT_SECONDS)
        assert dict(api.bindings)["default/last"] == "n2"
        assert api.called() == set()
