"""GPU nodes as the operators of the field write them: what is made of each, and that nothing is counted twice."""

from __future__ import annotations

import json
from typing import Any

import pytest
from kubeobjects import node

from windlass.api.devices.node_annotation import NODE_DEVICES, DeviceRecord, write
from windlass.api.views import decode_node
from windlass.model.devices import hami_registration
from windlass.model.devices.node_devices import amounts_of, devices_of
from windlass.spi.devices import DeviceMode

GPU = "nvidia.com/gpu"
GFD = {
    "nvidia.com/gpu.present": "true",
    "nvidia.com/gpu.machine": "DGX",
    "nvidia.com/gpu.family": "ampere",
    "nvidia.com/gpu.compute.major": "8",
    "nvidia.com/gpu.compute.minor": "0",
    "nvidia.com/cuda.driver-version.major": "550",
    "nvidia.com/mig.capable": "true",
    "nvidia.com/mps.capable": "false",
    "nvidia.com/gpu.sharing-strategy": "none",
    "nvidia.com/gpu.deploy.device-plugin": "true",
}


def view(labels: dict[str, str], amounts: dict[str, str], annotations: dict[str, str] | None = None) -> Any:
    obj = node("n", gpus=0)
    obj["metadata"]["labels"] = labels
    obj["metadata"]["annotations"] = annotations or {}
    obj["status"]["allocatable"] |= amounts
    obj["status"]["allocatable"].pop(GPU, None) if GPU not in amounts else None
    return decode_node(json.dumps(obj).encode())


def seen(found: Any) -> dict[str, list[tuple[DeviceMode, int, str]]]:
    cards: dict[str, list[tuple[DeviceMode, int, str]]] = {}
    for card in devices_of(found):
        cards.setdefault(card.resource, []).append((card.mode, card.memory_mib, card.model))
    return cards


@pytest.mark.parametrize(
    ("labels", "amounts", "cards"),
    [
        pytest.param(
            {
                "gpu.product": "NVIDIA-A100-SXM4-40GB",
                "gpu.count": "8",
                "gpu.memory": "40960",
                "gpu.replicas": "1",
            },
            {GPU: "8"},
            {GPU: [(DeviceMode.PLAIN, 40960, "NVIDIA-A100-SXM4-40GB")] * 8},
            id="whole",
        ),
        pytest.param(
            {
                "gpu.product": "Tesla-T4-SHARED",
                "gpu.count": "2",
                "gpu.memory": "15360",
                "gpu.replicas": "4",
                "gpu.sharing-strategy": "time-slicing",
            },
            {GPU: "8"},
            {GPU: [(DeviceMode.WHOLE, 15360, "Tesla-T4-SHARED")] * 8},
            id="time-slicing",
        ),
        pytest.param(
            {
                "gpu.product": "Tesla-T4",
                "gpu.count": "2",
                "gpu.memory": "15360",
                "gpu.replicas": "4",
                "gpu.sharing-strategy": "time-slicing",
            },
            {"nvidia.com/gpu.shared": "8", GPU: "0"},
            {"nvidia.com/gpu.shared": [(DeviceMode.WHOLE, 15360, "Tesla-T4")] * 8},
            id="time-slicing-renamed",
        ),
        pytest.param(
            {
                "gpu.product": "Tesla-T4-SHARED",
                "gpu.count": "2",
                "gpu.memory": "15360",
                "gpu.replicas": "5",
                "gpu.sharing-strategy": "mps",
                "mps.capable": "true",
            },
            {GPU: "10"},
            {GPU: [(DeviceMode.WHOLE, 3072, "Tesla-T4-SHARED")] * 10},
            id="mps",
        ),
        pytest.param(
            {
                "gpu.product": "NVIDIA-A100-SXM4-40GB-MIG-1g.5gb",
                "gpu.count": "14",
                "gpu.memory": "4864",
                "gpu.multiprocessors": "14",
                "gpu.slices.gi": "1",
                "mig.strategy": "single",
            },
            {GPU: "14"},
            {GPU: [(DeviceMode.WHOLE, 4864, "NVIDIA-A100-SXM4-40GB-MIG-1g.5gb")] * 14},
            id="mig-single",
        ),
        pytest.param(
            {
                "gpu.product": "NVIDIA-A100-SXM4-40GB",
                "gpu.count": "2",
                "gpu.memory": "40960",
                "mig.strategy": "mixed",
                "mig-1g.5gb.count": "2",
                "mig-1g.5gb.memory": "4864",
                "mig-3g.20gb.count": "1",
                "mig-3g.20gb.memory": "19968",
            },
            {GPU: "1", "nvidia.com/mig-1g.5gb": "2", "nvidia.com/mig-3g.20gb": "1"},
            {
                GPU: [(DeviceMode.PLAIN, 40960, "NVIDIA-A100-SXM4-40GB")],
                "nvidia.com/mig-1g.5gb": [(DeviceMode.WHOLE, 4864, "")] * 2,
                "nvidia.com/mig-3g.20gb": [(DeviceMode.WHOLE, 19968, "")],
            },
            id="mig-mixed",
        ),
    ],
)
def test_labels_of_the_gpu_operator_are_read(
    labels: dict[str, str], amounts: dict[str, str], cards: dict[str, Any]
) -> None:
    found = view({**GFD, **{f"nvidia.com/{key}": value for key, value in labels.items()}}, amounts)
    assert seen(found) == cards
    for resource, number in amounts.items():
        assert amounts_of(found).get(resource, 0) == int(number) * 1000
        assert sum(card.resource == resource for card in devices_of(found)) == int(number)


