"""Upper bound on the share of a cluster's devices that any policy can allocate for a list of pods.

It is a linear program over *patterns* of a device. A pattern is the content of one device: a whole device of a pod, or
shares that fit together. The number of patterns equals the number of devices, the pods of a kind are limited by the
list, and CPU by the total. Nodes, memory and models are relaxed, and patterns may be fractional. Every placement of a
policy satisfies the program, so its optimum is an upper bound.

Patterns are too many to list, so columns are generated: solve, find the pattern of the highest value at the dual
prices (a knapsack over thousandths of a device), add it, until none is worth more than its device.

A scheduler that rejects no pod that fits, and ends no running pod, has a lower bound: admitted pods stay. That bound
takes the running pods as a minimum number of each kind.

Needs HiGHS (highspy), the extra ``optimal``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import gcd
from typing import Any, NamedTuple

import numpy as np

from windlass.kits.installation import extra_command
from windlass.sim.jobs import WHOLE
from windlass.sim.traces.openb import OpenbNode, OpenbPod

TINY = 1e-7
ROUNDS = 2000
BATCH = 256
"""Maximum number of arriving pods per solve; halved when a solve rejects one."""
DEAR = 100.0 * WHOLE
"""Penalty (milli) in the program for one device's worth of running pods without a place."""
Pattern = tuple[tuple[int, int], ...]
"""Number of the kind → how many of it, on one device."""


class OptimalMissing(RuntimeError):
    """highspy is not installed."""

    def __init__(self) -> None:
        super().__init__(f"upper bounds need highspy: {extra_command('optimal')}")


class BoundFailed(RuntimeError):
    """The solver gave up."""


@dataclass(frozen=True, slots=True)
class _Kind:
    """Equal pods. ``cards`` of each pod, ``milli`` of each device, and its ``cpu`` per device."""

    cards: int
    milli: int
    cpu: float
    limit: int
    """Maximum number of devices of this kind: arriving pods times devices per pod."""
    least: int = 0
    """Number of devices of this kind that running pods hold."""


@dataclass(frozen=True, slots=True)
class LpBound:
    """``percent`` of the capacity. ``patterns``: how many were generated; ``rounds``: how often it was solved."""

    percent: float
    patterns: int
    rounds: int


