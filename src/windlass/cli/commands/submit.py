"""``windlass submit``: queue a command as a job and return."""

from __future__ import annotations

from typing import Any

import click

from windlass.cli.invocation import Invocation
from windlass.cli.jobs.job_flags import create_job, job_flags, job_request_of, warn_about_piped_input
from windlass.cli.options import standard
from windlass.cli.output.formats import emit

CONTEXT = {"allow_interspersed_args": False}


@click.command("submit", context_settings=CONTEXT)
@job_flags
@click.option("--wait", is_flag=True, help="Wait for the end of the job, and exit with its exit status.")
@standard(short_namespace=False)
def command(invocation: Invocation, wait: bool, **given: Any) -> int:
    """Queue a command as a job and return."""
    job = create_job(invocation, job_request_of(given), invocation.note)
    warn_about_piped_input(invocation)
    name = job["metadata"]["name"]
    if invocation.structured:
        word = "job.batch.volcano.sh" if job["kind"] == "Job" else "pytorchjob.kubeflow.org"
        emit(invocation, job, names=[f"{word}/{name}"])
    else:
        invocation.out.line(name)
        if invocation.err.interactive:
            invocation.note(f"follow: windlass logs -f {name}   why it waits: windlass explain {name}")
    if not wait:
        return 0
    from windlass.cli.jobs.follow import wait_for_end

    return wait_for_end(invocation, name)
