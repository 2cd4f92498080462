"""Usage that counts against a quota, by scope."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from windlass.api import quantities, quota_usage, resources
from windlass.api.quota_usage import in_scope, usage


def pod(amounts: dict[str, Any] | None = None, phase: str = "Running", **spec: Any) -> dict[str, Any]:
    container = {"name": "x", "resources": {"requests": amounts or {}, "limits": amounts or {}}}
    return {"spec": {"containers": [container], **spec}, "status": {"phase": phase}}


def test_a_pod() -> None:
    used = usage(resources.PODS, pod({"cpu": "500m", "memory": "1Gi", "nvidia.com/gpu": 2}))
    assert used == {
        "pods": 1,
        "count/pods": 1,
        "cpu": Fraction(1, 2),
        "requests.cpu": Fraction(1, 2),
        "limits.cpu": Fraction(1, 2),
        "memory": 2**30,
        "requests.memory": 2**30,
        "limits.memory": 2**30,
        "requests.nvidia.com/gpu": 2,
    }


def test_finished_pods_count_as_objects_only() -> None:
    assert usage(resources.PODS, pod({"cpu": "1"}, "Succeeded")) == {"count/pods": 1}


def test_limits_of_extended_resources_are_not_counted() -> None:
    assert not quota_usage.counted("limits.nvidia.com/gpu")
    assert quota_usage.counted("limits.cpu")
    assert quota_usage.counted("requests.nvidia.com/gpu")


def test_other_kinds() -> None:
    assert usage(resources.CONFIG_MAPS, {}) == {"configmaps": 1, "count/configmaps": 1}
    assert usage(resources.LEASES, {}) == {"count/leases.coordination.k8s.io": 1}
    assert usage(resources.VOLCANO_JOBS, {}) == {"count/jobs.batch.volcano.sh": 1}
    balancer = {"spec": {"type": "LoadBalancer", "ports": [{}, {}]}}
    assert usage(resources.SERVICES, balancer) == {
        "services": 1,
        "count/services": 1,
        "services.nodeports": 2,
        "services.loadbalancers": 1,
    }
    claim = {"spec": {"storageClassName": "fast", "resources": {"requests": {"storage": "2Gi"}}}}
    used = usage(resources.PERSISTENT_VOLUME_CLAIMS, claim)
    assert used["requests.storage"] == 2**31
    assert used["fast.storageclass.storage.k8s.io/requests.storage"] == 2**31
    assert used["fast.storageclass.storage.k8s.io/persistentvolumeclaims"] == 1


@pytest.mark.parametrize(
    ("name", "resource"),
    [
        ("pods", resources.PODS),
        ("requests.nvidia.com/gpu", resources.PODS),
        ("limits.cpu", resources.PODS),
        ("memory", resources.PODS),
        ("count/pods", resources.PODS),
        ("services.loadbalancers", resources.SERVICES),
        ("requests.storage", resources.PERSISTENT_VOLUME_CLAIMS),
        ("fast.storageclass.storage.k8s.io/requests.storage", resources.PERSISTENT_VOLUME_CLAIMS),
        ("count/jobs.batch.volcano.sh", resources.VOLCANO_JOBS),
        ("configmaps", resources.CONFIG_MAPS),
    ],
)
def test_kinds_by_name(name: str, resource: Any) -> None:
    assert quota_usage.counted_kinds([name]) == {resource}


def selector(scope: str, operator: str, *values: str) -> dict[str, Any]:
    expression: dict[str, Any] = {"scopeName": scope, "operator": operator}
    if values:
        expression["values"] = list(values)
    return {"scopeSelector": {"matchExpressions": [expression]}}


@pytest.mark.parametrize(
    ("quota", "spec", "holds"),
    [
        ({}, {}, True),
        ({"scopes": ["Terminating"]}, {"activeDeadlineSeconds": 5}, True),
        ({"scopes": ["Terminating"]}, {}, False),
        ({"scopes": ["NotTerminating"]}, {}, True),
        ({"scopes": ["BestEffort"]}, {}, False),
        ({"scopes": ["NotBestEffort", "NotTerminating"]}, {}, True),
        (selector("PriorityClass", "In", "a", "b"), {"priorityClassName": "b"}, True),
        (selector("PriorityClass", "In", "a"), {}, False),
        (selector("PriorityClass", "NotIn", "a"), {"priorityClassName": "b"}, True),
        (selector("PriorityClass", "Exists"), {"priorityClassName": "b"}, True),
        (selector("PriorityClass", "Exists"), {}, False),
        (selector("PriorityClass", "DoesNotExist"), {}, True),
        (selector("CrossNamespacePodAffinity", "Exists"), {}, False),
        (
            selector("CrossNamespacePodAffinity", "Exists"),
            {
                "affinity": {
                    "podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{"namespaces": ["x"]}]}
                }
            },
            True,
        ),
        (selector("Nonsense", "Exists"), {}, False),
    ],
)
def test_scopes(quota: dict[str, Any], spec: dict[str, Any], holds: bool) -> None:
    assert in_scope(quota, resources.PODS, pod({"cpu": "1"}, **spec)) is holds


def test_scopes_are_about_pods() -> None:
    assert not in_scope({"scopes": ["NotTerminating"]}, resources.CONFIG_MAPS, {})
    assert in_scope({}, resources.CONFIG_MAPS, {})


@settings(max_examples=80, deadline=None)
@given(
    st.sampled_from(["requests.cpu", "requests.memory", "pods", "requests.nvidia.com/gpu"]),
    st.fractions(0, 2**40).map(lambda f: f.limit_denominator(1000)),
)
def test_shown_amount_is_not_less(name: str, amount: Fraction) -> None:
    shown = quantities.parse(quota_usage.shown(name, amount))
    assert 0 <= shown - amount < Fraction(1, 10**9)
