"""``windlass run``: run a command as a job, follow it, and exit with its exit status."""

from __future__ import annotations

from typing import Any

import click

from windlass.api.errors import WindlassError
from windlass.cli.invocation import Invocation
from windlass.cli.jobs.cancel import detach
from windlass.cli.jobs.jobs import Job
from windlass.cli.jobs.kinds.job_kinds import kind_of
from windlass.cli.jobs.kinds.kind_manifests import resource_of
from windlass.cli.jobs.logs.follow import Follower, Phases, summary
from windlass.cli.jobs.logs.log_lines import LogView, pattern_of
from windlass.cli.jobs.requests.job_builder import JobRequest
from windlass.cli.jobs.requests.job_flags import create_job, job_flags, job_request_of, warn_about_piped_input
from windlass.cli.options import standard

CONTEXT = {"allow_interspersed_args": False}


@click.command("run", context_settings=CONTEXT)
@job_flags
@click.option("--grep", metavar="REGEX", help="Show only matching lines of the output.")
@click.option("--timestamps", is_flag=True, help="Print the time of each line in front of it.")
@click.option("--quiet", is_flag=True, help="Only the job's own output.")
@standard(short_namespace=False, formats=("json",))
def command(invocation: Invocation, grep: str | None, timestamps: bool, quiet: bool, **given: Any) -> int:
    """Run a command as a job and follow it.

    Everything after -- is the command. The exit status is the job's own.
    """
    options = LogView(
        pattern=pattern_of(grep, "windlass run"), timestamps=timestamps, as_json=invocation.structured
    )
    phases = Phases(invocation, quiet=quiet)
    request = job_request_of(given, followed=True)
    _check_followed(request)
    created = create_job(invocation, request, phases.show)
    warn_about_piped_input(invocation)
    job = Job(kind_of(created["apiVersion"], created["kind"]), created)
    follower = Follower(invocation, job, options, phases=phases, give_up=True)
    try:
        code = follower.run()
    except KeyboardInterrupt:
        phases.end_line()
        return detach(invocation, job)
    warn_about_piped_input(invocation)  # again, for data that arrived after the job was created
    if code and not quiet:
        invocation.note(summary(follower.job))
    return code


def _check_followed(request: JobRequest) -> None:
    """Raise :class:`WindlassError` for a kind that is not listed by ``windlass ps``."""
    resource, kind = resource_of(request), request.kind
    if not kind_of(resource.api_version, resource.kind):
        raise WindlassError(
            "WL-USE-501",
            f"windlass run cannot follow jobs of kind {kind}",
            evidence="windlass submit creates them",
            remedies=(f"windlass submit --kind {kind} -- COMMAND",),
        )
