"""KAI's scores for device shares: ``gpupack``, ``gpuspread`` and ``gpusharingorder``.

* Inside a node ``gpupack`` prefers the device with the largest share in use, so a free
  one comes last. ``gpuspread`` reverses this order.
* Among nodes ``gpusharingorder`` prefers one with capacity on a device that is already
  shared. It counts 10⁴ of KAI's points, more than capacity that is free now.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from windlass.plugins.devices.device_arrays import WHOLE, free_milli, requested_milli
from windlass.plugins.dialects import KAI
from windlass.spi.devices import CandidateDevice, DeviceNeed
from windlass.spi.nodes import FloatArray, NodeView
from windlass.spi.objects import Dialect, Needs
from windlass.spi.plugins import Footprint, Trend

SHARING = 100.0
"""Weight of 100 points: 10⁴ of KAI's points."""


class GpuPlacement:
    """Preference for devices in use (``pack``) or for free devices."""

    weight = 1.0
    dialects = KAI

    def __init__(self, *, pack: bool) -> None:
        self.name = "gpupack" if pack else "gpuspread"
        self._pack = pack

    def prefer(
        self, needs: Needs, need: DeviceNeed, devices: Sequence[CandidateDevice]
    ) -> Sequence[float] | None:
        if needs.dialect is not Dialect.KAI or need.pack is not None:
            return None
        used = [_used(device) for device in devices]
        return used if self._pack else [-each for each in used]


def _used(device: CandidateDevice) -> float:
    """Return the share of the device in use: compute or memory, whichever is larger."""
    memory = (device.memory_mib - device.free_mib) / device.memory_mib if device.memory_mib else 0.0
    return max(memory, (WHOLE - device.free_milli) / WHOLE)


class SharingOrder:
    name = "gpusharingorder"
    footprint = Footprint.ROW
    dialects = KAI
    weight = SHARING

    def trend(self, needs: Needs) -> Trend:
        return Trend.ANY if any(not need.whole for need in needs.devices) else Trend.RISES

    def score(self, needs: Needs, nodes: NodeView) -> FloatArray | None:
        shares = [need for need in needs.devices if not need.whole]
        if not shares:
            return None
        devices = nodes.devices()
        shared = (devices.sharers > 0) & (free_milli(nodes, devices) >= requested_milli(shares[0], devices))
        return np.where(shared.any(axis=1), 100.0, 0.0) if shared.shape[1] else np.zeros(nodes.size)


def build(devices: str, *, sharing_first: bool) -> list[object]:
    """Return the scores for the strategy ``binpack`` or ``spread``.

    Raises ``ValueError`` for another strategy.
    """
    if devices not in ("binpack", "spread"):
        raise ValueError(f"GPUs are taken by binpack or spread, not {devices!r}")
    return [GpuPlacement(pack=devices == "binpack"), *([SharingOrder()] if sharing_first else [])]
