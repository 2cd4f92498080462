"""Request of a pod over all its containers, and its QoS class."""

from __future__ import annotations

from typing import Any

import pytest

from windlass.api import pod_requests


def box(
    limits: dict[str, Any] | None = None, requests: dict[str, Any] | None = None, **extra: Any
) -> dict[str, Any]:
    amounts = {key: value for key, value in (("limits", limits), ("requests", requests)) if value is not None}
    return {"name": "x", "resources": amounts, **extra}


def test_running_containers_add_up_and_init_containers_peak() -> None:
    spec = {
        "containers": [box(requests={"cpu": "1", "nvidia.com/gpu": 1}), box(requests={"cpu": "500m"})],
        "initContainers": [box(requests={"cpu": "4"}), box(requests={"memory": "1Gi"})],
    }
    assert pod_requests.pod_requests(spec) == {"cpu": 4000, "nvidia.com/gpu": 1000, "memory": 2**30}


def test_sidecars_count_with_containers_and_later_init_containers() -> None:
    sidecar = box(requests={"cpu": "1"}, restartPolicy="Always")
    spec = {
        "containers": [box(requests={"cpu": "1"})],
        "initContainers": [sidecar, box(requests={"cpu": "3"})],
    }
    assert pod_requests.pod_requests(spec) == {"cpu": 4000}
    spec["initContainers"].reverse()
    assert pod_requests.pod_requests(spec) == {"cpu": 3000}


def test_pod_level_amounts_replace_the_sum_and_overhead_adds() -> None:
    spec = {
        "containers": [box(requests={"cpu": "1"})],
        "resources": {"requests": {"cpu": "2"}},
        "overhead": {"cpu": "250m"},
    }
    assert pod_requests.pod_requests(spec) == {"cpu": 2250}


@pytest.mark.parametrize(
    ("containers", "qos"),
    [
        ([box()], "BestEffort"),
        ([box({"nvidia.com/gpu": 1}, {"nvidia.com/gpu": 1})], "BestEffort"),
        ([box({"cpu": "1", "memory": "1Gi"}, {"cpu": "1", "memory": "1Gi"})], "Guaranteed"),
        ([box({"cpu": "1", "memory": "1Gi"}, {"cpu": "1000m", "memory": "1024Mi"})], "Guaranteed"),
        ([box({"cpu": "1", "memory": "1Gi"}, {"cpu": "500m", "memory": "1Gi"})], "Burstable"),
        ([box({"cpu": "1"}, {"cpu": "1"})], "Burstable"),
        ([box({"cpu": "1", "memory": "1Gi"}, {"cpu": "1", "memory": "1Gi"}), box()], "Burstable"),
        ([box(requests={"memory": "1"})], "Burstable"),
        ([box({"cpu": "0"}, {"cpu": "0"})], "BestEffort"),
    ],
)
def test_qos(containers: list[Any], qos: str) -> None:
    assert pod_requests.qos_class({"containers": containers}) == qos


def test_qos_by_pod_level_amounts() -> None:
    amounts = {"cpu": "1", "memory": "1Gi"}
    spec = {"containers": [box()], "resources": {"limits": amounts, "requests": amounts}}
    assert pod_requests.qos_class(spec) == "Guaranteed"
