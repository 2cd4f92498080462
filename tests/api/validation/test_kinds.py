"""Built-in kinds: what is refused and where; texts are compared with a real server in tests/conformance."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from field_errors import complaints

from windlass.api import resources, validation
from windlass.api.resources import PODS, Resource


def pod(**spec: Any) -> dict[str, Any]:
    return {"spec": {"containers": [{"name": "x", "image": "y"}], **spec}}


def test_a_rich_pod_is_good() -> None:
    body = pod(
        initContainers=[
            {
                "name": "i",
                "image": "y",
                "restartPolicy": "Always",
                "livenessProbe": {"exec": {"command": ["a"]}},
            }
        ],
        volumes=[
            {"name": "v", "emptyDir": {"sizeLimit": "1Gi"}},
            {"name": "c", "configMap": {"name": "m", "items": [{"key": "a", "path": "b/c"}]}},
            {"name": "p", "persistentVolumeClaim": {"claimName": "d"}},
            {
                "name": "d",
                "downwardAPI": {
                    "items": [{"path": "l", "fieldRef": {"fieldPath": "metadata.labels['a/b']"}}]
                },
            },
        ],
        containers=[
            {
                "name": "x",
                "image": "y",
                "ports": [{"containerPort": 80, "name": "http"}],
                "volumeMounts": [{"name": "v", "mountPath": "/v", "subPath": "a/b"}],
                "env": [
                    {"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
                    {"name": "B", "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu"}}},
                    {"name": "C", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}},
                ],
                "resources": {
                    "limits": {"cpu": "1", "nvidia.com/gpu": "8", "hugepages-2Mi": "4Mi", "rdma/roce_v2": "1"}
                },
                "readinessProbe": {"tcpSocket": {"port": "http"}},
                "lifecycle": {"preStop": {"sleep": {"seconds": 1}}},
            }
        ],
        nodeSelector={"a/b": "c"},
        tolerations=[
            {"operator": "Exists"},
            {"key": "a", "value": "b", "effect": "NoExecute", "tolerationSeconds": 5},
        ],
        topologySpreadConstraints=[
            {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}
        ],
        hostname="h",
        subdomain="s",
        dnsConfig={"nameservers": ["10.0.0.1"], "searches": ["a.b."], "options": [{"name": "ndots"}]},
    )
    assert complaints(PODS, body) == {}


OTHERS: list[tuple[Resource, dict[str, Any], str]] = [
    (resources.NODES, {"spec": {"taints": [{"key": "a", "effect": "X"}]}}, "metadata.taints[0].effect"),
    (resources.NODES, {"spec": {"taints": [{"key": "a"}]}}, "metadata.taints[0].effect"),
    (
        resources.NODES,
        {
            "spec": {
                "taints": [
                    {"key": "a", "effect": "NoSchedule"},
                    {"key": "a", "value": "b", "effect": "NoSchedule"},
                ]
            }
        },
        "metadata.taints[1]",
    ),
    (resources.NODES, {"status": {"capacity": {"nvidia.com/gpu": "1.5"}}}, "status.capacity[nvidia.com/gpu]"),
    (resources.NAMESPACES, {"spec": {"finalizers": ["x"]}}, "spec.finalizers[0]"),
    (resources.CONFIG_MAPS, {"data": {"..": "x"}}, "data[..]"),
    (resources.CONFIG_MAPS, {"data": {"a": "x" * (1024 * 1024 + 1)}}, ""),
    (resources.SECRETS, {"type": "kubernetes.io/basic-auth"}, "data[username]"),
    (resources.SERVICES, {"spec": {"type": "ExternalName"}}, "spec.externalName"),
    (resources.SERVICES, {"spec": {"ports": [{"port": 80, "nodePort": 30000}]}}, "spec.ports[0].nodePort"),
    (
        resources.SERVICES,
        {"spec": {"ports": [{"port": 80, "name": "a"}, {"port": 80, "name": "b"}]}},
        "spec.ports[1]",
    ),
    (
        resources.SERVICES,
        {"spec": {"type": "NodePort", "clusterIP": "None", "ports": [{"port": 1}]}},
        "spec.clusterIPs[0]",
    ),
    (resources.SERVICES, {"spec": {"ports": [{"port": 1}], "externalIPs": ["x"]}}, "spec.externalIPs[0]"),
    (
        resources.SERVICES,
        {
            "spec": {
                "ports": [{"port": 1}],
                "sessionAffinity": "ClientIP",
                "sessionAffinityConfig": {"clientIP": {"timeoutSeconds": 0}},
            }
        },
        "spec.sessionAffinityConfig.clientIP.timeoutSeconds",
    ),
    (resources.ENDPOINTS, {"subsets": [{}]}, "subsets[0]"),
    (
        resources.ENDPOINTS,
        {"subsets": [{"addresses": [{"ip": "x"}], "ports": [{"port": 0}]}]},
        "subsets[0].ports[0].port",
    ),
    (resources.ENDPOINT_SLICES, {"addressType": "IPv5", "endpoints": [{}]}, "endpoints[0].addresses"),
    (
        resources.PERSISTENT_VOLUMES,
        {"spec": {"accessModes": ["X"], "capacity": {"storage": "0"}}},
        "spec.capacity[storage]",
    ),
    (
        resources.PERSISTENT_VOLUMES,
        {"spec": {"accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1"}, "nfs": {}, "csi": {}}},
        "spec.nfs",
    ),
    (
        resources.RESOURCE_QUOTAS,
        {"spec": {"hard": {"requests.nvidia.com/gpu": "1.5"}}},
        "spec.hard[requests.nvidia.com/gpu]",
    ),
    (
        resources.RESOURCE_QUOTAS,
        {
            "spec": {
                "scopeSelector": {
                    "matchExpressions": [{"scopeName": "BestEffort", "operator": "In", "values": ["x"]}]
                }
            }
        },
        "spec.scopeSelector.matchExpressions[0].operator",
    ),
    (
        resources.RESOURCE_QUOTAS,
        {
            "spec": {
                "scopeSelector": {
                    "matchExpressions": [
                        {"scopeName": "PriorityClass", "operator": "Exists", "values": ["x"]}
                    ]
                }
            }
        },
        "spec.scopeSelector.matchExpressions[0].values",
    ),
    (
        resources.LIMIT_RANGES,
        {"spec": {"limits": [{"type": "Pod", "default": {"cpu": "1"}}]}},
        "spec.limits[0].default",
    ),
    (resources.LIMIT_RANGES, {"spec": {"limits": [{"type": "Pod"}, {"type": "Pod"}]}}, "spec.limits[1].type"),
    (
        resources.LIMIT_RANGES,
        {"spec": {"limits": [{"type": "Pod", "maxLimitRequestRatio": {"cpu": "0.5"}}]}},
        "spec.limits[0].maxLimitRequestRatio[cpu]",
    ),
    (resources.LEASES, {"spec": {"leaseDurationSeconds": 0}}, "spec.leaseDurationSeconds"),
    (
        resources.EVENTS,
        {"metadata": {"namespace": "a"}, "involvedObject": {"namespace": "b"}},
        "involvedObject.namespace",
    ),
    (resources.POD_DISRUPTION_BUDGETS, {"spec": {"minAvailable": 1, "maxUnavailable": 1}}, "spec"),
    (resources.POD_DISRUPTION_BUDGETS, {"spec": {"maxUnavailable": "x%"}}, "spec.maxUnavailable"),
    (resources.PRIORITY_CLASSES, {"metadata": {"name": "system-node-critical"}, "value": 5}, "metadata.name"),
    (
        resources.PRIORITY_CLASSES,
        {"metadata": {"name": "system-node-critical"}, "value": 2_000_001_000, "globalDefault": True},
        "metadata.name",
    ),
]


@pytest.mark.parametrize(("resource", "body", "field"), OTHERS)
def test_rejected_fields(resource: Resource, body: dict[str, Any], field: str) -> None:
    assert field in complaints(resource, body)


def test_system_classes_may_be_made_with_their_values() -> None:
    body = {"metadata": {"name": "system-node-critical"}, "value": 2_000_001_000}
    assert complaints(resources.PRIORITY_CLASSES, body) == {}


# --- updates ------------------------------------------------------------------------------------------


def updated(change: Any, **spec: Any) -> dict[str, str]:
    old = pod(**spec)
    new = copy.deepcopy(old)
    change(new["spec"])
    return complaints(PODS, new, old)


def test_updates_of_pods() -> None:
    assert updated(lambda s: s["containers"][0].update(image="z")) == {}
    assert updated(lambda s: s.update(activeDeadlineSeconds=5)) == {}
    assert updated(lambda s: s.update(tolerations=[{"operator": "Exists"}])) == {}
    found = updated(lambda s: s.update(hostname="h", nodeName="n"))
    assert "pod updates may not change fields other than" in found["spec"]
    assert "changed: spec.hostname, spec.nodeName" in found["spec"]
    assert "spec" in updated(lambda s: s["containers"][0].update(command=["x"]))
    assert "spec.containers" in updated(lambda s: s["containers"].append({"name": "b", "image": "c"}))
    assert "spec.tolerations" in updated(
        lambda s: s.update(tolerations=[]), tolerations=[{"key": "a", "operator": "Exists"}]
    )
    later = updated(
        lambda s: s["tolerations"][0].update(tolerationSeconds=9),
        tolerations=[{"key": "a", "operator": "Exists", "effect": "NoExecute"}],
    )
    assert later == {}
    assert "spec.activeDeadlineSeconds" in updated(
        lambda s: s.update(activeDeadlineSeconds=9), activeDeadlineSeconds=5
    )
    assert "spec.activeDeadlineSeconds" in updated(
        lambda s: s.pop("activeDeadlineSeconds"), activeDeadlineSeconds=5
    )


def test_gates_can_only_be_removed() -> None:
    gate = [{"name": "x/a"}]
    assert updated(lambda s: s.pop("schedulingGates"), schedulingGates=gate) == {}
    assert "spec.schedulingGates[0].name" in updated(lambda s: s.update(schedulingGates=gate))
    tighter = updated(
        lambda s: s.update(nodeSelector={"a": "b", "c": "d"}), schedulingGates=gate, nodeSelector={"a": "b"}
    )
    assert tighter == {}
    looser = updated(
        lambda s: s.update(nodeSelector={"a": "x"}), schedulingGates=gate, nodeSelector={"a": "b"}
    )
    assert "spec.nodeSelector" in looser
    assert "spec" in updated(lambda s: s.update(nodeSelector={"a": "b"}))


def test_metadata_update_does_not_validate_the_spec_again() -> None:
    """A pod stored by an older server stays labelable."""
    strange = {"metadata": {"name": "a"}, "spec": {"containers": []}}
    labelled = {"metadata": {"name": "a", "labels": {"x": "y"}}, "spec": {"containers": []}}
    assert validation.validate(PODS, labelled, strange) == []


def frozen(resource: Resource, old: dict[str, Any], new: dict[str, Any]) -> dict[str, str]:
    return complaints(resource, new, old)


def test_other_immutables() -> None:
    assert "value" in frozen(resources.PRIORITY_CLASSES, {"value": 1}, {"value": 2})
    assert "preemptionPolicy" in frozen(resources.PRIORITY_CLASSES, {}, {"preemptionPolicy": "Never"})
    immutable = {"immutable": True, "data": {"a": "b"}}
    assert "data" in frozen(resources.CONFIG_MAPS, immutable, {**immutable, "data": {}})
    assert "immutable" in frozen(resources.CONFIG_MAPS, immutable, {"data": {"a": "b"}})
    assert "type" in frozen(resources.SECRETS, {"type": "a"}, {"type": "b"})
    claim = {"spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1"}}}}
    other = {"spec": {**claim["spec"], "storageClassName": "x"}}
    assert "spec" in frozen(resources.PERSISTENT_VOLUME_CLAIMS, claim, other)
    address = {"spec": {"clusterIP": "10.96.0.5", "ports": [{"port": 80}]}}
    moved = {"spec": {"clusterIP": "10.96.0.6", "ports": [{"port": 80}]}}
    assert "spec.clusterIPs[0]" in frozen(resources.SERVICES, address, moved)
    assert "spec.scopes" in frozen(
        resources.RESOURCE_QUOTAS, {"spec": {}}, {"spec": {"scopes": ["BestEffort"]}}
    )
    assert "metadata.uid" in frozen(
        resources.CONFIG_MAPS,
        {"metadata": {"name": "a", "uid": "1"}},
        {"metadata": {"name": "a", "uid": "2"}},
    )


def test_generated_names_are_validated_without_their_suffix() -> None:
    body = {"metadata": {"name": "job-x", "generateName": "job-"}, "data": {}}
    assert validation.validate(resources.CONFIG_MAPS, body) == []
    body = {"metadata": {"name": "job_x", "generateName": "job_"}, "data": {}}
    assert {e.field for e in validation.validate(resources.CONFIG_MAPS, body)} == {
        "metadata.generateName",
        "metadata.name",
    }
    assert [e.field for e in validation.validate(resources.CONFIG_MAPS, {"metadata": {}})] == [
        "metadata.name"
    ]


JDB_LEAST, JDB_MOST = "volcano.sh/jdb-min-available", "volcano.sh/jdb-max-unavailable"


def told_of_budgets(**notes: str) -> dict[str, str]:
    annotations = {{"least": JDB_LEAST, "most": JDB_MOST}[which]: text for which, text in notes.items()}
    found = complaints(PODS, {"metadata": {"annotations": annotations}, **pod()})
    return {field: message for field, message in found.items() if "jdb" in field}


@pytest.mark.parametrize("text", ["1", "12", "1%", "99%", "007"])
def test_a_disruption_budget_of_volcanos(text: str) -> None:
    assert told_of_budgets(least=text) == told_of_budgets(most=text) == {}


@pytest.mark.parametrize("text", ["", "0", "-1", "1.5", "0%", "100%", "%", "some", "1%%"])
def test_invalid_disruption_budgets_of_volcano(text: str) -> None:
    ((field, message),) = told_of_budgets(most=text).items()
    assert field == f"metadata.annotations[{JDB_MOST}]"
    assert "write a number of pods from 1 on, or 1% to 99%" in message


def test_a_pod_has_one_disruption_budget_of_volcanos() -> None:
    ((field, message),) = told_of_budgets(least="1", most="1").items()
    assert field == f"metadata.annotations[{JDB_MOST}]"
    assert f"{JDB_LEAST} is given, too: keep one" in message
