"""``gpu-aware``: nodes for pods with accelerators by memory, compute and the nearness of cards.

Three parts of 0 to 100 points each, weighed by ``gpuMemoryWeight`` (1.0), ``gpuComputeWeight`` (0.8) and
``interGPUCommsWeight`` (0.5):

* **gpuMemory**: the part of the node's device memory in use once the pod is there. A small claim fits a small
  card better than a large one; of two equal nodes the fuller one is taken.
* **gpuCompute**: the part of the node's compute in use once the pod is there, in thousandths of cards.
* **interGPUComms**: how near each other the cards are that a pod of several would get: 100 if all of them can
  be joined by NVLink (or its like), 60 if all are in one NUMA zone, 20 otherwise; where the node says nothing
  of links and zones, 20. For a pod with one card: 100 if it takes none from a set of linked cards that is free
  as a whole, so that these are left to whoever needs them; else 0.

Pods without accelerators have no score here.
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
"""Part → weight; the argument is the part's name with ``Weight`` behind it."""
LINKED, ZONE, APART = 100.0, 60.0, 20.0


class GpuAware:
    name = "gpu-aware"
    footprint = Footprint.ROW
    reads_devices = True

    def __init__(
        self, weights: Mapping[str, float] = WEIGHTS, dialects: Collection[Dialect] = tuple(Dialect)
    ) -> None:
        """``weights``: by part, none negative."""
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
        """Name of a part → its weight and its points; empty where the pod has no score here."""
        requested = request_of(needs)
        if not requested or self.weight <= 0:
            return {}
        devices = nodes.devices()
        points = {
            MEMORY: _memory_in_use(requested, nodes, devices),
            COMPUTE: _compute_in_use(requested, nodes, devices),
            COMMS: nearness(requested, nodes, devices),
        }
        return {name: (self._weights[name], points[name]) for name in WEIGHTS if self._weights[name]}


def _memory_in_use(requested: tuple[DeviceNeed, ...], nodes: NodeView, devices: DeviceView) -> FloatArray:
    total = np.where(devices.exists, devices.memory_mib, 0)
    taken = devices.exists & (free_milli(nodes, devices) == 0)
    held = np.where(taken, devices.memory_mib, devices.memory_mib - devices.free_mib)
    held = np.where(devices.exists, held, 0).sum(axis=1)
    for need in requested:
        milli = np.minimum(requested_milli(need, devices), WHOLE)
        of_card = np.where(devices.exists, milli * devices.memory_mib // WHOLE, 0)
        if need.memory_mib:
            of_card = np.minimum(of_card, need.memory_mib)
        held = held + need.count * _typical_amount(need, devices, of_card)
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
    """What one card of the node gives: the least amount over the cards that are of the kind."""
    fits = requested_milli(need, devices) <= WHOLE
    least = np.where(fits, amount, np.iinfo(np.int64).max).min(axis=1, initial=np.iinfo(np.int64).max)
    return np.where(fits.any(axis=1), least, 0)


def _percent(held: IntArray, total: IntArray) -> FloatArray:
    return np.where(total > 0, 100.0 * np.minimum(held, total) / np.maximum(total, 1), 0.0)


def nearness(requested: tuple[DeviceNeed, ...], nodes: NodeView, devices: DeviceView) -> FloatArray:
    """The points of the cards that the pod would get, for how near each other they are; 0 to 100."""
    need = max(requested, key=lambda each: each.count)
    free = free_milli(nodes, devices)
    fits = requested_milli(need, devices) <= free
    if need.count == 1:
        return np.where((fits & ~_in_whole_set(devices, free)).any(axis=1), LINKED, 0.0)
    near = _most_in_one(devices.link_group, fits) >= need.count
    zoned = _most_in_one(devices.numa, fits) >= need.count
    return np.where(near, LINKED, np.where(zoned, ZONE, APART))


def _most_in_one(groups: IntArray, counted: BoolArray) -> IntArray:
    """Per node, how many of the counted cards stand in the group that has most of them; -1 is no group."""
    most = np.zeros(len(groups), dtype=np.int64)
    for group in np.unique(groups[counted]).tolist():
        if group >= 0:
            most = np.maximum(most, ((groups == group) & counted).sum(axis=1))
    return most


def _in_whole_set(devices: DeviceView, free: IntArray) -> BoolArray:
    """Cards of a linked set of at least two all of which are free."""
    found = np.zeros(devices.exists.shape, dtype=np.bool_)
    groups = devices.link_group
    for group in np.unique(groups[devices.exists]).tolist():
        if group < 0:
            continue
        mine = (groups == group) & devices.exists
        whole = (mine.sum(axis=1) > 1) & ~(mine & (free < WHOLE)).any(axis=1)
        found |= mine & whole[:, None]
    return found


def weights_of(option: PluginOption) -> dict[str, float]:
    """The weights that a configuration gives; raises ``ValueError`` for one that is no number of at least 0."""
    return {part: option.weight(f"{part}Weight", weight) for part, weight in WEIGHTS.items()}
