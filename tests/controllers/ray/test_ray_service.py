"""Life of a RayService: clusters, applications, Services, upgrades, suspension, crashes of the controller."""

from __future__ import annotations

import copy
from typing import Any

from example_counts import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from ray_world import Crash, RayWorld, group_template, ray_service

from windlass.api.resources import PODS, RAY_CLUSTERS, RAY_SERVICES, SERVICES


def conditions(world: RayWorld) -> dict[str, tuple[str, str]]:
    return {one["type"]: (one["status"], one["reason"]) for one in world.service_status["conditions"]}


def serving(**spec: Any) -> RayWorld:
    """Return a service with running applications."""
    world = RayWorld(ray_service(**spec))
    world.settle()
    world.run()
    world.settle()
    world.serve("RUNNING")
    world.settle()
    return world


def selected(world: RayWorld) -> dict[str, str]:
    """Service → the cluster that it selects."""
    return {
        found["metadata"]["name"]: found["spec"]["selector"]["ray.io/cluster"]
        for found in world.api.objects(SERVICES)
        if found["metadata"]["labels"].get("ray.io/originated-from-crd") == "RayService"
    }


def test_a_service_from_its_cluster_to_its_first_request():
    world = RayWorld(ray_service())
    world.settle()
    assert conditions(world) == {
        "Ready": ("False", "Initializing"),
        "UpgradeInProgress": ("False", "Initializing"),
    }
    (cluster,) = world.api.objects(RAY_CLUSTERS)
    name = cluster["metadata"]["name"]
    assert world.service_status["pendingServiceStatus"]["rayClusterName"] == name
    assert {"team", "ray.io/originated-from-cr-name"} <= set(cluster["metadata"]["labels"])
    assert world.dashboard.deployed == []
    world.run()
    world.settle()
    assert world.dashboard.deployed[0]["applications"][0]["import_path"] == "fruit:app"
    assert selected(world) == {}, "no application runs yet"
    world.serve("RUNNING", "DEPLOYING")
    world.settle()
    assert selected(world) == {}
    world.serve("RUNNING", "RUNNING")
    world.settle()
    assert selected(world) == {"s-head-svc": name, "s-serve-svc": name}
    status = world.service_status
    assert (status["serviceStatus"], status["numServeEndpoints"]) == ("Running", 2)
    assert status["activeServiceStatus"]["applicationStatuses"]["fruit"] == {"status": "RUNNING"}
    assert conditions(world) == {
        "Ready": ("True", "NonZeroServeEndpoints"),
        "UpgradeInProgress": ("False", "NoPendingCluster"),
    }
    assert {"CreatedRayCluster", "UpdatedServeApplications", "CreatedService"} <= set(world.words.reasons())
    assert len(world.dashboard.deployed) == 1


def test_pods_serve_when_their_proxies_answer():
    world = serving()
    head = world.api.object(PODS, f"default/{world.pods('head')[0]}")
    worker = world.api.object(PODS, f"default/{world.pods('worker')[0]}")
    assert (head["metadata"]["labels"]["ray.io/serve"], worker["metadata"]["labels"]["ray.io/serve"]) == (
        "true",
        "true",
    )
    main = worker["spec"]["containers"][0]
    assert "http://localhost:8000/-/healthz" in main["readinessProbe"]["exec"]["command"][-1]
    assert "-/healthz" not in head["spec"]["containers"][0]["readinessProbe"]["exec"]["command"][-1]
    world.dashboard.proxies_answer = False
    world.settle()
    assert world.service_status["numServeEndpoints"] == 1
    world.api.change(RAY_SERVICES, "default/s", spec={"excludeHeadPodFromServeSvc": True})
    world.dashboard.proxies_answer = True
    world.settle()
    head = world.api.object(PODS, f"default/{world.pods('head')[0]}")
    assert head["metadata"]["labels"]["ray.io/serve"] == "false"


def test_an_upgrade_serves_from_the_old_cluster_until_the_new_one_is_ready():
    world = serving()
    old = world.service_status["activeServiceStatus"]["rayClusterName"]
    world.respecify(rayVersion="2.60.0")
    world.settle()
    new = world.service_status["pendingServiceStatus"]["rayClusterName"]
    assert conditions(world)["UpgradeInProgress"] == ("True", "BothActivePendingClustersExist")
    assert new != old
    assert set(selected(world).values()) == {old}
    world.serve()
    world.run()
    world.settle()
    assert set(selected(world).values()) == {old}, "its applications are being deployed"
    world.serve("RUNNING")
    world.settle()
    assert set(selected(world).values()) == {new}
    status = world.service_status
    assert (status["activeServiceStatus"]["rayClusterName"], status["numServeEndpoints"]) == (new, 2)
    assert "pendingServiceStatus" not in status
    assert len(world.api.objects(RAY_CLUSTERS)) == 2, "requests that are under way go on"
    world.api.clock.jump(61)
    world.settle()
    assert [found["metadata"]["name"] for found in world.api.objects(RAY_CLUSTERS)] == [new]


def test_a_change_that_needs_no_new_cluster():
    world = serving()
    (cluster,) = world.api.objects(RAY_CLUSTERS)
    (group,) = cluster["spec"]["workerGroupSpecs"]
    world.respecify(workerGroupSpecs=[{**group, "replicas": 3}])
    world.settle()
    assert len(world.pods("worker")) == 1, "as in KubeRay, the numbers of a running cluster are its own"
    world.respecify(workerGroupSpecs=[group, {**group, "groupName": "large"}])
    world.settle()
    assert len(world.api.objects(RAY_CLUSTERS)) == 1
    assert len(world.pods("worker")) == 2
    assert "UpdatedRayCluster" in world.words.reasons()
    config = "applications: [{name: fruit, import_path: 'fruit:other'}]"
    world.api.change(RAY_SERVICES, "default/s", spec={"serveConfigV2": config})
    world.settle()
    assert world.dashboard.deployed[-1]["applications"][0]["import_path"] == "fruit:other"
    assert len(world.api.objects(RAY_CLUSTERS)) == 1


