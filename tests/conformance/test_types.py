"""Both servers get the same bodies and must answer alike: decoding, defaults, validation, tables.

The real kube-apiserver is the oracle here; what the embedded server may do otherwise is said at the case.
"""

from __future__ import annotations

import json
import os
from typing import Any

import pytest
from server_deviations import deviates
from server_pair import PODS, Pair, same, stripped, warnings

pytestmark = [pytest.mark.real, pytest.mark.timeout(180)]


def pod(spec: str = "", container: str = "", metadata: str = "") -> bytes:
    """A pod as JSON text, so that keys may stand twice."""
    containers = f'"containers":[{{"name":"x","image":"y"{"," if container else ""}{container}}}]'
    parts = ",".join(filter(None, (containers, spec)))
    return f'{{"metadata":{{"name":"a"{"," if metadata else ""}{metadata}}},"spec":{{{parts}}}}}'.encode()


UNDECODABLE = {
    "containers is text": b'{"metadata":{"name":"a"},"spec":{"containers":"x"}}',
    "a container is text": b'{"metadata":{"name":"a"},"spec":{"containers":["x"]}}',
    "enum is a number": pod('"restartPolicy":5'),
    "bool is text": pod('"hostNetwork":"yes"'),
    "integer is text": pod('"terminationGracePeriodSeconds":"x"'),
    "integer is a fraction": pod('"terminationGracePeriodSeconds":1.5'),
    "integer is written as a fraction": pod('"terminationGracePeriodSeconds":1.0'),
    "int32 is too large": pod('"priority":3000000000'),
    "map value is a number": pod('"nodeSelector":{"a":5}'),
    "map is a list": pod('"nodeSelector":[]'),
    "struct is text": pod('"affinity":"x"'),
    "quantity is none": pod(container='"resources":{"limits":{"cpu":"x1"}}'),
    "quantity has a wrong suffix": pod(container='"resources":{"limits":{"cpu":"1x"}}'),
    "quantity is a bool": pod(container='"resources":{"limits":{"cpu":true}}'),
    "list is text": pod(container='"command":"x"'),
    "item is a number": pod(container='"command":[5]'),
    "int-or-string is a bool": pod(container='"livenessProbe":{"httpGet":{"port":true}}'),
    "int-or-string is a fraction": pod(container='"livenessProbe":{"httpGet":{"port":1.5}}'),
    "value in a list of structs": pod(container='"env":[{"name":"x","value":true}]'),
    "inlined struct": pod('"volumes":[{"name":"x","emptyDir":5}]'),
    "inlined struct, deeper": pod(
        container='"env":[{"name":"x","valueFrom":{"configMapKeyRef":{"name":5}}}]'
    ),
    "inlined handler": pod(container='"livenessProbe":{"exec":5}'),
    "metadata name": b'{"metadata":{"name":5}}',
    "metadata is text": b'{"metadata":"x"}',
    "label is an object": b'{"metadata":{"labels":{"a":{}}}}',
    "time is none": pod(metadata='"creationTimestamp":"x"'),
    "time is half": pod(metadata='"creationTimestamp":"2026-01-01T00:00"'),
    "time is a number": pod(metadata='"creationTimestamp":5'),
    "JSON is cut": b'{"apiVersion":"v1","kind":"Pod"',
    "JSON and more": b'{"metadata":{"name":"x"}} trailing',
    "JSON is a list": b"[]",
    "JSON is a number": b"5",
    "nothing": b"",
    "kind is a number": b'{"kind":5}',
    "unknown field": pod('"zz":1,"aa":2,"aa":3', '"Name":"c","foo":1'),
    "key twice": pod('"nodeSelector":{"a":"1","a":"2"}'),
    "field twice": pod('"restartPolicy":"Never","restartPolicy":"Always"'),
}


@pytest.mark.parametrize("body", UNDECODABLE.values(), ids=UNDECODABLE.keys())
def test_undecodable(both: Pair, body: bytes) -> None:
    same(both, "POST", PODS, body, "dryRun=All&fieldValidation=Strict")


