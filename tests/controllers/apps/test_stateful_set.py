"""StatefulSets: order, names, storage, updates and revisions."""

from __future__ import annotations

import contextlib
from typing import Any

from apps_world import AppsWorld, workload
from example_counts import examples
from fakeapi import Crash
from hypothesis import given, settings
from hypothesis import strategies as st

from windlass.api.resources import CONTROLLER_REVISIONS, PERSISTENT_VOLUME_CLAIMS, PODS, STATEFUL_SETS

Json = dict[str, Any]
CLAIM = {
    "metadata": {"name": "data"},
    "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
}


def started(**spec: Any) -> AppsWorld:
    world = AppsWorld((STATEFUL_SETS, workload(serviceName="peers", **spec)))
    world.finish()
    return world


def names(world: AppsWorld) -> list[str]:
    return sorted(pod["metadata"]["name"] for pod in world.pods())


def status(world: AppsWorld) -> Json:
    return world.get(STATEFUL_SETS, "web")["status"]


def test_pods_start_one_after_the_other() -> None:
    world = AppsWorld((STATEFUL_SETS, workload(serviceName="peers", replicas=3)))
    seen = []
    for _ in range(12):
        world.settle()
        seen.append(names(world))
        world.kubelet()
    assert [one for at, one in enumerate(seen) if at == 0 or one != seen[at - 1]] == [
        ["web-0"],
        ["web-0", "web-1"],
        ["web-0", "web-1", "web-2"],
    ]
    pod = world.get(PODS, "web-1")
    assert (pod["spec"]["hostname"], pod["spec"]["subdomain"]) == ("web-1", "peers")
    (revision,) = world.revisions()
    assert pod["metadata"]["labels"] == {
        "app": "web",
        "statefulset.kubernetes.io/pod-name": "web-1",
        "apps.kubernetes.io/pod-index": "1",
        "controller-revision-hash": revision["metadata"]["name"],
    }
    assert status(world) == {
        "observedGeneration": 1,
        "replicas": 3,
        "readyReplicas": 3,
        "availableReplicas": 3,
        "currentReplicas": 3,
        "updatedReplicas": 3,
        "currentRevision": revision["metadata"]["name"],
        "updateRevision": revision["metadata"]["name"],
        "collisionCount": 0,
    }


def test_next_pod_waits_until_the_one_before_is_available() -> None:
    world = AppsWorld((STATEFUL_SETS, workload(replicas=2, minReadySeconds=10)))
    world.settle()
    world.kubelet(ready=False)
    world.settle()
    assert names(world) == ["web-0"]
    world.run("web-0")
    world.settle()
    assert names(world) == ["web-0"]
    world.reconcile("statefulset", "default/web")
    assert world.due == 10
    world.pass_time(10)
    world.settle()
    assert names(world) == ["web-0", "web-1"]


def test_parallel_pods_start_and_end_together() -> None:
    world = AppsWorld(
        (STATEFUL_SETS, workload(replicas=3, podManagementPolicy="Parallel", ordinals={"start": 5}))
    )
    world.settle()
    assert names(world) == ["web-5", "web-6", "web-7"]
    world.finish()
    world.change_spec(STATEFUL_SETS, "web", replicas=1)
    world.settle()
    assert [pod for pod in names(world) if not world.get(PODS, pod)["metadata"].get("deletionTimestamp")] == [
        "web-5"
    ]


def test_fewer_replicas_delete_the_highest_ordinal_first() -> None:
    world = started(replicas=3)
    world.change_spec(STATEFUL_SETS, "web", replicas=1)
    world.settle()
    leaving = [pod for pod in names(world) if world.get(PODS, pod)["metadata"].get("deletionTimestamp")]
    assert leaving == ["web-2"]
    world.finish()
    assert names(world) == ["web-0"]


