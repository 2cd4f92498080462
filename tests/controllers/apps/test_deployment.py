"""Deployments: rollouts, scaling, history, pauses and deadlines."""

from __future__ import annotations

from typing import Any

from apps_world import AppsWorld, template, workload
from example_counts import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from windlass.api import errors
from windlass.api.resources import DEPLOYMENTS, PODS, REPLICA_SETS
from windlass.controllers.apps.deployment.replica_sets import (
    DESIRED,
    MAXIMUM,
    REVISION,
    ManagedSet,
    RolloutLimits,
    set_name,
)
from windlass.controllers.apps.deployment.scaling import scale_sets


def rolling(surge: Any = "25%", unavailable: Any = "25%") -> dict[str, Any]:
    return {
        "type": "RollingUpdate",
        "rollingUpdate": {"maxSurge": surge, "maxUnavailable": unavailable},
    }


def deployed(**spec: Any) -> AppsWorld:
    world = AppsWorld((DEPLOYMENTS, workload(**spec)))
    world.finish()
    return world


def sizes(world: AppsWorld) -> list[int]:
    return [one["spec"]["replicas"] for one in world.sets()]


def test_first_rollout_ends_available() -> None:
    world = deployed(replicas=3)
    (only,) = world.sets()
    hashed = only["metadata"]["labels"]["pod-template-hash"]
    assert only["metadata"]["name"] == f"web-{hashed}"
    assert only["metadata"]["annotations"] == {REVISION: "1", DESIRED: "3", MAXIMUM: "4"}
    assert only["spec"]["selector"]["matchLabels"] == {"app": "web", "pod-template-hash": hashed}
    assert len(world.pods(**{"app": "web", "pod-template-hash": hashed})) == 3
    found = world.get(DEPLOYMENTS, "web")
    assert found["metadata"]["annotations"][REVISION] == "1"
    counts = {name: n for name, n in found["status"].items() if name != "conditions"}
    assert counts == {
        "observedGeneration": 1,
        "replicas": 3,
        "updatedReplicas": 3,
        "readyReplicas": 3,
        "availableReplicas": 3,
        "terminatingReplicas": 0,
    }
    assert world.conditions(DEPLOYMENTS, "web") == {
        "Available": ("True", "MinimumReplicasAvailable"),
        "Progressing": ("True", "NewReplicaSetAvailable"),
    }
    assert (
        "web",
        "Normal",
        "ScalingReplicaSet",
        f"Scaled up replica set {only['metadata']['name']} from 0 to 3",
    ) in (world.words.said)


@settings(max_examples=examples(40), deadline=None)
@given(
    replicas=st.integers(1, 7),
    surge=st.one_of(st.integers(0, 3), st.sampled_from(["0%", "25%", "100%"])),
    unavailable=st.one_of(st.integers(0, 3), st.sampled_from(["0%", "25%", "100%"])),
    steps=st.lists(
        st.tuples(st.sampled_from(["deployment", "replicaset", "kubelet", "crash"]), st.integers(0, 3))
    ),
)
def test_rollout_keeps_its_limits_at_every_step(
    replicas: int, surge: Any, unavailable: Any, steps: list[tuple[str, int]]
) -> None:
    """A crash between any two writes changes neither the limits nor the end."""
    from windlass.controllers.apps.deployment.replica_sets import read_limits

    if surge in (0, "0%") and unavailable in (0, "0%"):
        unavailable = 1
    world = deployed(replicas=replicas, strategy=rolling(surge, unavailable))
    limits = read_limits(world.get(DEPLOYMENTS, "web")["spec"])
    world.set_image(DEPLOYMENTS, "web", "v2")
    for actor, how in steps:
        _act(world, actor, how)
        _check_limits(world, limits)
    for _ in range(60):
        if not world.round() + world.kubelet(1):
            break
        _check_limits(world, limits)
    assert world.images() == ["v2"] * replicas
    assert sizes(world) == [0, replicas]
    assert world.conditions(DEPLOYMENTS, "web")["Progressing"] == ("True", "NewReplicaSetAvailable")