def test_strategy_none_keeps_the_cluster():
    world = serving(upgradeStrategy={"type": "None"})
    world.respecify(rayVersion="2.60.0")
    world.settle()
    assert len(world.api.objects(RAY_CLUSTERS)) == 1
    assert conditions(world)["UpgradeInProgress"][0] == "False"


def test_applications_are_submitted_again_to_a_new_head():
    world = serving()
    world.serve()
    world.settle()
    assert len(world.dashboard.deployed) == 2


def test_suspend_and_resume():
    world = serving()
    world.api.change(RAY_SERVICES, "default/s", spec={"suspend": True})
    world.settle()
    assert (world.api.objects(RAY_CLUSTERS), selected(world), world.pods()) == ([], {}, [])
    assert conditions(world)["Suspended"] == ("True", "SuspendComplete")
    assert conditions(world)["Ready"] == ("False", "SuspendComplete")
    assert "serviceStatus" not in world.service_status
    world.api.change(RAY_SERVICES, "default/s", spec={"suspend": False})
    world.serve("RUNNING")
    world.settle()
    world.run()
    world.settle()
    assert conditions(world)["Ready"] == ("True", "NonZeroServeEndpoints")
    assert conditions(world)["Suspended"] == ("False", "RayServiceResumed")


def test_a_service_that_does_not_begin_to_serve_in_time_fails():
    manifest = ray_service()
    manifest["metadata"]["annotations"] = {"ray.io/initializing-timeout": "5m"}
    world = RayWorld(manifest)
    world.settle()
    world.api.clock.jump(301)
    world.settle()
    assert conditions(world)["Ready"] == ("False", "InitializingTimeout")
    world.api.clock.jump(61)
    world.settle()
    assert world.api.objects(RAY_CLUSTERS) == []
    assert "RayServiceInitializingTimeout" in world.words.reasons()


def test_what_cannot_be_run_is_told():
    for spec, words in (
        ({"config": "- a"}, "must be a mapping"),
        ({"config": "{"}, "is not YAML"),
        ({"upgradeStrategy": {"type": "NewClusterWithIncrementalUpgrade"}}, "NewCluster or None"),
    ):
        world = RayWorld(ray_service(**spec))
        world.settle()
        assert set(world.words.reasons()) == {"InvalidRayServiceSpec"}
        assert words in world.service_status["conditions"][0]["message"]
    manifest = ray_service()
    head = group_template(ports=[{"name": "dashboard", "containerPort": 8265}])
    manifest["spec"]["rayClusterConfig"]["headGroupSpec"]["template"] = head
    world = RayWorld(manifest)
    world.settle()
    assert "none with the name serve" in world.service_status["conditions"][0]["message"]


def test_a_service_of_another_owner_is_left_alone():
    world = RayWorld(ray_service())
    world.api.put(SERVICES, {"metadata": {"name": "s-serve-svc"}, "spec": {"selector": {"a": "b"}}})
    world.settle()
    world.run()
    world.serve("RUNNING")
    world.settle()
    assert "FailedToCreateService" in world.words.reasons()
    assert world.api.object(SERVICES, "default/s-serve-svc")["spec"]["selector"] == {"a": "b"}


def test_a_custom_service_for_requests():
    given = {
        "metadata": {"name": "front", "labels": {"a": "b"}, "annotations": {"c": "d"}},
        "spec": {"type": "NodePort", "ports": [{"name": "serve", "port": 80, "targetPort": 8000}]},
    }
    world = serving(serveService=given)
    found = world.api.object(SERVICES, "default/front")
    assert (found["spec"]["type"], found["spec"]["ports"][0]["port"]) == ("NodePort", 80)
    assert (found["metadata"]["labels"]["a"], found["metadata"]["annotations"]) == ("b", {"c": "d"})
    assert world.service_status["numServeEndpoints"] == 2


STEPS = ("run", "serve", "upgrade", "suspend", "resume", "late")


def _play(steps: list[str], crashes: list[int]) -> tuple[Any, ...]:
    world = RayWorld(ray_service())
    for step in steps:
        if step == "run":
            world.run()
        elif step == "serve":
            world.serve("RUNNING")
        elif step == "upgrade":
            world.respecify(rayVersion="2.60.0")
        elif step in ("suspend", "resume"):
            world.api.change(RAY_SERVICES, "default/s", spec={"suspend": step == "suspend"})
        else:
            world.api.clock.jump(61)
        for after in crashes:
            world.api.crash_after = after
            try:
                world.reconcile()
            except* Crash:
                pass
            world.restart()
        world.settle()
    world.run()
    world.settle()
    world.api.clock.jump(61)
    world.settle()
    world.api.clock.jump(61)
    world.settle()
    status = copy.deepcopy(world.service_status)
    return (
        {key: status.get(key) for key in ("serviceStatus", "numServeEndpoints")},
        {kind: found[0] for kind, found in conditions(world).items()},
        sorted(found["metadata"]["name"] for found in world.api.objects(RAY_CLUSTERS)),
        selected(world),
        world.pods(),
    )


@given(st.lists(st.sampled_from(STEPS), max_size=6), st.lists(st.integers(0, 6), max_size=3))
@settings(max_examples=examples(60))
def test_a_controller_that_dies_between_two_writes_ends_in_the_same_state(steps, crashes):
    assert _play(steps, crashes) == _play(steps, [])
