"""Two pods that change places, so that two gaps which nobody fits into become one that a third pod fits into.

``x`` has a part of a card with a gap ``f``, ``y`` a smaller part of another card with a gap ``g``. Once ``x`` is
where ``y`` was, ``y`` and a pod of ``q`` milli fit where ``x`` was, if ``x - y <= g`` and ``q <= f + x - y``: both gaps
are as good as one. What is moved is ``x + y``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from windlass.engine.groups import TaskEntry
from windlass.plugins.cards import WHOLE
from windlass.sim.spare import Free, asks
from windlass.spi.nodes import BoolArray, IntArray
from windlass.spi.objects import Needs

NEVER = 1 << 60


@dataclass(frozen=True, slots=True)
class Wanted:
    """``most``: so much may be moved, in milli. ``movable``: who may be."""

    most: int
    movable: Callable[[TaskEntry], bool]


@dataclass(frozen=True, slots=True)
class _Parts:
    """Pods with a part of one card: arrays over them. ``here``: what each takes of its own card."""

    entries: Sequence[TaskEntry]
    row: IntArray
    slot: IntArray
    here: IntArray
    cpu: IntArray
    memory: IntArray
    gap: IntArray

    def some(self, chosen: BoolArray) -> _Parts:
        at = np.flatnonzero(chosen)
        return _Parts(
            [self.entries[i] for i in at.tolist()],
            *(values[at] for values in (self.row, self.slot, self.here, self.cpu, self.memory, self.gap)),
        )

    def at_places_of(self, other: _Parts, free: Free) -> IntArray:
        """What each would take of the cards of the others, pods × others."""
        kinds: dict[int, int] = {}
        taken: list[IntArray] = []
        number: list[int] = []
        for entry in self.entries:
            at = kinds.setdefault(entry.cls.number, len(kinds))
            if at == len(taken):
                milli = free.milli(entry)
                barred = np.full(len(other.row), NEVER) if milli is None else milli[other.row, other.slot]
                taken.append(barred)
            number.append(at)
        return np.stack(taken)[np.array(number)]


def exchange(
    needs: Needs, milli: IntArray, free: Free, tasks: Sequence[Mapping[str, TaskEntry]], terms: Wanted
) -> tuple[TaskEntry, TaskEntry] | None:
    """The two pods that cost least and whose exchange makes room for a pod with one card; ``None`` if none does.
    ``milli``: what the pod takes of each card, nodes × slots. ``tasks``: by node. Of pods that ask for the same,
    on cards alike with equal gaps, only the one is looked at whose node has most CPU left."""
    open_ = free.cards[(free.cards > 0) & (free.cards < WHOLE)]
    wanted = int(milli.min())
    if len(open_) < 2 or wanted > int(np.partition(open_, -2)[-2:].sum()):
        return None
    parts = _parts(free, tasks, max(wanted - int(open_.max()), 1), terms)
    if parts is None:
        return None
    wanted_there = milli[parts.row, parts.slot]
    first = parts.some(wanted_there <= WHOLE)
    if not first.entries:
        return None
    cost = _costs(first, parts, free, milli[first.row, first.slot], dict(needs.request))
    x, y = divmod(int(cost.argmin()), cost.shape[1])
    return (first.entries[x], parts.entries[y]) if cost[x, y] <= terms.most else None


def _parts(free: Free, tasks: Sequence[Mapping[str, TaskEntry]], least: int, terms: Wanted) -> _Parts | None:
    """The pods that could change places: parts of cards with gaps of at least ``least``."""
    parted = free.cards < WHOLE
    gaps = (free.cards >= least) & parted
    models, sizes = free.kinds.model, free.kinds.memory_mib
    alike: dict[tuple[int, ...], TaskEntry] = {}
    for row in np.flatnonzero(gaps.any(axis=1)).tolist():
        for entry in tasks[row].values():
            if len(entry.devices) != 1 or entry.devices[0].milli >= min(WHOLE, terms.most):
                continue
            slot = entry.devices[0].index
            if not gaps[row, slot]:
                continue
            kind = (
                entry.cls.number,
                int(free.cards[row, slot]),
                int(models[row, slot]),
                int(sizes[row, slot]),
            )
            known = alike.get(kind)
            if (known is None or free.cpu[row] > free.cpu[known.row]) and terms.movable(entry):
                alike[kind] = entry
    found = list(alike.values())
    if len(found) < 2:
        return None

    def of(values: list[int]) -> IntArray:
        return np.array(values, dtype=np.int64)

    row_, slot_ = of([e.row for e in found]), of([e.devices[0].index for e in found])
    return _Parts(
        found,
        row_,
        slot_,
        of([e.devices[0].milli for e in found]),
        of([asks(e, "cpu") for e in found]),
        of([asks(e, "memory") for e in found]),
        free.cards[row_, slot_],
    )


def _costs(x: _Parts, y: _Parts, free: Free, wanted: IntArray, asked: dict[str, int]) -> IntArray:
    """What each exchange moves; :data:`NEVER` where it makes no room."""
    of_x, of_y = np.s_[:, None], np.s_[None, :]
    same = x.row[of_x] == y.row[of_y]
    good = ~(same & (x.slot[of_x] == y.slot[of_y]))
    good &= x.at_places_of(y, free) <= (y.gap + y.here)[of_y]
    good &= wanted[of_x] + y.at_places_of(x, free).T <= (x.gap + x.here)[of_x]
    for name, amounts_x, amounts_y, left in (
        ("cpu", x.cpu, y.cpu, free.cpu),
        ("memory", x.memory, y.memory, free.memory),
    ):
        more = amounts_x[of_x] - amounts_y[of_y]
        alone = (left[x.row][of_x] + more >= asked.get(name, 0)) & (left[y.row][of_y] >= more)
        good &= np.where(same, left[x.row][of_x] >= asked.get(name, 0), alone)
    return np.where(good, x.here[of_x] + y.here[of_y], NEVER)
