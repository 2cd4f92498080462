"""Device discovery with a scripted NVML: no card is behind these tests."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from windlass.node.devices import DeviceOptionError, discover, family, visible


class NVMLError(Exception):
    pass


class ScriptedNvml:
    """Answers as two cards would."""

    NVMLError = NVMLError

    def __init__(self, products: list[str], *, driver: bool = True, mig: bool = True) -> None:
        self.products = products
        self.driver = driver
        self.mig = mig
        self.open = 0

    def nvmlInit(self) -> None:
        if not self.driver:
            raise NVMLError("NVML Shared Library Not Found")
        self.open += 1

    def nvmlShutdown(self) -> None:
        self.open -= 1

    def nvmlDeviceGetCount(self) -> int:
        return len(self.products)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:
        return index

    def nvmlDeviceGetMemoryInfo(self, handle: int) -> Any:
        return SimpleNamespace(total=81559 * 2**20)

    def nvmlDeviceGetName(self, handle: int) -> str:
        return self.products[handle]

    def nvmlDeviceGetUUID(self, handle: int) -> bytes:
        return f"GPU-{handle:04d}".encode()

    def nvmlDeviceGetCudaComputeCapability(self, handle: int) -> tuple[int, int]:
        return (9, 0)

    def nvmlDeviceGetMigMode(self, handle: int) -> list[int]:
        if not self.mig:
            raise NVMLError("Not Supported")
        return [0, 0]

    def nvmlSystemGetDriverVersion(self) -> str:
        return "550.54.15"

    def nvmlSystemGetCudaDriverVersion_v2(self) -> int:
        return 12040


def test_real_cards_get_the_usual_labels_and_their_uuids() -> None:
    nvml = ScriptedNvml(["NVIDIA H100 80GB HBM3"] * 2)
    found = discover("auto", nvml)
    assert nvml.open == 0
    assert [(d.index, d.identifier) for d in found.devices] == [(0, "GPU-0000"), (1, "GPU-0001")]
    labels = {key.removeprefix("nvidia.com/"): value for key, value in found.labels.items()}
    machine = labels.pop("gpu.machine")
    assert " " not in machine
    assert labels == {
        "gpu.present": "true",
        "gpu.product": "NVIDIA-H100-80GB-HBM3",
        "gpu.count": "2",
        "gpu.memory": "81559",
        "gpu.replicas": "1",
        "gpu.sharing-strategy": "none",
        "gpu.compute.major": "9",
        "gpu.compute.minor": "0",
        "gpu.family": "hopper",
        "mig.strategy": "none",
        "mig.capable": "true",
        "cuda.driver-version.full": "550.54.15",
        "cuda.driver-version.major": "550",
        "cuda.driver-version.minor": "54",
        "cuda.driver-version.revision": "15",
        "cuda.runtime-version.major": "12",
        "cuda.runtime-version.minor": "4",
        "cuda.runtime-version.full": "12.4",
    }
    assert visible(found.pick([1, 0])) == {
        "CUDA_VISIBLE_DEVICES": "GPU-0001,GPU-0000",
        "NVIDIA_VISIBLE_DEVICES": "GPU-0001,GPU-0000",
    }
    with pytest.raises(LookupError, match="no device 2"):
        found.pick([2])


def test_a_machine_without_a_driver_has_none_and_that_is_no_error() -> None:
    found = discover("auto", ScriptedNvml([], driver=False))
    assert not found.devices
    assert not found.labels
    assert "no NVIDIA driver answers" in found.note


def test_mixed_cards_are_told() -> None:
    found = discover("auto", ScriptedNvml(["A", "B"], mig=False))
    assert "several kinds (A, B)" in found.note
    assert found.labels["nvidia.com/mig.capable"] == "false"


def test_simulated_ones_have_indices() -> None:
    found = discover("simulated:4")
    assert found.simulated
    assert len(found.devices) == 4
    assert found.labels["nvidia.com/gpu.product"] == "Simulated-GPU"
    assert visible(found.pick([0, 3]))["CUDA_VISIBLE_DEVICES"] == "0,3"
    assert visible([]) == {"CUDA_VISIBLE_DEVICES": "", "NVIDIA_VISIBLE_DEVICES": "void"}


@pytest.mark.parametrize("option", ["simulated", "simulated:0", "simulated:x", "two", ""])
def test_options_that_mean_nothing(option: str) -> None:
    with pytest.raises(DeviceOptionError):
        discover(option)


def test_switched_off() -> None:
    assert not discover("none").devices


@pytest.mark.parametrize(
    ("capability", "name"),
    [
        ((7, 0), "volta"),
        ((7, 5), "turing"),
        ((8, 0), "ampere"),
        ((8, 9), "ada-lovelace"),
        ((9, 0), "hopper"),
        ((10, 0), "blackwell"),
    ],
)
def test_families(capability: tuple[int, int], name: str) -> None:
    assert family(*capability) == name
