"""Job list of a replay: one CSV line for each policy, seed and job, for further statistics."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator

from windlass.sim.replay.metrics import completion_seconds, queue_seconds, slowdown
from windlass.sim.replay.outcome import EndedJob, ReplayOutcome

COLUMNS = (
    "policy",
    "id",
    "user",
    "queue",
    "gpus",
    "gpu_milli",
    "submit_seconds",
    "duration_seconds",
    "start_seconds",
    "end_seconds",
    "queue_seconds",
    "completion_seconds",
    "slowdown",
    "preemptions",
    "node_failures",
    "failed_starts",
    "lost_gpu_seconds",
    "nodes",
    "seed",
    "spot_interruptions",
    "degraded_moves",
)
"""Times in seconds of the trace. ``start_seconds``: of the first run; ``nodes``: those of the last, by ``|``. What
never happened is empty."""


def header() -> str:
    return ",".join(COLUMNS) + "\n"


def lines(policy: str, outcome: ReplayOutcome, seed: int = 0) -> Iterator[str]:
    """In the order in which the jobs came."""
    nodes = {span.job: span.nodes for span in outcome.spans if not span.held}
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    for at, ended in enumerate(outcome.jobs):
        moves = (ended.spot_interruptions, ended.degraded_moves)
        writer.writerow([*_cells(policy, ended, nodes.get(at, ())), seed, *moves])
        yield text.getvalue()
        text.seek(0)
        text.truncate()


def _cells(policy: str, ended: EndedJob, nodes: tuple[str, ...]) -> list[object]:
    job, over = ended.job, ended.ended is not None
    return [
        policy,
        job.id,
        job.user,
        job.queue,
        job.gpus,
        job.gpu_milli,
        _number(job.submit_seconds),
        _number(job.duration_seconds),
        _number(ended.started),
        _number(ended.ended),
        _number(queue_seconds(ended)) if over else "",
        _number(completion_seconds(ended)) if over else "",
        _number(slowdown(ended)) if over else "",
        ended.preemptions,
        ended.failures,
        ended.failed_starts,
        _number(ended.lost_gpu_seconds),
        "|".join(dict.fromkeys(nodes)),
    ]


def _number(value: float | None) -> str:
    """To a millisecond; nothing for what never happened."""
    return "" if value is None else f"{round(value, 3) + 0.0:.15g}"
