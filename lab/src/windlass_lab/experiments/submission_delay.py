"""E14: time from submission to binding, for jobs that fit at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from windlass.engine.engine import Engine
from windlass.sim.cluster import make_nodes, parse
from windlass.sim.jobs import TraceJob
from windlass.sim.replay.metrics import percentile
from windlass.sim.replay.outcome import ReplayOutcome
from windlass.sim.replay.pass_times import TimedEngine
from windlass.sim.replay.policies import POLICIES
from windlass.sim.replay.replay import Replay, ReplayOptions
from windlass.sim.synthetic import Profile
from windlass_lab.experiments.claim import Experiment, ExperimentFinding, Figure, Goal
from windlass_lab.experiments.generated_traces import scaled
from windlass_lab.experiments.lab import Lab

NODES, GPUS, LOAD = "300x8", 2400, 0.7
JOBS, BRIEF_JOBS = 4000, 300
MOST_SECONDS = 10.0
"""Single seconds are less than this."""


def submission_delay(lab: Lab) -> ExperimentFinding:
    """E14."""
    profile = Profile(jobs=BRIEF_JOBS if lab.brief else JOBS, days=1.0, spread=1.2)
    jobs = scaled(profile, GPUS, LOAD, 14)
    kube, ours = (sorted(_delays(lab, jobs, policy)) for policy in ("kube1", "windlass"))
    last = percentile(ours, 99)
    return ExperimentFinding(
        (
            Figure("median of submission to binding", *_milli(kube, ours, 50), "ms", 2, steady=False),
            Figure("p99 of submission to binding", *_milli(kube, ours, 99), "ms", 2, steady=False),
            Figure("jobs that fit at once", len(kube), len(ours)),
            Figure("jobs", len(jobs), len(jobs)),
        ),
        (Goal("p99 in single seconds", last < MOST_SECONDS),),
        note="Processor time of this machine. A submission waits for the pass that runs, then for its own.",
    )


def _milli(kube: Sequence[float], ours: Sequence[float], percent: float) -> tuple[float, float]:
    return 1000 * percentile(kube, percent), 1000 * percentile(ours, percent)


def _delays(lab: Lab, jobs: Sequence[TraceJob], policy: str) -> list[float]:
    run = Replay(jobs, make_nodes(parse(NODES)), POLICIES[policy], ReplayOptions(timeline=False))
    timed = TimedEngine(run.deciding.engine, lab.processor)
    run.deciding.engine = cast(Engine, timed)
    outcome = run.run(lambda done: lab.tell(policy, done, len(jobs)))
    return delays(outcome, timed.moments, timed.seconds)


def delays(outcome: ReplayOutcome, moments: Sequence[float], seconds: Sequence[float]) -> list[float]:
    """Return the delay of each job that started in the moment of its submission.

    The scheduler is one server: passes of one moment follow each other, and begin when those of earlier
    moments are over.
    """
    ends: dict[float, float] = {}
    free = 0.0
    for moment, length in zip(moments, seconds, strict=True):
        free = max(free, moment) + length
        ends[moment] = free
    return [
        ends[ended.started] - ended.job.submit_seconds
        for ended in outcome.jobs
        if ended.started is not None and ended.started == ended.job.submit_seconds and ended.started in ends
    ]


EXPERIMENTS = (
    Experiment(
        "E14",
        "scheduling delay falls to seconds",
        "generated: 4,000 jobs of 1 to 32 GPUs in a day (load 0.7)",
        "300 nodes of 8 GPUs",
        "kube1: one pod per GPU, pods one by one",
        "windlass: gangs",
        "time from submission to the binding of all pods, of jobs that find room at once",
        (),
        "Requests to the API server are not in it; the live benchmark has them. Depends on the machine.",
        submission_delay,
    ),
)
