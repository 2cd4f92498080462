"""``windlass run``: a command as a job, followed to its end; exits with the job's exit status."""

from __future__ import annotations

import signal
from typing import Any

import click

from windlass.cli import failures
from windlass.cli.ending import terminate
from windlass.cli.following import Follower, Phases, summary
from windlass.cli.invocation import Invocation
from windlass.cli.jobs import Job
from windlass.cli.loglines import LogOptions, pattern_of
from windlass.cli.options import standard
from windlass.cli.submitting import job_flags, make, wish_of

CONTEXT = {"allow_interspersed_args": False}
_MOMENT_SECONDS = 2.0


@click.command("run", context_settings=CONTEXT)
@job_flags
@click.option("--grep", metavar="REGEX", help="Show only matching lines of the output.")
@click.option("--timestamps", is_flag=True, help="When each line was written, in front of it.")
@click.option("--quiet", is_flag=True, help="Only the job's own output.")
@standard(output=False, short_namespace=False)
def command(invocation: Invocation, grep: str | None, timestamps: bool, quiet: bool, **given: Any) -> int:
    """Run a command as a job and follow it.

    Everything after -- is the command. The exit status is the job's own.
    """
    options = LogOptions(pattern=pattern_of(grep), timestamps=timestamps)
    phases = Phases(invocation, quiet=quiet)
    created = make(invocation, wish_of(given, followed=True), phases.show)
    job = Job("Job", created)
    follower = Follower(invocation, job, options, phases=phases, give_up=True)
    try:
        code = follower.run()
    except KeyboardInterrupt:
        phases.settle()
        return _detach(invocation, job)
    if code and not quiet:
        invocation.note(summary(follower.job))
    return code


def _detach(invocation: Invocation, job: Job) -> int:
    """The first Ctrl-C lets go; a second one within a moment asks whether to cancel."""
    name = job.name
    invocation.note(f"\ndetached; {name} goes on")
    invocation.note(f"come back: windlass logs -f {name}")
    invocation.note(f"end it:    windlass cancel {name}")
    if not invocation.err.interactive:
        return failures.INTERRUPTED
    invocation.note("(Ctrl-C again: cancel)")
    try:
        invocation.clock.pause(_MOMENT_SECONDS)
    except KeyboardInterrupt:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        if click.confirm(f"\nCancel {name}?", default=False, err=True):
            terminate(invocation, name, job.namespace, "cancelled by its user")
            invocation.note(f"{name} is being ended")
    return failures.INTERRUPTED
