"""F28: RDMA devices of a pod, as ``show`` names them."""

from __future__ import annotations

import json
from typing import Any

from windlass.cli.jobs.plugin_devices import devices_of, devices_text


def pod(limits: dict[str, str], *allocated: tuple[str, str], **notes: str) -> dict[str, Any]:
    status = [{"name": name, "resources": [{"resourceID": unit}]} for name, unit in allocated]
    return {
        "metadata": {"annotations": {key.replace("__", "/"): text for key, text in notes.items()}},
        "spec": {"containers": [{"name": "main", "resources": {"limits": limits}}]},
        "status": {"containerStatuses": [{"name": "main", "allocatedResourcesStatus": status}]},
    }


def test_f28_device_that_the_node_reports_is_named() -> None:
    found = pod(
        {"rdma/roce_v2": "1", "nvidia.com/gpu": "8"}, ("rdma/roce_v2", "mlx5_3"), ("nvidia.com/gpu", "u")
    )
    assert devices_of(found) == {"rdma/roce_v2": ["mlx5_3"]}
    assert devices_text(found) == "rdma/roce_v2 mlx5_3"


def test_device_that_no_node_reports_is_an_amount() -> None:
    assert devices_text(pod({"rdma/hca": "2"})) == "rdma/hca 2 (its node does not report which)"


def test_network_of_multus_names_its_device() -> None:
    entries = [
        {"name": "cluster-default", "interface": "eth0"},
        {"name": "default/rdma-network", "device-info": {"type": "pci", "pci": {"rdma-device": "mlx5_7"}}},
    ]
    found = pod({}, k8s_v1="")
    found["metadata"]["annotations"] = {"k8s.v1.cni.cncf.io/network-status": json.dumps(entries)}
    assert devices_text(found) == "network default/rdma-network mlx5_7"


def test_annotation_of_another_program_may_be_broken() -> None:
    for text in ("{", "[1]", '{"a": 1}', '[{"device-info": 3}]'):
        found = pod({"cpu": "1"})
        found["metadata"]["annotations"] = {"k8s.v1.cni.cncf.io/network-status": text}
        assert devices_text(found) == ""
