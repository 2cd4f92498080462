"""Condition ``PodScheduled=False, reason Unschedulable``, which cluster autoscalers
read as a request for nodes."""

from __future__ import annotations

from typing import Any

import pytest
from kubeobjects import group, node, pod, priority_class, queue
from scheduler_api import Running, SchedulerApi

from windlass.api import errors
from windlass.api.resources import PODS, PRIORITY_CLASSES, Resource
from windlass.kits.clock import FakeClock
from windlass.model import scheduler_config

UNSCHEDULABLE = "Unschedulable"
PROMPT_SECONDS = 2.0


class Watched(SchedulerApi):
    """Records every reason of ``PodScheduled`` of each pod, in order."""

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
        """Pods that ever requested a node."""
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
async def test_a_gang_with_missing_pods_requests_no_nodes(api: Watched, gpus: int) -> None:
    api.add(node("n1", gpus=gpus), group("g", 4))
    async with Running(api) as running:
        for one in members(3):
            api.add(one)
            await running.settle(12.0)
        assert api.called() == set()
        assert {reason for reasons in api.said.values() for reason in reasons} <= {"SchedulingGated"}
        assert api.bound() == []


async def test_no_reason_is_written_before_the_nodes_are_known(api: Watched) -> None:
    """At the start pods are listed before nodes."""
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


async def test_pods_of_a_provisioning_request_request_no_nodes_themselves(api: Watched) -> None:
    """The autoscaler would count a free node for the pod, and leave it out of the
    request."""
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


async def test_failed_binds_request_no_nodes(api: Watched) -> None:
    api.add(node("n1", gpus=2), group("g", 2), *members(2))
    api.refuse_bind = lambda *_: errors.forbidden(PODS, "g0", "a webhook says no")
    async with Running(api) as running:
        for _ in range(10):
            await running.settle(6.0)
        assert api.called() == set()
        assert api.said["g0"][-1] == "SchedulerError"


async def test_nominated_pods_request_no_nodes(api: Watched) -> None:
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


async def test_only_the_group_with_a_reservation_requests_nodes(api: Watched) -> None:
    """The other group would fit, but the capacity is reserved for the first one."""
    hour = {"windlass.dev/run-estimate": "1h"}
    api.add(node("n1", gpus=2), pod("there", node="n1", annotations=hour))
    api.add(group("first", 2), *members(2, "first", annotations=hour))
    async with Running(api) as running:
        await running.settle(5.0)
        api.add(group("g", 1), *members(1))
        await running.settle(20.0)
        assert api.said["g0"] == ["SchedulingGated"]
        assert api.called() == {"first0", "first1"}


async def test_a_queue_at_its_limit_requests_no_nodes_until_only_nodes_are_missing(api: Watched) -> None:
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
async def test_a_queue_at_its_limit_requests_no_nodes_in_a_small_cluster(
    api: Watched, spec: dict[str, Any]
) -> None:
    """An autoscaled cluster is as large as its load.

    no new group would fit even if it were empty.
    """
    api.add(node("n1", gpus=2), queue("default", capability=LIMIT), pod("a", node="n1"), pod("b", node="n1"))
    api.add(group("g", 4), *members(4, **spec))
    async with Running(api) as running:
        await running.settle(20.0)
        assert api.said["g0"] == ["SchedulingGated"]
        assert api.called() == set()
        api.add(queue("default", capability={"nvidia.com/gpu": "6"}))
        await running.settle(PROMPT_SECONDS)
        assert api.called() == {f"g{i}" for i in range(4)}


async def test_a_gang_that_lacks_pods_requests_no_nodes_though_it_will_need_them(api: Watched) -> None:
    """A gang with a quota that admits no more pods would get nodes that stay idle."""
    api.add(node("n1", gpus=1), group("g", 4, minResources=LIMIT), *members(3))
    async with Running(api) as running:
        await running.settle(20.0)
        assert api.said["g0"] == ["SchedulingGated"]
        assert api.called() == set()
        api.add(pod("g3", group="g"))
        await running.settle(6.0)
        assert api.called() == {f"g{i}" for i in range(4)}


async def test_a_pod_that_waits_for_a_claim_requests_no_nodes_though_its_gang_lacks_some(
    api: Watched,
) -> None:
    volumes = [{"name": "v", "persistentVolumeClaim": {"claimName": "nobody-made-it"}}]
    api.add(node("n1", gpus=1), group("g", 3), *members(2), pod("g2", group="g", volumes=volumes))
    async with Running(api) as running:
        await running.settle(20.0)
        assert api.said["g0"] == ["SchedulingGated"]
        assert api.called() == set()


