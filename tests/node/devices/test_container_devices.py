"""Devices that each container sees."""

from __future__ import annotations

from typing import Any

import pytest

from windlass.api.devices.assignment_annotations import DeviceAssignment, from_annotations, to_annotations
from windlass.api.devices.node_annotation import DeviceRecord
from windlass.node.devices import container_devices
from windlass.node.devices.container_devices import (
    VisibleDevice,
    distribute,
    visible_environment,
    whole_devices,
)
from windlass.node.devices.mps import Daemon

NVIDIA, AMD = "nvidia.com/gpu", "amd.com/gpu"
MPS = Daemon("/run/mps")


def given(
    index: int, part: DeviceAssignment | None = None, *, resource: str = NVIDIA, mps: bool = False
) -> VisibleDevice:
    card = DeviceRecord(index, f"GPU-{index}", resource=resource, memory_mib=24576, mps=mps)
    return VisibleDevice(
        card,
        part or DeviceAssignment(index),
        f"GPU-{index}" if part is None or not part.profile else f"MIG-{index}",
    )


def gpu(name: str, count: int) -> dict[str, Any]:
    return {"name": name, "resources": {"limits": {NVIDIA: str(count)}}}


def pod(
    *containers: dict[str, Any], init: Any = (), annotations: dict[str, str] | None = None
) -> dict[str, Any]:
    spec = {"containers": list(containers), "initContainers": list(init)}
    return {"metadata": {"name": "p", "annotations": annotations or {}}, "spec": spec}


def indices(shares: dict[str, list[VisibleDevice]]) -> dict[str, list[int]]:
    return {name: [each.assignment.index for each in every] for name, every in shares.items()}


def test_cards_are_shared_out_in_the_order_of_the_manifest() -> None:
    wanted = pod(gpu("a", 1), {"name": "b"}, gpu("c", 2), init=[gpu("i", 3)])
    assert whole_devices(wanted) == 3
    assert indices(distribute(wanted, [given(n) for n in range(3)])) == {
        "a": [0],
        "b": [],
        "c": [1, 2],
        "i": [0, 1, 2],  # runs before the others
    }


def test_only_the_container_that_asked_for_a_share_gets_it() -> None:
    share = given(0, DeviceAssignment(0, 0, 10240))
    wanted = pod({"name": "sidecar"}, {"name": "main", **limits("aliyun.com/gpu-mem", 10)})
    assert indices(distribute(wanted, [share])) == {"sidecar": [], "main": [0]}
    assert whole_devices(wanted) == 0


def limits(name: str, amount: int) -> dict[str, Any]:
    return {"resources": {"limits": {name: str(amount)}}}


def test_an_annotation_means_the_first_container_or_the_one_that_it_names() -> None:
    share = given(0, DeviceAssignment(0, 500, 0))
    plain = pod({"name": "a"}, {"name": "b"}, annotations={"gpu-fraction": "0.5"})
    assert indices(distribute(plain, [share])) == {"a": [0], "b": []}
    named = pod(
        {"name": "a"},
        {"name": "b"},
        annotations={"gpu-fraction": "0.5", "gpu-fraction-container-name": "b"},
    )
    assert indices(distribute(named, [share])) == {"a": [], "b": [0]}


def test_shares_of_several_containers_stand_in_the_order_of_asking() -> None:
    wanted = pod(
        {"name": "a", **limits("aliyun.com/gpu-mem", 20)}, {"name": "b", **limits("aliyun.com/gpu-mem", 5)}
    )
    parts = [DeviceAssignment(1, 0, 20480), DeviceAssignment(0, 0, 5120)]
    cards = [given(part.index, part) for part in from_annotations(to_annotations(parts))]
    assert indices(distribute(wanted, cards)) == {"a": [1], "b": [0]}


def test_whole_cards_shares_and_slices_find_their_containers() -> None:
    wanted = pod(
        gpu("whole", 1),
        {"name": "share", **limits("aliyun.com/gpu-mem", 4)},
        {"name": "slice", **limits("nvidia.com/mig-1g.5gb", 1)},
    )
    cards = [
        given(0),
        given(1, DeviceAssignment(1, 0, 4096)),
        given(2, DeviceAssignment(2, 0, 0, "1g.5gb", 6)),
    ]
    assert indices(distribute(wanted, cards)) == {"whole": [0], "share": [1], "slice": [2]}
    assert container_devices.wanted_slices(wanted) == {"1g.5gb": 1}