def test_unknown_fields_are_warned_about(both: Pair) -> None:
    body = pod('"zz":1,"nodeSelector":{"a":"1","a":"2"}', '"foo":1')
    answers = same(both, "POST", PODS, body, "dryRun=All")
    embedded, real = map(warnings, answers)
    assert embedded
    assert embedded == real
    answers = same(both, "POST", PODS, body, "dryRun=All&fieldValidation=Ignore")
    assert [warnings(answer) for answer in answers] == [[], []]


OTHER_BODIES = [
    ("secrets", {"metadata": {"name": "x"}, "data": {"a": "&&"}}),
    ("secrets", {"metadata": {"name": "x"}, "data": {"a": 5}}),
    ("secrets", {"metadata": {"name": "x"}, "stringData": {"a": "b"}, "data": {"a": "eA==", "c": "eA=="}}),
    ("secrets", {"metadata": {"name": "x"}, "type": "kubernetes.io/tls"}),
    ("configmaps", {"metadata": {"name": "x"}, "data": {"a b": "c"}}),
    ("configmaps", {"metadata": {"name": "x"}, "data": {"a": "c"}, "binaryData": {"a": "eA=="}}),
    ("services", {"metadata": {"name": "x"}, "spec": {}}),
    ("services", {"metadata": {"name": "x"}, "spec": {"clusterIP": "None"}}),
    ("services", {"metadata": {"name": "x"}, "spec": {"ports": [{"port": 1}, {"port": 2}]}}),
    ("services", {"metadata": {"name": "x"}, "spec": {"ports": [{"port": 0, "protocol": "X"}]}}),
    ("services", {"metadata": {"name": "x"}, "spec": {"type": "X", "ports": [{"port": 80}]}}),
    (
        "services",
        {"metadata": {"name": "x"}, "spec": {"clusterIP": "10.1.1.1", "ports": [{"port": 80}]}},
    ),
    (
        "services",
        {
            "metadata": {"name": "x"},
            "spec": {"clusterIP": "None", "ports": [{"port": 80}], "sessionAffinity": "ClientIP"},
        },
    ),
    ("services", {"metadata": {"name": "x"}, "spec": {"type": "ExternalName", "externalName": "a.b"}}),
    ("resourcequotas", {"metadata": {"name": "x"}, "spec": {"hard": {"foo": "1", "pods": "-2"}}}),
    (
        "resourcequotas",
        {
            "metadata": {"name": "x"},
            "spec": {"hard": {"pods": "1500m"}, "scopes": ["Bogus", "Terminating", "NotTerminating"]},
        },
    ),
    (
        "limitranges",
        {
            "metadata": {"name": "x"},
            "spec": {"limits": [{"type": "Container", "max": {"cpu": "2"}, "min": {"cpu": "0.1"}}]},
        },
    ),
    (
        "limitranges",
        {
            "metadata": {"name": "x"},
            "spec": {"limits": [{"type": "Container", "max": {"cpu": "1"}, "min": {"cpu": "2"}}]},
        },
    ),
    (
        "persistentvolumeclaims",
        {
            "metadata": {"name": "x"},
            "spec": {
                "accessModes": ["ReadWriteOnce"],
                "resources": {"requests": {"storage": "1Gi"}},
                "storageClassName": "",  # only the embedded server has a default class
            },
        },
    ),
    ("persistentvolumeclaims", {"metadata": {"name": "x"}, "spec": {}}),
]


@pytest.mark.parametrize(("plural", "body"), OTHER_BODIES)
def test_other_kinds(both: Pair, plural: str, body: dict[str, Any]) -> None:
    same(both, "POST", f"/api/v1/namespaces/default/{plural}", body, "dryRun=All&fieldValidation=Strict")


