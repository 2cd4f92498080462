"""Unfinished jobs at the end of a replay, with the engine's explanation for the first of each queue."""

from __future__ import annotations

from collections.abc import Sequence

from windlass.api.reasons import Reason
from windlass.sim.replay.job_progress import JobRun
from windlass.sim.replay.outcome import UnfinishedJobs
from windlass.sim.replay.replay import LAST, VAIN, Replay
from windlass.spi.objects import Dialect

SHOWN = 5
"""Maximum number of reported queues."""
FITS = "it has room where no node is away, and was given up to wait for that"
OF_VOLCANO = "Volcano leaves it so, too: a queue gets no more than its share while others ask (proportion)."


def left(play: Replay) -> list[UnfinishedJobs]:
    """Return the pending jobs of the fullest queues and the jobs given up, after bringing all nodes up."""
    waiting = play.waiting()
    if waiting:
        play.bring_back()
    by_queue: dict[str, list[JobRun]] = {}
    for run in waiting:
        by_queue.setdefault(run.job.queue if play.options.queues else "", []).append(run)
    fullest = sorted(by_queue.values(), key=len, reverse=True)[:SHOWN]
    found = [_left(runs, _why(play, runs[0])) for runs in fullest]
    given_up = [run for run in play.runs if run.given_up]
    lost = [run for run in given_up if run.vain >= VAIN]
    vain = [run for run in given_up if run.vain < VAIN]
    if lost:
        found.append(_left(lost, f"given up: its nodes took all that it had done {VAIN} times in a row"))
    if vain:
        found.append(_left(vain, f"given up: {LAST} times it held a part of its GPUs without starting"))
    return found


def _left(runs: Sequence[JobRun], why: str) -> UnfinishedJobs:
    job = runs[0].job
    return UnfinishedJobs(job.id, job.queue, job.gpus, len(runs), why)


def _why(play: Replay, run: JobRun) -> str:
    """In the engine's words; of pods that are bound one by one, those of the first that waits."""
    keys = [run.key] if run.group is not None else [pod.task.group for pod in run.pods.values()]
    told = [said for key in keys if (said := play.made.engine.explain(key, play.agenda.now)) is not None]
    if not told:
        return FITS
    shared = told[0].code is Reason.WAITING_FOR_SHARE and play.made.dialect is Dialect.VOLCANO
    return f"{told[0].message} {OF_VOLCANO}" if shared else told[0].message