HAMI = [
    {
        "id": "GPU-aa",
        "index": 0,
        "count": 10,
        "devmem": 46068,
        "devcore": 100,
        "type": "NVIDIA-NVIDIA L40S",
        "numa": 0,
        "mode": "hami-core",
        "health": True,
        "devicepairscore": {"uuid": "GPU-aa", "score": {"GPU-bb": 40}},
    },
    {
        "id": "GPU-bb",
        "index": 1,
        "count": 10,
        "devmem": 46068,
        "devcore": 100,
        "type": "NVIDIA-NVIDIA L40S",
        "numa": 1,
        "mode": "hami-core",
    },
]
REGISTER, HANDSHAKE = "hami.io/node-nvidia-register", "hami.io/node-handshake"


def test_devices_registered_by_hamis_plugin() -> None:
    found = view(
        {}, {GPU: "20"}, {REGISTER: json.dumps(HAMI), HANDSHAKE: "Reported 2026-01-23 04:30:04.43 +0000 UTC"}
    )
    one, two = devices_of(found)
    assert (one.uuid, one.memory_mib, one.model, one.numa) == ("GPU-aa", 46068, "NVIDIA-NVIDIA L40S", 0)
    assert (one.healthy, two.healthy) == (True, False)  # Go leaves a false out
    assert amounts_of(found)[GPU] == 2000  # twenty slots are two devices


def test_hamis_registration_as_text() -> None:
    rest = "10,32768,100,NVIDIA-Tesla V100-PCIE-32GB,0"
    text = f"GPU-00,{rest},true:GPU-0f,{rest},false:"
    found = view({}, {GPU: "20"}, {REGISTER: text})
    assert [(card.uuid, card.memory_mib, card.model, card.healthy) for card in devices_of(found)] == [
        ("GPU-00", 32768, "NVIDIA-Tesla V100-PCIE-32GB", True),
        ("GPU-0f", 32768, "NVIDIA-Tesla V100-PCIE-32GB", False),
    ]


@pytest.mark.parametrize("name", ["hami.io/node-handshake", "hami.io/node-handshake-nvidia"])
def test_devices_of_a_removed_plugin_get_no_new_pods(name: str) -> None:
    found = view({}, {GPU: "20"}, {REGISTER: json.dumps(HAMI[:1]), name: "Deleted_2026.01.10 04:06:57"})
    assert [card.healthy for card in devices_of(found)] == [False]
    asked = view({}, {GPU: "20"}, {REGISTER: json.dumps(HAMI[:1]), name: "Requesting_2026.01.10 04:06:57"})
    assert [card.healthy for card in devices_of(asked)] == [True]


@pytest.mark.parametrize(
    "text", ["", "[", "{}", "[1]", '[{"id": 1}]', '[{"id": "a"}]', "GPU-a,1", "GPU-a,1,x,1,t,0,true"]
)
def test_unreadable_text_registers_nothing(text: str) -> None:
    assert hami_registration.read(text) == ()


def test_one_bad_entry_does_not_hide_the_others() -> None:
    assert [c.uuid for c in hami_registration.read(json.dumps([{"id": 7}, HAMI[0]]))] == ["GPU-aa"]


def test_devices_of_other_vendors_count_by_their_own_names() -> None:
    amounts = {
        "amd.com/gpu": "8",
        "habana.ai/gaudi": "8",
        "huawei.com/Ascend910": "8",
        "gpu.intel.com/i915": "2",
    }
    labels = {"amd.com/gpu.product-name": "AMD_Instinct_MI300X_OAM", "amd.com/gpu.vram": "192G"}
    found = seen(view(labels, amounts))
    assert {resource: len(cards) for resource, cards in found.items()} == {
        resource: int(number) for resource, number in amounts.items() if resource in found
    }
    assert set(found["amd.com/gpu"]) == {(DeviceMode.PLAIN, 192 * 1024, "AMD_Instinct_MI300X_OAM")}
    assert {"amd.com/gpu", "habana.ai/gaudi", "huawei.com/Ascend910"} <= found.keys()


@pytest.mark.parametrize("allocatable", ["0", "1", "2"])
def test_unhealthy_devices_of_an_agent_are_counted_once(allocatable: str) -> None:
    """Unhealthy devices are known one by one, whether or not they are left out of allocatable."""
    healthy = [True, allocatable != "0"]
    records = tuple(
        DeviceRecord(index, healthy=index > 0 and healthy[index], reason="XID 79") for index in range(2)
    )
    found = view({}, {GPU: allocatable}, {NODE_DEVICES: write(records)})
    assert amounts_of(found)[GPU] == 2000
    assert [device.healthy for device in devices_of(found)] == [record.healthy for record in records]
