"""E2, E3, E5, E6: waiting, completion and starts of gangs, on months of jobs."""

from __future__ import annotations

from windlass_lab.experiments.claim import Experiment, ExperimentFinding, Figure, Goal, less
from windlass_lab.experiments.lab import MURI1, MURI3, MURI_TABLE, PHILLY, Figures, Lab

_PHILLY = "Philly, October 2017: 46,673 jobs, all in one queue"
_PUBLISHED = {"Tiresias_L": "Tiresias-L", "themis": "Themis"}
"""Policies of Muri's table of results; generated traces have no such results."""
_COST = "A restart costs 7/30/60 s with 1, up to 8, and more GPUs; every job opted in to time-sharing."


def waiting(lab: Lab) -> ExperimentFinding:
    """E2."""
    kube, backfill, ours = (lab.usual(PHILLY, "60x8", name) for name in ("kube", "fifo-backfill", "windlass"))
    mean = less(_queue(kube), _queue(ours))
    large = ours["queue_seconds_ge8_gpus"]["mean"]
    return ExperimentFinding(
        (
            Figure("mean queue", _queue(kube), _queue(ours), "s"),
            Figure("p90 of the queue", _queue(kube, "p90"), _queue(ours, "p90"), "s"),
            Figure("p95 of the queue", kube["queue_p95_seconds"], ours["queue_p95_seconds"], "s"),
            Figure("mean queue, jobs of 8 GPUs or more", kube["queue_seconds_ge8_gpus"]["mean"], large, "s"),
            Figure("mean queue against fifo-backfill", _queue(backfill), _queue(ours), "s"),
            Figure(
                "jobs of 8 GPUs or more against fifo-backfill",
                backfill["queue_seconds_ge8_gpus"]["mean"],
                large,
                "s",
            ),
            Figure("preemptions per job", kube["preemptions_per_job"], ours["preemptions_per_job"], "", 3),
            Figure("mean queue below kube", None, mean, "%", 1),
        ),
        (
            Goal("mean queue at least 60 % below kube", mean >= 60.0),
            Goal(
                "jobs of 8 GPUs or more wait no longer than with kube",
                large <= kube["queue_seconds_ge8_gpus"]["mean"],
            ),
            Goal("nor than with fifo-backfill", large <= backfill["queue_seconds_ge8_gpus"]["mean"]),
        ),
    )


def completion(lab: Lab) -> ExperimentFinding:
    """E3."""
    published = {
        (row["policy"], row["metric_s"]): row for row in lab.table(MURI_TABLE) if row["metric_s"] == "avg_jct"
    }
    figures: list[Figure] = []
    goals: list[Goal] = []
    for trace, name in ((MURI1, "trace1"), (MURI3, "trace3")):
        backfill, kube, ours = (
            lab.usual(trace, "8x8", policy) for policy in ("fifo-backfill", "kube", "windlass")
        )
        rows = [published[policy, "avg_jct"] for policy in _PUBLISHED if (policy, "avg_jct") in published]
        others = [float(row[name]) for row in rows]
        mean = _completion(ours)
        figures += [
            Figure(f"{name}: mean completion, fifo-backfill", _completion(backfill), mean, "s"),
            Figure(f"{name}: mean completion, kube", _completion(kube), mean, "s"),
            *(
                Figure(f"{name}: mean completion, {title} (published)", other, mean, "s")
                for title, other in zip(_PUBLISHED.values(), others, strict=False)
            ),
            Figure(
                f"{name}: makespan, fifo-backfill",
                backfill["makespan_seconds"],
                ours["makespan_seconds"],
                "s",
            ),
            Figure(
                f"{name}: GPU-hours paid per GPU-hour of work, fifo-backfill",
                _paid(lab, trace, backfill),
                _paid(lab, trace, ours),
                "",
                2,
            ),
            Figure(f"{name}: below fifo-backfill", None, less(_completion(backfill), mean), "%", 1),
        ]
        goals += [
            Goal(f"{name}: at least 30 % below fifo-backfill", mean <= 0.7 * _completion(backfill)),
            *(Goal(f"{name}: no longer than Tiresias-L", mean <= other) for other in others[:1]),
        ]
    return ExperimentFinding(figures, goals)


def short_queue(lab: Lab) -> ExperimentFinding:
    """E5."""
    kube, ours = (lab.usual(PHILLY, "70x8", name) for name in ("kube", "windlass"))
    return ExperimentFinding(
        (
            Figure("mean queue", _queue(kube) / 60, _queue(ours) / 60, "min", 1),
            Figure("mean queue below kube", None, less(_queue(kube), _queue(ours)), "%", 1),
            Figure("p90 of the queue", _queue(kube, "p90"), _queue(ours, "p90"), "s"),
            Figure(
                "mean queue, jobs of 8 GPUs or more",
                kube["queue_seconds_ge8_gpus"]["mean"],
                ours["queue_seconds_ge8_gpus"]["mean"],
                "s",
            ),
            Figure("preemptions per job", kube["preemptions_per_job"], ours["preemptions_per_job"], "", 3),
        ),
        (
            Goal("mean queue at most 5 min", _queue(ours) <= 300.0),
            Goal("p90 at most 120 s", _queue(ours, "p90") <= 120.0),
        ),
    )