async def test_a_new_leader_requests_no_nodes_for_pods_that_fit(api: Watched) -> None:
    api.add(node("n1", gpus=2), group("g", 2), *members(2))
    condition = {"type": "PodScheduled", "status": "False", "reason": UNSCHEDULABLE, "message": "0/1 nodes"}
    api.change(PODS, "default/g0", status={"conditions": [condition]})
    async with Running(api) as running:
        await running.settle(5.0)
        assert api.bound() == ["g0", "g1"]
        assert api.called() == set()


# ---------------------------------------------------------------------- soon where it is true


async def test_all_pods_of_a_gang_that_does_not_fit_request_nodes(api: Watched) -> None:
    """With only some of them the cluster would grow by too little, repeatedly."""
    api.add(node("n1", gpus=2), group("g", 4), *members(4))
    async with Running(api) as running:
        await running.settle(PROMPT_SECONDS)
        assert api.called() == {f"g{i}" for i in range(4)}
        assert api.said["g0"] == [UNSCHEDULABLE]
        api.add(node("n2", gpus=2))
        await running.settle(PROMPT_SECONDS)
        assert api.bound() == [f"g{i}" for i in range(4)]
        assert all(reasons == [UNSCHEDULABLE] for reasons in api.said.values())


async def test_a_later_pod_of_a_gang_that_requests_nodes_requests_one_too(api: Watched) -> None:
    api.add(node("n1", gpus=1), group("g", 2), *members(2))
    async with Running(api) as running:
        await running.settle(PROMPT_SECONDS)
        assert api.called() == {"g0", "g1"}
        api.add(pod("late", group="g"))
        await running.settle(PROMPT_SECONDS)
        assert "late" in api.called()


async def test_nodes_are_requested_for_an_empty_cluster(api: Watched) -> None:
    """Node pools may have shrunk to zero nodes."""
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


async def test_nodes_are_requested_for_a_queue_at_its_fair_share(api: Watched) -> None:
    """A share of the cluster grows with the cluster."""
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


async def test_nodes_are_requested_if_a_full_cluster_admits_no_group(api: Watched) -> None:
    api.add(node("n1", gpus=1), pod("there", node="n1"), group("g", 2, minResources=LIMIT), *members(2))
    async with Running(api, policy=scheduler_config.parse(ENQUEUE).config) as running:
        await running.settle(PROMPT_SECONDS)
        assert api.called() == {"g0", "g1"}


async def test_no_nodes_are_requested_for_a_queue_at_its_own_limit(api: Watched) -> None:
    api.add(queue("default", capability={"nvidia.com/gpu": "1"}))
    api.add(node("n1", gpus=1), pod("there", node="n1"), pod("alone"))
    async with Running(api, policy=scheduler_config.parse(SHARES).config) as running:
        await running.settle(20.0)
        assert api.said == {"alone": ["SchedulingGated"]}


async def test_a_group_that_waits_for_disruption_budgets_requests_nodes(api: Watched) -> None:
    """Victims may not be evicted: more nodes would help, too."""
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
"""Taints of the cluster autoscaler on a node that it drains, and on a candidate for that."""


async def test_a_node_that_is_being_deleted_has_no_capacity(api: Watched) -> None:
    """Otherwise a gang would wait for a node that is gone in a moment, and request
    none."""
    api.add(node("going", gpus=2, taints=[TO_BE_DELETED]), node("n1", gpus=2), group("g", 4), *members(4))
    async with Running(api) as running:
        await running.settle(PROMPT_SECONDS)
        assert api.called() == {f"g{i}" for i in range(4)}
        assert api.bound() == []
        api.add(node("n2", gpus=2))
        await running.settle(PROMPT_SECONDS)
        assert {where for _, where in api.bindings} == {"n1", "n2"}
        assert len(api.bound()) == 4


async def test_no_capacity_is_reserved_on_a_node_that_is_being_deleted(api: Watched) -> None:
    """Victims terminate for a gang when the autoscaler picks the node.

    The gang then requests nodes and is not nominated any more.
    """
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


async def test_a_pod_that_fits_elsewhere_avoids_a_candidate_for_deletion(api: Watched) -> None:
    """It is the fuller node, which would come first otherwise."""
    api.add(node("n1", gpus=4), node("n2", gpus=4, taints=[CANDIDATE]), pod("there", node="n2"))
    async with Running(api) as running:
        api.add(group("g", 4), *members(4))
        await running.settle(PROMPT_SECONDS)
        assert {where for _, where in api.bindings} == {"n1"}
        api.add(pod("last"))
        await running.settle(PROMPT_SECONDS)
        assert dict(api.bindings)["default/last"] == "n2"
        assert api.called() == set()