CLUSTER_BODIES = [
    ("/apis/scheduling.k8s.io/v1/priorityclasses", {"metadata": {"name": "system-x"}, "value": 5}),
    ("/apis/scheduling.k8s.io/v1/priorityclasses", {"metadata": {"name": "x"}, "value": 1_000_000_001}),
    (
        "/apis/scheduling.k8s.io/v1/priorityclasses",
        {"metadata": {"name": "x"}, "value": 5, "preemptionPolicy": "Bogus"},
    ),
    ("/apis/scheduling.k8s.io/v1/priorityclasses", {"metadata": {"name": "x"}, "value": 5}),
    ("/api/v1/nodes", {"metadata": {"name": "x"}}),
    ("/api/v1/nodes", {"metadata": {"name": "x"}, "spec": {"taints": [{"key": "a b", "effect": "X"}]}}),
    ("/api/v1/namespaces", {"metadata": {"name": "A_b"}}),
    (
        "/apis/coordination.k8s.io/v1/namespaces/default/leases",
        {"metadata": {"name": "x"}, "spec": {"renewTime": "2026-01-01T00:00:00Z"}},
    ),
    (
        "/apis/coordination.k8s.io/v1/namespaces/default/leases",
        {
            "metadata": {"name": "x"},
            "spec": {"renewTime": "2026-01-01T00:00:00.000000Z", "leaseTransitions": -1},
        },
    ),
    (
        "/apis/policy/v1/namespaces/default/poddisruptionbudgets",
        {"metadata": {"name": "x"}, "spec": {"minAvailable": "101%"}},
    ),
    (
        "/api/v1/persistentvolumes",
        {
            "metadata": {"name": "x"},
            "spec": {
                "accessModes": ["ReadWriteOnce"],
                "capacity": {"storage": "1Gi"},
                "hostPath": {"path": "/x"},
            },
        },
    ),
]


@pytest.mark.parametrize(("path", "body"), CLUSTER_BODIES)
def test_kinds_elsewhere(both: Pair, path: str, body: dict[str, Any]) -> None:
    same(both, "POST", path, body, "dryRun=All&fieldValidation=Strict")


QUANTITIES = [
    "0", "1", "1000m", "1500m", "0.5", "1.5", "100n", "1u", "1k", "1000k", "500G", "1e3", "12e6", "1E3",
    "1024", "1024Mi", "1536Mi", "2000Gi", "1023Ki", "0.5Gi", "1.5Gi", "1Ei", "100M", ".5", "5.", "+1", "1e-3",
]  # fmt: skip


def test_quantities_have_one_text(both: Pair) -> None:
    """Whatever a person writes, both servers write the same."""
    limits = {f"ex.io/r{index}": text for index, text in enumerate(QUANTITIES)}
    body = {"metadata": {"name": "q"}, "spec": {"limits": [{"type": "Pod", "max": limits}]}}
    integral = {
        name: text
        for name, text in limits.items()
        if text not in ("1500m", "0.5", "1.5", "100n", "1u", ".5", "1e-3")
    }
    body["spec"]["limits"][0]["max"] = integral
    same(both, "POST", "/api/v1/namespaces/default/limitranges", body, "dryRun=All")
    for text in QUANTITIES:
        body["spec"]["limits"][0]["max"] = {"cpu": text}
        same(both, "POST", "/api/v1/namespaces/default/limitranges", body, "dryRun=All")


# --- pods: defaults and validation --------------------------------------------------------------------