def _act(world: AppsWorld, actor: str, how: int) -> None:
    import contextlib

    from fakeapi import Crash

    if actor == "kubelet":
        world.kubelet(how)
        return
    if actor == "crash":
        world.api.crash_after = how
        with contextlib.suppress(Crash):
            world.round()
        world.restart()
        return
    resource = {"deployment": DEPLOYMENTS, "replicaset": REPLICA_SETS}[actor]
    for key in list(world.api.stored.get(resource, {})):
        world.reconcile(actor, key)


def _check_limits(world: AppsWorld, limits: RolloutLimits) -> None:
    live = [pod for pod in world.pods() if not pod["metadata"].get("deletionTimestamp")]
    ready = [pod for pod in live if (pod["status"].get("conditions") or [{}])[0].get("status") == "True"]
    assert len(live) <= limits.maximum
    assert len(ready) >= limits.least_available


def test_recreate_starts_new_pods_after_the_old_have_ended() -> None:
    world = deployed(replicas=2, strategy={"type": "Recreate"})
    world.set_image(DEPLOYMENTS, "web", "v2")
    world.settle()
    assert world.images() == []
    assert len(world.pods()) == 2  # terminating
    assert sizes(world) == [0]
    world.api.finish_deletions()
    world.settle()
    assert world.images() == ["v2", "v2"]


def test_undo_gives_the_old_set_the_next_revision() -> None:
    world = deployed(replicas=1)
    for text in ("v2", "v1"):
        world.set_image(DEPLOYMENTS, "web", text)
        world.finish()
    newest = world.sets()[-1]["metadata"]
    assert newest["annotations"][REVISION] == "3"
    assert newest["annotations"]["deployment.kubernetes.io/revision-history"] == "1"
    assert len(world.sets()) == 2
    assert world.get(DEPLOYMENTS, "web")["metadata"]["annotations"][REVISION] == "3"


def test_history_limit_deletes_the_oldest_sets() -> None:
    world = deployed(replicas=1, revisionHistoryLimit=1)
    for text in ("v2", "v3", "v4"):
        world.set_image(DEPLOYMENTS, "web", text)
        world.finish()
    assert [one["metadata"]["annotations"][REVISION] for one in world.sets()] == ["3", "4"]


def test_paused_deployment_scales_and_does_not_roll_out() -> None:
    world = deployed(replicas=2)
    world.change_spec(DEPLOYMENTS, "web", paused=True)
    world.set_image(DEPLOYMENTS, "web", "v2")
    world.change_spec(DEPLOYMENTS, "web", replicas=3)
    world.finish()
    assert world.images() == ["v1"] * 3
    assert world.conditions(DEPLOYMENTS, "web")["Progressing"] == ("Unknown", "DeploymentPaused")
    world.change_spec(DEPLOYMENTS, "web", paused=False)
    world.finish()
    assert world.images() == ["v2"] * 3


def test_rollout_without_progress_times_out() -> None:
    world = deployed(replicas=1, progressDeadlineSeconds=60)
    world.set_image(DEPLOYMENTS, "web", "bad")
    world.settle()
    world.kubelet(ready=False)
    world.settle()
    world.reconcile("deployment", "default/web")
    assert world.due is not None
    assert 60 <= world.due <= 61
    world.pass_time(62)
    world.settle()
    assert world.conditions(DEPLOYMENTS, "web")["Progressing"] == ("False", "ProgressDeadlineExceeded")
    assert sorted(world.images()) == ["bad", "v1"]


def test_hash_collision_is_resolved_by_another_name() -> None:
    world = AppsWorld((DEPLOYMENTS, workload(replicas=1)))
    world.finish()
    name = world.sets()[0]["metadata"]["name"]
    foreign = workload(name=name, text="other", replicas=0)
    fresh = AppsWorld((REPLICA_SETS, foreign), (DEPLOYMENTS, workload(replicas=1)))
    fresh.finish()
    assert fresh.get(DEPLOYMENTS, "web")["status"]["collisionCount"] == 1
    assert fresh.images() == ["v1"]


