"""``windlass suspend``: end the pods of jobs and keep the jobs."""

from __future__ import annotations

import click

from windlass.cli.invocation import Invocation
from windlass.cli.jobs.job_control import suspend_job
from windlass.cli.jobs.job_index import find
from windlass.cli.options import completer, standard
from windlass.cli.output.formats import emit


@click.command("suspend")
@click.argument("jobs", nargs=-1, required=True, metavar="JOB...", shell_complete=completer("jobs"))
@standard()
def command(invocation: Invocation, jobs: tuple[str, ...]) -> int:
    """End the pods of jobs; the jobs stay, to be resumed."""
    records = []
    for job in [find(invocation, name) for name in dict.fromkeys(jobs)]:
        done = suspend_job(invocation, job)
        records.append(
            {"name": job.name, "namespace": job.namespace, "kind": job.resource.kind, "result": done}
        )
        if not invocation.structured:
            invocation.out.line(f"{job.name} {done}")
    if invocation.structured:
        emit(invocation, {"items": records}, names=[f"job/{record['name']}" for record in records])
    return 0