SPECS: dict[str, dict[str, Any]] = {
    "plain": {},
    "host network": {
        "hostNetwork": True,
        "containers": [{"name": "x", "image": "y", "ports": [{"containerPort": 80}]}],
    },
    "images": {
        "containers": [
            {"name": "a", "image": "x:latest"},
            {"name": "b", "image": "r.io:5000/x"},
            {"name": "c", "image": "x:v1"},
            {"name": "d", "image": f"x@sha256:{'0' * 64}"},
        ]
    },
    "volumes": {
        "volumes": [
            {"name": "none"},
            {"name": "cm", "configMap": {"name": "c"}},
            {"name": "s", "secret": {"secretName": "c"}},
            {"name": "h", "hostPath": {"path": "/x"}},
            {
                "name": "d",
                "downwardAPI": {"items": [{"path": "a", "fieldRef": {"fieldPath": "metadata.name"}}]},
            },
            {"name": "p", "projected": {"sources": [{"configMap": {"name": "c"}}]}},
        ]
    },
    "probes": {
        "containers": [
            {
                "name": "x",
                "image": "y",
                "livenessProbe": {"httpGet": {"port": 80}},
                "readinessProbe": {"grpc": {"port": 5}},
                "startupProbe": {"exec": {"command": ["a"]}},
                "lifecycle": {"preStop": {"httpGet": {"port": "web"}}},
            }
        ]
    },
    "amounts": {
        "initContainers": [{"name": "i", "image": "y", "resources": {"limits": {"cpu": "0.5"}}}],
        "containers": [
            {
                "name": "x",
                "image": "y",
                "resources": {"limits": {"cpu": "1000m", "memory": "1024Mi", "nvidia.com/gpu": 1}},
                "env": [{"name": "A", "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu"}}}],
            }
        ],
    },
    "guaranteed": {
        "containers": [{"name": "x", "image": "y", "resources": {"limits": {"cpu": "1", "memory": "1Gi"}}}]
    },
    "tolerates already": {
        "tolerations": [{"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute"}]
    },
    "tolerates all": {"tolerations": [{"operator": "Exists"}]},
    "service account": {"serviceAccountName": "default"},
    "gated": {"schedulingGates": [{"name": "ex.io/a"}]},
    "empties": {
        "nodeSelector": {},
        "tolerations": [],
        "hostNetwork": False,
        "nodeName": "",
        "hostAliases": None,
    },
}


@pytest.mark.parametrize("spec", SPECS.values(), ids=SPECS.keys())
def test_pod_defaults(both: Pair, spec: dict[str, Any]) -> None:
    body = {"metadata": {"name": "a"}, "spec": {"containers": [{"name": "x", "image": "y"}], **spec}}
    embedded, real = (
        stripped(cluster.post(PODS, body, "dryRun=All&fieldValidation=Strict").ok(201)) for cluster in both
    )
    for obj in (embedded, real):  # no service account controller fills in tokens here
        for condition in obj["status"].get("conditions", ()):
            condition.pop("lastTransitionTime", None)
    assert embedded == real


BAD_NAMES: dict[str, dict[str, Any]] = {
    "upper case": {"name": "A_b"},
    "long": {"name": "x" * 300},
    "labels": {
        "labels": {"a b": "c", "ok": "a b", "l": "x" * 64, "/x": "", "a/b/c": "", "x.Y_/z": "", "k" * 64: ""}
    },
    "annotations": {"annotations": {"a b": "c"}},
    "owners": {
        "ownerReferences": [
            {"kind": "", "name": "", "uid": "", "apiVersion": "a/b/c"},
            {"kind": "A", "name": "a", "uid": "u", "apiVersion": "v1", "controller": True},
            {"kind": "A", "name": "b", "uid": "u2", "apiVersion": "v1", "controller": True},
        ]
    },
    "finalizers": {"finalizers": ["foo", "a b"]},
    "no name": {"name": ""},
}


@pytest.mark.parametrize("metadata", BAD_NAMES.values(), ids=BAD_NAMES.keys())
def test_bad_metadata(both: Pair, metadata: dict[str, Any]) -> None:
    body = {
        "metadata": {"name": "a", **metadata},
        "spec": {"containers": [{"name": "x", "image": "y"}]},
    }
    same(both, "POST", PODS, body, "dryRun=All")


def container(**fields: Any) -> dict[str, Any]:
    return {"containers": [{"name": "x", "image": "y", **fields}]}