def test_failed_creation_of_a_replica_set_is_told() -> None:
    world = AppsWorld((DEPLOYMENTS, workload(replicas=1)))
    refusal = errors.failure(403, "Forbidden", "exceeded quota: small")
    world.api.reject = lambda verb, resource, obj: (
        refusal if (verb, resource) == ("create", REPLICA_SETS) else None
    )
    world.reconcile("deployment", "default/web")
    world.reconcile("deployment", "default/web")
    assert world.conditions(DEPLOYMENTS, "web")["Progressing"] == ("False", "ReplicaSetCreateError")
    world.api.reject = lambda *_: None
    world.finish()
    assert world.conditions(DEPLOYMENTS, "web")["Progressing"] == ("True", "NewReplicaSetAvailable")


def test_failed_creation_of_pods_reaches_the_deployment() -> None:
    world = AppsWorld((DEPLOYMENTS, workload(replicas=2)))
    refusal = errors.failure(403, "Forbidden", "exceeded quota: small")
    world.api.reject = lambda verb, resource, obj: refusal if (verb, resource) == ("create", PODS) else None
    for _ in range(4):
        world.round()
    assert world.conditions(DEPLOYMENTS, "web")["ReplicaFailure"] == ("True", "FailedCreate")
    world.api.reject = lambda *_: None
    world.finish()
    assert "ReplicaFailure" not in world.conditions(DEPLOYMENTS, "web")


def test_replica_set_is_adopted_and_released_by_its_labels() -> None:
    orphan = workload(replicas=1)
    orphan["metadata"]["labels"] = {"app": "web"}
    world = AppsWorld((REPLICA_SETS, orphan), (DEPLOYMENTS, workload(replicas=2)))
    world.finish()
    (adopted,) = world.sets()
    assert adopted["metadata"]["name"] == "web"
    assert len(world.pods()) == 2
    world.api.change(REPLICA_SETS, "default/web", metadata={"labels": {"app": "other"}})
    world.finish()
    assert "ownerReferences" not in world.get(REPLICA_SETS, "web")["metadata"] or (
        world.get(REPLICA_SETS, "web")["metadata"]["ownerReferences"] == []
    )


# Sizes, the newest set first: before → after a change of the total. Surge before and after.
PROPORTIONS = [
    ((10,), 10, 12, (12,), 0, 0),
    ((10,), 10, 5, (5,), 0, 0),
    ((2, 3), 5, 10, (4, 6), 0, 0),
    ((2, 3), 5, 3, (1, 2), 0, 0),
    ((8, 1), 9, 4, (4, 0), 0, 0),
    ((2, 3, 2), 7, 10, (3, 4, 3), 0, 0),
    ((2, 8, 3), 13, 8, (1, 5, 2), 0, 0),
    ((1, 1, 1), 3, 4, (2, 1, 1), 0, 0),
    ((1, 1, 1), 3, 2, (1, 1, 0), 0, 0),
    ((3, 2, 1), 6, 0, (0, 0, 0), 0, 0),
    ((0, 0, 0), 6, 6, (6, 0, 0), 0, 0),
    ((6, 6), 10, 20, (11, 11), 2, 2),
    ((5, 8), 10, 50, (22, 34), 3, 6),
]
"""The cases of the Deployment controller of Kubernetes."""


def test_change_of_the_size_during_a_rollout_is_proportional() -> None:
    for before, total, desired, expected, surge, new_surge in PROPORTIONS:
        sets = []
        for number, size in enumerate(before):
            metadata = {
                "name": f"s{number}",
                "creationTimestamp": f"2026-01-0{9 - number}T00:00:00Z",
                "annotations": {DESIRED: str(total), MAXIMUM: str(total + surge)},
            }
            sets.append(ManagedSet({"metadata": metadata, "spec": {"replicas": size}}))
        limits = RolloutLimits(desired, new_surge, 0, rolling=True)
        scale_sets(sets[0], sets[1:], limits, sum(before))
        assert tuple(one.replicas for one in sets) == expected, (before, desired)


def test_long_names_are_cut() -> None:
    assert len(set_name("a" * 250, "12345678")) == 253
    assert template()["spec"]
