"""``windlass submit``: queue a command as a job and return."""

from __future__ import annotations

from typing import Any

import click

from windlass.api.errors import WindlassError
from windlass.cli.invocation import Invocation
from windlass.cli.jobs.requests.job_flags import (
    create_job,
    dry_run_job,
    job_flags,
    job_request_of,
    warn_about_piped_input,
)
from windlass.cli.options import standard
from windlass.cli.output.formats import emit, to_yaml

CONTEXT = {"allow_interspersed_args": False}


@click.command("submit", context_settings=CONTEXT)
@job_flags
@click.option("--wait", is_flag=True, help="Wait for the end of the job, and exit with its exit status.")
@click.option("--dry-run", is_flag=True, help="Print the manifest of the job, and create nothing.")
@standard(short_namespace=False)
def command(invocation: Invocation, wait: bool, dry_run: bool, **given: Any) -> int:
    """Queue a command as a job and return."""
    request = job_request_of(given)
    if dry_run and request.resume is not None:
        raise WindlassError(
            "WL-USE-400",
            "--dry-run and --resume do not go together: the manifest of the next attempt is that of the job",
            remedies=("windlass get vcjob NAME -o yaml", "windlass submit --dry-run -- COMMAND"),
        )
    if dry_run:
        return _print_manifest(invocation, dry_run_job(invocation, request))
    job = create_job(invocation, request, invocation.note)
    warn_about_piped_input(invocation)
    name = job["metadata"]["name"]
    if invocation.structured:
        word = f"{job['kind'].lower()}.{job['apiVersion'].partition('/')[0]}"
        emit(invocation, job, names=[f"{word}/{name}"])
    else:
        invocation.out.line(name)
        if invocation.err.interactive:
            invocation.note(f"follow: windlass logs -f {name}   why it waits: windlass explain {name}")
    if not wait:
        return 0
    from windlass.cli.jobs.logs.follow import wait_for_end

    return wait_for_end(invocation, name)


def _print_manifest(invocation: Invocation, job: dict[str, Any]) -> int:
    if invocation.structured:
        emit(invocation, job, names=[f"{job['kind'].lower()}/{job['metadata']['name']}"])
    else:
        invocation.out.write(to_yaml(job))
    return 0
