"""Life of a RayCluster: gang, pods, status, scaling, suspension."""

from __future__ import annotations

from typing import Any

import pytest
from ray_world import RayWorld, cluster_spec, group_template, ray_cluster

from windlass.api.rbac_resources import ROLE_BINDINGS, ROLES
from windlass.api.resources import POD_GROUPS, PODS, RAY_CLUSTERS, SERVICE_ACCOUNTS, SERVICES


def settled(manifest=None) -> RayWorld:
    world = RayWorld(manifest or ray_cluster())
    world.settle()
    return world


def env_of(pod) -> dict[str, str]:
    return {entry["name"]: entry.get("value", "") for entry in pod["spec"]["containers"][0]["env"]}


def test_head_and_workers_are_one_gang():
    world = settled(
        ray_cluster(labels={"volcano.sh/queue-name": "research", "ray.io/priority-class-name": "high"})
    )
    (group,) = world.api.objects(POD_GROUPS)
    assert group["spec"] == {
        "minMember": 3,
        "queue": "research",
        "minResources": {"cpu": "4500m", "memory": "6Gi"},
        "minTaskMember": {"head": 1, "small": 2},
        "priorityClassName": "high",
    }
    assert len(world.pods("head")) == 1
    assert [name.rsplit("-", 1)[0] for name in world.pods()] == ["c-head", "c-small-worker", "c-small-worker"]
    pod = world.api.object(PODS, f"default/{world.pods('worker')[0]}")
    assert pod["metadata"]["annotations"]["scheduling.k8s.io/group-name"] == "c"
    assert pod["spec"]["priorityClassName"] == "high"


def test_with_the_autoscaler_of_ray_the_minimums_are_the_gang():
    manifest = ray_cluster(3, enableInTreeAutoscaling=True)
    manifest["spec"]["workerGroupSpecs"][0] |= {"minReplicas": 1, "numOfHosts": 2}
    world = settled(manifest)
    (group,) = world.api.objects(POD_GROUPS)
    assert (group["spec"]["minMember"], group["spec"]["minTaskMember"]) == (3, {"head": 1, "small": 2})
    assert len(world.pods("worker")) == 6


def test_pods_start_ray_and_find_the_head():
    world = settled()
    head = world.api.object(PODS, f"default/{world.pods('head')[0]}")
    worker = world.api.object(PODS, f"default/{world.pods('worker')[0]}")
    assert head["spec"]["containers"][0]["args"] == [
        "ulimit -n ${RAY_START_ULIMIT_OPEN_FILES:-65536}; "
        "ray start --head  --block  --dashboard-agent-listen-port=52365  --dashboard-host=0.0.0.0 "
        " --memory=2147483648  --metrics-export-port=8080  --num-cpus=2 "
    ]
    address = "c-head-svc.default.svc.cluster.local"
    assert f" --address={address}:6379 " in worker["spec"]["containers"][0]["args"][0]
    assert env_of(head)["RAY_ADDRESS"] == "127.0.0.1:6379"
    found = env_of(worker)
    assert (found["RAY_ADDRESS"], found["FQ_RAY_IP"], found["RAY_IP"]) == (
        f"{address}:6379",
        address,
        "c-head-svc",
    )
    (waiting,) = worker["spec"]["initContainers"]
    assert f"ray health-check --address {address}:6379" in waiting["args"][0]
    assert "initContainers" not in head["spec"]
    assert worker["spec"]["volumes"] == [
        {"name": "shared-mem", "emptyDir": {"medium": "Memory", "sizeLimit": "2Gi"}}
    ]
    (service,) = world.api.objects(SERVICES)
    assert service["spec"]["selector"] == {"ray.io/cluster": "c", "ray.io/node-type": "head"}
    assert {port["name"] for port in service["spec"]["ports"]} >= {"gcs-server", "dashboard", "client"}


