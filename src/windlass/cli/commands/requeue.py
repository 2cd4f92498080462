"""``windlass requeue``: end the pods of jobs and queue the jobs again."""

from __future__ import annotations

import click

from windlass.cli.invocation import Invocation
from windlass.cli.jobs.job_control import requeue_jobs
from windlass.cli.jobs.job_index import find
from windlass.cli.options import completer, standard
from windlass.cli.output.formats import emit


@click.command("requeue")
@click.argument("jobs", nargs=-1, required=True, metavar="JOB...", shell_complete=completer("jobs"))
@click.option(
    "--timeout",
    type=click.FloatRange(0),
    default=120.0,
    metavar="SECONDS",
    help="Maximum wait for the old pods to end (default: 120).",
)
@standard()
def command(invocation: Invocation, jobs: tuple[str, ...], timeout: float) -> int:
    """End the pods of jobs and queue the jobs again."""
    records = []
    found = [find(invocation, name) for name in dict.fromkeys(jobs)]
    for job, done in zip(found, requeue_jobs(invocation, found, timeout), strict=True):
        record = {"name": job.name, "namespace": job.namespace, "kind": job.resource.kind, "result": done}
        records.append(record)
        if not invocation.structured:
            invocation.out.line(f"{job.name} {done}")
    if invocation.structured:
        emit(invocation, {"items": records}, names=[f"job/{record['name']}" for record in records])
    return 0