BAD_SPECS: dict[str, dict[str, Any]] = {
    "no containers": {"containers": []},
    "twice the name": {"containers": [{"name": "x", "image": "y"}, {"name": "x", "image": "z"}]},
    "name": container(name="A_"),
    "no name": container(name=""),
    "image with blanks": container(image=" a"),
    "pull policy": container(imagePullPolicy="x"),
    "env": container(
        env=[
            {"name": ""},
            {"name": "a=b"},
            {"name": "1 ok"},
            {"name": "X", "value": "v", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
            {"name": "Y", "valueFrom": {}},
            {"name": "Z", "valueFrom": {"fieldRef": {"fieldPath": "bogus"}}},
            {"name": "Z2", "valueFrom": {"fieldRef": {"fieldPath": ""}}},
            {"name": "W", "valueFrom": {"configMapKeyRef": {"name": "", "key": ""}}},
            {"name": "W2", "valueFrom": {"secretKeyRef": {"name": "x", "key": "a b"}}},
            {"name": "W3", "valueFrom": {"resourceFieldRef": {"resource": "limits.foo"}}},
            {"name": "W4", "valueFrom": {"resourceFieldRef": {"resource": ""}}},
        ]
    ),
    "envFrom": container(
        envFrom=[
            {"prefix": "a=", "configMapRef": {"name": ""}},
            {},
            {"configMapRef": {"name": "a"}, "secretRef": {"name": "b"}},
        ]
    ),
    "ports": container(
        ports=[
            {"containerPort": 0},
            {"containerPort": 70000, "hostPort": -1, "protocol": "X", "name": "Bad_"},
            {"containerPort": 1, "name": "aaaaaaaaaaaaaaaaaaaa"},
            {"containerPort": 2, "name": "a1"},
            {"containerPort": 3, "name": "a1"},
            {"containerPort": 4, "hostPort": 9},
            {"containerPort": 5, "hostPort": 9},
        ]
    ),
    "volumes": {
        "volumes": [
            {"name": "v", "emptyDir": {}},
            {"name": "v", "emptyDir": {}},
            {"name": "B_", "emptyDir": {}},
            {"name": "two", "emptyDir": {}, "hostPath": {"path": "/x"}},
            {"name": "cm", "configMap": {"name": ""}},
            {"name": "s", "secret": {"secretName": ""}},
            {"name": "hp", "hostPath": {"path": "/a/../b", "type": "X"}},
            {"name": "pvc", "persistentVolumeClaim": {"claimName": ""}},
            {"name": "ed", "emptyDir": {"sizeLimit": "-1"}},
            {
                "name": "cmi",
                "configMap": {
                    "name": "x",
                    "defaultMode": 1000,
                    "items": [
                        {"key": "", "path": ""},
                        {"key": "a", "path": "../x"},
                        {"key": "b", "path": "/abs"},
                    ],
                },
            },
            {"name": "nfs", "nfs": {"server": "", "path": "rel"}},
        ]
    },
    "mounts": {
        "volumes": [{"name": "v", "emptyDir": {}}],
        **container(
            volumeMounts=[
                {"name": "nope", "mountPath": "/a"},
                {"name": "v", "mountPath": ""},
                {"name": "v", "mountPath": "/b"},
                {"name": "v", "mountPath": "/b"},
                {"name": "v", "mountPath": "/d", "subPath": "../x"},
                {"name": "v", "mountPath": "/e", "mountPropagation": "Bidirectional"},
            ]
        ),
    },
    "fraction of a device": container(resources={"limits": {"nvidia.com/gpu": "1500m"}}),
    "device without a limit": container(resources={"requests": {"nvidia.com/gpu": "1"}}),
    "device request and limit differ": container(
        resources={"requests": {"nvidia.com/gpu": "1"}, "limits": {"nvidia.com/gpu": "2"}}
    ),
    "request above limit": container(resources={"requests": {"cpu": "2"}, "limits": {"cpu": "1"}}),
    "negative": container(resources={"requests": {"memory": "-1"}}),
    "resource names": container(resources={"limits": {"gpu": "1"}}),
    "node names": {"nodeName": "A_", "hostname": "a.b", "subdomain": "A_", "serviceAccountName": "A_"},
    "node selector": {"nodeSelector": {"a b": "c", "x": "y z"}},
    "tolerations": {
        "tolerations": [
            {"key": "a b", "operator": "Equal"},
            {"key": "a", "operator": "Bogus"},
            {"operator": "Equal", "value": "x"},
            {"key": "x", "operator": "Exists", "value": "v"},
            {"key": "k", "effect": "Bogus"},
            {"key": "k", "effect": "NoSchedule", "tolerationSeconds": 5},
            {"key": "k", "operator": "Equal", "value": "a b"},
        ]
    },
    "affinity": {
        "affinity": {
            "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": []},
                "preferredDuringSchedulingIgnoredDuringExecution": [
                    {
                        "weight": 0,
                        "preference": {
                            "matchExpressions": [
                                {"key": "a b", "operator": "In"},
                                {"key": "a", "operator": "Bogus"},
                                {"key": "a", "operator": "Exists", "values": ["x"]},
                                {"key": "a", "operator": "Gt", "values": ["1", "2"]},
                            ],
                            "matchFields": [
                                {"key": "foo", "operator": "In", "values": ["a", "b"]},
                                {"key": "metadata.name", "operator": "Exists"},
                            ],
                        },
                    }
                ],
            },
            "podAntiAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": [
                    {"topologyKey": ""},
                    {
                        "topologyKey": "a b",
                        "labelSelector": {
                            "matchLabels": {"a b": "c"},
                            "matchExpressions": [
                                {"key": "x", "operator": "In"},
                                {"key": "x", "operator": "Exists", "values": ["a"]},
                                {"key": "x", "operator": "Z"},
                            ],
                        },
                        "namespaces": ["A_"],
                    },
                ],
                "preferredDuringSchedulingIgnoredDuringExecution": [
                    {"weight": 101, "podAffinityTerm": {"topologyKey": "x"}}
                ],
            },
        }
    },
    "spread": {
        "topologySpreadConstraints": [
            {"maxSkew": 0, "topologyKey": "", "whenUnsatisfiable": "X"},
            {"maxSkew": 1, "topologyKey": "a", "whenUnsatisfiable": "DoNotSchedule"},
            {"maxSkew": 1, "topologyKey": "a", "whenUnsatisfiable": "DoNotSchedule"},
            {"maxSkew": 1, "topologyKey": "b", "whenUnsatisfiable": "ScheduleAnyway", "minDomains": 2},
        ]
    },
    "probes": container(
        livenessProbe={"exec": {"command": []}, "successThreshold": 2, "timeoutSeconds": -1},
        readinessProbe={},
        startupProbe={"httpGet": {"port": 0}, "tcpSocket": {"port": 80}},
    ),
    "hooks": container(
        lifecycle={"postStart": {}, "preStop": {"exec": {"command": ["a"]}, "httpGet": {"port": 5}}}
    ),
    "gates": {"schedulingGates": [{"name": "a b"}, {"name": "x"}, {"name": "x"}], "nodeName": "n"},
    "init": {
        "initContainers": [
            {"name": "x", "image": "a"},
            {"name": "i", "image": "b", "livenessProbe": {"exec": {"command": ["a"]}}},
            {"name": "s", "image": "z", "restartPolicy": "Bogus"},
        ]
    },
    "users": {"securityContext": {"runAsUser": -1, "supplementalGroups": [-1]}},
    "message policy": container(terminationMessagePolicy="X"),
    "host aliases": {"hostAliases": [{"ip": "x", "hostnames": ["A_"]}]},
    "dns none": {"dnsPolicy": "None"},
    "dns config": {
        "dnsConfig": {"nameservers": ["a", "b", "c", "d"], "searches": ["A_ b"], "options": [{"value": "x"}]}
    },
    "host network port": {
        "hostNetwork": True,
        **container(ports=[{"containerPort": 80, "hostPort": 81}]),
    },
    "readiness gates": {"readinessGates": [{"conditionType": "a b"}]},
    "claims": {"resourceClaims": [], **container(resources={"claims": [{"name": "zz"}]})},
    "os": {"os": {"name": "x"}},
    "priority": {"priority": 5},
    "class": {"priorityClassName": "nope"},
}


