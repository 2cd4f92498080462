"""``windlass resume``: start suspended jobs again."""

from __future__ import annotations

import click

from windlass.cli.invocation import Invocation
from windlass.cli.jobs.control_report import report_control
from windlass.cli.jobs.job_control import resume_job
from windlass.cli.jobs.job_index import find
from windlass.cli.options import completer, standard


@click.command("resume")
@click.argument("jobs", nargs=-1, required=True, metavar="JOB...", shell_complete=completer("jobs"))
@standard()
def command(invocation: Invocation, jobs: tuple[str, ...]) -> int:
    """Queue suspended jobs again."""
    found = [find(invocation, name) for name in dict.fromkeys(jobs)]
    report_control(invocation, ((job, resume_job(invocation, job)) for job in found))
    return 0
