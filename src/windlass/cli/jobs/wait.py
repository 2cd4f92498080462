"""Waiting for a job's end without its output."""

from __future__ import annotations

from windlass.cli.invocation import Invocation
from windlass.cli.jobs.follow import Follower, Phases, summary
from windlass.cli.jobs.job_index import find
from windlass.cli.jobs.log_lines import LogView


def until_end(invocation: Invocation, name: str) -> int:
    """The job's exit status. Raises ``WL-JOB-413`` if waiting does not help it."""
    follower = Follower(
        invocation,
        find(invocation, name),
        LogView(),
        phases=Phases(invocation, quiet=not invocation.err.interactive),
        give_up=True,
        silent=True,
    )
    code = follower.run()
    if code:
        invocation.note(summary(follower.job))
    return code