@pytest.mark.parametrize("spec", BAD_SPECS.values(), ids=BAD_SPECS.keys())
def test_bad_pods(both: Pair, spec: dict[str, Any]) -> None:
    body = {"metadata": {"name": "a"}, "spec": {"containers": [{"name": "x", "image": "y"}], **spec}}
    same(both, "POST", PODS, body, "dryRun=All")


def test_an_image_is_required_on_a_real_cluster_and_filled_in_on_the_box(both: Pair) -> None:
    """The one rule that differs: seeds leave the image out, and the box needs none."""
    embedded, real = (
        c.post(PODS, {"metadata": {"name": "a"}, "spec": container(image="")}, "dryRun=All") for c in both
    )
    assert real.status == 422
    assert embedded.status == 201
    assert "has no image" in warnings(embedded)[0]


# --- custom kinds: the same CRD files on both sides -------------------------------------------------

CUSTOM: dict[str, tuple[str, dict[str, Any]]] = {
    "unknown fields": ("podgroups", {"spec": {"minMember": 1, "zz": 1, "subGroupPolicy": [{"nmae": "x"}]}}),
    "unknown in metadata": ("podgroups", {"metadata": {"zz": 1}, "spec": {"minMember": 1}}),
    "defaults": (
        "podgroups",
        {"spec": {"minMember": 1, "networkTopology": {}, "subGroupPolicy": [{"name": "x"}]}},
    ),
    "no spec": ("podgroups", {}),
    "nulls": ("podgroups", {"spec": {"minMember": 1, "queue": None, "priorityClassName": None}}),
    "wrong type": ("podgroups", {"spec": {"minMember": "x"}}),
    "wrong types": ("podgroups", {"spec": {"minMember": "x", "queue": 5, "minTaskMember": []}}),
    "choice": ("podgroups", {"spec": {"minMember": 1, "networkTopology": {"mode": "x"}}}),
    "minimum": ("podgroups", {"spec": {"minMember": -1}}),
    "pattern": ("podgroups", {"spec": {"minMember": 1, "minResources": {"cpu": "x"}}}),
    "metadata type": ("podgroups", {"metadata": {"labels": 5}, "spec": {}}),
    "metadata labels": ("podgroups", {"metadata": {"labels": {"a b": "c"}}, "spec": {"minMember": 1}}),
    "required": (
        "podgroups",
        {"spec": {"minMember": 1, "subGroupPolicy": [{"labelSelector": {"matchExpressions": [{}]}}]}},
    ),
}