def test_a_port_that_the_head_gives_another_name_is_in_its_service_once():
    manifest = ray_cluster(1)
    ports = [{"name": "gcs", "containerPort": 6379}, {"name": "web", "containerPort": 8265}]
    manifest["spec"]["headGroupSpec"]["template"] = group_template(ports=ports)
    manifest["spec"]["headGroupSpec"]["headService"] = {"spec": {"ports": [{"name": "m", "port": 8080}]}}
    (service,) = settled(manifest).api.objects(SERVICES)
    found = {port["port"]: port["name"] for port in service["spec"]["ports"]}
    assert len(found) == len(service["spec"]["ports"])
    assert found == {6379: "gcs", 8265: "web", 8080: "m"}


def test_a_command_of_the_user_runs_first_and_one_that_starts_ray_is_left_alone():
    manifest = ray_cluster(1)
    manifest["spec"]["headGroupSpec"]["template"] = group_template(command=["echo"], args=["hi"])
    manifest["spec"]["workerGroupSpecs"][0]["template"] = group_template(
        command=["sh", "-c", "ray start --block"]
    )
    world = settled(manifest)
    head = world.api.object(PODS, f"default/{world.pods('head')[0]}")["spec"]["containers"][0]
    assert head["args"][0].startswith(
        " echo hi  && ulimit -n ${RAY_START_ULIMIT_OPEN_FILES:-65536}; ray start --head "
    )
    worker = world.api.object(PODS, f"default/{world.pods('worker')[0]}")["spec"]["containers"][0]
    assert worker["command"] == ["sh", "-c", "ray start --block"]


@pytest.mark.parametrize(
    ("limits", "flags"),
    [
        ({"nvidia.com/gpu": 2}, ["--num-gpus=2"]),
        ({"nvidia.com/mig-1g.10gb": "1"}, ["--num-gpus=1"]),
        ({"google.com/tpu": "4"}, ["--resources='{\"TPU\": 4}'"]),
    ],
)
def test_ray_gets_the_devices_of_the_container(limits, flags):
    manifest = ray_cluster(0)
    manifest["spec"]["headGroupSpec"]["template"] = group_template(resources={"limits": limits})
    world = settled(manifest)
    args = world.api.object(PODS, f"default/{world.pods()[0]}")["spec"]["containers"][0]["args"][0]
    assert all(flag in args for flag in flags)


def test_resources_and_labels_of_a_group_are_flags_and_labels():
    manifest = ray_cluster(1)
    group = manifest["spec"]["workerGroupSpecs"][0]
    group |= {"resources": {"CPU": "3", "nvidia.com/gpu": "1", "Custom": "2"}, "labels": {"b": "2", "a": "1"}}
    world = settled(manifest)
    worker = world.api.object(PODS, f"default/{world.pods('worker')[0]}")
    args = worker["spec"]["containers"][0]["args"][0]
    for flag in ("--num-cpus=3", "--num-gpus=1", "--resources='{\"Custom\": 2.0}'", "--labels=a=1,b=2"):
        assert flag in args
    assert worker["metadata"]["labels"]["a"] == "1"


def test_the_service_of_the_head_has_what_its_user_adds():
    given = {"metadata": {"labels": {"l": "m"}, "annotations": {"a": "b"}}, "spec": {"type": "NodePort"}}
    manifest = ray_cluster(0, headServiceAnnotations={"a": "c"})
    manifest["spec"]["headGroupSpec"]["headService"] = given
    (service,) = settled(manifest).api.objects(SERVICES)
    assert service["metadata"]["labels"]["l"] == "m"
    assert service["metadata"]["annotations"] == {"a": "c"}
    assert (service["spec"]["type"], "clusterIP" in service["spec"]) == ("NodePort", False)


def test_probes_follow_the_version_of_ray():
    for version, known in (("2.53.0", True), ("2.52.0", False), ("", False), ("nightly", False)):
        world = settled(ray_cluster(1, rayVersion=version))
        for name in world.pods():
            main = world.api.object(PODS, f"default/{name}")["spec"]["containers"][0]
            for probe in (main["livenessProbe"], main["readinessProbe"]):
                assert ("httpGet" in probe, "exec" in probe) == (known, not known), version


def test_a_cluster_of_another_controller_is_left_alone():
    world = settled(ray_cluster(managedBy="kueue.x-k8s.io/multikueue"))
    assert (world.pods(), world.api.objects(SERVICES)) == ([], [])


