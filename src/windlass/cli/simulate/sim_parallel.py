"""How ``windlass sim run`` plays every policy with every seed: one after the other, or several at once."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from windlass.cli.invocation import Invocation
from windlass.cli.output.progress import progress
from windlass.cli.simulate.interrupt import until_stopped
from windlass.cli.simulate.placement_scores import WatchedPlacements
from windlass.cli.simulate.policy_columns import PolicyColumn
from windlass.cli.simulate.sim_reports import ReplayRecord, WantedReports, keep
from windlass.cli.simulate.sim_run import Setup
from windlass.cli.text import plural
from windlass.kits import gc_tuning, memory
from windlass.kits.clock import SystemClock
from windlass.kits.process_pool import in_processes, reached
from windlass.sim.jobs import TraceJob
from windlass.sim.replay.metrics import Metrics, measure
from windlass.sim.replay.placements import Placement
from windlass.sim.replay.replay import Replay
from windlass.sim.replay.seed_statistics import SEED, over_seeds
from windlass.sim.replay.unfinished import left
from windlass.sim.replay.wait_lower_bound import least_mean_queue


@dataclass(frozen=True, slots=True)
class Play:
    """One policy with one seed. ``least``: the least mean wait that there is; ``scored``: the job of which it is kept
    how the nodes ranked, if any."""

    number: int
    column: PolicyColumn
    seed: int
    jobs: Sequence[TraceJob]
    setup: Setup
    least: float
    wanted: WantedReports
    scored: str | None


class Played(NamedTuple):
    """What came of it, as far as it is wanted."""

    number: int
    metrics: Metrics
    kept: ReplayRecord
    placements: Sequence[Placement]


def plays(
    jobs: Sequence[TraceJob],
    chosen: Sequence[PolicyColumn],
    setup: Setup,
    wanted: WantedReports,
    scored: str | None,
) -> list[Play]:
    """Every policy with every seed, in this order."""
    least = round(least_mean_queue(jobs, setup.power, setup.fastest), 1)
    each = [(column, seed) for column in chosen for seed in setup.seeds]
    first = setup.seeds[0]
    return [
        Play(
            at,
            column,
            seed,
            jobs,
            setup,
            least,
            replace(wanted, drawn=wanted.drawn and seed == first),
            scored,
        )
        for at, (column, seed) in enumerate(each)
    ]


def play_all(invocation: Invocation, todo: Sequence[Play], processes: int) -> list[Played]:
    """All of them, or what Ctrl-C left, in their order; says on standard error how far it is. Raises
    ``KeyboardInterrupt`` where none had been played to its end."""
    gc_tuning.expect_long_lives()
    return sorted(until_stopped(_each(invocation, todo, processes)), key=lambda played: played.number)


def _each(invocation: Invocation, todo: Sequence[Play], processes: int) -> Iterator[Played]:
    """As they are done."""
    if processes > 1 and len(todo) > 1:
        with progress(invocation, plural(len(todo), "run"), sum(len(one.jobs) for one in todo)) as tell:
            for _, played in in_processes(_alone, todo, processes, tell):
                yield played
        return
    for one in todo:
        policy = one.column.policy.name
        title = policy if len(one.setup.seeds) == 1 else f"{policy}, seed {one.seed}"
        with progress(invocation, title, len(one.jobs)) as tell:
            played = _play(one, tell)
        yield played


def _alone(one: Play) -> Played:
    """In a process of its own."""
    gc_tuning.expect_long_lives()
    return _play(one, reached)


def _play(one: Play, tell: Callable[[int], None] | None) -> Played:
    clock, watch = SystemClock(), WatchedPlacements(one.scored)
    policy = watch.over(one.column.policy)
    begun = clock.monotonic()
    game = Replay(one.jobs, one.setup.nodes, policy, replace(one.setup.options, seed=one.seed))
    outcome = game.run(tell)
    outcome.seconds = clock.monotonic() - begun
    outcome.memory_bytes = memory.peak_bytes()
    metrics = replace(measure(policy.name, outcome), left=left(game))
    metrics.figures["queue_bound_seconds"] = one.least
    if len(one.setup.seeds) > 1:
        metrics.figures[SEED] = one.seed
    return Played(one.number, metrics, keep(one.wanted, metrics, outcome, one.seed), watch.seen)


def of_policies(runs: Sequence[Metrics], seeds: int) -> list[Metrics]:
    """One for each policy that was played with so many seeds: their means, with their spread."""
    by_policy: dict[str, list[Metrics]] = {}
    for run in runs:
        by_policy.setdefault(run.policy, []).append(run)
    return [over_seeds(found) for found in by_policy.values() if len(found) == seeds]
