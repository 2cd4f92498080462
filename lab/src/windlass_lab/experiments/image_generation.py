"""E8: generating images from many base models."""

from __future__ import annotations

from dataclasses import replace
from itertools import cycle, islice

from windlass.sim.jobs import TraceJob
from windlass.sim.replay.batches import batches
from windlass.sim.replay.job_progress import Effort
from windlass.sim.replay.replay import ReplayOptions
from windlass_lab.experiments.claim import Experiment, ExperimentFinding, Figure, Goal, less
from windlass_lab.experiments.lab import GENAI, Figures, Lab

LOAD_SECONDS = 22.0
"""The mean time to load a base model in the trace's own measurements."""
BATCH_SECONDS = 600.0
"""Duration of a batch (seconds). A load before every batch costs 22 / 600 = 4 %, and the last batch of a device ends at
most ten minutes after the others: both are small compared with hours of work."""
MANY = 100_000
LIMIT_HOURS = 4.0


def images(lab: Lab) -> ExperimentFinding:
    """E8."""
    at_once = [replace(job, submit_seconds=0.0) for job in lab.jobs(GENAI)]
    plain, grouped = _both(lab, at_once, 33)
    many = [replace(job, id=str(number)) for number, job in enumerate(islice(cycle(at_once), MANY))]
    all_plain, all_grouped = _both(lab, many, 200)
    saved = less(plain["gpu_hours"], grouped["gpu_hours"])
    hours = all_grouped["makespan_seconds"] / 3600
    return ExperimentFinding(
        (
            Figure("GPU-hours, 33 GPUs", plain["gpu_hours"], grouped["gpu_hours"], "h", 1),
            Figure("model loads, 33 GPUs", plain["model_loads"], grouped["model_loads"]),
            Figure(
                "makespan, 33 GPUs",
                plain["makespan_seconds"] / 3600,
                grouped["makespan_seconds"] / 3600,
                "h",
                2,
            ),
            Figure("GPU-hours saved by grouping", None, saved, "%", 1),
            Figure(
                "100,000 images: GPU-hours, 200 GPUs",
                all_plain["gpu_hours"],
                all_grouped["gpu_hours"],
                "h",
                1,
            ),
            Figure("100,000 images: makespan, 200 GPUs", all_plain["makespan_seconds"] / 3600, hours, "h", 2),
        ),
        (
            Goal("grouping saves at least 38 % of the GPU-hours", saved >= 38.0),
            Goal("100,000 images within 4 h on 200 GPUs", hours <= LIMIT_HOURS),
        ),
    )


def _both(lab: Lab, jobs: list[TraceJob], gpus: int) -> tuple[Figures, Figures]:
    options = ReplayOptions(effort=Effort(model_load_seconds=LOAD_SECONDS), timeline=False)
    nodes = f"{gpus}x1"
    plain = lab.figures(jobs, nodes, "fifo-backfill", options)
    return plain, lab.figures(batches(jobs, BATCH_SECONDS), nodes, "model-grouping", options)


EXPERIMENTS = (
    Experiment(
        "E8",
        "100,000 images take 4 h instead of 24, at 60 % less cost, on up to 200 GPUs",
        "GenTD26: 18,453 requests with 81 base models as one batch; repeated until there are 100,000",
        "33 nodes, and 200, of one GPU",
        "requests in the order they came; a GPU loads the base model (22 s) whenever it changes",
        "requests of one model in batches of ten minutes, batches of one model in a row (model-grouping)",
        "GPU-hours, loads included; makespan",
        (GENAI,),
        "Grouping is the part of the cost that scheduling has. The rest of 60 % would have to come from the price of"
        " idle (preemptible) capacity: nothing here tells prices, so it is not simulated. Batches of ten minutes:"
        " a load before each costs at most 4 %, and no GPU ends more than one batch after the others. LoRA adapters"
        " (4 s each) are left out.",
        images,
    ),
)
