"""Automatic groups of bare pods."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from fakeapi import FakeApi, reasons

from windlass.api.resources import NAMESPACES, POD_GROUPS, PODS, PRIORITY_CLASSES
from windlass.api.views import decode_pod, decode_pod_group, encode
from windlass.controllers.apply_effects import EffectExecutor
from windlass.controllers.podgroup.controller import PodGroupController
from windlass.controllers.podgroup.reconcile import (
    PodGroupSnapshot,
    needs_group,
    reconcile,
    warn_about_missing_class,
)

Json = dict[str, Any]


def pod(name: str = "solo", **parts: Any) -> Json:
    containers = [{"name": "main", "resources": {"limits": {"nvidia.com/gpu": "4"}}}]
    metadata = {"name": name, "namespace": "default", "uid": f"uid-{name}", **parts.pop("metadata", {})}
    return {"metadata": metadata, "spec": {"schedulerName": "volcano", "containers": containers, **parts}}


def created(subject: Json, queue: str = "") -> Json:
    (create,) = reconcile(subject, PodGroupSnapshot(False, queue)).creates
    return create.object


def test_the_group_first_and_then_the_pod() -> None:
    effects = reconcile(pod(), PodGroupSnapshot(False))
    first, second = effects.stages
    assert first[0].object["metadata"]["name"] == "podgroup-uid-solo"  # type: ignore[union-attr]
    assert second[0].patch == {  # type: ignore[union-attr]
        "metadata": {"annotations": {"scheduling.k8s.io/group-name": "podgroup-uid-solo"}}
    }
    assert len(reconcile(pod(), PodGroupSnapshot(True)).stages) == 1


def test_the_group() -> None:
    group = created(pod(priorityClassName="high"))
    assert group["spec"] == {
        "minMember": 1,
        "queue": "default",
        "minResources": {"nvidia.com/gpu": "4"},
        "priorityClassName": "high",
    }
    (owner,) = group["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["uid"], owner["controller"]) == ("Pod", "uid-solo", True)


def test_pods_of_one_controller_share_a_group() -> None:
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "r", "uid": "u-r", "controller": True}
    group = created(pod(metadata={"ownerReferences": [owner]}))
    assert group["metadata"]["name"] == "podgroup-u-r"
    assert group["metadata"]["ownerReferences"] == [owner]


def test_annotations_are_honoured() -> None:
    notes = {
        "scheduling.volcano.sh/group-min-member": "3",
        "scheduling.volcano.sh/queue-name": "gold",
        "volcano.sh/preemptable": "true",
        "volcano.sh/jdb-max-unavailable": "1",
        "volcano.sh/network-topology-mode": "Soft",
        "volcano.sh/network-topology-highest-tier": "2",
        "other": "x",
    }
    group = created(
        pod(metadata={"annotations": notes, "labels": {"volcano.sh/cooldown-time": "1m", "a": "b"}})
    )
    assert group["spec"]["minMember"] == 3
    assert group["spec"]["queue"] == "gold"
    assert group["spec"]["minResources"] == {"nvidia.com/gpu": "12"}
    assert group["spec"]["networkTopology"] == {"mode": "soft", "highestTierAllowed": 2}
    assert group["metadata"]["annotations"] == {
        "volcano.sh/preemptable": "true",
        "volcano.sh/jdb-max-unavailable": "1",
    }
    assert group["metadata"]["labels"] == {"volcano.sh/cooldown-time": "1m"}


def test_minimum_resources_by_annotation() -> None:
    notes = {"scheduling.volcano.sh/group-min-resources": '{"cpu": "3", "memory": "1Gi"}'}
    assert created(pod(metadata={"annotations": notes}))["spec"]["minResources"] == {
        "cpu": "3",
        "memory": "1Gi",
    }


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("scheduling.volcano.sh/group-min-member", "many"),
        ("scheduling.volcano.sh/group-min-member", "-1"),
        ("scheduling.volcano.sh/group-min-resources", "{"),
        ("scheduling.volcano.sh/group-min-resources", '{"cpu": "lots"}'),
    ],
)
def test_nonsense_in_an_annotation_is_told(name: str, text: str) -> None:
    effects = reconcile(pod(metadata={"annotations": {name: text}}), PodGroupSnapshot(False))
    assert reasons(effects.events) == ["InvalidAnnotation"]
    assert effects.creates[0].object["spec"]["minMember"] == 1
    assert effects.creates[0].object["spec"]["minResources"] == {"nvidia.com/gpu": "4"}


def test_the_namespaces_queue() -> None:
    assert created(pod(), "silver")["spec"]["queue"] == "silver"


@pytest.mark.parametrize(
    "subject",
    [
        pod(schedulerName="windlass"),
        pod(schedulerName=""),
        pod(metadata={"annotations": {"scheduling.k8s.io/group-name": "g"}}),
        pod(metadata={"annotations": {"scheduling.volcano.sh/group-name": "g"}}),
        pod(metadata={"deletionTimestamp": "2026-01-01T00:00:00Z"}),
        {**pod(), "status": {"phase": "Succeeded"}},
    ],
)
def test_who_gets_none(subject: Json) -> None:
    assert not needs_group(subject)
    assert reconcile(subject, PodGroupSnapshot(False)).stages == ()


def test_an_empty_name_of_a_group_is_none() -> None:
    """As the webhooks and Volcano read it."""
    subject = pod(metadata={"annotations": {"scheduling.k8s.io/group-name": ""}})
    assert needs_group(subject)
    api = FakeApi()
    pods = next(iter(PodGroupController(api, api).watches()))  # type: ignore[arg-type]
    assert list(pods.keys(decode_pod(encode(subject)))) == ["pod:default/solo"]


def test_end_to_end_in_a_fake_api() -> None:
    api = FakeApi()
    api.put(
        NAMESPACES, {"metadata": {"name": "team", "annotations": {"scheduling.volcano.sh/queue-name": "q"}}}
    )
    controller = PodGroupController(api, api)  # type: ignore[arg-type]
    api.put(PODS, pod(metadata={"namespace": "team"}))
    executor = EffectExecutor(api)  # type: ignore[arg-type]

    async def run() -> None:
        for _ in range(3):
            await executor.perform(await controller.reconcile("pod:team/solo"))

    asyncio.run(run())
    (group,) = api.objects(POD_GROUPS)
    assert group["spec"]["queue"] == "q"
    (stored,) = api.objects(PODS)
    assert stored["metadata"]["annotations"]["scheduling.k8s.io/group-name"] == group["metadata"]["name"]
    assert [entry[0] for entry in api.log] == ["create", "patch"]


def test_a_group_with_a_missing_priority_class_is_told() -> None:
    api = FakeApi()
    controller = PodGroupController(api, api)  # type: ignore[arg-type]
    api.put(POD_GROUPS, {"metadata": {"name": "g"}, "spec": {"priorityClassName": "high"}})
    effects = asyncio.run(controller.reconcile("group:default/g"))
    assert reasons(effects.events) == ["PriorityClassNotFound"]
    assert effects.stages == ()
    api.put(PRIORITY_CLASSES, {"metadata": {"name": "high"}, "value": 1})
    assert asyncio.run(controller.reconcile("group:default/g")).events == ()
    plain = decode_pod_group(encode({"metadata": {"name": "g"}}))
    assert warn_about_missing_class(plain, ()).events == ()
