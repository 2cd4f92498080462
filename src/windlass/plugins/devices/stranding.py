"""Which idle accelerators nobody can use, and why: for people who run a cluster.

A part of a card is *stranded* if no kind of pod that is usual here could have it now. The reason is what most
of those lack that would otherwise do:

* ``cpu``, ``memory``: the node has too little of it left beside the card;
* ``size``: the card has less left than anybody asks for, or too few cards are free at once;
* ``model``: nobody takes cards of that model.

*Fragmented* is the part of the idle cards that the mean usual pod could not use: the ``F`` of
:mod:`windlass.plugins.devices.fragmentation`, over kinds that ask for cards at all. All stranded cards are fragmented.
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
"""What is taken for usual where no pod asks for a card: one card, with one CPU beside it."""


@dataclass(frozen=True, slots=True)
class Stranding:
    """Per node of the view, in thousandths of cards. ``stranded``: nodes × :data:`REASONS`."""

    idle: IntArray
    stranded: IntArray
    fragmented: FloatArray

    def reasons(self, node: int) -> dict[str, int]:
        """Reason → what is stranded for it on one node; only what is not 0."""
        return {
            name: int(amount)
            for name, amount in zip(REASONS, self.stranded[node].tolist(), strict=True)
            if amount
        }


@dataclass(slots=True)
class _Judged:
    """Cards, nodes × slots. ``usable``: some kind can have it; ``lacks``: how many pods would but for that."""

    usable: BoolArray
    lacks: IntArray


def strandings(
    kinds: Iterable[tuple[Needs, int]], nodes: NodeView, parts: FloatArray | None = None
) -> Stranding:
    """What is stranded on each node. ``kinds``: every kind of pods, with how many exist. ``parts`` (nodes × slots):
    what each is of a card where a device plug-in makes several units of one; ``None``: all are whole cards."""
    devices = nodes.devices()
    free = free_milli(nodes, devices)
    usual = _usual(kinds, devices)
    judged = _Judged(np.zeros(free.shape, dtype=np.bool_), np.zeros((*free.shape, len(REASONS)), np.int64))
    for needs, number in usual:
        for need in request_of(needs):
            _judge(judged, needs, need, number, nodes, devices, free)
    reason = np.where(
        judged.lacks.any(axis=2), judged.lacks.argmax(axis=2), SIZE
    )  # nobody asks for so little
    lost = np.where(judged.usable, 0, free)
    idle, fragmented = free.sum(axis=1), _fragmented(usual, nodes, devices, free)
    if parts is not None:
        worth = np.rint((free * parts).sum(axis=1)).astype(np.int64)
        fragmented = fragmented * worth / np.maximum(idle, 1)  # every unit counts alike there
        idle, lost = worth, lost * parts
    sums = [np.where(reason == code, lost, 0).sum(axis=1) for code in range(4)]
    return Stranding(idle, np.rint(np.stack(sums, axis=1)).astype(np.int64), fragmented)


def _usual(kinds: Iterable[tuple[Needs, int]], devices: DeviceView) -> Sequence[tuple[Needs, int]]:
    asking = [(needs, number) for needs, number in kinds if number > 0 and request_of(needs)]
    asking.sort(key=lambda item: -item[1])
    whole, seen, found = sum(number for _, number in asking), 0, []
    for needs, number in asking:
        if seen >= 0.95 * whole:
            break
        found.append((needs, number))
        seen += number
    names = list(devices.resources)
    fallback = [(Needs((("cpu", WHOLE), (name, WHOLE))), 1) for name in names if name] or [(USUAL, 1)]
    return found or fallback


def _judge(
    judged: _Judged,
    needs: Needs,
    need: DeviceNeed,
    number: int,
    nodes: NodeView,
    devices: DeviceView,
    free: IntArray,
) -> None:
    """Enter what one kind of pods could have of the cards, or what keeps it from them."""
    requested = requested_milli(need, devices)
    of_kind = requested <= WHOLE
    large = free >= np.minimum(requested, WHOLE)
    enough = (of_kind & large).sum(axis=1) >= need.count
    amounts = dict(needs.request)
    cpu = nodes.available("cpu") >= amounts.get("cpu", 0)
    memory = nodes.available("memory") >= amounts.get("memory", 0)
    runs = cpu & memory & enough
    judged.usable |= of_kind & large & runs[:, None]
    without = free > 0
    judged.lacks[..., MODEL] += number * (without & ~of_kind)
    judged.lacks[..., SIZE] += number * (without & of_kind & (~large | ~enough[:, None]))
    fits = of_kind & large & enough[:, None]
    judged.lacks[..., CPU] += number * (fits & ~cpu[:, None])
    judged.lacks[..., MEMORY] += number * (fits & (cpu & ~memory)[:, None])


def _fragmented(
    usual: Sequence[tuple[Needs, int]], nodes: NodeView, devices: DeviceView, free: IntArray
) -> FloatArray:
    there = devices.exists & devices.healthy
    sizes = np.sort(devices.memory_mib[there])
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
