"""Score ``gpu-aware``: device memory, compute and interconnect, for pods with devices.

It has three components of 0 to 100 points, weighted by ``gpuMemoryWeight`` (1.0),
``gpuComputeWeight`` (0.8) and ``interGPUCommsWeight`` (0.5):

* **gpuMemory**: share of the node's device memory in use after placing the pod. So a
  small request scores better on a small device than on a large one, and among equal
  nodes the fuller one wins.
* **gpuCompute**: share of the node's compute in use after placing the pod, in
  thousandths of devices.
* **interGPUComms**: distance of the devices that a pod with several of them would get.
  It is 100 if all of them can be connected by NVLink (or similar), 60 if all are in one
  NUMA node, 20 otherwise, also if the node reports neither links nor NUMA. A pod with
  one device gets 100 if it takes none from a linked set that is completely free, which
  keeps such sets for pods that need them; otherwise 0.

Pods without devices have no score.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

import numpy as np

from windlass.plugins.devices.device_arrays import WHOLE, free_milli, request_of, requested_milli
from windlass.spi.configuration import PluginOption
from windlass.spi.devices import DeviceNeed, DeviceView
from windlass.spi.nodes import BoolArray, FloatArray, IntArray, NodeView
from windlass.spi.objects import Dialect, Needs
from windlass.spi.plugins import Footprint, Trend

MEMORY, COMPUTE, COMMS = "gpuMemory", "gpuCompute", "interGPUComms"
WEIGHTS: Mapping[str, float] = {MEMORY: 1.0, COMPUTE: 0.8, COMMS: 0.5}
"""Component → weight. The argument is the name of the component followed by ``Weight``."""
LINKED, ZONE, APART = 100.0, 60.0, 20.0


class GpuAware:
    name = "gpu-aware"
    footprint = Footprint.ROW
    reads_devices = True

    def __init__(
        self, weights: Mapping[str, float] = WEIGHTS, dialects: Collection[Dialect] = tuple(Dialect)
    ) -> None:
        """:param weights: weight of each component, none negative"""
        self._weights = dict(weights)
        self.weight = sum(weights.values())
        self.dialects = dialects

    def trend(self, needs: Needs) -> Trend:
        return Trend.ANY if request_of(needs) and self._weights[COMMS] else Trend.RISES

    def score(self, needs: Needs, nodes: NodeView) -> FloatArray | None:
        parts = self.parts(needs, nodes)
        if not parts:
            return None
        total = np.zeros(nodes.size)
        for weight, points in parts.values():
            total += weight * points
        return total / self.weight

    def parts(self, needs: Needs, nodes: NodeView) -> Mapping[str, tuple[float, FloatArray]]:
        """Return component → its weight and its points; empty if the pod has no score."""
        requested = request_of(needs)
        if not requested or self.weight <= 0:
            return {}
        devices = nodes.devices()
        points = {
            MEMORY: _memory_in_use(requested, nodes, devices),
            COMPUTE: _compute_in_use(requested, nodes, devices),
            COMMS: link_points(requested, nodes, devices),
        }
        return {name: (self._weights[name], points[name]) for name in WEIGHTS if self._weights[name]}


def _memory_in_use(requested: tuple[DeviceNeed, ...], nodes: NodeView, devices: DeviceView) -> FloatArray:
    total = np.where(devices.exists, devices.memory_mib, 0)
    taken = devices.exists & (free_milli(nodes, devices) == 0)
    held = np.where(taken, devices.memory_mib, devices.memory_mib - devices.free_mib)
    held = np.where(devices.exists, held, 0).sum(axis=1)
    for need in requested:
        milli = np.minimum(requested_milli(need, devices), WHOLE)
        of_device = np.where(devices.exists, milli * devices.memory_mib // WHOLE, 0)
        if need.memory_mib:
            of_device = np.minimum(of_device, need.memory_mib)
        held = held + need.count * _typical_amount(need, devices, of_device)
    return _percent(held, total.sum(axis=1))


def _compute_in_use(requested: tuple[DeviceNeed, ...], nodes: NodeView, devices: DeviceView) -> FloatArray:
    total = np.where(devices.exists, WHOLE, 0)
    taken = free_milli(nodes, devices) == 0
    held = np.where(devices.exists, np.where(taken, WHOLE, WHOLE - devices.free_milli), 0).sum(axis=1)
    for need in requested:
        milli = np.minimum(requested_milli(need, devices), WHOLE)
        held = held + need.count * _typical_amount(need, devices, milli)
    return _percent(held, total.sum(axis=1))


def _typical_amount(need: DeviceNeed, devices: DeviceView, amount: IntArray) -> IntArray:
    """Return the amount that one device of the node gives: the least over devices of the kind."""
    fits = requested_milli(need, devices) <= WHOLE
    least = np.where(fits, amount, np.iinfo(np.int64).max).min(axis=1, initial=np.iinfo(np.int64).max)
    return np.where(fits.any(axis=1), least, 0)


def _percent(held: IntArray, total: IntArray) -> FloatArray:
    return np.where(total > 0, 100.0 * np.minimum(held, total) / np.maximum(total, 1), 0.0)


def link_points(requested: tuple[DeviceNeed, ...], nodes: NodeView, devices: DeviceView) -> FloatArray:
    """Return the points (0 to 100) for the distance of the devices that the pod would get."""
    need = max(requested, key=lambda each: each.count)
    free = free_milli(nodes, devices)
    fits = requested_milli(need, devices) <= free
    if need.count == 1:
        return np.where((fits & ~_in_whole_set(devices, free)).any(axis=1), LINKED, 0.0)
    linked = _most_in_one(devices.link_group, fits) >= need.count
    in_one_numa = _most_in_one(devices.numa, fits) >= need.count
    return np.where(linked, LINKED, np.where(in_one_numa, ZONE, APART))


def _most_in_one(groups: IntArray, counted: BoolArray) -> IntArray:
    """Return for each node the largest number of counted devices in one group; -1 is no group."""
    most = np.zeros(len(groups), dtype=np.int64)
    for group in np.unique(groups[counted]).tolist():
        if group >= 0:
            most = np.maximum(most, ((groups == group) & counted).sum(axis=1))
    return most


def _in_whole_set(devices: DeviceView, free: IntArray) -> BoolArray:
    """Return a mask of the devices in linked sets of at least two devices that are all free."""
    mask = np.zeros(devices.exists.shape, dtype=np.bool_)
    groups = devices.link_group
    for group in np.unique(groups[devices.exists]).tolist():
        if group < 0:
            continue
        mine = (groups == group) & devices.exists
        whole = (mine.sum(axis=1) > 1) & ~(mine & (free < WHOLE)).any(axis=1)
        mask |= mine & whole[:, None]
    return mask


def weights_of(option: PluginOption) -> dict[str, float]:
    """Return the configured weights.

    :raises ValueError: if one of them is not a number of at least 0
    """
    return {part: option.weight(f"{part}Weight", weight) for part, weight in WEIGHTS.items()}