def packing_bound(
    nodes: Sequence[OpenbNode], coming: Iterable[OpenbPod], running: Iterable[OpenbPod] = ()
) -> LpBound:
    """The bound for these pods on these nodes. ``running``: those of ``coming`` that are to be kept: what moves alone
    could make of a run that let them in. Raises :class:`OptimalMissing`, :class:`BoundFailed`, the latter
    also if there is no room for what runs."""
    cards, cpu = sum(node.gpus for node in nodes), sum(node.cpu_milli for node in nodes)
    kinds = _kinds(coming, running)
    if not kinds or not cards:
        return LpBound(0.0, 0, 0)
    patterns: dict[Pattern, None] = dict.fromkeys(
        ((at, WHOLE // kind.milli),) for at, kind in enumerate(kinds)
    )
    program = _Program(kinds, cards, cpu)
    program.add(patterns)
    for rounds in range(1, ROUNDS):
        value, card_price, cpu_price, prices, homeless = program.solve()
        worth = [kind.milli - kind.cpu * cpu_price - prices[at] for at, kind in enumerate(kinds)]
        found = [pattern for pattern in _best(kinds, worth, card_price) if pattern not in patterns]
        if not found:
            if homeless > TINY:
                raise BoundFailed("there is no room for all that runs")
            return LpBound(100.0 * value / (WHOLE * cards), len(patterns), rounds)
        patterns |= dict.fromkeys(found)
        program.add(found)
    raise BoundFailed(f"no end after {ROUNDS} rounds")


def repacked(nodes: Sequence[OpenbNode], coming: Sequence[OpenbPod]) -> list[bool]:
    """Return the pods that a scheduler with free moves would admit, by the same relaxed program.

    The scheduler rejects no pod that fits, and rearranges all running pods for each arrival at no cost. It is no upper
    bound for schedulers that reject a pod which fits. Raises :class:`OptimalMissing`, :class:`BoundFailed`.
    """
    cards, cpu = sum(node.gpus for node in nodes), sum(node.cpu_milli for node in nodes)
    names = sorted({_kind_of(pod) for pod in coming if pod.demand})
    patterns: dict[Pattern, None] = dict.fromkeys(
        ((at, WHOLE // milli),) for at, (_, milli, _) in enumerate(names)
    )
    program = _Program([_Kind(kind[0], kind[1], kind[2] / kind[0], 0) for kind in names], cards, cpu)
    program.add(patterns)
    running: Counter[tuple[int, int, int]] = Counter()
    full: set[tuple[int, int, int]] = set()
    """Kinds of which no further pod will ever fit, because running pods only increase."""

    def fits(more: Sequence[OpenbPod]) -> bool:
        wanted = running + Counter(map(_kind_of, more))
        kinds = [_Kind(kind[0], kind[1], kind[2] / kind[0], *[wanted[kind] * kind[0]] * 2) for kind in names]
        program.limit(kinds)
        for _ in range(ROUNDS):
            _, card_price, cpu_price, prices, homeless = program.solve()
            if homeless <= TINY:
                return True
            worth = [kind.milli - kind.cpu * cpu_price - prices[at] for at, kind in enumerate(kinds)]
            found = [pattern for pattern in _best(kinds, worth, card_price) if pattern not in patterns]
            if not found:
                return False
            patterns.update(dict.fromkeys(found))
            program.add(found)
        raise BoundFailed(f"no end after {ROUNDS} rounds")

    def let_in(some: Sequence[OpenbPod]) -> list[bool]:
        those = [pod for pod in some if pod.demand and _kind_of(pod) not in full]
        if not those or fits(those):
            running.update(map(_kind_of, those))
            return [not pod.demand or _kind_of(pod) not in full for pod in some]
        if len(some) == 1:
            full.add(_kind_of(some[0]))
            return [False]
        half = len(some) // 2
        return let_in(some[:half]) + let_in(some[half:])

    return [one for at in range(0, len(coming), BATCH) for one in let_in(coming[at : at + BATCH])]


def _kind_of(pod: OpenbPod) -> tuple[int, int, int]:
    return pod.gpus, pod.gpu_milli, pod.cpu_milli


def _kinds(coming: Iterable[OpenbPod], running: Iterable[OpenbPod]) -> list[_Kind]:
    counted, kept = (Counter(_kind_of(pod) for pod in pods if pod.demand) for pods in (coming, running))
    return [
        _Kind(gpus, milli, cpu / gpus, number * gpus, kept[gpus, milli, cpu] * gpus)
        for (gpus, milli, cpu), number in sorted(counted.items())
    ]


def _best(kinds: Sequence[_Kind], worth: Sequence[float], card_price: float) -> list[Pattern]:
    """Patterns that are worth more than a device costs: the best one of any parts, and devices of whole pods."""
    found: list[Pattern] = [
        ((at, 1),)
        for at, kind in enumerate(kinds)
        if 2 * kind.milli > WHOLE and worth[at] > card_price + TINY
    ]
    unit = WHOLE
    for kind in kinds:
        unit = gcd(unit, kind.milli)
    room = WHOLE // unit
    best, last = [0.0] * (room + 1), [-1] * (room + 1)
    parts = [(at, kind.milli // unit, worth[at]) for at, kind in enumerate(kinds) if worth[at] > TINY]
    for filled in range(1, room + 1):
        best[filled] = best[filled - 1]
        for at, units, value in parts:
            if units <= filled and best[filled - units] + value > best[filled] + TINY:
                best[filled], last[filled] = best[filled - units] + value, at
    if best[room] > card_price + TINY:
        taken: Counter[int] = Counter()
        filled = room
        while filled > 0:
            if last[filled] < 0:
                filled -= 1
            else:
                taken[last[filled]] += 1
                filled -= kinds[last[filled]].milli // unit
        found.append(tuple(sorted(taken.items())))
    return found


class _Program:
    """Linear program over patterns: one HiGHS model, which grows by columns and keeps its basis.

    Rows: GPUs, CPU, the limit of each kind, the least number of each kind. Columns: for
    each kind the GPUs' worth of running pods without a place, then one per pattern.
    Raises :class:`OptimalMissing` where highspy is not installed.
    """

    def __init__(self, kinds: Sequence[_Kind], cards: int, cpu: int) -> None:
        try:
            import highspy
        except ImportError:
            raise OptimalMissing from None

        class Silent(highspy.Highs):
            def enableCallbacks(self) -> None:
                # Called by the constructor. It prints a banner to standard output
                # unless output is off by then.
                self.silent()
                super().enableCallbacks()

        self._kinds = kinds
        self._optimal = highspy.HighsModelStatus.kOptimal
        self._unbounded = highspy.kHighsInf
        self._model = model = Silent()
        model.silent()
        model.addRow(-self._unbounded, float(cards), 0, _indices(), _floats())
        model.addRow(-self._unbounded, cpu / WHOLE, 0, _indices(), _floats())
        for _ in range(2 * len(kinds)):
            model.addRow(-self._unbounded, 0.0, 0, _indices(), _floats())
        for at in range(len(kinds)):
            row = 2 + len(kinds) + at
            model.addCol(DEAR, 0.0, self._unbounded, 1, _indices(row), _floats(-1.0))
        self.limit(kinds)

    def limit(self, kinds: Sequence[_Kind]) -> None:
        """Change how many pods of each kind come and run; the kinds are otherwise the same."""
        for at, kind in enumerate(kinds):
            self._model.changeRowBounds(2 + at, -self._unbounded, float(kind.limit))
            self._model.changeRowBounds(2 + len(kinds) + at, -self._unbounded, -float(kind.least))

    def add(self, patterns: Iterable[Pattern]) -> None:
        """Enter patterns, each as a column."""
        kinds = self._kinds
        for pattern in patterns:
            rows, entries = [0, 1], [1.0, sum(n * kinds[at].cpu for at, n in pattern) / WHOLE]
            for at, n in pattern:
                rows += (2 + at, 2 + len(kinds) + at)
                entries += (float(n), -float(n))
            gained = float(sum(n * kinds[at].milli for at, n in pattern))
            self._model.addCol(-gained, 0.0, self._unbounded, len(rows), _indices(*rows), _floats(*entries))

    def solve(self) -> _Solved:
        """Return the optimum. Raises :class:`BoundFailed`."""
        model = self._model
        model.run()
        status = model.getModelStatus()
        if status != self._optimal:
            raise BoundFailed(model.modelStatusToString(status))
        solution, number = model.getSolution(), len(self._kinds)
        prices = [-price for price in solution.row_dual]
        of_kinds = [prices[2 + at] - prices[2 + number + at] for at in range(number)]
        homeless = float(sum(solution.col_value[:number]))
        value = DEAR * homeless - model.getObjectiveValue()
        return _Solved(value, prices[0], prices[1] / WHOLE, of_kinds, homeless)


def _indices(*values: int) -> Any:
    return np.array(values, dtype=np.int32)


def _floats(*values: float) -> Any:
    return np.array(values, dtype=np.float64)


class _Solved(NamedTuple):
    """Optimum of the program.

    ``value``: thousandths of GPUs that are allocated. ``prices``: of one GPU's worth of
    each kind. ``homeless``: GPUs' worth of running pods without a place.
    """

    value: float
    card_price: float
    cpu_price: float
    prices: Sequence[float]
    homeless: float
