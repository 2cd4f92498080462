"""PodGroups of pods that another operator creates."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

from definitions import GROUP, definition
from fakeapi import Crash, FakeApi

from windlass.api.annotations import GROUP_NAME
from windlass.api.errors import failure
from windlass.api.resources import CUSTOM_RESOURCE_DEFINITIONS, POD_GROUPS, PODS, Resource
from windlass.controllers.apply_effects import EffectExecutor
from windlass.controllers.effects import Effects
from windlass.controllers.podgroup.controller import PodGroupController
from windlass.jobs.owners.rules import MIN_MEMBER

Json = dict[str, Any]
TRAININGS = Resource(GROUP, "v1", "trainings", "Training", custom=True)


class World:
    """A Training with three pods, and the controller of groups."""

    def __init__(self, path: str = ".spec.workers", scheduler: str = "windlass") -> None:
        self.api = FakeApi()
        crd = definition("trainings", "Training", schema={"type": "object"})
        crd["metadata"]["annotations"] = {MIN_MEMBER: path}
        self.api.put(CUSTOM_RESOURCE_DEFINITIONS, crd)
        self.api.put(
            TRAININGS,
            {
                "apiVersion": TRAININGS.api_version,
                "kind": "Training",
                "metadata": {"name": "t", "namespace": "default"},
                "spec": {"workers": 3},
            },
        )
        self.scheduler = scheduler
        for index in range(3):
            self.add(index)
        self.restart()

    def add(self, index: int) -> None:
        (owner,) = self.api.objects(TRAININGS)
        reference = {
            "apiVersion": TRAININGS.api_version,
            "kind": "Training",
            "name": "t",
            "uid": owner["metadata"]["uid"],
            "controller": True,
        }
        metadata = {"name": f"t-{index}", "namespace": "default", "ownerReferences": [reference]}
        self.api.put(
            PODS, {"metadata": metadata, "spec": {"schedulerName": self.scheduler, "containers": []}}
        )

    def restart(self) -> None:
        self.api.crash_after = None
        self.controller = PodGroupController(
            self.api,  # type: ignore[arg-type]
            self.api,
            self.api.clock,
            owner_schedulers=("windlass",),
        )
        self.executor = EffectExecutor(self.api)  # type: ignore[arg-type]

    def step(self, key: str) -> Effects:
        effects = asyncio.run(self.controller.reconcile(key))
        asyncio.run(self.executor.perform(effects))
        return effects

    def settle(self) -> None:
        watch = next(iter(self.controller.watches()))
        for _ in range(2):
            for record in list(watch.informer.items.values()):
                for key in watch.keys(record):
                    self.step(key)

    @property
    def picture(self) -> Any:
        groups = [(g["metadata"]["name"], g["spec"]["minMember"]) for g in self.api.objects(POD_GROUPS)]
        pods = [(p["metadata"].get("annotations") or {}).get(GROUP_NAME) for p in self.api.objects(PODS)]
        return groups, pods


def test_pods_of_one_owner_are_one_gang() -> None:
    world = World()
    world.settle()
    (group,) = world.api.objects(POD_GROUPS)
    (owner,) = world.api.objects(TRAININGS)
    name = f"podgroup-{owner['metadata']['uid']}"
    assert world.picture == ([(name, 3)], [name] * 3)
    assert group["metadata"]["ownerReferences"][0]["uid"] == owner["metadata"]["uid"]
    assert "minResources" not in group["spec"]


def test_controller_that_is_killed_between_any_two_writes_groups_alike() -> None:
    whole = World()
    whole.settle()
    for writes in range(6):
        world = World()
        world.api.crash_after = writes
        with contextlib.suppress(Crash, BaseExceptionGroup):
            world.settle()
        world.restart()
        world.settle()
        assert world.picture[0][0][1] == 3
        assert len(world.picture[0]) == 1
        assert len(set(world.picture[1])) == 1, writes


def test_size_follows_the_owner_and_no_pod_is_written() -> None:
    world = World()
    world.settle()
    (owner,) = world.api.objects(TRAININGS)
    world.api.put(TRAININGS, {**owner, "spec": {"workers": 4}})
    world.api.clock.jump(5)
    world.add(3)
    before = len([entry for entry in world.api.log if entry[1] == "pods"])
    world.settle()
    assert world.picture[0][0][1] == 4
    written = [entry for entry in world.api.log if entry[1] == "pods"][before:]
    assert [key for _, _, key in written] == ["default/t-3"]


def test_pods_of_other_schedulers_are_left_alone() -> None:
    world = World(scheduler="kai-scheduler")
    world.settle()
    assert world.picture == ([], [None] * 3)


def test_owner_that_may_not_be_read_groups_with_the_minimum_of_one() -> None:
    world = World()
    find = world.api.find

    async def refused(resource: Resource, name: str, namespace: str | None = None) -> Json | None:
        if resource.kind == "Training":
            raise failure(403, "Forbidden", "no", {})
        return await find(resource, name, namespace)

    world.api.find = refused  # type: ignore[method-assign]
    effects = world.step("pod:default/t-0")
    assert world.picture[0][0][1] == 1
    (event,) = effects.events
    assert event.reason == "GroupedByDefault"
    assert "add trainings.conformance.example.com to grouping.owners of the chart" in event.message


def test_pods_wait_until_the_declared_rules_are_known() -> None:
    world = World()
    definitions = world.controller._owners._definitions
    definitions._synced.clear()
    assert world.step("pod:default/t-0").requeue_after == 0.2
    assert world.picture == ([], [None] * 3)
    world.api.clock.jump(11)  # without the right to read definitions
    world.settle()
    assert len(world.picture[0]) == 1


GANGS = Resource("scheduler.grove.io", "v1alpha1", "podgangs", "PodGang", custom=True)


def test_pods_of_grove_are_grouped_by_the_pod_gang_that_their_label_names() -> None:
    world = World()
    crd = definition("podgangs", "PodGang", schema={"type": "object"})
    crd["spec"]["group"] = GANGS.group
    crd["metadata"]["name"] = "podgangs.scheduler.grove.io"
    world.api.put(CUSTOM_RESOURCE_DEFINITIONS, crd)
    gang = {
        "apiVersion": GANGS.api_version,
        "kind": "PodGang",
        "metadata": {"name": "s-0", "namespace": "default"},
        "spec": {"podgroups": [{"name": "s-0-a", "minReplicas": 1}, {"name": "s-0-b", "minReplicas": 2}]},
    }
    world.api.put(GANGS, gang)
    for pod in world.api.objects(PODS):
        pod["metadata"]["labels"] = {"grove.io/podgang": "s-0"}
        world.api.put(PODS, pod)
    world.settle()
    (group,) = world.api.objects(POD_GROUPS)
    assert group["metadata"]["annotations"]["windlass.dev/grouped-by"] == (
        "PodGang s-0: minMember 3 from minReplicas of its pod groups; sub-groups s-0-a 1, s-0-b 2"
    )
    assert [part["subGroupSize"] for part in group["spec"]["subGroupPolicy"]] == [1, 2]
    assert world.picture[1] == [group["metadata"]["name"]] * 3


def test_queue_of_the_pod_precedes_that_of_the_owner() -> None:
    for labels, queue in (({}, "vision"), ({"kai.scheduler/queue": "mine"}, "mine")):
        world = World()
        (owner,) = world.api.objects(TRAININGS)
        owner["metadata"]["labels"] = {"kai.scheduler/queue": "vision", "priorityClassName": "train"}
        world.api.put(TRAININGS, owner)
        pod = world.api.objects(PODS)[0]
        pod["metadata"]["labels"] = labels
        world.api.put(PODS, pod)
        world.step("pod:default/t-0")
        (group,) = world.api.objects(POD_GROUPS)
        assert (group["spec"]["queue"], group["spec"]["priorityClassName"]) == (queue, "train")
