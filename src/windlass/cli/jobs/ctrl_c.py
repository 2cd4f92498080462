"""Ctrl-C while following: the first lets go of the job, a second one within a moment asks whether to cancel."""

from __future__ import annotations

import signal

import click

from windlass.cli import errors
from windlass.cli.invocation import Invocation
from windlass.cli.jobs.cancel import end
from windlass.cli.jobs.jobs import Job

_MOMENT_SECONDS = 2.0


def detach(invocation: Invocation, job: Job) -> int:
    """Say how to come back and how to end the job. The exit status of an interrupted command."""
    name = job.name
    invocation.note(f"\ndetached; {name} goes on")
    aim = invocation.surroundings.aim
    invocation.note(f"come back: {errors.remedy_with_target(f'windlass logs -f {name}', aim)}")
    invocation.note(f"end it:    {errors.remedy_with_target(f'windlass cancel {name}', aim)}")
    if not invocation.err.interactive:
        return errors.INTERRUPTED
    invocation.note("(Ctrl-C again: cancel)")
    try:
        invocation.clock.pause(_MOMENT_SECONDS)
    except KeyboardInterrupt:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        if click.confirm(f"\nCancel {name}?", default=False, err=True):
            invocation.note(f"{name} {end(invocation, job, 'cancelled by its user')}")
    return errors.INTERRUPTED
