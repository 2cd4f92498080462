"""ReplicaSets: adoption, deletion order, availability, failures."""

from __future__ import annotations

from typing import Any

from apps_world import AppsWorld, workload

from windlass.api import errors
from windlass.api.resources import PODS, REPLICA_SETS

Json = dict[str, Any]


def running(**spec: Any) -> AppsWorld:
    world = AppsWorld((REPLICA_SETS, workload(**spec)))
    world.finish()
    return world


def owners(world: AppsWorld, name: str) -> list[str]:
    return [one["name"] for one in world.get(PODS, name)["metadata"].get("ownerReferences") or ()]


def test_ended_pod_is_replaced_and_kept() -> None:
    world = running(replicas=2)
    world.end(world.pods()[0]["metadata"]["name"])
    world.finish()
    assert len(world.pods()) == 3
    assert world.get(REPLICA_SETS, "web")["status"]["replicas"] == 2


def test_pods_are_adopted_and_released_by_their_labels() -> None:
    world = running(replicas=1)
    first = world.pods()[0]["metadata"]["name"]
    world.api.change(PODS, f"default/{first}", metadata={"labels": {"app": "debug"}})
    world.finish()
    assert owners(world, first) == []
    assert len(world.pods()) == 2
    world.api.change(PODS, f"default/{first}", metadata={"labels": {"app": "web"}})
    world.finish()
    live = [pod for pod in world.pods() if owners(world, pod["metadata"]["name"]) == ["web"]]
    assert len(live) == 1


def test_fewer_replicas_delete_the_least_useful_pods() -> None:
    """Order: unassigned, pending, not ready, cheap, crowded, young."""
    world = running(replicas=6)
    names = sorted(pod["metadata"]["name"] for pod in world.pods())
    cheap, unready, pending, crowded, old, young = names
    world.pass_time(1000)
    world.run(young)
    world.run(unready, ready=False)
    world.api.change(PODS, f"default/{pending}", status={"phase": "Pending"})
    world.api.change(
        PODS,
        f"default/{cheap}",
        metadata={"annotations": {"controller.kubernetes.io/pod-deletion-cost": "-5"}},
    )
    gone: list[str] = []
    for replicas in (5, 4, 3, 2, 1):
        before = {pod["metadata"]["name"] for pod in world.pods()}
        world.change_spec(REPLICA_SETS, "web", replicas=replicas)
        world.settle()
        world.api.finish_deletions()
        gone += before - {pod["metadata"]["name"] for pod in world.pods()}
    assert gone[:4] == [pending, unready, cheap, young]
    assert gone[4] in (crowded, old)


def test_pod_counts_as_available_after_min_ready_seconds() -> None:
    world = AppsWorld((REPLICA_SETS, workload(replicas=1, minReadySeconds=30)))
    world.settle()
    world.kubelet()
    world.settle()
    assert world.get(REPLICA_SETS, "web")["status"].get("availableReplicas", 0) == 0
    world.reconcile("replicaset", "default/web")
    assert world.due == 30
    world.pass_time(30)
    world.settle()
    assert world.get(REPLICA_SETS, "web")["status"]["availableReplicas"] == 1


def test_failed_creation_is_told_until_it_succeeds() -> None:
    world = AppsWorld((REPLICA_SETS, workload(replicas=4)))
    refusal = errors.failure(403, "Forbidden", "exceeded quota: small")
    tried: list[str] = []

    def reject(verb: str, resource: Any, obj: Json) -> errors.StatusError | None:
        if (verb, resource) == ("create", PODS):
            tried.append(verb)
            return refusal
        return None

    world.api.reject = reject
    world.reconcile("replicaset", "default/web")
    assert len(tried) == 1  # the others would fail alike
    world.reconcile("replicaset", "default/web")
    condition = world.get(REPLICA_SETS, "web")["status"]["conditions"][0]
    assert (condition["type"], condition["reason"]) == ("ReplicaFailure", "FailedCreate")
    assert condition["message"] == "exceeded quota: small"
    world.api.reject = lambda *_: None
    world.finish()
    status = world.get(REPLICA_SETS, "web")["status"]
    assert status["readyReplicas"] == 4
    assert "conditions" not in status


def test_deleted_set_neither_creates_nor_adopts() -> None:
    world = AppsWorld((REPLICA_SETS, workload(replicas=1)))
    world.api.put(PODS, {"metadata": {"name": "bare", "labels": {"app": "web"}}, "spec": {}})
    world.api.change(
        REPLICA_SETS,
        "default/web",
        metadata={"deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["orphan"]},
    )
    world.settle()
    assert [pod["metadata"]["name"] for pod in world.pods()] == ["bare"]
    assert owners(world, "bare") == []