def gang_starts(lab: Lab) -> ExperimentFinding:
    """E6."""
    kube, ours = lab.usual(PHILLY, "60x8", "kube1"), lab.usual(PHILLY, "60x8", "windlass", 1)
    hard, ours_hard = lab.usual(MURI3, "8x8", "kube1"), lab.usual(MURI3, "8x8", "windlass", 1)
    share = "first_start_ok_percent_ge8_gpus"
    held = "partial_gang_gpu_seconds"
    return ExperimentFinding(
        (
            Figure(
                "Philly: jobs of 8 GPUs or more that start at once whole", kube[share], ours[share], "%", 1
            ),
            Figure("Philly: failed starts", kube["failed_gang_starts"], ours["failed_gang_starts"]),
            Figure("Philly: GPU-hours held by gangs in part", kube[held] / 3600, ours[held] / 3600, "h", 1),
            Figure("Muri trace3: the same share", hard[share], ours_hard[share], "%", 1),
            Figure("Muri trace3: failed starts", hard["failed_gang_starts"], ours_hard["failed_gang_starts"]),
            Figure("Muri trace3: GPU-hours held", hard[held] / 3600, ours_hard[held] / 3600, "h", 1),
        ),
        (
            Goal(
                "at least 99.6 % of the large jobs never start in part",
                min(ours[share], ours_hard[share]) >= 99.6,
            ),
            Goal("no GPU-second is held by a gang in part", not ours[held] and not ours_hard[held]),
        ),
    )


def _queue(figures: Figures, part: str = "mean") -> float:
    return figures["queue_seconds"][part]


def _paid(lab: Lab, trace: str, figures: Figures) -> float:
    """Return the cost of the 64 GPUs from the first submission to the last end, as a multiple of the work."""
    work = sum(job.gpu_seconds for job in lab.jobs(trace))
    return 64 * figures["makespan_seconds"] / work


def _completion(figures: Figures) -> float:
    return figures["completion_seconds"]["mean"]


EXPERIMENTS = (
    Experiment(
        "E2",
        "waiting falls by 25 to 35 %",
        _PHILLY,
        "60 nodes of 8 GPUs (load 0.91)",
        "kube: pods one by one on the emptiest node; also fifo-backfill: gangs by age, passed where they do not fit",
        "windlass: time-sharing by learned run times, no oracle",
        "mean and p90 of completion less duration; jobs of 8 GPUs or more also alone",
        (PHILLY,),
        _COST + " Without opting in no job is suspended, and waiting is that of gangs with backfill.",
        waiting,
    ),
    Experiment(
        "E3",
        "completion falls by 30 % (48 to 34 h); turnaround by 50 %",
        "Muri's traces 1 and 3: 1,494 and 992 jobs",
        "8 nodes of 8 GPUs",
        "fifo-backfill, kube; Tiresias-L and Themis as published",
        "windlass: time-sharing by learned run times, no oracle",
        "mean completion; makespan; cost by the hours in which the cluster is there",
        (MURI1, MURI3, MURI_TABLE),
        _COST
        + " Published rows come from Muri's own simulator. From 48 to 34 h is 29.2 % less. Paid is for all 64"
        " GPUs from the first submission to the last end.",
        completion,
    ),
    Experiment(
        "E5",
        "the queue falls from 23 to 5 minutes",
        _PHILLY,
        "70 nodes of 8 GPUs (load 0.78), where kube gives about 20 minutes",
        "kube",
        "windlass: time-sharing by learned run times, no oracle",
        "mean and p90 of completion less duration",
        (PHILLY,),
        _COST,
        short_queue,
    ),
    Experiment(
        "E6",
        "large jobs start: 83 to 99.6 %; gangs always",
        f"{_PHILLY}; Muri's trace 3 as a stress",
        "60 nodes of 8 GPUs; 8 nodes of 8 GPUs",
        "kube1: one pod per GPU; every 30 min after it came a job in part gives up, and comes again after 5",
        "windlass: gangs, one pod per GPU",
        "jobs of 8 GPUs or more of which no start failed; GPU time held by gangs in part",
        (PHILLY, MURI3),
        "From 83 to 99.6 % are 16.6 points, or a factor of 1.2. What fails for reasons outside scheduling (programs,"
        " hardware) is in no trace.",
        gang_starts,
    ),
)