def test_update_goes_from_the_highest_ordinal_down_to_the_partition() -> None:
    world = started(replicas=3, updateStrategy={"type": "RollingUpdate", "rollingUpdate": {"partition": 1}})
    world.set_image(STATEFUL_SETS, "web", "v2")
    world.settle()
    leaving = [pod for pod in names(world) if world.get(PODS, pod)["metadata"].get("deletionTimestamp")]
    assert leaving == ["web-2"]
    world.finish()
    images = [world.get(PODS, pod)["spec"]["containers"][0]["image"] for pod in names(world)]
    assert images == ["app:v1", "app:v2", "app:v2"]
    found = status(world)
    assert (found["currentReplicas"], found["updatedReplicas"]) == (1, 2)
    assert found["currentRevision"] != found["updateRevision"]
    # A lost pod below the partition returns with the revision that it had.
    world.api.remove(PODS, "default/web-0")
    world.finish()
    assert world.get(PODS, "web-0")["spec"]["containers"][0]["image"] == "app:v1"
    strategy = {"type": "RollingUpdate", "rollingUpdate": {"partition": 0}}
    world.change_spec(STATEFUL_SETS, "web", updateStrategy=strategy)
    world.finish()
    assert world.images() == ["v2"] * 3
    assert status(world)["currentRevision"] == status(world)["updateRevision"]


def test_max_unavailable_replaces_several_pods_at_once() -> None:
    rolling = {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 2}}
    world = started(replicas=4, updateStrategy=rolling)
    world.set_image(STATEFUL_SETS, "web", "v2")
    world.settle()
    leaving = [pod for pod in names(world) if world.get(PODS, pod)["metadata"].get("deletionTimestamp")]
    assert leaving == ["web-2", "web-3"]
    world.finish()
    assert world.images() == ["v2"] * 4


def test_on_delete_leaves_pods_to_the_user() -> None:
    world = started(replicas=2, updateStrategy={"type": "OnDelete"})
    world.set_image(STATEFUL_SETS, "web", "v2")
    world.finish()
    assert world.images() == ["v1", "v1"]
    world.api.remove(PODS, "default/web-1")
    world.finish()
    assert world.images() == ["v1", "v2"]


def test_revisions_are_kept_reused_and_expire() -> None:
    world = started(replicas=1, revisionHistoryLimit=1)
    first = world.revisions()[0]["metadata"]["name"]
    assert world.revisions()[0]["data"]["spec"]["template"]["$patch"] == "replace"
    for text in ("v2", "v3", "v4"):
        world.set_image(STATEFUL_SETS, "web", text)
        world.finish()
    assert [one["revision"] for one in world.revisions()] == [3, 4]
    world.set_image(STATEFUL_SETS, "web", "v3")
    world.finish()
    found = world.revisions()
    assert [one["revision"] for one in found] == [4, 5]
    assert first not in [one["metadata"]["name"] for one in found]
    assert world.images() == ["v3"]


def test_hash_collision_is_resolved_by_another_name() -> None:
    first = started(replicas=1).revisions()[0]["metadata"]["name"]
    world = AppsWorld()
    world.api.put(CONTROLLER_REVISIONS, {"metadata": {"name": first}, "data": {}, "revision": 7})
    world.add(STATEFUL_SETS, workload(serviceName="peers", replicas=1))
    world.finish()
    assert status(world)["collisionCount"] == 1
    assert status(world)["currentRevision"] != first


