"""How much of a node's free accelerators is of no use to the pods that usually come.

*Fragmentation-gradient descent*, Weng et al., "Beware of Fragmentation: Scheduling GPU-Sharing Workloads
with Fragmentation Gradient Descent", USENIX ATC 2023. For a node whose cards have ``r_1 … r_k`` milli free
(``R`` in sum) and a kind ``t`` of pods, the fragmented amount ``F_t`` is

* ``R``, if ``t`` cannot run there (too little CPU, too few cards with as much free as it asks of each, a
  model that it does not take) or asks for no card at all;
* else the sum of those ``r_i`` that are smaller than what ``t`` asks of a card.

``F`` is the mean of ``F_t`` over the *typical* pods, weighed by how many there are of each kind. Memory is
left out. A placement has the score ``⌊100·σ((F before − F after)/1000)⌋``, ``σ`` being the logistic
function: about 40 milli of fragmentation are one point. **The rounding is part of the method**: without it
a node a hair better wins over the first of many equally good ones, and far more is stranded.

Everything is counted in whole numbers: amounts times how many pods there are of a kind, over the fixed
number of typical pods. So equal placements have equal scores to the last bit. The sums over kinds stand in
tables over (free CPU, free share), so that a node costs its cards, not its cards times the kinds.

**Short of CPU.** The next usual pod is all that ``F`` looks at. On a node whose idle cards would need more CPU
than it has left, some cards stay idle in the end although each usual pod still fits now. That part is the
*shortage*: ``S = max(0, R − CPU left / CPU usually asked for beside a whole card)``. A :class:`WorkloadMix` with
:attr:`WorkloadMix.short` counts ``F + short·S`` instead of ``F``, and rounds to even steps of ``step`` milli. Neither
constant matters much (docs/operations/benchmarks/packing.md has both halved and doubled); that there is a step, and
that it is larger than the differences between like nodes, does.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import cast

import numpy as np
from numpy.typing import NDArray

from windlass.spi.nodes import BoolArray, IntArray

WHOLE = 1000
"""Milli of a whole card."""
COVERED = 0.95
"""The typical pods are the most frequent kinds, until they are this part of all pods."""
NO_PLACE = -1
"""Score of a card that does not take the pod."""


@dataclass(frozen=True, slots=True, order=True)
class PodDemand:
    """What one kind of pod asks of a node. ``milli`` of each of ``count`` distinct cards; none: 0 of 0.

    ``models``: any of these, as parts of the card's model, whatever the case (none: any);
    ``models_not`` excludes.
    """

    cpu: int
    milli: int = 0
    count: int = 0
    models: tuple[str, ...] = ()
    models_not: tuple[str, ...] = ()

    def allows(self, model: str) -> bool:
        name = model.casefold()
        if any(part.casefold() in name for part in self.models_not):
            return False
        return not self.models or any(part.casefold() in name for part in self.models)


def typical(pods: Mapping[PodDemand, int], covered: float = COVERED) -> tuple[tuple[PodDemand, int], ...]:
    """The most frequent kinds with their numbers, until ``covered`` of all pods are among them.

    Of equally frequent kinds the one with more CPU goes first, then more milli, cards, and the larger names
    of models.
    """
    order = sorted(
        pods.items(), key=lambda item: (item[1], item[0].cpu, item[0].milli, item[0].count, item[0].models)
    )
    whole, sum_ = sum(pods.values()), 0
    found: list[tuple[PodDemand, int]] = []
    for demand, number in reversed(order):
        if number <= 0 or sum_ >= covered * whole:
            break
        found.append((demand, number))
        sum_ += number
    return tuple(found)


class WorkloadMix:
    """Typical pods, and the fragmentation that they see. Immutable but for what it remembers of models."""

    def __init__(self, kinds: Sequence[tuple[PodDemand, int]], *, short: int = 0, step: int = 0) -> None:
        """``kinds``: as of :func:`typical`. ``short``: how much shortage counts beside fragmentation; 0 as
        published. ``step``: milli of one point; 0: the logistic function as published."""
        self.kinds = tuple(kinds)
        self.total = sum(number for _, number in kinds)
        asking = [(demand, number) for demand, number in kinds if demand.count > 0]
        self.cpu_per_card = _cpu_per_card(asking)
        """CPU (milli) usually asked for beside a whole card; 0 if none is."""
        self._short = short * self.total if self.cpu_per_card else 0
        """What a milli of shortage counts."""
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
        """Whether nobody asks for cards, so that everything is fragmented alike."""
        return not self._asking

    def group(self, model: str) -> int:
        """A number for all models that the same kinds of pods take."""
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
        """``total · F`` of nodes: of which group of models each is, its free CPU (milli), and nodes × slots
        what is free of each card (milli, 0 where there is none)."""
        enough = self._cpus.searchsorted(cpu, side="right")
        level = self._millis.searchsorted(free, side="right")
        summed = free.sum(axis=1)
        table = self._singles[groups, enough]
        nodes = np.arange(len(table))
        out_of_reach = table[nodes, level.max(axis=1)]
        larger = table[nodes[:, None], level]
        larger -= out_of_reach[:, None]
        larger *= free
        found: IntArray = summed * (self.total - table[:, 0] + out_of_reach)
        found += larger.sum(axis=1)
        for at, milli in enumerate(self._shapes):
            fits = free >= milli
            runs = self._several[groups, at, enough, np.minimum(fits.sum(axis=1), self._most)]
            found -= runs * (free * fits).sum(axis=1)
        return found

    def loss(self, groups: IntArray, cpu: IntArray, free: IntArray) -> IntArray:
        """``total`` times what is lost on nodes: fragmentation, and the shortage as far as that counts."""
        found = self.fragments(groups, cpu, free)
        if self._short:
            served = np.maximum(cpu, 0) * WHOLE // self.cpu_per_card
            found += self._short * np.maximum(free.sum(axis=1) - served, 0)
        return found

    def score(self, gain: IntArray) -> IntArray:
        """``⌊100·σ(gain/total/1000)⌋``, or even steps around 50; ``gain`` is ``total`` times a change of what
        is lost."""
        return self._steps.searchsorted(gain, side="right")

    # ------------------------------------------------------------------ the same of one node, in plain integers

    def level(self, cpu: int) -> int:
        """How many of the amounts of CPU that kinds ask for are free: it is all that matters of the CPU."""
        return bisect_right(self._plain.cpus, cpu)

    def fragment(self, group: int, level: int, free: Sequence[int]) -> int:
        """:meth:`fragments` of one node with at least one slot. ``level``: see :meth:`level`."""
        plain = self._plain
        table, millis = plain.singles[group][level], plain.millis
        levels = [bisect_right(millis, amount) for amount in free]
        out_of_reach = table[max(levels)]
        found = sum(free) * (self.total - table[0] + out_of_reach)
        for at, amount in zip(levels, free, strict=True):
            found += (table[at] - out_of_reach) * amount
        for at, milli in enumerate(self._shapes):
            fits = [amount for amount in free if amount >= milli]
            found -= plain.several[group][at][level][min(len(fits), self._most)] * sum(fits)
        return found

    def shortage(self, cpu: int, idle: int) -> int:
        """What shortage counts on one node with so much idle, in the same units as :meth:`fragment`."""
        short = self._short
        return short * max(idle - max(cpu, 0) * WHOLE // self.cpu_per_card, 0) if short else 0

    def points(self, gain: int) -> int:
        """:meth:`score` of one gain."""
        return bisect_right(self._plain.steps, gain)


@dataclass(slots=True)
class _Plain:
    """The tables of a mix as lists."""

    cpus: list[int]
    millis: list[int]
    steps: list[int]
    singles: list[list[list[int]]] = field(default_factory=list)
    several: list[list[list[list[int]]]] = field(default_factory=list)


def _steps(total: int) -> IntArray:
    """The least gain at which each score from 1 to 100 is reached."""
    edges = [math.ceil(WHOLE * total * math.log(s / (100 - s))) for s in range(1, 100)]
    return np.array([*edges, np.iinfo(np.int64).max], dtype=np.int64)


def _even_steps(total: int, step: int) -> IntArray:
    """The same with as many milli to each point: 50 for what loses nothing and gains nothing."""
    edges = [total * step * (s - 50) for s in range(1, 101)]
    return np.array([*edges, np.iinfo(np.int64).max], dtype=np.int64)


def _cpu_per_card(asking: Sequence[tuple[PodDemand, int]]) -> int:
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
    """The score of placing a pod on each card of each node: nodes × slots, :data:`NO_PLACE` where the card
    does not take it. For a pod that asks for other than one card: nodes × 1.

    ``free``: of cards that the pod may use, 0 elsewhere is *not* allowed: what the others have free counts
    for fragmentation, so cards that it may not use are said by ``milli``. ``milli``: what it takes of each
    card, nodes × slots, where that is not ``demand.milli`` everywhere (memory of cards of other sizes); a
    card that it may not use has more than :data:`WHOLE`.
    """
    requested = np.full(free.shape, demand.milli, dtype=np.int64) if milli is None else milli
    if demand.count == 1:
        return _on_each(mix, demand, groups, cpu, free, requested)
    fits, after = None, free
    if demand.count:
        fits, taken = choose(free, requested, demand.count)
        after = free - np.where(taken, requested, 0)
    nodes = len(free)
    found = mix.loss(
        np.concatenate([groups, groups]),
        np.concatenate([cpu, cpu - demand.cpu]),
        np.concatenate([free, after]),
    )
    score = mix.score(found[:nodes] - found[nodes:])
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
        found = mix.loss(groups[every], left, after)
        score[row, slot] = mix.score(found[row] - found[nodes:])
        score = np.where(fits, np.take_along_axis(score, first, axis=1), NO_PLACE)
    return score


def _first_alike(free: IntArray, requested: IntArray) -> IntArray:
    """Per slot the first one of its node with as much free, and as much asked of it: both have one score."""
    both = free * (2 * WHOLE) + requested
    first: IntArray = (both[:, :, None] == both[:, None, :]).argmax(axis=2)
    return first


def choose(free: IntArray, requested: IntArray, count: int) -> tuple[BoolArray, BoolArray]:
    """Which cards several are taken of: the fullest that fit, the first of equals. Per node whether there
    are enough, and per card whether it is taken."""
    fits = free >= requested
    if (requested[fits] >= WHOLE).all():  # only whole cards are left to choose from: the first ones
        taken = fits & (np.cumsum(fits, axis=1) <= count)
    else:
        rank = np.argsort(
            np.argsort(np.where(fits, free, np.iinfo(np.int64).max), axis=1, kind="stable"), axis=1
        )
        taken = fits & (rank < count)
    return fits.sum(axis=1) >= count, taken


def by_model(mix: WorkloadMix, codes: IntArray, names: Sequence[str]) -> IntArray:
    """The group of each entry of ``codes``, codes of the models ``names``."""
    return np.array([mix.group(name) for name in names], dtype=np.int64)[codes]
