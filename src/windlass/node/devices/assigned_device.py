"""Device that the kubelet has assigned to the container in which this code runs.

A device plugin can report it in several ways (``deviceListStrategy`` and ``deviceIDStrategy`` of
NVIDIA's plugin): by the environment, by files in a directory, or by devices alone (CDI). NVML
shows the devices in every case, so it is queried first. If the container has no driver library,
the plugin's variable and files count.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path

from windlass.api.errors import WindlassError
from windlass.node.devices import nvml as library

VARIABLE = "NVIDIA_VISIBLE_DEVICES"
MOUNTS = Path("/var/run/nvidia-container-devices")
"""Directory in which a plugin of strategy ``volume-mounts`` has one file per device."""
NOT_NAMED = "WL-GPU-421"
_IDENTIFIER = re.compile(r"GPU-[0-9A-Za-z-]{1,64}|[0-9]{1,4}")
_CDI = "k8s.device-plugin.nvidia.com/gpu="


def find_assigned_device(
    environment: Mapping[str, str], *, mounts: Path = MOUNTS, load: Callable[[], library.Nvml] = library.load
) -> str:
    """Return the device in the form that ``NVIDIA_VISIBLE_DEVICES`` takes.

    This is a UUID, or the index if the plugin uses indices. Raises :class:`WindlassError`
    (``WL-GPU-421``) unless it is exactly one whole device.
    """
    visible, why = _visible_devices(load)
    if visible is None:
        listed = [entry.name for entry in mounts.iterdir()] if mounts.is_dir() else []
        words = listed or environment.get(VARIABLE, "").split(",")
        visible = [word.strip().removeprefix(_CDI) for word in words if word.strip()]
    valid = [device for device in visible if _IDENTIFIER.fullmatch(device)]
    if len(visible) == 1 and valid:
        return valid[0]
    listed_devices = ", ".join(visible[:8]) or "nothing"
    raise WindlassError(
        NOT_NAMED,
        f"the container should see one whole GPU, but it sees {listed_devices}",
        evidence=f"{why}; {VARIABLE}={environment.get(VARIABLE, '')!r}",
        remedies=(
            "set the runtime class in which containers see their GPUs (scheduler.reservationRuntimeClass)",
            "do not share GPUs that the device plugin offers as replicas or slices",
        ),
    )


def _visible_devices(load: Callable[[], library.Nvml]) -> tuple[list[str] | None, str]:
    """Return the devices that NVML shows, or None without NVML. The text names the source or error."""
    try:
        nvml = load()
    except ImportError as error:
        return None, str(error)
    try:
        nvml.open()
    except nvml.error as error:
        return None, f"NVML: {error}"
    try:
        handles = [nvml.handle(index) for index in range(nvml.count())]
        return [library.text(nvml.library.nvmlDeviceGetUUID(handle)) for handle in handles], "NVML"
    finally:
        nvml.close()
