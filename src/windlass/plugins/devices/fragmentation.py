"""Fragmentation: free device capacity of a node that the typical pods cannot use.

*Fragmentation-gradient descent*, Weng et al., "Beware of Fragmentation: Scheduling
GPU-Sharing Workloads with Fragmentation Gradient Descent", USENIX ATC 2023. For a node
with devices that have ``r_1 … r_k`` milli free (``R`` in sum) and a class ``t`` of
pods, the fragmented amount ``F_t`` is

* ``R``, if ``t`` cannot run there (too little CPU, too few devices with enough free
  capacity, a model that ``t`` excludes) or requests no device at all;
* otherwise the sum of those ``r_i`` that are smaller than the request of ``t`` for one
  device.

``F`` is the mean of ``F_t`` over the *typical* pods, weighted by the number of pods of
each class. Memory is ignored. A placement has the score ``⌊100·σ((F before − F
after)/1000)⌋``, where ``σ`` is the logistic function: about 40 milli of fragmentation
are one point. **The rounding is part of the method.** Without it a marginally better
node wins over the first of many equally good ones, and far more capacity is stranded.

All amounts are whole numbers: they are multiplied by the number of pods of a class,
over the fixed number of typical pods. So equal placements have equal scores to the last
bit. The sums over classes are in tables over (free CPU, free share). So the cost of a
node grows with its devices, not with devices times classes.

**Shortage of CPU.** ``F`` considers only the next typical pod. If a node has too little
CPU for all its idle devices, some of them stay idle in the end, although each typical
pod still fits now. That part is the *shortage*: ``S = max(0, R − free CPU / CPU
requested per whole device)``. A :class:`WorkloadMix` with
:attr:`WorkloadMix.short` counts ``F + short·S`` instead of ``F``, and rounds to even
    steps of ``step`` milli. Neither constant matters much
    (docs/operations/benchmarks/packing.md has both halved and doubled). It does matter
    that there is a step, and that it is larger than the differences between similar
    nodes.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import cast

import numpy as np
from numpy.typing import NDArray

from windlass.spi.model_names import names_any
from windlass.spi.nodes import BoolArray, IntArray

WHOLE = 1000
"""Milli of a whole device."""
COVERED = 0.95
"""Share of all pods that the typical pods, the most frequent classes, have to cover."""
NO_PLACE = -1
"""Score of a device that cannot take the pod."""


@dataclass(frozen=True, slots=True, order=True)
class PodDemand:
    """Request of one class of pods: CPU, and ``milli`` of each of ``count`` distinct devices.

    Without devices both are 0. ``models``: parts of a model's name, in any case, one of
    which must occur (empty: any model). ``models_not``: parts that must not occur.
    """

    cpu: int
    milli: int = 0
    count: int = 0
    models: tuple[str, ...] = ()
    models_not: tuple[str, ...] = ()

    def allows(self, model: str) -> bool:
        if names_any(self.models_not, model):
            return False
        return not self.models or names_any(self.models, model)


def typical(pods: Mapping[PodDemand, int], covered: float = COVERED) -> tuple[tuple[PodDemand, int], ...]:
    """Return the most frequent classes with their numbers, until they cover ``covered``
    of all pods.

    Among equally frequent classes the order is: more CPU first, then more milli, more
    devices, and the larger names of models.
    """
    order = sorted(
        pods.items(), key=lambda item: (item[1], item[0].cpu, item[0].milli, item[0].count, item[0].models)
    )
    total, covered_pods = sum(pods.values()), 0
    frequent: list[tuple[PodDemand, int]] = []
    for demand, number in reversed(order):
        if number <= 0 or covered_pods >= covered * total:
            break
        frequent.append((demand, number))
        covered_pods += number
    return tuple(frequent)


class WorkloadMix:
    """Typical pods, and the fragmentation in relation to them.

    It is immutable, except for a cache of model names.
    """

    def __init__(self, kinds: Sequence[tuple[PodDemand, int]], *, short: int = 0, step: int = 0) -> None:
        """:param kinds: result of :func:`typical`
        :param short: weight of shortage relative to fragmentation; 0 as published
        :param step: milli of one point; 0: the logistic function as published"""
        self.kinds = tuple(kinds)
        self.total = sum(number for _, number in kinds)
        asking = [(demand, number) for demand, number in kinds if demand.count > 0]
        self.cpu_per_device = _cpu_per_device(asking)
        """Mean CPU request (milli) per whole device; 0 if no pod requests a device."""
        self._short = short * self.total if self.cpu_per_device else 0
        """Weight of one milli of shortage."""
        self._asking = asking
        self._cpus = np.array(sorted({demand.cpu for demand, _ in asking}), dtype=np.int64)
        self._millis = np.array(sorted({d.milli for d, _ in asking if d.count == 1}), dtype=np.int64)
        self._shapes = sorted({demand.milli for demand, _ in asking if demand.count > 1})
        self._most = max((demand.count for demand, _ in asking), default=0)
        self._codes: dict[str, int] = {}
        self._groups: dict[tuple[bool, ...], int] = {}
        self._singles: NDArray[np.int64] = np.zeros((0, len(self._cpus) + 1, len(self._millis) + 1), np.int64)
        self._several: NDArray[np.int64] = np.zeros(
            (0, len(self._shapes), len(self._cpus) + 1, self._most + 1), np.int64
        )
        self._steps = _even_steps(max(self.total, 1), step) if step else _steps(max(self.total, 1))
        self._plain = _Plain(self._cpus.tolist(), self._millis.tolist(), self._steps.tolist())

    @property
    def idle(self) -> bool:
        """True if no pod requests devices, so that all placements are equal."""
        return not self._asking

    def group(self, model: str) -> int:
        """Return a number that is equal for all models that the same classes of pods accept."""
        code = self._codes.get(model)
        if code is None:
            allowed = tuple(demand.allows(model) for demand, _ in self._asking)
            known = self._groups.get(allowed)
            code = self._codes[model] = self._enter(allowed) if known is None else known
        return code

    def _enter(self, allowed: tuple[bool, ...]) -> int:
        code = self._groups[allowed] = len(self._groups)
        single = np.zeros(self._singles.shape[1:], dtype=np.int64)
        several = np.zeros(self._several.shape[1:], dtype=np.int64)
        for (demand, number), takes in zip(self._asking, allowed, strict=True):
            if not takes:
                continue
            cpu = int(np.searchsorted(self._cpus, demand.cpu)) + 1
            if demand.count == 1:
                single[cpu:, : int(np.searchsorted(self._millis, demand.milli)) + 1] += number
            else:
                several[self._shapes.index(demand.milli), cpu:, demand.count :] += number
        self._singles = np.concatenate([self._singles, single[None]])
        self._several = np.concatenate([self._several, several[None]])
        self._plain.singles.append(cast(list[list[int]], single.tolist()))
        self._plain.several.append(cast(list[list[list[int]]], several.tolist()))
        return code

    def fragments(self, groups: IntArray, cpu: IntArray, free: IntArray) -> IntArray:
        """Return ``total · F`` of each node.

        :param groups: group of models of each node (:meth:`group`)
        :param cpu: free CPU of each node in milli
        :param free: nodes × slots, free milli of each device, 0 in slots without a
            device
        """
        enough = self._cpus.searchsorted(cpu, side="right")
        level = self._millis.searchsorted(free, side="right")
        summed = free.sum(axis=1)
        table = self._singles[groups, enough]
        nodes = np.arange(len(table))
        out_of_reach = table[nodes, level.max(axis=1)]
        larger = table[nodes[:, None], level]
        larger -= out_of_reach[:, None]
        larger *= free
        fragmented: IntArray = summed * (self.total - table[:, 0] + out_of_reach)
        fragmented += larger.sum(axis=1)
        for index, milli in enumerate(self._shapes):
            fits = free >= milli
            runs = self._several[groups, index, enough, np.minimum(fits.sum(axis=1), self._most)]
            fragmented -= runs * (free * fits).sum(axis=1)
        return fragmented

    def loss(self, groups: IntArray, cpu: IntArray, free: IntArray) -> IntArray:
        """Return ``total`` times the loss of each node: fragmentation plus weighted shortage."""
        lost = self.fragments(groups, cpu, free)
        if self._short:
            served = np.maximum(cpu, 0) * WHOLE // self.cpu_per_device
            lost += self._short * np.maximum(free.sum(axis=1) - served, 0)
        return lost

    def score(self, gain: IntArray) -> IntArray:
        """Return ``⌊100·σ(gain/total/1000)⌋``, or even steps around 50.

        :param gain: ``total`` times the decrease of the loss
        """
        return self._steps.searchsorted(gain, side="right")

    # ------------------------------------------------------------------ one node, in plain integers

    def level(self, cpu: int) -> int:
        """Return how many of the distinct CPU requests fit into the free CPU.

        Nothing else about CPU affects fragmentation.
        """
        return bisect_right(self._plain.cpus, cpu)

    def fragment(self, group: int, level: int, free: Sequence[int]) -> int:
        """Return :meth:`fragments` of one node with at least one slot. ``level``: see :meth:`level`."""
        plain = self._plain
        table, millis = plain.singles[group][level], plain.millis
        levels = [bisect_right(millis, amount) for amount in free]
        out_of_reach = table[max(levels)]
        fragmented = sum(free) * (self.total - table[0] + out_of_reach)
        for milli_level, amount in zip(levels, free, strict=True):
            fragmented += (table[milli_level] - out_of_reach) * amount
        for index, milli in enumerate(self._shapes):
            fits = [amount for amount in free if amount >= milli]
            fragmented -= plain.several[group][index][level][min(len(fits), self._most)] * sum(fits)
        return fragmented

    def shortage(self, cpu: int, idle: int) -> int:
        """Return the weighted shortage of one node, in the same unit as :meth:`fragment`."""
        short = self._short
        return short * max(idle - max(cpu, 0) * WHOLE // self.cpu_per_device, 0) if short else 0

    def points(self, gain: int) -> int:
        """Return :meth:`score` of one gain."""
        return bisect_right(self._plain.steps, gain)


@dataclass(slots=True)
class _Plain:
    """Tables of a mix as lists."""

    cpus: list[int]
    millis: list[int]
    steps: list[int]
    singles: list[list[list[int]]] = field(default_factory=list)
    several: list[list[list[list[int]]]] = field(default_factory=list)


def _steps(total: int) -> IntArray:
    """Return the smallest gain for each score from 1 to 100, by the logistic function."""
    edges = [math.ceil(WHOLE * total * math.log(s / (100 - s))) for s in range(1, 100)]
    return np.array([*edges, np.iinfo(np.int64).max], dtype=np.int64)


def _even_steps(total: int, step: int) -> IntArray:
    """Return the smallest gain for each score in even steps of ``step`` milli; 50 is no change."""
    edges = [total * step * (s - 50) for s in range(1, 101)]
    return np.array([*edges, np.iinfo(np.int64).max], dtype=np.int64)


def _cpu_per_device(asking: Sequence[tuple[PodDemand, int]]) -> int:
    cpu = sum(demand.cpu * number for demand, number in asking)
    devices = sum(demand.count * demand.milli * number for demand, number in asking)
    return cpu * WHOLE // devices if devices else 0


def descent(
    mix: WorkloadMix,
    demand: PodDemand,
    groups: IntArray,
    cpu: IntArray,
    free: IntArray,
    milli: IntArray | None = None,
) -> IntArray:
    """Return the score of placing a pod on each device of each node (nodes × slots).

    :data:`NO_PLACE` marks devices that cannot take the pod. For a pod that requests
        none or several devices the result is nodes × 1.

    :param free: free milli of *all* devices; those that the pod may not use count for
        fragmentation, so do not set them to 0 but mark them in ``milli``
    :param milli: request for each device (nodes × slots) if it is not ``demand.milli``
        everywhere, as for memory of devices of different sizes; more than :data:`WHOLE`
        for a device that the pod may not use
    """
    requested = np.full(free.shape, demand.milli, dtype=np.int64) if milli is None else milli
    if demand.count == 1:
        return _on_each(mix, demand, groups, cpu, free, requested)
    fits, after = None, free
    if demand.count:
        fits, taken = choose(free, requested, demand.count)
        after = free - np.where(taken, requested, 0)
    nodes = len(free)
    losses = mix.loss(
        np.concatenate([groups, groups]),
        np.concatenate([cpu, cpu - demand.cpu]),
        np.concatenate([free, after]),
    )
    score = mix.score(losses[:nodes] - losses[nodes:])
    return (score if fits is None else np.where(fits, score, NO_PLACE))[:, None]


def _on_each(
    mix: WorkloadMix, demand: PodDemand, groups: IntArray, cpu: IntArray, free: IntArray, requested: IntArray
) -> IntArray:
    nodes, slots = free.shape
    fits = free >= requested
    first = _first_alike(free, requested)
    row, slot = np.nonzero(fits & (first == np.arange(slots)))
    score = np.full((nodes, slots), NO_PLACE, dtype=np.int64)
    if len(row):
        every = np.concatenate([np.arange(nodes), row])
        after = free[every]
        after[np.arange(nodes, len(every)), slot] -= requested[row, slot]
        left = cpu[every]
        left[nodes:] -= demand.cpu
        losses = mix.loss(groups[every], left, after)
        score[row, slot] = mix.score(losses[row] - losses[nodes:])
        score = np.where(fits, np.take_along_axis(score, first, axis=1), NO_PLACE)
    return score


def _first_alike(free: IntArray, requested: IntArray) -> IntArray:
    """Return for each slot the first of its node with equal free and requested milli.

    Both have the same score.
    """
    both = free * (2 * WHOLE) + requested
    first: IntArray = (both[:, :, None] == both[:, None, :]).argmax(axis=2)
    return first


def choose(free: IntArray, requested: IntArray, count: int) -> tuple[BoolArray, BoolArray]:
    """Choose the devices for a pod that requests several: the fullest that fit, first of equals.

    :return: for each node whether enough devices fit, and for each device whether it is
        taken
    """
    fits = free >= requested
    if (requested[fits] >= WHOLE).all():  # only whole devices fit, so the first ones are taken
        taken = fits & (np.cumsum(fits, axis=1) <= count)
    else:
        rank = np.argsort(
            np.argsort(np.where(fits, free, np.iinfo(np.int64).max), axis=1, kind="stable"), axis=1
        )
        taken = fits & (rank < count)
    return fits.sum(axis=1) >= count, taken


def by_model(mix: WorkloadMix, codes: IntArray, names: Sequence[str]) -> IntArray:
    """Return the group of models for each entry of ``codes``, which are indices into ``names``."""
    return np.array([mix.group(name) for name in names], dtype=np.int64)[codes]
