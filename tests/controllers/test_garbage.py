"""Garbage collection by owner references."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from fakeapi import FakeApi

from windlass.api.resources import CONFIG_MAPS, NODES, PODS, SECRETS, VOLCANO_JOBS, Resource
from windlass.controllers.apply_effects import EffectExecutor
from windlass.controllers.garbage.controller import GarbageController

Json = dict[str, Any]


class Heap:
    """Objects that own one another, and the collector, looked at until nothing moves."""

    def __init__(self) -> None:
        self.api = FakeApi()
        self.controller = GarbageController(self.api, self.api)  # type: ignore[arg-type]
        self.executor = EffectExecutor(self.api)  # type: ignore[arg-type]

    def put(self, resource: Resource, name: str, *owners: Json, **metadata: Any) -> Json:
        if owners:
            metadata["ownerReferences"] = list(owners)
        return self.api.put(resource, {"metadata": {"name": name, **metadata}})

    def collect(self) -> None:
        async def once() -> bool:
            busy = False
            for uid in list(self.controller.graph._items):
                effects = await self.controller.reconcile(uid)
                outcome = await self.executor.perform(effects)
                assert not outcome.failures
                busy = busy or bool(effects.stages)
            return busy

        for _ in range(20):
            if not asyncio.run(once()):
                return
        raise AssertionError("still busy")

    def delete(self, resource: Resource, name: str, propagation: str | None = None) -> None:
        asyncio.run(self.api.delete(resource, name, "default", propagation=propagation))

    def names(self, resource: Resource) -> list[str]:
        return sorted(obj["metadata"]["name"] for obj in self.api.objects(resource))


def ref(obj: Json, *, blocks: bool = False, **changes: Any) -> Json:
    reference = {
        "apiVersion": obj["apiVersion"],
        "kind": obj["kind"],
        "name": obj["metadata"]["name"],
        "uid": obj["metadata"]["uid"],
        **changes,
    }
    if blocks:
        reference["blockOwnerDeletion"] = True
    return reference


def test_dependents_go_with_their_owner() -> None:
    heap = Heap()
    job = heap.put(VOLCANO_JOBS, "j")
    pod = heap.put(PODS, "p", ref(job))
    heap.put(CONFIG_MAPS, "c", ref(pod))
    heap.put(CONFIG_MAPS, "free")
    heap.collect()
    assert heap.names(PODS) == ["p"]
    heap.delete(VOLCANO_JOBS, "j")
    heap.collect()
    assert heap.names(PODS) == []
    assert heap.names(CONFIG_MAPS) == ["free"]


def test_an_owner_that_never_was_is_an_absent_one() -> None:
    heap = Heap()
    job = heap.put(VOLCANO_JOBS, "j")
    heap.put(PODS, "p", ref(job, uid="another"))
    heap.collect()
    assert heap.names(PODS) == []


def test_the_alias_version_of_a_kind_is_the_same_kind() -> None:
    heap = Heap()
    job = heap.put(VOLCANO_JOBS, "j")
    heap.put(PODS, "p", ref(job, apiVersion="batch.volcano.sh/v1beta1"))
    heap.collect()
    assert heap.names(PODS) == ["p"]


def test_a_living_owner_is_enough() -> None:
    heap = Heap()
    one, two = heap.put(VOLCANO_JOBS, "one"), heap.put(VOLCANO_JOBS, "two")
    heap.put(PODS, "p", ref(one), ref(two, blocks=True))
    heap.delete(VOLCANO_JOBS, "one")
    heap.collect()
    (pod,) = heap.api.objects(PODS)
    assert pod["metadata"]["ownerReferences"] == [ref(two, blocks=True)]


def test_kinds_that_are_not_served_cannot_be_judged() -> None:
    heap = Heap()
    owner = {"apiVersion": "example.com/v1", "kind": "Pile", "name": "r", "uid": "u"}
    heap.put(PODS, "p", owner)
    heap.collect()
    assert heap.names(PODS) == ["p"]


def test_an_owner_in_another_namespace_is_absent() -> None:
    heap = Heap()
    job = heap.put(VOLCANO_JOBS, "j", namespace="other")
    heap.put(PODS, "p", ref(job))
    heap.collect()
    assert heap.names(PODS) == []


def test_a_cluster_wide_owner() -> None:
    heap = Heap()
    node = heap.put(NODES, "n")
    heap.put(CONFIG_MAPS, "c", ref(node))
    heap.collect()
    assert heap.names(CONFIG_MAPS) == ["c"]
    heap.api.remove(NODES, "n")
    heap.collect()
    assert heap.names(CONFIG_MAPS) == []


def test_orphans_stay() -> None:
    heap = Heap()
    job = heap.put(VOLCANO_JOBS, "j")
    heap.put(PODS, "p", ref(job))
    heap.delete(VOLCANO_JOBS, "j", "Orphan")
    heap.collect()
    assert heap.names(VOLCANO_JOBS) == []
    (pod,) = heap.api.objects(PODS)
    assert pod["metadata"]["ownerReferences"] == []


@pytest.mark.parametrize("blocks", [True, False])
def test_in_the_foreground_the_owner_waits_for_those_that_block(blocks: bool) -> None:
    heap = Heap()
    job = heap.put(VOLCANO_JOBS, "j")
    heap.put(PODS, "p", ref(job, blocks=blocks))
    heap.api.change(PODS, "default/p", spec={"nodeName": "n"})  # so it takes its time to end
    heap.delete(VOLCANO_JOBS, "j", "Foreground")
    heap.collect()
    (pod,) = heap.api.objects(PODS)
    assert pod["metadata"]["deletionTimestamp"]
    assert (heap.names(VOLCANO_JOBS) == ["j"]) is blocks
    heap.api.finish_deletions()
    heap.collect()
    assert heap.names(VOLCANO_JOBS) == []


def test_in_the_foreground_it_goes_from_the_leaves() -> None:
    heap = Heap()
    job = heap.put(VOLCANO_JOBS, "j")
    pod = heap.put(PODS, "p", ref(job, blocks=True))
    heap.put(CONFIG_MAPS, "c", ref(pod, blocks=True), finalizers=["example.com/hold"])
    heap.delete(VOLCANO_JOBS, "j", "Foreground")
    heap.collect()
    assert heap.names(VOLCANO_JOBS) == ["j"]
    (held,) = heap.api.objects(PODS)
    assert held["metadata"]["finalizers"] == ["foregroundDeletion"]
    heap.api.remove(CONFIG_MAPS, "default/c")
    heap.collect()
    assert (heap.names(PODS), heap.names(VOLCANO_JOBS)) == ([], [])


def test_the_server_has_the_last_word() -> None:
    """An owner that the caches do not show yet is asked for, not missed."""
    heap = Heap()
    heap.api.lagging = True
    secret = heap.put(SECRETS, "s")
    heap.api.lagging = False
    heap.put(CONFIG_MAPS, "c", ref(secret))
    heap.collect()
    assert heap.names(CONFIG_MAPS) == ["c"]


def test_only_the_incarnation_that_was_judged_is_deleted() -> None:
    heap = Heap()
    job = heap.put(VOLCANO_JOBS, "j")
    pod = heap.put(PODS, "p", ref(job))
    heap.delete(VOLCANO_JOBS, "j")
    effects = asyncio.run(heap.controller.reconcile(pod["metadata"]["uid"]))
    assert [delete.uid for delete in effects.deletes] == [pod["metadata"]["uid"]]


def test_who_is_looked_at_after_a_change() -> None:
    heap = Heap()
    job = heap.put(VOLCANO_JOBS, "j")
    pod = heap.put(PODS, "p", ref(job))
    graph = heap.controller.graph
    owner, dependent = graph.get(job["metadata"]["uid"]), graph.get(pod["metadata"]["uid"])
    assert owner is not None
    assert dependent is not None
    assert list(graph.affected_keys(owner)) == [dependent.uid]
    assert list(graph.affected_keys(dependent)) == [dependent.uid]
    heap.delete(VOLCANO_JOBS, "j", "Foreground")
    assert set(graph.affected_keys(dependent)) == {owner.uid, dependent.uid}
