"""``windlass requeue``: end the pods of jobs and queue the jobs again."""

from __future__ import annotations

import click

from windlass.cli.invocation import Invocation
from windlass.cli.jobs.control_report import report_control
from windlass.cli.jobs.job_control import requeue_jobs
from windlass.cli.jobs.job_index import find
from windlass.cli.options import completer, standard


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
    found = [find(invocation, name) for name in dict.fromkeys(jobs)]
    report_control(invocation, zip(found, requeue_jobs(invocation, found, timeout), strict=True))
    return 0