@pytest.mark.parametrize("validation", ["Strict", "Warn"])
@pytest.mark.parametrize(("plural", "body"), CUSTOM.values(), ids=CUSTOM.keys())
def test_custom_kinds(both: Pair, plural: str, body: dict[str, Any], validation: str) -> None:
    body = json.loads(json.dumps(body))
    body |= {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "PodGroup"}
    body["metadata"] = {"name": "g", **body.get("metadata", {})}
    path = f"/apis/scheduling.volcano.sh/v1beta1/namespaces/default/{plural}"
    answers = same(both, "POST", path, body, f"dryRun=All&fieldValidation={validation}")
    embedded, real = ([w.rstrip(",") for w in warnings(a) if "unknown field" in w] for a in answers)
    assert embedded == real


@pytest.mark.parametrize("value", [True, 1.5])
def test_numbers_that_are_none_are_refused_at_their_field(both: Pair, value: Any) -> None:
    """The real server's words for these ("must be of type int32: \"\"") tell less than the embedded one's."""
    body = {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "PodGroup", "metadata": {"name": "g"}}
    path = "/apis/scheduling.volcano.sh/v1beta1/namespaces/default/podgroups"
    for cluster in both:
        answer = cluster.post(path, {**body, "spec": {"minMember": value}}, "dryRun=All")
        assert answer.status == 422
        causes = answer.json["details"]["causes"]
        assert ("spec.minMember", "FieldValueTypeInvalid") in {(c["field"], c["reason"]) for c in causes}


