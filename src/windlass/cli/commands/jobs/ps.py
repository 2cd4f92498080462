"""``windlass ps``: one line per job, in a stable order."""

from __future__ import annotations

from typing import Any

import click

from windlass.cli import resources, tables
from windlass.cli.errors import check_namespace, check_queue
from windlass.cli.generation.shards import shard_workers
from windlass.cli.invocation import Invocation
from windlass.cli.jobs.creation_errors import note_creation_errors
from windlass.cli.jobs.job_index import fetch
from windlass.cli.jobs.jobs import Job
from windlass.cli.jobs.reasons import brief
from windlass.cli.options import queue_flag, standard
from windlass.cli.output import wide_tables
from windlass.cli.output.formats import emit
from windlass.cli.text import natural_key, nodes_text, plural
from windlass.cli.ungrouped_gangs import GANG
from windlass.jobs.progress import read_progress
from windlass.kits.timestamps import age, rfc3339

HEADER = ("JOB", "QUEUE", "STATE", "GPUS", "AGE", "WHERE / WHY")
_LIMITS = (24, 12, 11, 14, 0, 0)
_RANKS = {"Running": 0, "Starting": 1, "Restarting": 2, "Unknown": 2, "Deleting": 3, "Pending": 4}
_LEAST = 14
"""Minimum width of the reason in cells."""
_OTHER_LINES = 4
"""Lines of a watched table besides its jobs: header, note about omitted jobs, cursor.
"""
RECENT = 15
"""Maximum number of finished jobs that are shown without ``--all``."""


@click.command("ps")
@queue_flag("Only jobs of this queue.")
@click.option("-a", "--all", "everything", is_flag=True, help="All finished jobs, not only the latest 15.")
@click.option("-w", "--watch", "follow", is_flag=True, help="Update the list with every change.")
@click.option("--utc", is_flag=True, help="Exact times (UTC) instead of ages.")
@standard(all_namespaces=True)
def command(invocation: Invocation, queue: str | None, everything: bool, follow: bool, utc: bool) -> int:
    """List jobs: where they run, or why they wait."""
    if follow:
        return _watch(invocation, queue, everything, utc)
    jobs = select(fetch(invocation, invocation.listed_namespace), queue, everything)
    if not jobs:
        check_namespace(invocation.client, invocation.listed_namespace)
    if queue is not None and not jobs:
        check_queue(invocation.client, queue)
    note_creation_errors(invocation, jobs)
    if invocation.structured:
        emit(invocation, {"items": [as_record(job) for job in jobs]}, names=[_typed(job) for job in jobs])
        return 0
    _show(invocation, jobs, utc)
    return 0


def select(jobs: list[Job], queue: str | None, everything: bool) -> list[Job]:
    """Return running jobs, then pending ones by position, then the latest finished ones."""
    chosen = sorted((job for job in jobs if queue is None or job.queue == queue), key=order)
    if everything:
        return chosen
    unfinished = [job for job in chosen if not job.finished]
    return unfinished + [job for job in chosen if job.finished][:RECENT]


def order(job: Job) -> tuple[Any, ...]:
    if job.finished:
        return (9, -job.finished_at, -job.created, natural_key(job.key))
    record = job.explanation if job.waiting else None
    position = (record.position if record is not None else 0) or 1_000_000_000
    return (
        _RANKS.get(job.state, 5),
        job.queue if job.waiting else "",
        position,
        job.created,
        natural_key(job.key),
    )


def row(invocation: Invocation, job: Job, *, utc: bool = False, now: float | None = None) -> list[str]:
    time = invocation.clock.now() if now is None else now
    shown = job.key if invocation.all_namespaces else job.name
    when = rfc3339(job.queued_since) if utc else age(time - job.queued_since)
    return [shown, job.queue, job.state, job.gpus, when, brief(job)]


def _show(invocation: Invocation, jobs: list[Job], utc: bool) -> None:
    if not jobs:
        scope = "" if invocation.all_namespaces else f" in namespace {invocation.home_namespace}"
        invocation.note(f"No jobs{scope}. Start one: windlass run -- python train.py")
        return
    rows = [row(invocation, job, utc=utc) for job in jobs]
    header = [*HEADER[:4], "CREATED" if utc else "AGE", HEADER[5]]
    if invocation.wide:
        header += ["KIND", "PODS", "NODES"]
        for line, job in zip(rows, jobs, strict=True):
            pods = ", ".join(filter(None, [f"{job.bound}/{job.desired_pods}", shard_workers(job.obj)]))
            line += [job.kind, pods, nodes_text(job.nodes, most=1000)]
    wide_tables.show(
        invocation,
        header,
        rows,
        optional=("AGE", "QUEUE", "GPUS"),
        limits=_LIMITS,
        right=("GPUS",),
        least=_LEAST,
        shorten_last=shorten_last,
    )


def shorten_last(text: str, width: int) -> str:
    """Shorten the reason of a pending job, and keep its position and time to the start."""
    reason, mark, position = text.partition(", #")
    room = width - tables.cells(mark + position)
    return (
        f"{tables.shorten(reason, room)}{mark}{position}"
        if mark and room > 0
        else tables.shorten(text, width)
    )


def as_record(job: Job) -> dict[str, Any]:
    """Return the stable JSON form of a line."""
    record = job.explanation if not job.finished and job.waiting else None
    progress = read_progress(job.obj)
    return {
        "name": job.name,
        "namespace": job.namespace,
        "kind": job.kind,
        "queue": job.queue,
        "state": job.state,
        "phase": job.phase,
        "gpus": resources.devices(job.request) / 1000,
        "gpusAsked": job.gpus,
        "pods": {"wanted": job.desired_pods, "bound": job.bound},
        "nodes": job.nodes,
        "created": rfc3339(job.created),
        "finished": rfc3339(job.finished_at) if job.finished_at else None,
        "exitCode": job.exit_code,
        "placeholder": job.placeholder,
        "summary": brief(job),
        "progress": progress.body() if progress is not None else None,
        "explanation": record.as_dict() if record is not None else None,
    }


def _typed(job: Job) -> str:
    if job.kind == GANG:
        return f"gang/{job.name}"
    resource = job.resource
    group = f".{resource.group}" if resource.group else ""
    return f"{resource.singular}{group}/{job.name}"


def _seen(jobs: list[Job], lines: int) -> tuple[list[Job], int]:
    """Return the jobs that fit in a terminal of so many lines, and the number of the others."""
    shown = max(1, lines - _OTHER_LINES)
    return (jobs[:shown], len(jobs) - shown) if lines and len(jobs) > shown else (jobs, 0)


def _watch(invocation: Invocation, queue: str | None, everything: bool, utc: bool) -> int:
    from windlass.cli.jobs.logs.watch import changes

    before, left = "", 0
    for _ in changes(invocation, invocation.listed_namespace):
        jobs = select(fetch(invocation, invocation.listed_namespace), queue, everything)
        note_creation_errors(invocation, jobs)
        if invocation.structured:
            emit(invocation, {"items": [as_record(job) for job in jobs]}, names=[_typed(j) for j in jobs])
            continue
        now = " ".join(f"{job.key}{job.state}{brief(job)}" for job in jobs)
        if invocation.out.interactive:
            invocation.out.write("\x1b[H\x1b[2J")
            jobs, left = _seen(jobs, invocation.out.height)
        elif now == before:
            continue
        before = now
        _show(invocation, jobs, utc)
        if left:
            invocation.note(f"{plural(left, 'more job')} not shown; all jobs: windlass ps")
        if not invocation.out.interactive:
            invocation.out.line()
    return 0
