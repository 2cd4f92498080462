"""Runs of ``windlass sim run``: every policy with every seed, in sequence or in processes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, cast

from windlass.cli.invocation import Invocation
from windlass.cli.output.progress import progress, until_interrupted
from windlass.cli.simulate.placement_scores import WatchedPlacements
from windlass.cli.simulate.policy_columns import PolicyColumn
from windlass.cli.simulate.sim_reports import ReplayRecord, WantedReports, record_of
from windlass.cli.simulate.sim_run import Setup
from windlass.cli.text import plural
from windlass.engine.engine import Engine
from windlass.kits import gc_tuning, processes
from windlass.kits.clock import SystemClock
from windlass.kits.process_pool import map_in_processes, report_progress
from windlass.sim.jobs import TraceJob
from windlass.sim.replay.metrics import Metrics, measure
from windlass.sim.replay.pass_times import TimedEngine
from windlass.sim.replay.placements import Placement
from windlass.sim.replay.policies import ReplayPolicy
from windlass.sim.replay.replay import Replay
from windlass.sim.replay.seed_statistics import SEED, over_seeds
from windlass.sim.replay.unfinished import left
from windlass.sim.replay.wait_lower_bound import least_mean_queue


@dataclass(frozen=True, slots=True)
class PolicyRun:
    """One policy with one seed.

    ``least``: lower bound of the mean wait. ``scored``: job with a recorded ranking of
    nodes, if any.
    """

    number: int
    column: PolicyColumn
    seed: int
    jobs: Sequence[TraceJob]
    setup: Setup
    least: float
    wanted: WantedReports
    scored: str | None


class RunResult(NamedTuple):
    """Result of one run, with the requested records."""

    number: int
    metrics: Metrics
    kept: ReplayRecord
    placements: Sequence[Placement]


def policy_runs(
    jobs: Sequence[TraceJob],
    chosen: Sequence[PolicyColumn],
    setup: Setup,
    wanted: WantedReports,
    scored: str | None,
) -> list[PolicyRun]:
    """Return every policy with every seed, in this order."""
    least = round(least_mean_queue(jobs, setup.power, setup.fastest), 1)
    pairs = [(column, seed) for column in chosen for seed in setup.seeds]
    first = setup.seeds[0]
    return [
        PolicyRun(
            number,
            column,
            seed,
            jobs,
            setup,
            least,
            replace(wanted, drawn=wanted.drawn and seed == first),
            scored,
        )
        for number, (column, seed) in enumerate(pairs)
    ]


def run_all(invocation: Invocation, todo: Sequence[PolicyRun], processes: int) -> list[RunResult]:
    """Run all of them, or until Ctrl-C, and return the results in order.

    Progress is shown on standard error. Raises ``KeyboardInterrupt`` if none was
    finished.
    """
    gc_tuning.tune_for_long_lived_objects()
    return sorted(until_interrupted(_each(invocation, todo, processes)), key=lambda played: played.number)


def _each(invocation: Invocation, todo: Sequence[PolicyRun], processes: int) -> Iterator[RunResult]:
    """Yield results as they are finished."""
    if processes > 1 and len(todo) > 1:
        with progress(invocation, plural(len(todo), "run"), sum(len(run.jobs) for run in todo)) as tell:
            for _, played in map_in_processes(_run_in_process, todo, processes, tell):
                yield played
        return
    for run in todo:
        policy = run.column.policy.name
        title = policy if len(run.setup.seeds) == 1 else f"{policy}, seed {run.seed}"
        with progress(invocation, title, len(run.jobs)) as tell:
            played = _run(run, tell)
        yield played


def _run_in_process(run: PolicyRun) -> RunResult:
    """Run in a process of its own."""
    gc_tuning.tune_for_long_lived_objects()
    return _run(run, report_progress)


def _run(run: PolicyRun, tell: Callable[[int], None] | None) -> RunResult:
    clock, watch = SystemClock(), WatchedPlacements(run.scored)
    policy = watch.over(run.column.policy)
    started = clock.monotonic()
    replay = Replay(run.jobs, run.setup.nodes, policy, replace(run.setup.options, seed=run.seed))
    timed = TimedEngine(replay.deciding.engine, clock)
    replay.deciding.engine = cast(Engine, timed)
    outcome = replay.run(tell)
    outcome.seconds = clock.monotonic() - started
    outcome.memory_bytes = processes.peak_memory_bytes()
    metrics = replace(measure(policy.name, outcome), left=left(replay))
    metrics.figures["queue_bound_seconds"] = run.least
    metrics.figures["pass_milliseconds"] = timed.figures
    if len(run.setup.seeds) > 1:
        metrics.figures[SEED] = run.seed
    return RunResult(run.number, metrics, record_of(run.wanted, metrics, outcome, run.seed), watch.seen)


def over_all_seeds(runs: Sequence[Metrics], seeds: int) -> list[Metrics]:
    """Return means and spread for each policy that was run with all seeds."""
    by_policy: dict[str, list[Metrics]] = {}
    for run in runs:
        by_policy.setdefault(run.policy, []).append(run)
    return [over_seeds(same_policy) for same_policy in by_policy.values() if len(same_policy) == seeds]


def unfinished(policies: Sequence[ReplayPolicy], results: Sequence[Metrics]) -> list[str]:
    """Return the names of the policies without a result."""
    finished = {result.policy for result in results}
    return [policy.name for policy in policies if policy.name not in finished]
