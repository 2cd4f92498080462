"""Time-sharing without known run times: ranks by expected time per completion.

Run times are unknown, but those of similar work were counted. Time in a run is divided
at ``FIRST``, ``FIRST * FACTOR``, ``FIRST * FACTOR²``, … seconds. For each stretch the
policy counts the runs of about this size that ended in it, and those that outlived it.
From the counts it derives the expected time per completion for work that has attained
``a`` seconds, if it runs up to the best of the following divisions. That is the inverse
of the Gittins index (Gittins 1979; for scheduling with unknown run times: Aalto,
Ayesta, Righter 2009). The smaller value ranks first. New runs mostly end soon and rank
first. Runs that outlived the others are likely to go on, unless the counts say that
such runs end about there. Then they run to their end.

Without counts, and with few of them, the policy assumes that the same part ends in each
stretch (``1 - 1 / FACTOR``), which holds for a power law of exponent one. The
assumption weighs as much as ``PRIOR`` runs. Counts of a size (by powers of two) rest in
the same way on the counts of all sizes.

Time is weighted by ``1 + devices / NODE``: a run blocks one other run, and one more for
each node that it fills. By accelerator time alone large gangs would wait for all
others. By time alone they would suspend all others.

A suspended group preempts no other for the quantum that protects a start. It has just
made way for a group that ranks better. If it took the next group's capacity at once,
one arrival would suspend a chain of groups.

A suspension has to be worth what it loses: the victim's work since its last checkpoint
and its restart (:mod:`~windlass.plugins.timeshare.suspension_cost`), for each of the
preemptor's accelerators. The preemptor's time is worth most if it runs up to the
division with the most completions, each valued at the cost of one by the victim's rank.
``worth`` is that value less the time spent. In a queue in which all groups wait for the
same capacity, each group that waits ahead of the victim gains this on average. All
waiting and running groups lose the time that is spent twice. So the victim is suspended
if ``loss · (waiting + running) <= worth · before``, where ``before`` is the number of
waiting groups that rank before it. If that holds only without the loss of unsaved work,
the victim is protected until its next declared checkpoint.

Long waits improve the rank: it is halved after ``PATIENCE_SECONDS`` of waiting in
total. So no group waits for ever.
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
"""Number of stretches. The last division is at ``FIRST * FACTOR ** 9``: five years."""
PRIOR = 10.0
NODE = 8.0
PATIENCE_SECONDS = 30 * 86400.0
SIZES = 64
"""Maximum number of sizes with counts: the largest would have 2⁶³ accelerators."""
STEPS = 8
"""Number of steps in which the rank improves."""
NEWS, FEW = 0.02, 5
"""Minimum part and number of new counts before costs are computed again."""
_LEFT = 1e-3
"""Probability below which continuations are ignored."""


@dataclass(slots=True)
class _Counts:
    """Counts of the runs of one size by stretch, and the values derived from them.

    ``ended``, ``outlived``: runs that ended in the stretch or outlived it. ``ways``: by
    stretch the continuations from its start. ``costs``: by stretch the minimum seconds
    per completion.
    """

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
    """Parameters of the policy; see the module's docstring."""

    first_seconds: float = FIRST
    factor: float = FACTOR
    prior: float = PRIOR
    node: float = NODE
    patience_seconds: float = PATIENCE_SECONDS
    quantum_seconds: float = QUANTUM_SECONDS


_Known = tuple[Sequence[float], Sequence[float]]
"""By stretch: number of runs that ended in it, number that outlived it."""


