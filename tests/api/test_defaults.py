"""Defaults, as kube-apiserver and Volcano's webhooks write them (the differential test holds them to it)."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from windlass.api import defaults, resources
from windlass.api.resources import POD_GROUPS, PODS, QUEUES, SECRETS, SERVICES, VOLCANO_JOBS


def filled(resource: Any, obj: dict[str, Any]) -> dict[str, Any]:
    """The object with defaults; filling in twice changes nothing."""
    result = copy.deepcopy(obj)
    defaults.apply(resource, result)
    again = copy.deepcopy(result)
    defaults.apply(resource, again)
    assert again == result
    return result


def container(**fields: Any) -> dict[str, Any]:
    obj = {"spec": {"containers": [{"name": "x", "image": "y", **fields}]}}
    return filled(PODS, obj)["spec"]["containers"][0]


def test_a_pod() -> None:
    spec = filled(PODS, {"spec": {"containers": [{"name": "x", "image": "y:1"}]}})["spec"]
    assert spec == {
        "containers": [
            {
                "name": "x",
                "image": "y:1",
                "resources": {},
                "terminationMessagePath": "/dev/termination-log",
                "terminationMessagePolicy": "File",
                "imagePullPolicy": "IfNotPresent",
            }
        ],
        "restartPolicy": "Always",
        "terminationGracePeriodSeconds": 30,
        "dnsPolicy": "ClusterFirst",
        "securityContext": {},
        "schedulerName": "default-scheduler",
        "enableServiceLinks": True,
    }


def test_given_values_are_preserved() -> None:
    given = {
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": 0,
        "dnsPolicy": "None",
        "schedulerName": "windlass",
        "enableServiceLinks": False,
        "containers": [],
    }
    spec = filled(PODS, {"spec": dict(given)})["spec"]
    assert {key: spec[key] for key in given} == given


def test_requests_follow_limits() -> None:
    amounts = container(resources={"limits": {"cpu": "2", "nvidia.com/gpu": "1"}, "requests": {"cpu": "1"}})
    assert amounts["resources"]["requests"] == {"cpu": "1", "nvidia.com/gpu": "1"}
    assert container(resources={"requests": {"cpu": "1"}})["resources"] == {"requests": {"cpu": "1"}}


@pytest.mark.parametrize(
    ("image", "policy"),
    [
        ("x", "Always"),
        ("x:latest", "Always"),
        ("r:5000/x", "Always"),
        ("x:1", "IfNotPresent"),
        ("x@sha256:a", "IfNotPresent"),
    ],
)
def test_pull_policies(image: str, policy: str) -> None:
    assert container(image=image)["imagePullPolicy"] == policy


def test_probes_ports_and_references() -> None:
    one = container(
        livenessProbe={"httpGet": {"port": 80}},
        readinessProbe={"grpc": {"port": 5}},
        ports=[{"containerPort": 80}],
        env=[{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}],
    )
    numbers = {"timeoutSeconds": 1, "periodSeconds": 10, "successThreshold": 1, "failureThreshold": 3}
    assert one["livenessProbe"] == {"httpGet": {"port": 80, "path": "/", "scheme": "HTTP"}, **numbers}
    assert one["readinessProbe"] == {"grpc": {"port": 5, "service": ""}, **numbers}
    assert one["ports"] == [{"containerPort": 80, "protocol": "TCP"}]
    assert one["env"][0]["valueFrom"]["fieldRef"]["apiVersion"] == "v1"


def test_host_network_ports() -> None:
    obj = {"spec": {"hostNetwork": True, "containers": [{"name": "x", "ports": [{"containerPort": 80}]}]}}
    assert filled(PODS, obj)["spec"]["containers"][0]["ports"][0]["hostPort"] == 80


def test_volumes() -> None:
    volumes = [
        {"name": "a"},
        {"name": "b", "secret": {"secretName": "s"}},
        {"name": "c", "hostPath": {"path": "/x"}},
        {"name": "d", "projected": {"sources": [{"serviceAccountToken": {"path": "t"}}]}},
    ]
    assert filled(PODS, {"spec": {"containers": [], "volumes": volumes}})["spec"]["volumes"] == [
        {"name": "a", "emptyDir": {}},
        {"name": "b", "secret": {"secretName": "s", "defaultMode": 420}},
        {"name": "c", "hostPath": {"path": "/x", "type": ""}},
        {
            "name": "d",
            "projected": {
                "sources": [{"serviceAccountToken": {"path": "t", "expirationSeconds": 3600}}],
                "defaultMode": 420,
            },
        },
    ]


def test_the_service_account_has_two_names() -> None:
    assert filled(PODS, {"spec": {"serviceAccount": "a"}})["spec"]["serviceAccountName"] == "a"
    assert filled(PODS, {"spec": {"serviceAccountName": "b"}})["spec"]["serviceAccount"] == "b"


def test_secrets_and_services() -> None:
    secret = filled(SECRETS, {"stringData": {"a": "b"}, "data": {"a": "x", "c": "eA=="}})
    assert secret == {"type": "Opaque", "data": {"a": "Yg==", "c": "eA=="}}
    service = filled(SERVICES, {"spec": {"ports": [{"port": 80}], "sessionAffinity": "ClientIP"}})
    assert service["spec"]["ports"] == [{"port": 80, "protocol": "TCP", "targetPort": 80}]
    assert service["spec"]["type"] == "ClusterIP"
    assert service["spec"]["sessionAffinityConfig"] == {"clientIP": {"timeoutSeconds": 10_800}}
    balancer = filled(SERVICES, {"spec": {"type": "LoadBalancer", "ports": []}})["spec"]
    assert balancer["allocateLoadBalancerNodePorts"] is True
    assert balancer["externalTrafficPolicy"] == "Cluster"


def test_small_kinds() -> None:
    assert filled(resources.NODES, {"status": {"capacity": {"cpu": "1"}}})["status"]["allocatable"] == {
        "cpu": "1"
    }
    assert filled(resources.PRIORITY_CLASSES, {})["preemptionPolicy"] == "PreemptLowerPriority"
    assert filled(resources.NAMESPACES, {"metadata": {"name": "n"}})["metadata"]["labels"] == {
        "kubernetes.io/metadata.name": "n"
    }
    item = {"type": "Container", "max": {"cpu": "2"}, "min": {"memory": "1Mi"}}
    assert filled(resources.LIMIT_RANGES, {"spec": {"limits": [item]}})["spec"]["limits"][0] == {
        **item,
        "default": {"cpu": "2"},
        "defaultRequest": {"cpu": "2", "memory": "1Mi"},
    }
    claim = filled(resources.PERSISTENT_VOLUME_CLAIMS, {"spec": {}})
    assert claim["spec"] == {"volumeMode": "Filesystem"}
    volume = filled(resources.PERSISTENT_VOLUMES, {"spec": {"hostPath": {"path": "/"}}})["spec"]
    assert volume["persistentVolumeReclaimPolicy"] == "Retain"
    assert filled(resources.ENDPOINTS, {"subsets": [{"ports": [{"port": 1}]}]})["subsets"][0]["ports"] == [
        {"port": 1, "protocol": "TCP"}
    ]
    assert filled(resources.ENDPOINT_SLICES, {"ports": [{}]})["ports"] == [{"name": "", "protocol": "TCP"}]
    assert filled(resources.CONFIG_MAPS, {"data": {}}) == {"data": {}}


# --- Volcano ------------------------------------------------------------------------------------------


def test_queues() -> None:
    assert filled(QUEUES, {"metadata": {}}) == {"metadata": {}, "spec": {"weight": 1, "reclaimable": True}}
    paths = {"volcano.sh/hierarchy": "a/b", "volcano.sh/hierarchy-weights": "2/8"}
    annotations = filled(QUEUES, {"metadata": {"annotations": paths}})["metadata"]["annotations"]
    assert annotations == {
        "volcano.sh/hierarchy": "root/a/b",
        "volcano.sh/hierarchy-weights": "1/2/8",
    }


def test_groups() -> None:
    group = filled(
        POD_GROUPS, {"spec": {"minMember": 1, "networkTopology": {}, "subGroupPolicy": [{"name": "s"}]}}
    )
    assert group["spec"] == {
        "minMember": 1,
        "queue": "default",
        "networkTopology": {"mode": "hard"},
        "subGroupPolicy": [{"name": "s", "subGroupSize": 1, "minSubGroups": 0}],
    }


def test_jobs() -> None:
    spec = filled(
        VOLCANO_JOBS,
        {
            "spec": {
                "maxRetry": 0,
                "plugins": {"pytorch": ["--port=1"], "mpi": None},
                "tasks": [
                    {"replicas": 3, "template": {"spec": {"hostNetwork": True}}},
                    {"name": "w", "minAvailable": 1, "replicas": 2, "maxRetry": 5},
                    {"name": "p", "replicas": 8, "partitionPolicy": {"partitionSize": 2, "minPartitions": 3}},
                    {"name": "one"},
                ],
            }
        },
    )["spec"]
    assert (spec["queue"], spec["schedulerName"], spec["maxRetry"]) == ("default", "volcano", 3)
    assert [task["name"] for task in spec["tasks"]] == ["default0", "w", "p", "one"]
    assert [task["minAvailable"] for task in spec["tasks"]] == [3, 1, 6, 1]
    assert [task["maxRetry"] for task in spec["tasks"]] == [3, 5, 3, 3]
    assert spec["minAvailable"] == 11
    assert spec["plugins"] == {"pytorch": ["--port=1"], "mpi": None, "svc": [], "ssh": []}
    assert spec["tasks"][0]["template"]["spec"]["dnsPolicy"] == "ClusterFirstWithHostNet"


def test_defaults_of_the_crds_fill_only_what_is_there() -> None:
    """As a real API server: a parent that is absent and has no default stays absent."""
    assert "networkTopology" not in filled(VOLCANO_JOBS, {"spec": {}})["spec"]
