"""Which device the kubelet has given to the container that this runs in.

A device plug-in says it in one of several ways (``deviceListStrategy`` and ``deviceIDStrategy`` of NVIDIA's): by the
environment, by files in a folder, or by devices alone (CDI). NVML sees what there is in every case, so it is asked
first; where the container was given no driver library, the words of the plug-in count.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path

from windlass.api.errors import WindlassError
from windlass.node.devices import nvml as library

VARIABLE = "NVIDIA_VISIBLE_DEVICES"
MOUNTS = Path("/var/run/nvidia-container-devices")
"""Where a plug-in of strategy ``volume-mounts`` has one file per device."""
NOT_NAMED = "WL-GPU-421"
_CARD = re.compile(r"GPU-[0-9A-Za-z-]{1,64}|[0-9]{1,4}")
_CDI = "k8s.device-plugin.nvidia.com/gpu="


def find_assigned_device(
    environment: Mapping[str, str], *, mounts: Path = MOUNTS, load: Callable[[], library.Nvml] = library.load
) -> str:
    """Its name as ``NVIDIA_VISIBLE_DEVICES`` takes it: a UUID, or the index where that is how the plug-in counts.

    Raises :class:`WindlassError` (``WL-GPU-421``) where it is not exactly one whole device.
    """
    seen, why = _seen(load)
    if seen is None:
        listed = [one.name for one in mounts.iterdir()] if mounts.is_dir() else []
        words = listed or environment.get(VARIABLE, "").split(",")
        seen = [word.strip().removeprefix(_CDI) for word in words if word.strip()]
    good = [card for card in seen if _CARD.fullmatch(card)]
    if len(seen) == 1 and good:
        return good[0]
    told = ", ".join(seen[:8]) or "nothing"
    raise WindlassError(
        NOT_NAMED,
        f"the container should see one whole GPU, and sees {told}",
        evidence=f"{why}; {VARIABLE}={environment.get(VARIABLE, '')!r}",
        remedies=(
            "set the runtime class in which containers see their GPUs (scheduler.reservationRuntimeClass)",
            "do not share GPUs that the device plug-in hands out in replicas or slices",
        ),
    )


def _seen(load: Callable[[], library.Nvml]) -> tuple[list[str] | None, str]:
    """The devices that NVML sees; ``None`` where there is none to ask, and why."""
    try:
        nvml = load()
    except ImportError as error:
        return None, str(error)
    try:
        nvml.open()
    except nvml.error as error:
        return None, f"NVML: {error}"
    try:
        cards = [nvml.handle(index) for index in range(nvml.count())]
        return [library.text(nvml.library.nvmlDeviceGetUUID(card)) for card in cards], "NVML"
    finally:
        nvml.close()
