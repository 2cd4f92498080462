"""E9: nodes that fail."""

from __future__ import annotations

from dataclasses import dataclass

from windlass.sim.replay.failures import NodeFailures, Quarantine
from windlass.sim.replay.job_progress import Effort
from windlass.sim.replay.replay import ReplayOptions
from windlass_lab.experiments.claim import Experiment, ExperimentFinding, Figure, Goal, less
from windlass_lab.experiments.lab import PHILLY, RESTART, Lab

DAY = 86_400.0
FAILURES = NodeFailures(mean_seconds=30 * DAY, bad_nodes=3, bad_mean_seconds=DAY)
QUARANTINE = Quarantine(failures=3, within_seconds=7 * DAY, seconds=14 * DAY)
CHECKPOINT = 1800.0
SEED = 9
GIVES_UP = 6
"""After so many failures a Kubernetes Job is failed for good (``backoffLimit`` by default)."""


@dataclass(frozen=True, slots=True)
class _Found:
    stops: int
    lost_hours: float
    given_up: int
    queue: float


def node_failures(lab: Lab) -> ExperimentFinding:
    """E9."""
    zero = _play(lab, None, Quarantine())
    saved = _play(lab, CHECKPOINT, Quarantine())
    both = _play(lab, CHECKPOINT, QUARANTINE)
    fewer, cheaper = less(zero.stops, both.stops), less(zero.lost_hours, both.lost_hours)
    return ExperimentFinding(
        (
            Figure("runs that a node's failure ended", zero.stops, both.stops),
            Figure("the same, without quarantine", zero.stops, saved.stops),
            Figure("GPU-hours lost", zero.lost_hours, both.lost_hours, "h", 0),
            Figure("the same, without quarantine", zero.lost_hours, saved.lost_hours, "h", 0),
            Figure(f"jobs hit more than {GIVES_UP} times", zero.given_up, both.given_up),
            Figure("mean queue", zero.queue, both.queue, "s"),
            Figure("fewer runs ended by failures", None, fewer, "%", 1),
            Figure("fewer GPU-hours lost", None, cheaper, "%", 1),
        ),
        (
            Goal("40 % fewer runs ended by failures", fewer >= 40.0),
            Goal("40 % fewer GPU-hours lost", cheaper >= 40.0),
        ),
    )


def _play(lab: Lab, checkpoint: float | None, quarantine: Quarantine) -> _Found:
    failures = NodeFailures(
        FAILURES.mean_seconds,
        FAILURES.repair_seconds,
        FAILURES.bad_nodes,
        FAILURES.bad_mean_seconds,
        quarantine,
    )
    options = ReplayOptions(
        effort=Effort(restart=RESTART, checkpoint_seconds=checkpoint),
        failures=failures,
        seed=SEED,
        time_share=False,
        timeline=False,
    )
    outcome = lab.play(lab.jobs(PHILLY), "60x8", "fifo-backfill", options)
    waits = [
        ended.ended - ended.job.submit_seconds - ended.job.duration_seconds
        for ended in outcome.jobs
        if ended.ended is not None
    ]
    return _Found(
        sum(ended.failures for ended in outcome.jobs),
        sum(ended.lost_gpu_seconds for ended in outcome.jobs) / 3600,
        sum(ended.failures > GIVES_UP for ended in outcome.jobs),
        sum(waits) / len(waits),
    )


EXPERIMENTS = (
    Experiment(
        "E9",
        "the failure rate falls by 40 %",
        "Philly, October 2017; nodes fail by chance (seed 9): 57 every 30 days on average, 3 bad ones every day",
        "60 nodes of 8 GPUs; a node that failed is back after 4 h",
        "gangs with backfill; a job that loses a node starts from nothing, nodes come back whatever they did",
        "the same, jobs go on from their last checkpoint (every 30 min); a node that failed three times in a week is"
        " kept away for two",
        "runs ended by failures; GPU-hours lost, restarts (7/30/60 s) included",
        (PHILLY,),
        "No trace tells which node failed: the rates are assumed, and with no bad nodes quarantine gains nothing. The"
        " quarantine is a rule of this simulation: on a live cluster Windlass takes GPUs that report errors out of"
        " service, it does not count how often a node failed. Failures of programs are not in it.",
        node_failures,
    ),
)
