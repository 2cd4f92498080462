"""A cluster played forward twice, as it is and changed, under the same draws of run times: who starts sooner or later.

Every sample draws how long each piece of work runs and plays both, so that what differs is due to the change alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import inf, isinf

from windlass.engine.engine import Engine
from windlass.sim.replay.metrics import percentile
from windlass.sim.whatif.play_forward import OVER, RUNS, Course, Forward, ForwardState, rests
from windlass.sim.whatif.run_times import SampledRunTimes
from windlass.spi.quantities import is_device

BAND = (10, 50, 90)
SAME_SECONDS = 1.0
"""What differs by less is the same."""


@dataclass(frozen=True, slots=True)
class SimulatedCluster:
    """A state and the scheduler that decides in it: ``engine`` makes one anew. ``rested``: what the state was like when
    that scheduler had come to rest, before it was changed."""

    state: ForwardState
    engine: Callable[[], Engine]
    rested: ForwardState | None = None

    def changing(self) -> SimulatedCluster:
        """The same with a state that may be changed, in which what the scheduler keeps for who waits stands when the
        change comes. Where it would decide something yet, nobody knows what it keeps: there the change comes first."""
        rested = self.state if rests(self.state, self.engine()) else None
        return SimulatedCluster(self.state.copy(), self.engine, rested)


@dataclass(frozen=True, slots=True)
class Band:
    """The 10th, 50th and 90th percentile of seconds over the samples; ``inf``: never."""

    low: float
    middle: float
    high: float

    @staticmethod
    def of(values: Sequence[float]) -> Band:
        ordered = sorted(values)
        return Band(*[percentile(ordered, percent) for percent in BAND])


@dataclass(frozen=True, slots=True)
class Shift:
    """One group that is there in both. ``before``, ``after``: seconds from now to its start; of what runs 0, or to when
    it begins anew after it was stopped and lost its work. ``later``: after less before, sample by sample (less than
    nothing: sooner). ``stops``: how often more it is stopped, on the mean; what the change itself stops counts once.
    ``runs``: whether it runs already."""

    group: str
    queue: str
    gpus: float
    before: Band
    after: Band
    later: Band
    stops: float
    runs: bool


@dataclass(frozen=True, slots=True)
class Comparison:
    """``shifts``: of everybody who waits in either world, or is stopped there and begins anew. ``samples``: how
    many."""

    shifts: Sequence[Shift]
    samples: int

    def count(self, kind: str) -> int:
        """How many are ``sooner``, ``later`` or the ``same`` by their median."""
        return sum(1 for shift in self.shifts if kind_of(shift) == kind)


def kind_of(shift: Shift) -> str:
    """``sooner``, ``later`` or ``same``."""
    middle = shift.later.middle
    return "same" if abs(middle) < SAME_SECONDS else "sooner" if middle < 0 else "later"


@dataclass(frozen=True, slots=True)
class Draws:
    """How run times are drawn, and how far is looked ahead (seconds)."""

    run_times: SampledRunTimes
    samples: int = 20
    seed: int = 0
    until: float = inf


def plays(
    world: SimulatedCluster, draws: Draws, number: int, pause: Callable[[], None] = lambda: None
) -> dict[str, Course]:
    """One sample: what becomes of each group."""
    seed = f"{draws.seed} {number}"
    forward = Forward(
        world.state,
        world.engine(),
        lambda group, elapsed, limit: draws.run_times.draw(group, seed, elapsed, limit),
        until=draws.until,
        pause=pause,
        rested=world.rested,
    )
    return dict(forward.run())


def compare(
    before: SimulatedCluster,
    after: SimulatedCluster,
    draws: Draws,
    progress: Callable[[int], None] | None = None,
) -> Comparison:
    """Play both worlds ``draws.samples`` times. ``progress`` is told how many samples are done."""
    pairs: list[tuple[dict[str, Course], dict[str, Course]]] = []
    for number in range(draws.samples):
        pairs.append((plays(before, draws, number), plays(after, draws, number)))
        if progress is not None:
            progress(len(pairs))
    gpus = _gpus(before.state)
    running = _running(before.state)
    stopped = running - _running(after.state)
    shifts: list[Shift] = []
    for key, group in after.state.groups.items():
        runs = key in running
        first = [_seconds(one.get(key), before.state.now, runs) for one, _ in pairs]
        second = [_seconds(two.get(key), after.state.now, runs) for _, two in pairs]
        if key not in gpus or not (any(first) or any(second) or key in stopped):
            continue
        later = [_difference(a, b) for a, b in zip(first, second, strict=True)]
        more = sum(_stops(two.get(key)) - _stops(one.get(key)) for one, two in pairs) / len(pairs)
        more += key in stopped
        bands = Band.of(first), Band.of(second), Band.of(later)
        shifts.append(Shift(key, group.queue, gpus[key], *bands, more, runs))
    return Comparison(sorted(shifts, key=_order), draws.samples)


def _running(state: ForwardState) -> set[str]:
    """The groups of which as many tasks as they need have their places."""
    placed = Counter(task.group for task in state.tasks.values() if task.state in RUNS)
    alive = Counter(task.group for task in state.tasks.values() if task.state not in OVER)
    return {
        key
        for key, group in state.groups.items()
        if placed[key] and placed[key] >= min(group.min_member, alive[key])
    }


def _order(shift: Shift) -> tuple[float, str]:
    """What changes most comes first, sooner before later."""
    return (-abs(shift.later.middle), shift.group)


def _seconds(course: Course | None, now: float, runs: bool) -> float:
    """To the start; of what ``runs``, to the last that was from nothing."""
    if course is None or course.started is None:
        return inf
    return (course.anew if runs and course.anew is not None else course.started) - now


def _stops(course: Course | None) -> int:
    return course.stops if course is not None else 0


def _difference(before: float, after: float) -> float:
    return 0.0 if isinf(before) and isinf(after) else after - before


def _gpus(state: ForwardState) -> dict[str, float]:
    """The cards of each group that runs or waits."""
    found = dict.fromkeys(state.alive(), 0.0)
    for task in state.tasks.values():
        if task.group not in found:
            continue
        cards = sum(units for name, units in task.needs.request if is_device(name)) / 1000
        found[task.group] += cards
    return found
