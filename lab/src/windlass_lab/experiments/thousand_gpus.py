"""E17: a gang of 1,000 GPUs on a loaded cluster."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import inf

from windlass.sim.jobs import TraceJob, in_order
from windlass.sim.replay.metrics import percentile
from windlass.sim.replay.outcome import ReplayOutcome
from windlass.sim.replay.policies import PolicyContext, ReplayEngine, ReplayPolicy, Singly
from windlass.sim.replay.replay import ReplayOptions
from windlass.sim.synthetic import DAY, Profile
from windlass_lab.experiments.claim import Experiment, ExperimentFinding, Figure, Goal
from windlass_lab.experiments.configured import PREEMPTING
from windlass_lab.experiments.generated_traces import scaled
from windlass_lab.experiments.lab import Lab
from windlass_lab.experiments.large_gangs import CLEARING_SECONDS, EFFORT

NODES, CAPACITY, GPUS = "160x8", 1280, 1000
LOAD, DAYS, JOBS = 0.9, 1.0, 3000
HOURS, PRIORITY = 2.0, 1000
SUBMITTED = (0.35, 0.5, 0.65)
"""Times of submission as parts of the trace, one run for each."""
MOST_SECONDS = 480.0


def _kube_with_priorities(context: PolicyContext) -> ReplayEngine:
    return replace(PREEMPTING.make(context), singly=Singly())


WITH_PRIORITIES = ReplayPolicy(
    "kube-priority", "pods one by one, which preempt by priority", _kube_with_priorities
)


def thousand_gpus(lab: Lab) -> ExperimentFinding:
    """E17."""
    profile = Profile(jobs=150 if lab.brief else JOBS, days=DAYS, spread=1.2)
    jobs = scaled(profile, CAPACITY, LOAD, 17)
    parts = SUBMITTED[:1] if lab.brief else SUBMITTED
    plain = [_wait(lab, jobs, part, "kube") for part in parts]
    with_priorities = [_wait(lab, jobs, part, WITH_PRIORITIES) for part in parts]
    ours = [_wait(lab, jobs, part, PREEMPTING) for part in parts]
    mean = percentile(sorted(ours), 50)
    return ExperimentFinding(
        (
            Figure(
                "median to all 1,000 GPUs held, kube without priorities", *_minutes(plain, ours), "min", 1
            ),
            Figure("the same, kube with PriorityClasses", *_minutes(with_priorities, ours), "min", 1),
            Figure("longest, kube without priorities", max(plain) / 60, max(ours) / 60, "min", 1),
            Figure("runs", len(parts), len(parts)),
        ),
        (Goal("1,000 GPUs held within 8 min", mean <= MOST_SECONDS),),
        note=f"The cluster has {CAPACITY} GPUs and a load of {LOAD} by other jobs of priority 0. The gang comes at"
        f" {', '.join(f'{part:g}' for part in parts)} of the day, in a run each.",
    )


def _minutes(before: Sequence[float], ours: Sequence[float]) -> tuple[float, float]:
    return percentile(sorted(before), 50) / 60, percentile(sorted(ours), 50) / 60


def _wait(lab: Lab, jobs: Sequence[TraceJob], part: float, policy: str | ReplayPolicy) -> float:
    """Return the seconds from submission to all GPUs held."""
    gang = TraceJob("gang", part * DAYS * DAY, HOURS * 3600, GPUS, queue="urgent", priority=PRIORITY)
    options = ReplayOptions(effort=EFFORT, time_share=False, timeline=False)
    return held_after(lab.play(in_order([*jobs, gang]), NODES, policy, options))


def held_after(outcome: ReplayOutcome) -> float:
    """Return the wait of the gang with the time for ending and starting pods; infinity if it never starts."""
    (gang,) = [ended for ended in outcome.jobs if ended.job.id == "gang"]
    waited = gang.started - gang.job.submit_seconds if gang.started is not None else inf
    return waited + CLEARING_SECONDS


EXPERIMENTS = (
    Experiment(
        "E17",
        "a 1,000-GPU job starts after 8 minutes instead of 1.5 h",
        "generated: 3,000 jobs of 1 to 32 GPUs in a day, and one gang of 1,000 GPUs for 2 h of high priority",
        f"160 nodes of 8 GPUs: {CAPACITY} GPUs at load {LOAD}",
        "kube: pods one by one on the emptiest node, without priorities; also with PriorityClasses",
        "windlass: gangs, priorities, preemption (no time-sharing)",
        "time from submission to all 1,000 GPUs held",
        (),
        "90 s for ending evicted pods and starting new ones are added on both sides. Without priorities a gang of"
        " three quarters of the cluster waits until other work runs out.",
        thousand_gpus,
    ),
)