def test_the_environment_shows_what_was_given_and_nothing_else() -> None:
    assert visible_environment([given(3), given(1)], [NVIDIA]) == {
        "CUDA_VISIBLE_DEVICES": "GPU-3,GPU-1",
        "NVIDIA_VISIBLE_DEVICES": "GPU-3,GPU-1",
    }
    assert visible_environment([], [NVIDIA]) == {"CUDA_VISIBLE_DEVICES": "", "NVIDIA_VISIBLE_DEVICES": "void"}
    assert visible_environment([], []) == {}


@pytest.mark.parametrize(
    ("resource", "words"),
    [
        (AMD, {"ROCR_VISIBLE_DEVICES": "GPU-2,GPU-5", "HIP_VISIBLE_DEVICES": "0,1"}),
        ("habana.ai/gaudi", {"HABANA_VISIBLE_MODULES": "2,5"}),
        ("huawei.com/Ascend910", {"ASCEND_RT_VISIBLE_DEVICES": "2,5"}),
    ],
)
def test_other_makers(resource: str, words: dict[str, str]) -> None:
    assert (
        visible_environment([given(2, resource=resource), given(5, resource=resource)], [resource]) == words
    )


class TestMps:
    def test_limits_go_by_the_numbers_that_the_client_sees(self) -> None:
        shares = [
            given(3, DeviceAssignment(3, 300, 10240), mps=True),
            given(1, DeviceAssignment(1, 250, 1000), mps=True),
        ]
        assert visible_environment(shares, [NVIDIA], MPS) == {
            "CUDA_VISIBLE_DEVICES": "GPU-3,GPU-1",
            "NVIDIA_VISIBLE_DEVICES": "GPU-3,GPU-1",
            "CUDA_MPS_PIPE_DIRECTORY": "/run/mps",
            "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT": "0=10G,1=1000M",
            "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "25",
        }

    def test_no_claim_on_compute_is_no_limit_of_compute(self) -> None:
        words = visible_environment([given(0, DeviceAssignment(0, 0, 2048), mps=True)], [NVIDIA], MPS)
        assert words["CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"] == "0=2G"
        assert "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE" not in words

    @pytest.mark.parametrize(
        ("each", "daemon"),
        [
            (given(0, DeviceAssignment(0, 500, 1024), mps=True), Daemon(problem="none")),
            (given(0, DeviceAssignment(0, 500, 1024)), MPS),
            (given(0, mps=True), MPS),
            (given(0, DeviceAssignment(0, 0, 0, "1g.5gb", 0), mps=True), MPS),
        ],
    )
    def test_no_limits_without_a_daemon_nor_for_whole_cards_and_slices(
        self, each: VisibleDevice, daemon: Daemon
    ) -> None:
        assert not [name for name in visible_environment([each], [NVIDIA], daemon) if "MPS" in name]

    def test_who_shares_nothing_is_kept_away_from_the_daemon(self) -> None:
        (key,) = container_devices.without_mps([given(0, mps=True)], MPS)
        assert key == "CUDA_MPS_PIPE_DIRECTORY"
        assert container_devices.without_mps([given(0, DeviceAssignment(0, 0, 0, "1g.5gb", 0))], MPS)
        assert container_devices.without_mps([given(0, DeviceAssignment(0, 500, 0), mps=True)], MPS) == {}
        assert container_devices.without_mps([], MPS) == {}
        assert container_devices.without_mps([given(0)], Daemon(problem="none")) == {}


def test_description_of_devices() -> None:
    assert (
        container_devices.description(given(0, DeviceAssignment(0, 300, 10240)))
        == "GPU 0: 30 % of its compute and 10240 MiB of its memory"
    )
    assert container_devices.description(given(2)) == "GPU 2"
    assert (
        container_devices.description(given(1, DeviceAssignment(1, 0, 0, "1g.5gb", 6)))
        == "slice 1g.5gb at 6 of GPU 1"
    )
