"""E7: large gangs of high priority on a busy cluster."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from windlass.kits.rng import seeded
from windlass.sim.jobs import TraceJob, in_order
from windlass.sim.replay.job_progress import Effort, RestartCost
from windlass.sim.replay.metrics import percentile
from windlass.sim.replay.outcome import ReplayOutcome
from windlass.sim.replay.policies import ReplayPolicy
from windlass.sim.replay.replay import ReplayOptions
from windlass_lab.experiments.claim import Experiment, ExperimentFinding, Figure, Goal
from windlass_lab.experiments.configured import PREEMPTING
from windlass_lab.experiments.lab import PHILLY, Lab

GANGS, GPUS, HOURS, PRIORITY, SEED = 20, 256, 2.0, 1000, 7
CLEARING_SECONDS = 90.0
"""30 s that evicted pods have to end, and a start of 60 s: the replay itself takes both as done at once."""
EFFORT = Effort(restart=RestartCost(60.0, 60.0, 60.0), checkpoint_seconds=1800.0)
NODES = "60x8"


def large_starts(lab: Lab) -> ExperimentFinding:
    """E7."""
    jobs = with_gangs(lab.jobs(PHILLY))
    kube, ours = (_play(lab, jobs, policy) for policy in ("kube", PREEMPTING))
    before, after = waits(kube), waits(ours)
    work = sum(job.gpu_seconds for job in jobs)
    lost = [100 * sum(ended.lost_gpu_seconds for ended in outcome.jobs) / work for outcome in (kube, ours)]
    hit = [sum(ended.preemptions for ended in outcome.jobs) for outcome in (kube, ours)]
    others = [_others(outcome) for outcome in (kube, ours)]
    return ExperimentFinding(
        (
            Figure(
                "median, submission to all pods running", median(before) / 60, median(after) / 60, "min", 1
            ),
            Figure("p90", percentile(before, 90) / 60, percentile(after, 90) / 60, "min", 1),
            Figure("GPU-hours lost, part of all work", lost[0], lost[1], "%", 2),
            Figure("jobs stopped", hit[0], hit[1]),
            Figure("mean queue of the other jobs", others[0], others[1], "s"),
        ),
        (
            Goal("half of them run within 8 min", median(after) <= 480.0),
            Goal("at most 2 % of GPU-hours lost", lost[1] <= 2.0),
        ),
    )


def with_gangs(jobs: Sequence[TraceJob]) -> list[TraceJob]:
    """The trace with gangs at seeded random times between its first and its last submission."""
    chance = seeded(SEED)
    last = max(job.submit_seconds for job in jobs)
    gangs = [
        TraceJob(
            f"gang-{number}", chance.uniform(0.0, last), HOURS * 3600, GPUS, queue="urgent", priority=PRIORITY
        )
        for number in range(GANGS)
    ]
    return in_order([*jobs, *gangs])


def _play(lab: Lab, jobs: Sequence[TraceJob], policy: str | ReplayPolicy) -> ReplayOutcome:
    return lab.play(jobs, NODES, policy, ReplayOptions(effort=EFFORT, time_share=False, timeline=False))


def waits(outcome: ReplayOutcome) -> list[float]:
    """Return the waiting times of the gangs in ascending order; infinity for a gang that never starts."""
    return sorted(
        (ended.started - ended.job.submit_seconds if ended.started is not None else float("inf"))
        + CLEARING_SECONDS
        for ended in outcome.jobs
        if ended.job.priority == PRIORITY
    )


def _others(outcome: ReplayOutcome) -> float:
    queues = [
        ended.ended - ended.job.submit_seconds - ended.job.duration_seconds
        for ended in outcome.jobs
        if ended.job.priority != PRIORITY and ended.ended is not None
    ]
    return sum(queues) / len(queues)


EXPERIMENTS = (
    Experiment(
        "E7",
        "1,000 GPUs start within 8 minutes instead of 1.5 h",
        "Philly, October 2017, and 20 gangs of 256 GPUs for 2 h of high priority, at random times (seed 7)",
        "60 nodes of 8 GPUs: a gang takes more than half of them",
        "kube, where no priorities are configured",
        "windlass: gangs, priorities, preemption (no time-sharing)",
        "median time from submission to all pods running; GPU time lost by those that were stopped",
        (PHILLY,),
        "The trace's cluster has 480 GPUs: 256 stand for 1,000. Jobs save their work every 30 minutes; a restart costs"
        " 60 s; 90 s for ending evicted pods and starting new ones are added on both sides. Without"
        " priorities a gang of more than half of the cluster finds room only when the month's work runs out: days, not"
        " the claim's hour and a half. kube-scheduler with PriorityClasses would preempt too, pod by pod: that is not"
        " what the claim starts from.",
        large_starts,
    ),
)
