"""Names that a node can have, and names that only quotas use."""

from __future__ import annotations

import pytest

from windlass.api.nodes.resources import is_node_resource, node_resources


@pytest.mark.parametrize(
    "name",
    [
        "cpu",
        "memory",
        "pods",
        "ephemeral-storage",
        "hugepages-2Mi",
        "attachable-volumes-aws-ebs",
        "nvidia.com/gpu",
        "nvidia.com/mig-1g.10gb",
        "example.com/fpga",
        "volcano.sh/vgpu-number",
    ],
)
def test_resources_of_nodes(name: str) -> None:
    assert is_node_resource(name)


@pytest.mark.parametrize(
    "name",
    [
        "count/pods",
        "count/jobs.batch",
        "requests.cpu",
        "requests.nvidia.com/gpu",
        "requests.storage",
        "requests.hugepages-2Mi",
        "limits.memory",
        "limits.nvidia.com/gpu",
        "limits.ephemeral-storage",
        "services",
        "persistentvolumeclaims",
        "services.nodeports",
        "gold.storageclass.storage.k8s.io/requests.storage",
        "nvidia.com/gpucores",
        "volcano.sh/vgpu-memory-percentage",
        "huawei.com/Ascend910B3-memory",
    ],
)
def test_names_of_quotas_and_parts_of_devices(name: str) -> None:
    assert not is_node_resource(name)


def test_number_of_shared_devices_is_left_out() -> None:
    assert node_resources({"cpu": 1000, "nvidia.com/gpu": 8000}) == {"cpu": 1000, "nvidia.com/gpu": 8000}
    shared = {"cpu": 1000, "nvidia.com/gpu": 8000, "nvidia.com/gpumem": 1000, "memory": 0}
    assert node_resources(shared) == {"cpu": 1000}
