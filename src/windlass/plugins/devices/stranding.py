"""Idle devices that no pod can use, with reasons, for cluster administrators.

A part of a device is *stranded* if no typical class of pods could have it now. The
reason is what most of the otherwise suitable pods lack:

* ``cpu``, ``memory``: the node has too little of it left for the device;
* ``size``: the free share is smaller than any request, or too few devices are free at
  once;
* ``model``: no pod accepts devices of that model.

*Fragmented* is the part of the idle devices that the mean typical pod could not use:
the ``F`` of :mod:`windlass.plugins.devices.fragmentation`, over classes that request
devices. All stranded devices are fragmented.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from windlass.plugins.devices.device_arrays import WHOLE, free_milli, request_of, requested_milli
from windlass.plugins.devices.fragmentation import PodDemand, WorkloadMix, by_model, typical
from windlass.plugins.devices.workload_mix import demand_of
from windlass.spi.devices import DeviceNeed, DeviceView
from windlass.spi.nodes import BoolArray, FloatArray, IntArray, NodeView
from windlass.spi.objects import Needs

REASONS = ("cpu", "memory", "size", "model")
CPU, MEMORY, SIZE, MODEL = range(4)
USUAL = Needs((("cpu", WHOLE), ("nvidia.com/gpu", WHOLE)))
"""Typical pod if no pod requests a device: one device and one CPU."""


@dataclass(frozen=True, slots=True)
class Stranding:
    """Idle, stranded and fragmented capacity of each node, in thousandths of devices.

    ``stranded``: nodes × :data:`REASONS`.
    """

    idle: IntArray
    stranded: IntArray
    fragmented: FloatArray

    def reasons(self, node: int) -> dict[str, int]:
        """Return reason → stranded capacity of one node, without zeros."""
        return {
            name: int(amount)
            for name, amount in zip(REASONS, self.stranded[node].tolist(), strict=True)
            if amount
        }


@dataclass(slots=True)
class _Usability:
    """Usability of devices (nodes × slots).

    ``usable``: some class can have the device. ``lacks``: number of pods that could,
    were it not for the given reason.
    """

    usable: BoolArray
    lacks: IntArray


def strandings(
    kinds: Iterable[tuple[Needs, int]], nodes: NodeView, parts: FloatArray | None = None
) -> Stranding:
    """Return the stranded capacity of each node.

    :param kinds: every class of pods, with the number of existing pods
    :param parts: nodes × slots, the part of a device that each slot stands for, if a
        device plugin reports several units of one device; ``None``: all are whole
        devices
    """
    devices = nodes.devices()
    free = free_milli(nodes, devices)
    usual = _usual(kinds, devices)
    usability = _Usability(
        np.zeros(free.shape, dtype=np.bool_), np.zeros((*free.shape, len(REASONS)), np.int64)
    )
    for needs, number in usual:
        for need in request_of(needs):
            _evaluate(usability, needs, need, number, nodes, devices, free)
    reason = np.where(
        usability.lacks.any(axis=2), usability.lacks.argmax(axis=2), SIZE
    )  # no class requests so little
    lost = np.where(usability.usable, 0, free)
    idle, fragmented = free.sum(axis=1), _fragmented(usual, nodes, devices, free)
    if parts is not None:
        worth = np.rint((free * parts).sum(axis=1)).astype(np.int64)
        fragmented = fragmented * worth / np.maximum(idle, 1)  # every unit has equal weight
        idle, lost = worth, lost * parts
    sums = [np.where(reason == code, lost, 0).sum(axis=1) for code in range(4)]
    return Stranding(idle, np.rint(np.stack(sums, axis=1)).astype(np.int64), fragmented)


def _usual(kinds: Iterable[tuple[Needs, int]], devices: DeviceView) -> Sequence[tuple[Needs, int]]:
    asking = [(needs, number) for needs, number in kinds if number > 0 and request_of(needs)]
    asking.sort(key=lambda item: -item[1])
    whole, seen, typical_pods = sum(number for _, number in asking), 0, []
    for needs, number in asking:
        if seen >= 0.95 * whole:
            break
        typical_pods.append((needs, number))
        seen += number
    names = list(devices.resources)
    fallback = [(Needs((("cpu", WHOLE), (name, WHOLE))), 1) for name in names if name] or [(USUAL, 1)]
    return typical_pods or fallback


def _evaluate(
    usability: _Usability,
    needs: Needs,
    need: DeviceNeed,
    number: int,
    nodes: NodeView,
    devices: DeviceView,
    free: IntArray,
) -> None:
    """Record which devices one class of pods could have, or the reason why not."""
    requested = requested_milli(need, devices)
    of_kind = requested <= WHOLE
    large = free >= np.minimum(requested, WHOLE)
    enough = (of_kind & large).sum(axis=1) >= need.count
    amounts = dict(needs.request)
    cpu = nodes.available("cpu") >= amounts.get("cpu", 0)
    memory = nodes.available("memory") >= amounts.get("memory", 0)
    runs = cpu & memory & enough
    usability.usable |= of_kind & large & runs[:, None]
    without = free > 0
    usability.lacks[..., MODEL] += number * (without & ~of_kind)
    usability.lacks[..., SIZE] += number * (without & of_kind & (~large | ~enough[:, None]))
    fits = of_kind & large & enough[:, None]
    usability.lacks[..., CPU] += number * (fits & ~cpu[:, None])
    usability.lacks[..., MEMORY] += number * (fits & (cpu & ~memory)[:, None])


def _fragmented(
    usual: Sequence[tuple[Needs, int]], nodes: NodeView, devices: DeviceView, free: IntArray
) -> FloatArray:
    healthy = devices.exists & devices.healthy
    sizes = np.sort(devices.memory_mib[healthy])
    memory = int(sizes[len(sizes) // 2]) if len(sizes) else 0
    pods: dict[PodDemand, int] = {}
    for needs, number in usual:
        demand = demand_of(needs, memory)
        pods[demand] = pods.get(demand, 0) + number
    mix = WorkloadMix(typical(pods, 1.0))
    if not free.shape[1]:
        return np.zeros(nodes.size)
    groups = by_model(mix, devices.model[:, 0], devices.models)
    return mix.fragments(groups, nodes.available("cpu"), free) / mix.total
