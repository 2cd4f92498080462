"""``windlass suspend``: end the pods of jobs and keep the jobs."""

from __future__ import annotations

import click

from windlass.cli.invocation import Invocation
from windlass.cli.jobs.control_report import report_control
from windlass.cli.jobs.job_control import suspend_job
from windlass.cli.jobs.job_index import find
from windlass.cli.options import completer, standard


@click.command("suspend")
@click.argument("jobs", nargs=-1, required=True, metavar="JOB...", shell_complete=completer("jobs"))
@standard()
def command(invocation: Invocation, jobs: tuple[str, ...]) -> int:
    """End the pods of jobs; the jobs stay, to be resumed."""
    found = [find(invocation, name) for name in dict.fromkeys(jobs)]
    report_control(invocation, ((job, suspend_job(invocation, job)) for job in found))
    return 0
