"""Comparison of two simulations of a cluster, unchanged and changed, with the same sampled run times.

Every sample draws the run times and simulates both, so that all differences are due to the change.
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
"""Maximum difference (seconds) that counts as equal."""


@dataclass(frozen=True, slots=True)
class SimulatedCluster:
    """State of a cluster, and its scheduler.

    ``engine`` creates a scheduler. ``rested``: the state before the change, after the scheduler had nothing left to
    decide.
    """

    state: ForwardState
    engine: Callable[[], Engine]
    rested: ForwardState | None = None

    def changing(self) -> SimulatedCluster:
        """Return a copy with a state that may be changed.

        The scheduler's reservations exist when the change is applied. If it still has decisions to make, the
        reservations are unknown, and the change is applied first.
        """
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
    """Change in the start of one group that exists in both simulations.

    ``before``, ``after``: seconds from now to its start; for a running group 0, or the time to its restart if a stop
    lost its work. ``later``: after minus before, per sample (negative: sooner). ``stops``: mean number of additional
    stops, including those by the change itself. ``runs``: True if it is running now.
    """

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
    """Result of a comparison.

    ``shifts``: one per group that is pending, or stopped and restarted, in either simulation. ``samples``: their
    number.
    """

    shifts: Sequence[Shift]
    samples: int

    def count(self, kind: str) -> int:
        """Return the number of groups that start ``sooner``, ``later`` or the ``same`` by their median."""
        return sum(1 for shift in self.shifts if kind_of(shift) == kind)


def kind_of(shift: Shift) -> str:
    """``sooner``, ``later`` or ``same``."""
    middle = shift.later.middle
    return "same" if abs(middle) < SAME_SECONDS else "sooner" if middle < 0 else "later"


@dataclass(frozen=True, slots=True)
class Draws:
    """Sampling of run times, and the horizon in seconds."""

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
    """Return the sort key: largest change first, sooner before later."""
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
    """The devices of each group that runs or waits."""
    found = dict.fromkeys(state.alive(), 0.0)
    for task in state.tasks.values():
        if task.group not in found:
            continue
        cards = sum(units for name, units in task.needs.request if is_device(name)) / 1000
        found[task.group] += cards
    return found
