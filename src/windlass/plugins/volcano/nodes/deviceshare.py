"""Volcano's ``deviceshare``: choice of a node's devices, and score of nodes.

* ``deviceshare.SchedulePolicy``: ``binpack`` prefers the device with the most memory in
  use, ``spread`` the one with the fewest pods. Without it the last device by index is
  used.
* ``deviceshare.ScheduleWeight`` (0: no score): with ``binpack`` the score is 100 times
  the part of the chosen devices' memory in use, including the pod. With ``spread`` it
  is 100 if the chosen device was idle. The mean over a pod's devices counts, while
  Volcano takes the sum. Only pods with device shares have a score.

Access to devices is not decided here: the engine never allocates more than a device
has, whatever is enabled.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from windlass.plugins.argument_values import Arguments, number
from windlass.plugins.devices.device_arrays import WHOLE, free_milli, requested_milli
from windlass.plugins.dialects import VOLCANO
from windlass.spi.devices import CandidateDevice, DeviceNeed
from windlass.spi.nodes import FloatArray, IntArray, NodeView
from windlass.spi.objects import Dialect, Needs
from windlass.spi.plugins import Footprint, Trend

BINPACK, SPREAD = "binpack", "spread"
WEIGHT, POLICY = "deviceshare.ScheduleWeight", "deviceshare.SchedulePolicy"


class DevicePolicy:
    """Preference among the devices of a node."""

    name = "deviceshare-cards"
    weight = 1.0
    dialects = VOLCANO

    def __init__(self, policy: str) -> None:
        self._policy = policy

    def prefer(
        self, needs: Needs, need: DeviceNeed, devices: Sequence[CandidateDevice]
    ) -> Sequence[float] | None:
        if needs.dialect is not Dialect.VOLCANO or need.pack is not None:
            return None
        if self._policy == BINPACK:
            return [float(device.memory_mib - device.free_mib) for device in devices]
        if self._policy == SPREAD:
            return [-float(device.sharers) for device in devices]
        return [float(device.index) for device in devices]


class DeviceShareScore:
    name = "deviceshare"
    footprint = Footprint.ROW
    dialects = VOLCANO

    def __init__(self, policy: str, weight: float) -> None:
        self._policy = policy
        self.weight = weight

    def trend(self, needs: Needs) -> Trend:
        return Trend.ANY if needs.devices else Trend.RISES

    def score(self, needs: Needs, nodes: NodeView) -> FloatArray | None:
        shares = [need for need in needs.devices if not need.whole]
        if not shares:
            return None
        return sum((self._of(need, nodes) for need in shares), np.zeros(nodes.size)) / len(shares)

    def _of(self, need: DeviceNeed, nodes: NodeView) -> FloatArray:
        devices = nodes.devices()
        if not devices.exists.shape[1]:
            return np.zeros(nodes.size)
        free = free_milli(nodes, devices)
        requested = requested_milli(need, devices)
        fits = free >= requested
        sharers = np.where(free < WHOLE, np.maximum(devices.sharers, 1), 0)
        used = devices.memory_mib - devices.free_mib
        order = -used if self._policy == BINPACK else sharers
        chosen = _first(np.where(fits, order, np.iinfo(np.int64).max), fits, need.count)
        if self._policy == BINPACK:
            taken = np.minimum(devices.memory_mib * np.minimum(requested, WHOLE) // WHOLE, devices.memory_mib)
            if need.memory_mib:
                taken = np.minimum(taken, need.memory_mib)
            points = 100.0 * (used + taken) / np.maximum(devices.memory_mib, 1)
        else:
            points = np.where(sharers == 0, 100.0, 0.0)
        counted = np.where(chosen, np.minimum(points, 100.0), 0.0).sum(axis=1)
        return counted / np.maximum(chosen.sum(axis=1), 1)


def _first(order: IntArray, fits: np.ndarray, count: int) -> np.ndarray:
    """Return a mask of the first ``count`` fitting devices in the order."""
    rank = np.argsort(np.argsort(order, axis=1, kind="stable"), axis=1, kind="stable")
    return fits & (rank < count)


def build(arguments: Arguments, *, scores: bool) -> list[object]:
    """Return the policies.

    :param scores: add the score of nodes
    """
    policy = str(arguments.get(POLICY) or "")
    weight = number(arguments, WEIGHT, 0)
    policies: list[object] = [DevicePolicy(policy)]
    if scores and weight > 0 and policy in (BINPACK, SPREAD):
        policies.append(DeviceShareScore(policy, weight))
    return policies
