"""Which accelerators this machine has: by NVML, simulated on request, or none.

A machine without a driver has no GPUs; that is no error. Labels are those of NVIDIA's GPU feature
discovery, so that selectors written for a cluster hold here too.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

RESOURCE = "nvidia.com/gpu"
SIMULATED_PRODUCT = "Simulated-GPU"
SIMULATED_MEMORY_MIB = 16384
AUTO, NONE, SIMULATED = "auto", "none", "simulated"

_FAMILIES = {6: "pascal", 9: "hopper", 10: "blackwell", 11: "blackwell", 12: "blackwell"}


class DeviceOptionError(ValueError):
    """The ``--gpus`` option is none of ``auto``, ``none``, ``simulated:N``."""


@dataclass(frozen=True, slots=True)
class Device:
    """``index`` is what the scheduler's ``windlass.dev/devices`` annotation names."""

    index: int
    identifier: str
    """What ``CUDA_VISIBLE_DEVICES`` gets: the UUID of a real card, the index of a simulated one."""
    product: str
    memory_mib: int


@dataclass(frozen=True, slots=True)
class Inventory:
    devices: tuple[Device, ...] = ()
    labels: Mapping[str, str] = field(default_factory=dict)
    simulated: bool = False
    note: str = ""
    """Why there are none, or what is odd; for ``doctor``."""

    def pick(self, indices: list[int]) -> list[Device]:
        """Raises ``LookupError`` naming the index that this machine does not have."""
        known = {device.index: device for device in self.devices}
        for index in indices:
            if index not in known:
                raise LookupError(f"there is no device {index} on this machine (it has {len(known)})")
        return [known[index] for index in indices]


def has_files() -> bool:
    """Whether this machine seems to have accelerators; cheap, and true when in doubt."""
    return any(
        Path(path).exists()
        for path in ("/dev/nvidia0", "/dev/nvidiactl", "/proc/driver/nvidia/gpus", "/dev/kfd", "/dev/dxg")
    )


def discover(option: str, nvml: Any = None) -> Inventory:
    """``option``: ``auto``, ``none`` or ``simulated:N``. ``nvml`` stands in for ``pynvml`` in tests."""
    if option == NONE:
        return Inventory(note="GPUs are switched off by option")
    if option.startswith(SIMULATED):
        return _simulated(option)
    if option != AUTO:
        raise DeviceOptionError(f"GPUs must be auto, none or simulated:N, not {option!r}")
    if nvml is None:
        try:
            import pynvml as nvml
        except ImportError as error:
            return Inventory(note=f"NVML bindings cannot be loaded: {error}")
    try:
        nvml.nvmlInit()
    except nvml.NVMLError as error:
        return Inventory(note=f"no NVIDIA driver answers: {error}")
    try:
        return _from_nvml(nvml)
    except nvml.NVMLError as error:
        return Inventory(note=f"the NVIDIA driver refused to list its cards: {error}")
    finally:
        nvml.nvmlShutdown()


def _simulated(option: str) -> Inventory:
    _, _, number = option.partition(":")
    if not number.isdecimal() or not 0 < int(number) <= 1024:
        raise DeviceOptionError(f"write simulated:N with N from 1 to 1024, not {option!r}")
    count = int(number)
    devices = tuple(Device(i, str(i), SIMULATED_PRODUCT, SIMULATED_MEMORY_MIB) for i in range(count))
    labels = gpu_labels(SIMULATED_PRODUCT, SIMULATED_MEMORY_MIB, count)
    return Inventory(devices, labels, simulated=True, note=f"{count} simulated GPUs: no card is behind them")


def gpu_labels(product: str, memory_mib: int, count: int) -> dict[str, str]:
    """The labels that every GPU node has. ``product`` with its spaces as dashes."""
    return {
        "nvidia.com/gpu.present": "true",
        "nvidia.com/gpu.product": product.replace(" ", "-"),
        "nvidia.com/gpu.count": str(count),
        "nvidia.com/gpu.memory": str(memory_mib),
        "nvidia.com/gpu.replicas": "1",
        "nvidia.com/gpu.sharing-strategy": "none",
    }


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value


def _from_nvml(nvml: Any) -> Inventory:
    devices = []
    handles = [nvml.nvmlDeviceGetHandleByIndex(i) for i in range(nvml.nvmlDeviceGetCount())]
    for index, handle in enumerate(handles):
        memory = nvml.nvmlDeviceGetMemoryInfo(handle).total // 2**20
        product = _text(nvml.nvmlDeviceGetName(handle))
        devices.append(Device(index, _text(nvml.nvmlDeviceGetUUID(handle)), product, memory))
    if not devices:
        return Inventory(note="the NVIDIA driver answers, but it has no cards")
    labels = gpu_labels(devices[0].product, devices[0].memory_mib, len(devices))
    labels |= _card_labels(nvml, handles[0])
    labels |= _driver_labels(nvml)
    products = sorted({device.product for device in devices})
    note = (
        "" if len(products) == 1 else f"cards of several kinds ({', '.join(products)}): labels tell the first"
    )
    return Inventory(tuple(devices), labels, note=note)


def _card_labels(nvml: Any, handle: Any) -> dict[str, str]:
    major, minor = nvml.nvmlDeviceGetCudaComputeCapability(handle)
    labels = {
        "nvidia.com/gpu.compute.major": str(major),
        "nvidia.com/gpu.compute.minor": str(minor),
        "nvidia.com/gpu.family": family(major, minor),
        "nvidia.com/mig.strategy": "none",
    }
    try:
        nvml.nvmlDeviceGetMigMode(handle)
        labels["nvidia.com/mig.capable"] = "true"
    except nvml.NVMLError:
        labels["nvidia.com/mig.capable"] = "false"
    machine = Path("/sys/class/dmi/id/product_name")
    try:
        labels["nvidia.com/gpu.machine"] = machine.read_text().strip().replace(" ", "-") or "unknown"
    except OSError:
        labels["nvidia.com/gpu.machine"] = "unknown"
    return labels


def family(major: int, minor: int) -> str:
    """The architecture of a CUDA compute capability, in GPU feature discovery's words."""
    if major == 7:
        return "turing" if minor >= 5 else "volta"
    if major == 8:
        return "ada-lovelace" if minor == 9 else "ampere"
    return _FAMILIES.get(major, "undefined")


def _driver_labels(nvml: Any) -> dict[str, str]:
    full = _text(nvml.nvmlSystemGetDriverVersion())
    parts = [*full.split("."), "", ""]
    labels = {"nvidia.com/cuda.driver-version.full": full}
    for name, part in zip(("major", "minor", "revision"), parts, strict=False):
        labels[f"nvidia.com/cuda.driver-version.{name}"] = part
    cuda = nvml.nvmlSystemGetCudaDriverVersion_v2()
    labels["nvidia.com/cuda.runtime-version.major"] = str(cuda // 1000)
    labels["nvidia.com/cuda.runtime-version.minor"] = str(cuda % 1000 // 10)
    labels["nvidia.com/cuda.runtime-version.full"] = f"{cuda // 1000}.{cuda % 1000 // 10}"
    return labels


def visible(devices: list[Device]) -> dict[str, str]:
    """The environment that shows a container these cards and no others."""
    identifiers = ",".join(device.identifier for device in devices)
    return {"CUDA_VISIBLE_DEVICES": identifiers, "NVIDIA_VISIBLE_DEVICES": identifiers or "void"}
