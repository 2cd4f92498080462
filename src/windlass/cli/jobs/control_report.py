"""Result of a command that changes jobs: a line or a record for each."""

from __future__ import annotations

from collections.abc import Iterable

from windlass.cli.invocation import Invocation
from windlass.cli.jobs.jobs import Job
from windlass.cli.output.formats import emit


def report_control(invocation: Invocation, results: Iterable[tuple[Job, str]]) -> None:
    """Print what was done with each job, one line as soon as it is done, or all as JSON or YAML."""
    records = []
    for job, done in results:
        records.append(
            {"name": job.name, "namespace": job.namespace, "kind": job.resource.kind, "result": done}
        )
        if not invocation.structured:
            invocation.out.line(f"{job.name} {done}")
    if invocation.structured:
        emit(invocation, {"items": records}, names=[f"job/{record['name']}" for record in records])
