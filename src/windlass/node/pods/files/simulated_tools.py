"""Programs on the PATH of pods that show simulated devices as the vendor's programs would."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from windlass.api import quantities
from windlass.api.annotations import SIMULATED_USE
from windlass.api.devices.models import NVIDIA
from windlass.kits.files import write_atomic
from windlass.node.devices.container_devices import VisibleDevice, description
from windlass.node.devices.simulated_smi import VARIABLE
from windlass.node.pods.files.programs import write_program

_MIB = 2**20


def install(root: Path) -> Path:
    """Write the programs below the agent's directory; return their directory. Raises ``OSError``."""
    directory = root / "bin"
    write_program(directory / "nvidia-smi", "windlass.node.devices.simulated_smi")
    return directory


def record_gpus(path: Path, pod: Mapping[str, Any], devices: Sequence[VisibleDevice]) -> dict[str, str]:
    """Write the record of a container's GPUs; return the environment that names it. Raises ``OSError``."""
    used = _used_mib((pod["metadata"].get("annotations") or {}).get(SIMULATED_USE, ""))
    gpus = [_gpu(device, used) for device in devices if device.device.resource == NVIDIA]
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomic(path, json.dumps({"gpus": gpus}).encode(), durable=False)
    path.chmod(0o644)
    return {VARIABLE: str(path)}


def _gpu(visible: VisibleDevice, used_mib: int) -> dict[str, Any]:
    device, assignment = visible.device, visible.assignment
    return {
        "uuid": device.uuid,
        "name": device.model.replace("NVIDIA-", "NVIDIA ", 1),
        "memory_mib": device.memory_mib,
        "used_mib": min(used_mib, device.memory_mib),
        "compute": device.compute,
        "link_group": device.link_group,
        "mig": bool(device.mig),
        "profile": assignment.profile,
        "identifier": visible.identifier,
        "whole": assignment.whole,
        "held": description(visible),
    }


def _used_mib(text: str) -> int:
    try:
        return quantities.to_units("memory", text) // _MIB if text else 0
    except quantities.QuantityError:
        return 0
