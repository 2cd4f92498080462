"""Time-sharing without knowing run times: the rank is the time that the next ending is expected to cost.

How long work runs is not known, but what became of work like it is. Time in a run is divided at
``FIRST``, ``FIRST * FACTOR``, ``FIRST * FACTOR²``, … seconds; for each stretch is counted how many runs of about
this size ended in it and how many outlived it. From that follows, for work that has had ``a`` seconds, how much
time must be spent on it per ending if it is run up to the best of the following divisions: the inverse of its
Gittins index (Gittins 1979; for scheduling with unknown run times: Aalto, Ayesta, Righter 2009). The smaller
goes first. What has just begun mostly ends soon and goes first; what has outlived the rest is likely to go
on, unless the counts say that runs of its kind end about there: then it is run to its end rather than stopped.

Before anything is known, and where little is, it is assumed that in each stretch the same part ends
(``1 - 1 / FACTOR``), which is the case for a power law of exponent one; the assumption weighs as much as
``PRIOR`` runs. Counts of a size (by powers of two) rest in the same way on the counts of all sizes.

The time is weighed by ``1 + devices / NODE``: a run stands in the way of one other, and of one more for each node
that it fills. By accelerator time alone large gangs would wait for everybody; by time alone they would stop
everybody.

Whoever was suspended claims nobody's room for the quantum for which a start is left alone. It has just given way to who
ranks better; if it took the room of the next at once, one arrival would suspend a chain of groups.

A suspension has to be worth what it loses: the work of the victim since its last checkpoint and its restart
(:mod:`~windlass.plugins.timeshare.suspension_cost`), for each of the claimer's accelerators. Time is worth most to the
claimer where it is run up to the division that brings most endings for it, each taken for what one costs by the
victim's rank: ``worth`` is that, less the time spent. Whoever waits ahead of the victim gains so much on average, in a
queue whose groups all wait for one room; all who wait there, and all who run, lose the time that is spent twice. So the
victim goes if ``loss · (waiting + running) <= worth · before``, with ``before`` those of the waiting that rank before
it. Where that does not hold, but would if its work were saved, it is spared until it says that it saves it next.

Whoever waits long is moved up: after ``PATIENCE_SECONDS`` of waiting in all the rank is half of what it would be.
So nobody waits for ever.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field

import msgspec

from windlass.plugins.timeshare.opt_in import QUANTUM_SECONDS, OptIn, OptInSharing, opted_in
from windlass.plugins.timeshare.suspension_cost import EXACT, habit_of, loss_seconds, next_saved
from windlass.spi.timeshare import QueueContention, Rank, RunSegment, RunTimeCounts, Tally

FIRST = 600.0
FACTOR = 4.0
STRETCHES = 11
"""The last division is at ``FIRST * FACTOR ** 9``: five years."""
PRIOR = 10.0
NODE = 8.0
PATIENCE_SECONDS = 30 * 86400.0
SIZES = 64
"""Of more sizes there are no counts: the largest would have 2⁶³ accelerators."""
STEPS = 8
"""In so many steps."""
NEWS, FEW = 0.02, 5
"""Costs are reckoned anew once so large a part of the counts is new, and more than so many."""
_LEFT = 1e-3
"""Chances below are not followed further."""


@dataclass(slots=True)
class _Counts:
    """Of runs of one size: how many ended in each stretch, how many outlived it; and what was reckoned of that: by
    stretch the ways to go on from its beginning, and the fewest seconds per ending."""

    ended: list[float]
    outlived: list[float]
    seen: int = 0
    ways: list[list[tuple[float, float]]] = field(default_factory=list)
    costs: list[float] = field(default_factory=list)
    reckoned_at: int = 0

    @staticmethod
    def of(tally: Tally) -> _Counts:
        ended, outlived = list(tally[0]), list(tally[1])
        return _Counts(ended, outlived, round(sum(ended) + sum(outlived)))

    def tally(self) -> Tally:
        return self.ended, self.outlived


@dataclass(frozen=True, slots=True)
class Tuning:
    """The parameters; see the top of this module."""

    first_seconds: float = FIRST
    factor: float = FACTOR
    prior: float = PRIOR
    node: float = NODE
    patience_seconds: float = PATIENCE_SECONDS
    quantum_seconds: float = QUANTUM_SECONDS


_Known = tuple[Sequence[float], Sequence[float]]
"""By stretch: how many runs ended in it, how many outlived it."""


class LearnedSharing(OptInSharing):
    name = "learned"

    def __init__(self, joins: OptIn = opted_in, tuning: Tuning | None = None) -> None:
        self.tuning = tuning = tuning or Tuning()
        super().__init__(joins, tuning.quantum_seconds)
        self._edges = [0.0, *(tuning.first_seconds * tuning.factor**n for n in range(STRETCHES - 1))]
        self._widths = [b - a for a, b in zip(self._edges, self._edges[1:], strict=False)]
        self._widths.append(self._edges[-1] * (tuning.factor - 1.0))
        self._all = self._fresh()
        self._sizes: dict[int, _Counts] = {}

    # ------------------------------------------------------------------ ranks

    def rank(self, segment: RunSegment) -> Rank:
        at = bisect_right(self._edges, segment.attained + EXACT) - 1
        if segment.memory != at:
            self._passed(segment, at)
        size = _size(segment.devices)
        cost = self.cost(segment, at, size) * self._weight(segment)
        until = self._edges[at + 1] if at + 1 < STRETCHES else None
        return Rank(
            cost,
            until=until,
            waited_until=segment.waited + self.tuning.patience_seconds / STEPS,
            rests=self.tuning.quantum_seconds,
        )

    def cost(self, segment: RunSegment, at: int, size: int) -> float:
        """The seconds per ending that are expected of a group from the beginning of a stretch on."""
        return self._reckoned(size).costs[at]

    def ways(self, segment: RunSegment, at: int, size: int) -> list[tuple[float, float]]:
        """Up to which divisions a group may be followed from the beginning of a stretch on: the seconds spent, and the
        endings, that are expected."""
        return self._reckoned(size).ways[at]

    def protected_until(
        self, victim: RunSegment, preemptor: RunSegment, rank: float, contention: QueueContention, now: float
    ) -> float:
        started = self.quantum_over(victim, preemptor, now)
        if started > now:
            return started
        habit = habit_of(victim)
        if habit.free:
            return started
        each = max(victim.devices, 1.0) / max(preemptor.devices, 1.0)
        price = max(each, 1.0) * (contention.waiting + contention.running) / max(contention.before(rank), 1)
        worth = self.worth(preemptor, rank)
        if loss_seconds(victim, habit, now) * price <= worth:
            return started
        return next_saved(victim, habit, now) if habit.restart * price <= worth else math.inf

    def worth(self, preemptor: RunSegment, rank: float) -> float:
        """How many seconds it is worth to serve a claimer before somebody of that rank."""
        at = bisect_right(self._edges, preemptor.attained + EXACT) - 1
        ending = rank / self._weight(preemptor)
        return max(
            [ending * ends - spent for spent, ends in self.ways(preemptor, at, _size(preemptor.devices))]
        )

    def _weight(self, segment: RunSegment) -> float:
        """What time counts for: more for the nodes that it fills, less once it has waited long."""
        return (1.0 + segment.devices / self.tuning.node) / (
            1.0 + segment.waited / self.tuning.patience_seconds
        )

    def finished(self, segment: RunSegment) -> None:
        at = bisect_right(self._edges, segment.attained + EXACT) - 1
        self._passed(segment, at)
        self._count(_size(segment.devices), at, ended=True)

    def remembered(self) -> object:
        """All counts, those of all sizes first."""
        return [asdict(self._all), {str(size): asdict(counts) for size, counts in self._sizes.items()}]

    def recall(self, learned: object) -> None:
        """See :class:`~windlass.spi.scoring.RemembersState`."""
        self._all, self._sizes = msgspec.convert(learned, tuple[_Counts, dict[int, _Counts]], strict=False)

    # ------------------------------------------------------------------ kept across restarts

    @property
    def counted(self) -> float:
        return self._all.seen

    def counts(self) -> RunTimeCounts:
        """See :class:`~windlass.spi.timeshare.PersistentCounts`."""
        sizes = {size: counts.tally() for size, counts in sorted(self._sizes.items()) if counts.seen}
        return RunTimeCounts(tuple(self._edges), self._all.tally(), sizes)

    def resume(self, counts: RunTimeCounts) -> None:
        """See :class:`~windlass.spi.timeshare.PersistentCounts`."""
        if list(counts.divisions) != self._edges:
            raise ValueError("they were counted with other divisions")
        tallies = (counts.every, *counts.sizes.values())
        if len(tallies) > SIZES + 1 or not all(map(_is_sound, tallies)):
            raise ValueError(f"of each size {STRETCHES} numbers of at least 0 are expected twice")
        self._all = _Counts.of(counts.every)
        self._sizes = {size: _Counts.of(tally) for size, tally in counts.sizes.items()}

    # ------------------------------------------------------------------ learning

    def _passed(self, segment: RunSegment, at: int) -> None:
        """Count the stretches that the run has outlived since it was looked at last; of one that was never, who looked
        before has counted them."""
        before = at if segment.memory is None else segment.memory
        for stretch in range(before, at):
            self._count(_size(segment.devices), stretch, ended=False)
        segment.memory = at

    def _count(self, size: int, stretch: int, *, ended: bool) -> None:
        for counts in (self._all, self._of_size(size)):
            (counts.ended if ended else counts.outlived)[stretch] += 1
            counts.seen += 1

    def _of_size(self, size: int) -> _Counts:
        counts = self._sizes.get(size)
        if counts is None:
            counts = self._sizes[size] = self._fresh()
        return counts

    def _fresh(self) -> _Counts:
        return _Counts([0.0] * STRETCHES, [0.0] * STRETCHES)

    # ------------------------------------------------------------------ what is expected

    def _reckoned(self, size: int) -> _Counts:
        """With what follows from them, up to date."""
        counts = self._sizes.get(size) or self._of_size(size)
        fresh = counts.seen - counts.reckoned_at
        if not counts.costs or (fresh > FEW and fresh > NEWS * counts.seen):
            counts.reckoned_at = counts.seen
            known = self._known(counts)
            counts.ways = [self._ways(known, at) for at in range(STRETCHES)]
            counts.costs = list(map(least, counts.ways))
        return counts

    def _known(self, counts: _Counts) -> tuple[_Known, _Known]:
        """What chances rest on, the nearest last."""
        return (self._all.ended, self._all.outlived), (counts.ended, counts.outlived)

    def _ways(self, known: Iterable[_Known], at: int) -> list[tuple[float, float]]:
        """See :meth:`ways`. Of what is ``known`` each rests on the one before, which weighs as much as ``prior`` runs;
        within a stretch runs end in its middle."""
        prior, assumed, widths = self.tuning.prior, 1.0 - 1.0 / self.tuning.factor, self._widths
        there, endings, spent = 1.0, 0.0, 0.0
        found: list[tuple[float, float]] = []
        for stretch in range(at, STRETCHES):
            chance = assumed  # that a run which reaches the stretch ends in it
            for ended, outlived in known:
                ends = ended[stretch]
                chance = (ends + prior * chance) / (ends + outlived[stretch] + prior)
            ends = there * chance
            spent += widths[stretch] * (there - ends / 2.0)
            endings += ends
            there -= ends
            found.append((spent, endings))
            if there < _LEFT:
                break
        return found


def least(ways: list[tuple[float, float]]) -> float:
    """The fewest seconds per ending."""
    return min([spent / endings for spent, endings in ways])


def _size(devices: float) -> int:
    """Sizes that count as one: by powers of two."""
    return math.ceil(devices).bit_length()


def _is_sound(tally: Tally) -> bool:
    """Return whether so many runs can have been counted."""
    return all(len(part) == STRETCHES and all(0 <= n < math.inf for n in part) for part in tally)