def test_claims_are_created_once_and_follow_the_retention_policy() -> None:
    policy = {"whenDeleted": "Delete", "whenScaled": "Delete"}
    world = started(replicas=2, volumeClaimTemplates=[CLAIM], persistentVolumeClaimRetentionPolicy=policy)

    def claims() -> dict[str, list[str]]:
        return {
            one["metadata"]["name"]: [ref["kind"] for ref in one["metadata"].get("ownerReferences") or ()]
            for one in world.api.objects(PERSISTENT_VOLUME_CLAIMS)
        }

    assert claims() == {"data-web-0": ["StatefulSet"], "data-web-1": ["StatefulSet"]}
    volume = world.get(PODS, "web-1")["spec"]["volumes"][0]
    assert volume == {"name": "data", "persistentVolumeClaim": {"claimName": "data-web-1"}}
    labels = world.get(PERSISTENT_VOLUME_CLAIMS, "data-web-1")["metadata"]["labels"]
    assert labels == {"app": "web"}
    world.change_spec(STATEFUL_SETS, "web", replicas=1)
    world.settle()
    assert claims()["data-web-1"] == ["Pod"]
    kept = {"whenDeleted": "Retain", "whenScaled": "Retain"}
    world.change_spec(STATEFUL_SETS, "web", persistentVolumeClaimRetentionPolicy=kept)
    world.finish()
    assert claims()["data-web-0"] == []


def test_ended_pod_is_replaced_under_its_name() -> None:
    world = started(replicas=2)
    before = world.get(PODS, "web-0")["metadata"]["uid"]
    world.end("web-0")
    world.finish()
    assert world.get(PODS, "web-0")["metadata"]["uid"] != before


def test_orphan_of_the_name_is_adopted() -> None:
    world = AppsWorld()
    world.api.put(PODS, {"metadata": {"name": "web-0", "labels": {"app": "web"}}, "spec": {}})
    world.api.put(PODS, {"metadata": {"name": "other-0", "labels": {"app": "web"}}, "spec": {}})
    world.add(STATEFUL_SETS, workload(replicas=1))
    world.settle()
    assert world.get(PODS, "web-0")["metadata"]["ownerReferences"][0]["kind"] == "StatefulSet"
    assert not world.get(PODS, "other-0")["metadata"].get("ownerReferences")


EVENTS = st.one_of(
    st.tuples(st.just("scale"), st.integers(0, 4)),
    st.tuples(st.just("image"), st.sampled_from(["v1", "v2", "v3"])),
    st.tuples(st.just("lose"), st.integers(0, 3)),
    st.tuples(st.just("end"), st.integers(0, 3)),
)


@settings(max_examples=examples(40), deadline=None)
@given(
    policy=st.sampled_from(["OrderedReady", "Parallel"]),
    history=st.lists(st.tuples(EVENTS, st.lists(st.integers(0, 4), max_size=3)), max_size=5),
)
def test_crashes_change_nothing(policy: str, history: Any) -> None:
    calm, stormy = (
        started(replicas=2, podManagementPolicy=policy, volumeClaimTemplates=[CLAIM]) for _ in range(2)
    )
    for (word, how), crashes in history:
        for world in (calm, stormy):
            _play(world, word, how)
        for writes in crashes:
            stormy.api.crash_after = writes
            with contextlib.suppress(Crash):
                stormy.round()
            stormy.restart()
        for world in (calm, stormy):
            world.finish()
        assert _picture(stormy) == _picture(calm), (word, how)


def _play(world: AppsWorld, word: str, how: Any) -> None:
    match word:
        case "scale":
            world.change_spec(STATEFUL_SETS, "web", replicas=how)
        case "image":
            world.set_image(STATEFUL_SETS, "web", how)
        case "lose" if f"web-{how}" in names(world):
            world.api.remove(PODS, f"default/web-{how}")
        case "end" if f"web-{how}" in names(world):
            world.end(f"web-{how}")


def _picture(world: AppsWorld) -> Any:
    pods = {
        pod["metadata"]["name"]: (pod["spec"]["containers"][0]["image"], pod["metadata"]["labels"])
        for pod in world.pods()
    }
    claims = sorted(one["metadata"]["name"] for one in world.api.objects(PERSISTENT_VOLUME_CLAIMS))
    revisions = [(one["metadata"]["name"], one["revision"]) for one in world.revisions()]
    return pods, claims, revisions, status(world)