def test_status_from_creation_to_a_lost_worker():
    world = settled()
    assert "state" not in world.cluster_status
    world.run()
    world.settle()
    status = world.cluster_status
    assert (status["state"], status["readyWorkerReplicas"], status["desiredWorkerReplicas"]) == (
        "ready",
        2,
        2,
    )
    assert (status["desiredCPU"], status["desiredMemory"], status["desiredGPU"]) == ("4500m", "6Gi", "0")
    assert status["head"]["podName"] == world.pods("head")[0]
    conditions = {one["type"]: (one["status"], one["reason"]) for one in status["conditions"]}
    assert conditions == {
        "HeadPodReady": ("True", "HeadPodRunningAndReady"),
        "RayClusterProvisioned": ("True", "AllPodRunningAndReadyFirstTime"),
    }
    uid = world.api.object(PODS, f"default/{world.pods('worker')[0]}")["metadata"]["uid"]
    world.fail(world.pods("worker")[0])
    world.settle()
    assert len(world.pods("worker")) == 2
    assert world.api.object(PODS, f"default/{world.pods('worker')[0]}")["metadata"]["uid"] != uid
    assert "DeletedWorkerPod" in world.words.reasons()


def test_scaling_keeps_the_other_pods():
    """W17: no pod of the gang is recreated, however often the number changes."""
    world = settled(ray_cluster(3))
    world.run()
    before = {pod["metadata"]["name"]: pod["metadata"]["uid"] for pod in world.api.objects(PODS)}
    for workers in (1, 4, 2, 5, 1, 3):
        groups = cluster_spec(workers)["workerGroupSpecs"]
        world.api.change(RAY_CLUSTERS, "default/c", spec={"workerGroupSpecs": groups})
        world.settle()
        assert len(world.pods("worker")) == workers
    after = {pod["metadata"]["name"]: pod["metadata"]["uid"] for pod in world.api.objects(PODS)}
    kept = [name for name in before if after.get(name) == before[name]]
    assert len(kept) >= 2, "the head and the first worker stay"
    (group,) = world.api.objects(POD_GROUPS)
    assert group["spec"]["minMember"] == 4


def _autoscaled(workers: int = 2, **options: Any) -> RayWorld:
    return settled(ray_cluster(workers, enableInTreeAutoscaling=True, autoscalerOptions=options))


def test_the_autoscaler_runs_in_the_pod_of_the_head_with_its_rights():
    world = _autoscaled(version="v2", resources={"requests": {"cpu": "1"}}, env=[{"name": "A", "value": "b"}])
    pod = world.api.object(PODS, f"default/{world.pods('head')[0]}")["spec"]
    ray, autoscaler = pod["containers"]
    assert (autoscaler["name"], autoscaler["image"]) == ("autoscaler", ray["image"])
    assert autoscaler["args"][0].startswith("ray kuberay-autoscaler --cluster-name $(RAY_CLUSTER_NAME)")
    assert (autoscaler["resources"], autoscaler["env"][-1]["name"]) == ({"requests": {"cpu": "1"}}, "A")
    assert {"name": "RAY_enable_autoscaler_v2", "value": "true"} in ray["env"]
    assert "--no-monitor" in ray["args"][0]
    assert (pod["serviceAccountName"], pod["restartPolicy"]) == ("c", "Never")
    for container in (ray, autoscaler):
        assert {"name": "ray-logs", "mountPath": "/tmp/ray"} in container["volumeMounts"]
    worker = world.api.object(PODS, f"default/{world.pods('worker')[0]}")["spec"]
    assert (len(worker["containers"]), worker["restartPolicy"]) == (1, "Never")
    (account,) = world.api.objects(SERVICE_ACCOUNTS)
    (role,) = world.api.objects(ROLES)
    (binding,) = world.api.objects(ROLE_BINDINGS)
    assert {found["metadata"]["name"] for found in (account, role, binding)} == {"c"}
    assert binding["subjects"] == [{"kind": "ServiceAccount", "name": "c", "namespace": "default"}]
    assert {"apiGroups": ["ray.io"], "resources": ["rayclusters"], "verbs": ["get", "patch"]} in role["rules"]