class LearnedSharing(OptInSharing):
    name = "learned"

    def __init__(self, joins: OptIn = opted_in, tuning: Tuning | None = None) -> None:
        self.tuning = tuning = tuning or Tuning()
        super().__init__(joins, tuning.quantum_seconds)
        self._edges = [0.0, *(tuning.first_seconds * tuning.factor**n for n in range(STRETCHES - 1))]
        self._widths = [b - a for a, b in zip(self._edges, self._edges[1:], strict=False)]
        self._widths.append(self._edges[-1] * (tuning.factor - 1.0))
        self._all = self._empty_counts()
        self._sizes: dict[int, _Counts] = {}

    # ------------------------------------------------------------------ ranks

    def rank(self, segment: RunSegment) -> Rank:
        stretch = bisect_right(self._edges, segment.attained + EXACT) - 1
        if segment.memory != stretch:
            self._passed(segment, stretch)
        size = _size(segment.devices)
        cost = self.cost(segment, stretch, size) * self._weight(segment)
        until = self._edges[stretch + 1] if stretch + 1 < STRETCHES else None
        return Rank(
            cost,
            until=until,
            waited_until=segment.waited + self.tuning.patience_seconds / STEPS,
            rests=self.tuning.quantum_seconds,
        )

    def cost(self, segment: RunSegment, stretch: int, size: int) -> float:
        """Return the expected seconds per completion of a group from the start of a stretch on."""
        return self._reckoned(size).costs[stretch]

    def ways(self, segment: RunSegment, stretch: int, size: int) -> list[tuple[float, float]]:
        """Return the continuations of a group from the start of a stretch, up to each division.

        Each is a pair: expected seconds, expected completions.
        """
        return self._reckoned(size).ways[stretch]

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
        """Return the seconds that it is worth to run a preemptor before a group of that rank."""
        stretch = bisect_right(self._edges, preemptor.attained + EXACT) - 1
        ending = rank / self._weight(preemptor)
        return max(
            [ending * ends - spent for spent, ends in self.ways(preemptor, stretch, _size(preemptor.devices))]
        )

    def _weight(self, segment: RunSegment) -> float:
        """Return the weight of time: higher for filled nodes, lower after long waiting."""
        return (1.0 + segment.devices / self.tuning.node) / (
            1.0 + segment.waited / self.tuning.patience_seconds
        )

    def finished(self, segment: RunSegment) -> None:
        stretch = bisect_right(self._edges, segment.attained + EXACT) - 1
        self._passed(segment, stretch)
        self._count(_size(segment.devices), stretch, ended=True)

    def remembered(self) -> object:
        """Return all counts, those of all sizes first."""
        return [asdict(self._all), {str(size): asdict(counts) for size, counts in self._sizes.items()}]

    def recall(self, learned: object) -> None:
        """Restore the counts (:class:`~windlass.spi.scoring.RemembersState`)."""
        self._all, self._sizes = msgspec.convert(learned, tuple[_Counts, dict[int, _Counts]], strict=False)

    # ------------------------------------------------------------------ persistence

    @property
    def counted(self) -> float:
        return self._all.seen

    def counts(self) -> RunTimeCounts:
        """Return the counts (:class:`~windlass.spi.timeshare.PersistentCounts`)."""
        sizes = {size: counts.tally() for size, counts in sorted(self._sizes.items()) if counts.seen}
        return RunTimeCounts(tuple(self._edges), self._all.tally(), sizes)

    def resume(self, counts: RunTimeCounts) -> None:
        """Replace the counts by stored ones (:class:`~windlass.spi.timeshare.PersistentCounts`)."""
        if list(counts.divisions) != self._edges:
            raise ValueError("the stored counts have other divisions")
        tallies = (counts.every, *counts.sizes.values())
        if len(tallies) > SIZES + 1 or not all(map(_is_sound, tallies)):
            raise ValueError(f"each size needs two lists of {STRETCHES} numbers of at least 0")
        self._all = _Counts.of(counts.every)
        self._sizes = {size: _Counts.of(tally) for size, tally in counts.sizes.items()}

    # ------------------------------------------------------------------ learning

    def _passed(self, segment: RunSegment, at: int) -> None:
        """Count the stretches that the run has outlived since the last call.

        The first call for a run counts nothing: an earlier process has counted its
        stretches.
        """
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
            counts = self._sizes[size] = self._empty_counts()
        return counts

    def _empty_counts(self) -> _Counts:
        return _Counts([0.0] * STRETCHES, [0.0] * STRETCHES)

    # ------------------------------------------------------------------ expectations

    def _reckoned(self, size: int) -> _Counts:
        """Return the counts of a size, with derived values up to date."""
        counts = self._sizes.get(size) or self._of_size(size)
        fresh = counts.seen - counts.reckoned_at
        if not counts.costs or (fresh > FEW and fresh > NEWS * counts.seen):
            counts.reckoned_at = counts.seen
            known = self._known(counts)
            counts.ways = [self._ways(known, at) for at in range(STRETCHES)]
            counts.costs = list(map(least, counts.ways))
        return counts

    def _known(self, counts: _Counts) -> tuple[_Known, _Known]:
        """Return the counts on which probabilities are based, the most specific last."""
        return (self._all.ended, self._all.outlived), (counts.ended, counts.outlived)

    def _ways(self, known: Iterable[_Known], at: int) -> list[tuple[float, float]]:
        """Return the continuations from a stretch; see :meth:`ways`.

        Each entry of ``known`` is based on the one before, which weighs as much as
        ``prior`` runs. Within a stretch runs end in its middle.
        """
        prior, assumed, widths = self.tuning.prior, 1.0 - 1.0 / self.tuning.factor, self._widths
        there, endings, spent = 1.0, 0.0, 0.0
        continuations: list[tuple[float, float]] = []
        for stretch in range(at, STRETCHES):
            chance = assumed  # that a run which reaches the stretch ends in it
            for ended, outlived in known:
                ends = ended[stretch]
                chance = (ends + prior * chance) / (ends + outlived[stretch] + prior)
            ends = there * chance
            spent += widths[stretch] * (there - ends / 2.0)
            endings += ends
            there -= ends
            continuations.append((spent, endings))
            if there < _LEFT:
                break
        return continuations


def least(ways: list[tuple[float, float]]) -> float:
    """Return the minimum seconds per completion."""
    return min([spent / endings for spent, endings in ways])


def _size(devices: float) -> int:
    """Return the size class of a number of devices: by powers of two."""
    return math.ceil(devices).bit_length()


def _is_sound(tally: Tally) -> bool:
    """Return whether the stored counts are valid."""
    return all(len(part) == STRETCHES and all(0 <= n < math.inf for n in part) for part in tally)