# --- tables -----------------------------------------------------------------------------------------

TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"
SHOWN: list[tuple[str, dict[str, Any]]] = [
    ("/api/v1/namespaces/{ns}/pods", {"spec": {"containers": [{"name": "x", "image": "y"}]}}),
    (
        "/api/v1/namespaces/{ns}/services",
        {
            "spec": {
                "clusterIP": "None",
                "selector": {"b": "1", "a": "2"},
                "ports": [{"port": 80, "name": "a"}, {"port": 81, "name": "b"}],
            }
        },
    ),
    ("/api/v1/namespaces/{ns}/configmaps", {"data": {"a": "b"}, "binaryData": {"c": "eA=="}}),
    ("/api/v1/namespaces/{ns}/secrets", {"data": {"a": "eA=="}}),
    ("/api/v1/namespaces/{ns}/limitranges", {"spec": {"limits": []}}),
    ("/api/v1/namespaces/{ns}/serviceaccounts", {}),
    (
        "/api/v1/namespaces/{ns}/persistentvolumeclaims",
        {
            "spec": {
                "accessModes": ["ReadWriteOnce"],
                "resources": {"requests": {"storage": "1Gi"}},
                "storageClassName": "",
            }
        },
    ),
    (
        "/api/v1/namespaces/{ns}/endpoints",
        {"subsets": [{"addresses": [{"ip": f"10.0.0.{i}"} for i in range(1, 5)], "ports": [{"port": 80}]}]},
    ),
    (
        "/api/v1/namespaces/{ns}/events",
        {
            "involvedObject": {"kind": "Pod", "name": "x", "namespace": "{ns}"},
            "reason": "R",
            "message": " m ",
            "type": "Normal",
        },
    ),
    ("/apis/coordination.k8s.io/v1/namespaces/{ns}/leases", {"spec": {"holderIdentity": "me"}}),
    ("/apis/policy/v1/namespaces/{ns}/poddisruptionbudgets", {"spec": {"minAvailable": 1}}),
    (
        "/apis/discovery.k8s.io/v1/namespaces/{ns}/endpointslices",
        {"addressType": "IPv4", "endpoints": [{"addresses": ["10.0.0.1"]}], "ports": [{"port": 80}]},
    ),
    ("/apis/scheduling.volcano.sh/v1beta1/namespaces/{ns}/podgroups", {"spec": {"minMember": 2}}),
    ("/apis/scheduling.k8s.io/v1/priorityclasses", {"value": 5}),
    ("/api/v1/nodes", {}),
]


@pytest.mark.parametrize(("path", "body"), SHOWN, ids=[path.rsplit("/", 1)[1] for path, _ in SHOWN])
def test_tables(both: Pair, path: str, body: dict[str, Any]) -> None:
    """The same columns, types, priorities and cells; ages and times are left out."""
    name = f"table-{os.getpid()}"
    seen = []
    for cluster in both:
        namespace = cluster.new_namespace()
        where = path.format(ns=namespace)
        made = json.loads(json.dumps(body).replace("{ns}", namespace))
        made["metadata"] = {"name": name}
        if "podgroups" in path:
            made |= {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "PodGroup"}
        cluster.post(where, made).ok(201)
        table = cluster.get(f"{where}/{name}", accept=TABLE).ok()
        assert table["kind"] == "Table"
        columns = [(c["name"], c["type"], c["format"], c["priority"]) for c in table["columnDefinitions"]]
        moving = ("Age", "AGE", "Created At", "Last Seen", "First Seen")
        (row,) = table["rows"]
        cells = [cell for column, cell in zip(columns, row["cells"], strict=True) if column[0] not in moving]
        if "podgroups" in path and deviates(cluster, "phase of a new PodGroup"):
            assert cells[1] == "Pending"
            cells[1] = None
        seen.append((columns, cells, row["object"]["kind"]))
    assert seen[0] == seen[1]