def test_a_service_account_of_the_user_gets_the_rights():
    manifest = ray_cluster(1, enableInTreeAutoscaling=True)
    manifest["spec"]["headGroupSpec"]["template"]["spec"]["serviceAccountName"] = "mine"
    world = settled(manifest)
    assert world.api.objects(SERVICE_ACCOUNTS) == []
    assert world.api.objects(ROLE_BINDINGS)[0]["subjects"][0]["name"] == "mine"
    head = world.api.object(PODS, f"default/{world.pods('head')[0]}")["spec"]
    assert not any(entry["name"] == "RAY_enable_autoscaler_v2" for entry in head["containers"][0]["env"])


def test_the_autoscaler_decides_which_workers_go():
    world = _autoscaled(3)
    world.run()
    names = world.pods("worker")
    scale(world, 2)
    assert world.pods("worker") == names, "no worker is deleted that it does not name"
    scale(world, 1, names[0], names[2])
    assert world.pods("worker") == [names[1]]
    scale(world, 1)
    assert world.pods("worker") == [names[1]]
    scale(world, 3)
    assert names[1] in world.pods("worker")
    assert len(world.pods("worker")) == 3
    scale(world, 9)
    assert len(world.pods("worker")) == 5, "maxReplicas"


def test_a_worker_that_is_named_is_replaced_and_the_others_stay():
    world = settled(ray_cluster(2))
    world.run()
    names = world.pods("worker")
    scale(world, 2, names[0])
    assert names[1] in world.pods("worker")
    assert names[0] not in world.pods("worker")
    assert len(world.pods("worker")) == 2
    scale(world, 1, names[0])
    assert len(world.pods("worker")) == 1


def scale(world: RayWorld, replicas: int, *named: str) -> None:
    (cluster,) = world.api.objects(RAY_CLUSTERS)
    (group,) = cluster["spec"]["workerGroupSpecs"]
    changed = {**group, "replicas": replicas, "scaleStrategy": {"workersToDelete": list(named)}}
    world.api.change(RAY_CLUSTERS, "default/c", spec={"workerGroupSpecs": [changed]})
    world.settle()


def test_suspend_and_resume():
    world = settled()
    world.run()
    world.settle()
    world.api.change(RAY_CLUSTERS, "default/c", spec={**cluster_spec(), "suspend": True})
    world.settle()
    assert (world.pods(), world.api.objects(POD_GROUPS)) == ([], [])
    assert world.cluster_status["state"] == "suspended"
    world.api.change(RAY_CLUSTERS, "default/c", spec={**cluster_spec(), "suspend": False})
    world.settle()
    world.run()
    world.settle()
    assert world.cluster_status["state"] == "ready"


def test_what_cannot_be_read_is_told():
    manifest = ray_cluster()
    manifest["spec"]["headGroupSpec"]["template"] = {"spec": {}}
    world = settled(manifest)
    assert world.words.reasons() == ["InvalidRayClusterSpec"]
    assert world.pods() == []


def test_a_head_that_fails_again_and_again_is_replaced_with_a_growing_delay():
    world = settled(ray_cluster(0))
    (name,) = world.pods("head")
    ended = {"state": {"terminated": {"exitCode": 127, "message": "ray: not found\n"}}, "name": "head"}

    def uid() -> str:
        return world.api.object(PODS, f"default/{name}")["metadata"]["uid"]

    for wait in (0, 10, 20):
        before = uid()
        world.run()
        world.api.change(PODS, f"default/{name}", status={"phase": "Failed", "containerStatuses": [ended]})
        world.settle()
        if wait:
            assert uid() == before
            status = world.api.object(RAY_CLUSTERS, "default/c")["status"]
            (ready,) = [one for one in status["conditions"] if one["type"] == "HeadPodReady"]
            assert (ready["status"], ready["reason"]) == ("False", "HeadPodFailed")
            assert ready["message"] == f"head pod {name} has failed: exit code 127: ray: not found"
            world.api.clock.jump(wait - 1)
            world.settle()
            assert uid() == before
            world.api.clock.jump(2)
            world.settle()
        assert uid() != before
