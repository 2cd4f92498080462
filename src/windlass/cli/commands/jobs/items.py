"""``windlass items``: the items of a generation job."""

from __future__ import annotations

import click

from windlass.cli import errors, tables
from windlass.cli.command_group import NounGroup
from windlass.cli.generation import letters, progress
from windlass.cli.invocation import Invocation
from windlass.cli.options import job_argument, standard
from windlass.cli.output import wide_tables
from windlass.cli.output.formats import emit


@click.group("items", cls=NounGroup)
def command() -> None:
    """Items of a generation job: ls, dead, retry."""


@command.command("ls")
@job_argument()
@standard()
def list_groups(invocation: Invocation, job: str) -> int:
    """Show how many items are done, by group."""
    found = letters.generation_job(invocation, job)
    status = found.obj.get("status") or {}
    if invocation.structured:
        record = {name: status.get(name) for name in ("phase", "items", "groups", "quality", "latency")}
        emit(invocation, record, names=[f"aigcjob/{found.name}"])
        return errors.OK
    invocation.out.write(tables.pairs(progress.facts(found.obj)))
    rows = progress.group_rows(found.obj)
    if rows:
        invocation.out.line("")
        wide_tables.show(invocation, progress.GROUP_HEADER, rows)
    return errors.OK


@command.command("dead")
@job_argument()
@click.option("--limit", type=click.IntRange(1), default=100, metavar="N", help="At most N. [default: 100]")
@standard()
def list_dead(invocation: Invocation, job: str, limit: int) -> int:
    """List dead letters: items that failed for good, with the reason."""
    found = letters.generation_job(invocation, job)
    dead = letters.dead_letters(invocation, found, limit)
    if invocation.structured:
        emit(invocation, {"items": dead}, names=[str(one.get("id")) for one in dead])
        return errors.OK
    rows = [[str(one.get(name) or "-") for name in ("id", "attempts", "reason", "message")] for one in dead]
    if not rows:
        invocation.note("No dead letters.")
        return errors.OK
    wide_tables.show(invocation, ["ID", "ATTEMPTS", "REASON", "MESSAGE"], rows)
    return errors.OK


@command.command("retry")
@job_argument()
@click.argument("ids", nargs=-1, metavar="[ID]...")
@standard()
def retry(invocation: Invocation, job: str, ids: tuple[str, ...]) -> int:
    """Run dead letters again: all of them, or those with these ids."""
    found = letters.generation_job(invocation, job)
    done = letters.retry(invocation, found, ids)
    if invocation.structured:
        record = {"name": found.name, "namespace": found.namespace, "result": done}
        emit(invocation, record, names=[f"aigcjob/{found.name}"])
    else:
        invocation.out.line(f"{found.name} {done}")
    return errors.OK
