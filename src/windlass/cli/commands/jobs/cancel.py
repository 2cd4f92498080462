"""``windlass cancel``: end jobs."""

from __future__ import annotations

import click

from windlass.api.errors import WindlassError
from windlass.cli import errors
from windlass.cli.invocation import Invocation
from windlass.cli.jobs.cancel import end_job
from windlass.cli.jobs.job_index import fetch, find
from windlass.cli.jobs.jobs import Job
from windlass.cli.options import completer, queue_flag, standard, yes_flag
from windlass.cli.output.formats import emit


@click.command("cancel")
@click.argument("jobs", nargs=-1, metavar="JOB...", shell_complete=completer("jobs"))
@click.option("--all", "everything", is_flag=True, help="All unfinished jobs of the namespace.")
@queue_flag("With --all: only jobs of this queue.")
@click.option("--reason", metavar="TEXT", default="cancelled by its user", help="Stored with the job.")
@click.option("--wait", is_flag=True, help="Wait for their end.")
@yes_flag()
@standard(all_namespaces=True)
def command(
    invocation: Invocation,
    jobs: tuple[str, ...],
    everything: bool,
    queue: str | None,
    reason: str,
    wait: bool,
    yes: bool,
) -> int:
    """End jobs.

    A Volcano Job, such as one of windlass run, is kept with its logs. A job of another kind is
    deleted, and its logs with it. To stop such a job and keep it, use windlass suspend.
    """
    if bool(jobs) == everything:
        raise WindlassError(
            "WL-USE-400",
            "give names of jobs, or --all" if not jobs else "give names of jobs or --all, not both",
            remedies=("windlass cancel NAME", "windlass cancel --all -q QUEUE"),
        )
    if queue is not None and not everything:
        raise WindlassError(
            "WL-USE-400",
            f"-q {queue} works only with --all, not with names of jobs",
            remedies=(f"windlass cancel --all -q {queue}", f"windlass cancel {' '.join(jobs)}"),
        )
    named = dict.fromkeys(jobs)
    chosen = _all(invocation, queue, yes) if everything else [find(invocation, name) for name in named]
    records = []
    for job in chosen:
        done = end_job(invocation, job, reason)
        records.append({"name": job.name, "namespace": job.namespace, "result": done})
        if not invocation.structured:
            invocation.out.line(f"{job.name} {done}")
    if wait:
        _wait(invocation, chosen)
    if invocation.structured:
        emit(invocation, {"items": records}, names=[f"job/{job.name}" for job in chosen])
    return errors.OK


def _all(invocation: Invocation, queue: str | None, yes: bool) -> list[Job]:
    jobs = [job for job in fetch(invocation, invocation.listed_namespace) if not job.finished]
    jobs = [job for job in jobs if queue is None or job.queue == queue]
    if queue is not None and not jobs:
        errors.check_queue(invocation.client, queue)
    if not jobs:
        where = "" if invocation.all_namespaces else f" in namespace {invocation.home_namespace}"
        of_queue = f" of queue {queue}" if queue else ""
        invocation.note(f"there are no running or pending jobs{of_queue}{where}")
    if jobs and not yes and invocation.out.interactive:
        click.confirm(f"End {len(jobs)} job(s)?", abort=True, err=True)
    return jobs


def _wait(invocation: Invocation, jobs: list[Job]) -> None:
    from windlass.cli.jobs.job_index import refresh

    left = jobs
    while left:
        now = [refresh(invocation, job) for job in left]
        left = [job for job in now if job is not None and not job.finished]
        if left:
            invocation.clock.pause(0.1)
