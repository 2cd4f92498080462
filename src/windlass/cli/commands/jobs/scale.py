"""``windlass scale``: change the number of pods of a job."""

from __future__ import annotations

import click

from windlass.api.errors import WindlassError
from windlass.cli.invocation import Invocation
from windlass.cli.jobs.job_control import scale_job
from windlass.cli.jobs.job_index import find
from windlass.cli.options import job_argument, standard
from windlass.cli.output.formats import emit


@click.command("scale", context_settings={"ignore_unknown_options": True})
@job_argument()
@click.argument("sizes", nargs=-1, required=True, metavar="[ROLE=]N...")
@standard()
def command(invocation: Invocation, job: str, sizes: tuple[str, ...]) -> int:
    """Change the number of pods of a job."""
    counts = dict(_size(text, job) for text in sizes)
    found = find(invocation, job)
    done = scale_job(invocation, found, counts)
    if invocation.structured:
        record = {
            "name": found.name,
            "namespace": found.namespace,
            "kind": found.resource.kind,
            "roles": counts,
            "result": done,
        }
        emit(invocation, record, names=[f"job/{found.name}"])
    else:
        invocation.out.line(f"{found.name} {done}")
    return 0


def _size(text: str, job: str) -> tuple[str, int]:
    if text.startswith("--"):
        raise click.NoSuchOption(text.partition("=")[0], ctx=click.get_current_context())
    role, _, number = text.rpartition("=")
    if not number.isascii() or not number.isdecimal():
        raise WindlassError(
            "WL-USE-400",
            f"{text!r} is not a number of pods",
            evidence="the format is N for a job with one role, and ROLE=N otherwise",
            remedies=(f"windlass scale {job} 4", f"windlass scale {job} worker=4"),
        )
    return role, int(number)
