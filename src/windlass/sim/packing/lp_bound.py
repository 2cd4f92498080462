"""The most of a cluster's cards that any policy could allocate of a list of pods: a yardstick.

A linear program over *patterns* of a card: what one card holds, either one card of a pod that takes whole ones,
or parts that fit into it together. As many patterns as there are cards; no more pods of a kind than come; no more
CPU in all than there is. Which node a card belongs to, memory and models are left out, and patterns may be taken
in fractions: whatever a policy does fits into that, so the optimum is an upper bound.

The patterns are too many to be listed. They are generated: solve, ask which pattern is worth most at the prices
of the solution (a knapsack over thousandths of a card), enter it, until none is worth more than its card costs.

Whoever turns nothing away that fits, and ends nothing that runs, is bound by less: what has been let in stays, on
however good a pattern it is put by moves. That bound takes the pods that run as a least number of each kind.

Needs SciPy (HiGHS), an optional extra: ``pip install 'windlass[optimal]'``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from math import gcd
from typing import Any

from windlass.sim.jobs import WHOLE
from windlass.sim.traces.openb import OpenbNode, OpenbPod

INSTALL = "pip install 'windlass[optimal]'"
TINY = 1e-7
ROUNDS = 2000
BATCH = 256
"""So many pods that come are asked about at once, then in halves."""
DEAR = 100.0 * WHOLE
"""What it costs the solver to leave one card's worth of what runs without a place, in milli."""
Pattern = tuple[tuple[int, int], ...]
"""Number of the kind → how many of it, on one card."""


class OptimalMissing(RuntimeError):
    """SciPy is not installed."""

    def __init__(self) -> None:
        super().__init__(f"upper bounds need SciPy: {INSTALL}")


class BoundFailed(RuntimeError):
    """The solver gave up."""


@dataclass(frozen=True, slots=True)
class _Kind:
    """Pods that are alike. ``cards`` of each pod, ``milli`` of each card, and its ``cpu`` per card."""

    cards: int
    milli: int
    cpu: float
    limit: int
    """How many cards' worth of them come: pods times cards."""
    least: int = 0
    """How many cards' worth of them run already."""


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
    solve = _solver()
    cards, cpu = sum(node.gpus for node in nodes), sum(node.cpu_milli for node in nodes)
    kinds = _kinds(coming, running)
    if not kinds or not cards:
        return LpBound(0.0, 0, 0)
    patterns: dict[Pattern, None] = dict.fromkeys(
        ((at, WHOLE // kind.milli),) for at, kind in enumerate(kinds)
    )
    for rounds in range(1, ROUNDS):
        value, card_price, cpu_price, prices, homeless = solve(kinds, list(patterns), cards, cpu)
        worth = [kind.milli - kind.cpu * cpu_price - prices[at] for at, kind in enumerate(kinds)]
        found = [pattern for pattern in _best(kinds, worth, card_price) if pattern not in patterns]
        if not found:
            if homeless > TINY:
                raise BoundFailed("there is no room for all that runs")
            return LpBound(100.0 * value / (WHOLE * cards), len(patterns), rounds)
        patterns |= dict.fromkeys(found)
    raise BoundFailed(f"no end after {ROUNDS} rounds")


def repacked(nodes: Sequence[OpenbNode], coming: Sequence[OpenbPod]) -> list[bool]:
    """Who is let in by a scheduler that turns nothing away which fits, and moves all that runs for every pod that
    comes, at no cost: by the same program, so with nodes, memory and models left out. No bound for schedulers that
    miss the one or other pod, as all do, but as far as moves go. Raises :class:`OptimalMissing`,
    :class:`BoundFailed`."""
    solve = _solver()
    cards, cpu = sum(node.gpus for node in nodes), sum(node.cpu_milli for node in nodes)
    names = sorted({_kind_of(pod) for pod in coming if pod.demand})
    patterns: dict[Pattern, None] = dict.fromkeys(
        ((at, WHOLE // milli),) for at, (_, milli, _) in enumerate(names)
    )
    running: Counter[tuple[int, int, int]] = Counter()
    full: set[tuple[int, int, int]] = set()
    """Of these one more does not fit, nor ever will: what runs only grows."""

    def fits(more: Sequence[OpenbPod]) -> bool:
        wanted = running + Counter(map(_kind_of, more))
        kinds = [_Kind(kind[0], kind[1], kind[2] / kind[0], *[wanted[kind] * kind[0]] * 2) for kind in names]
        for _ in range(ROUNDS):
            _, card_price, cpu_price, prices, homeless = solve(kinds, list(patterns), cards, cpu)
            if homeless <= TINY:
                return True
            worth = [kind.milli - kind.cpu * cpu_price - prices[at] for at, kind in enumerate(kinds)]
            found = [pattern for pattern in _best(kinds, worth, card_price) if pattern not in patterns]
            if not found:
                return False
            patterns.update(dict.fromkeys(found))
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
    """Patterns that are worth more than a card costs: the best one of any parts, and cards of whole pods."""
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


_Solved = tuple[float, float, float, Sequence[float], float]
"""What is allocated (milli), the prices of a card, of a milli of CPU, of one card's worth of each kind, and how
many cards' worth of what runs found no place."""


def _solver() -> Callable[[Sequence[_Kind], Sequence[Pattern], int, int], _Solved]:
    try:
        import numpy as np
        from scipy.optimize import linprog  # pyright: ignore[reportMissingImports]
        from scipy.sparse import csr_matrix  # pyright: ignore[reportMissingImports]
    except ImportError:
        raise OptimalMissing from None

    def solve(kinds: Sequence[_Kind], patterns: Sequence[Pattern], cards: int, cpu: int) -> _Solved:
        row: list[int] = []
        column: list[int] = []
        entry: list[float] = []
        for at, pattern in enumerate(patterns):
            cells = [(0, 1.0), (1, sum(n * kinds[kind].cpu for kind, n in pattern) / WHOLE)]
            for where, units in [*cells, *((2 + kind, float(n)) for kind, n in pattern)]:
                row.append(where)
                column.append(at)
                entry.append(units)
        gained = [float(sum(n * kinds[kind].milli for kind, n in pattern)) for pattern in patterns]
        limits = [float(cards), cpu / WHOLE, *(float(kind.limit) for kind in kinds)]
        kept = [at for at, kind in enumerate(kinds) if kind.least]
        rows_of = {kind: len(limits) + at for at, kind in enumerate(kept)}
        for at, pattern in enumerate(patterns):
            for kind, n in pattern:
                if kind in rows_of:
                    row.append(rows_of[kind])
                    column.append(at)
                    entry.append(-float(n))
        for at, kind in enumerate(kept):  # homeless: dear, so that none is in the end if there is any way
            row.append(rows_of[kind])
            column.append(len(patterns) + at)
            entry.append(-1.0)
        limits += [-float(kinds[kind].least) for kind in kept]
        costs = np.array([-value for value in gained] + [DEAR] * len(kept))
        matrix = csr_matrix((entry, (row, column)), shape=(len(limits), len(costs)))
        found: Any = linprog(costs, A_ub=matrix, b_ub=limits, method="highs")
        if found.status != 0:
            raise BoundFailed(str(found.message))
        prices = (-found.ineqlin.marginals).tolist()
        of_kinds = prices[2 : 2 + len(kinds)]
        for kind in kept:
            of_kinds[kind] -= prices[rows_of[kind]]
        homeless = float(found.x[len(patterns) :].sum())
        return -float(found.fun) + DEAR * homeless, prices[0], prices[1] / WHOLE, of_kinds, homeless

    return solve
