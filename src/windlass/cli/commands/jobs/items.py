"""``windlass items``: the items of a generation job."""

from __future__ import annotations

import click

from windlass.cli import errors, tables
from windlass.cli.command_group import NounGroup
from windlass.cli.generation import contexts, letters, progress
from windlass.cli.invocation import Invocation
from windlass.cli.options import job_argument, standard
from windlass.cli.output import wide_tables
from windlass.cli.output.formats import emit
from windlass.jobs.aigc.status import MAX_GROUPS


@click.group("items", cls=NounGroup)
def command() -> None:
    """Items of a generation job: ls, dead, context, retry."""


@command.command("ls")
@job_argument()
@standard()
def list_groups(invocation: Invocation, job: str) -> int:
    """Show how many items are done, by group."""
    found = letters.generation_job(invocation, job)
    status = found.obj.get("status") or {}
    if invocation.structured:
        hidden = ("conditions", "observedGeneration")
        record: dict[str, object] = {"name": found.name, "namespace": found.namespace}
        record |= {name: value for name, value in status.items() if name not in hidden}
        record["groups"] = letters.all_groups(invocation, found)
        emit(invocation, record, names=[f"aigcjob/{found.name}"])
        return errors.OK
    invocation.out.write(tables.pairs(progress.facts(found.obj)))
    rows = progress.group_rows(found.obj)
    if rows:
        invocation.out.line("")
        wide_tables.show(invocation, progress.GROUP_HEADER, rows)
        if len(rows) == MAX_GROUPS:
            invocation.note(
                f"These groups have the most items left. To list all: windlass items ls {found.name} -o json"
            )
    return errors.OK


@command.command("dead")
@job_argument()
@click.option("--limit", type=click.IntRange(1), default=100, metavar="N", help="At most N. [default: 100]")
@standard()
def list_dead(invocation: Invocation, job: str, limit: int) -> int:
    """List dead letters: items that failed for good, with the reason."""
    found = letters.generation_job(invocation, job)
    dead, reasons = letters.dead_letters(invocation, found, limit)
    if invocation.structured:
        emit(invocation, {"items": dead, "reasons": reasons}, names=[str(one.get("id")) for one in dead])
        return errors.OK
    rows = [[str(one.get(name) or "-") for name in ("id", "attempts", "reason", "message")] for one in dead]
    if not rows:
        invocation.note("No dead letters.")
        return errors.OK
    wide_tables.show(invocation, ["REASON", "ITEMS"], [[name, str(count)] for name, count in reasons.items()])
    invocation.out.line("")
    wide_tables.show(invocation, ["ID", "ATTEMPTS", "REASON", "MESSAGE"], rows)
    return errors.OK


@command.command("context")
@job_argument()
@click.argument("segment", required=False, default="", metavar="[ID]")
@click.option("--limit", type=click.IntRange(1), default=100, metavar="N", help="At most N. [default: 100]")
@standard()
def list_contexts(invocation: Invocation, job: str, segment: str, limit: int) -> int:
    """Show which media time each segment gets as context, and from which segments."""
    found = letters.generation_job(invocation, job)
    records = contexts.contexts(invocation, found, limit, segment)
    if invocation.structured:
        emit(invocation, {"items": records}, names=[str(one["id"]) for one in records])
        return errors.OK
    if not records:
        invocation.note(f"No segment {segment}." if segment else "No segments.")
        return errors.OK
    wide_tables.show(invocation, contexts.HEADER, contexts.rows(records), optional=("END",))
    return errors.OK


@command.command("retry")
@job_argument()
@click.argument("ids", nargs=-1, metavar="[ID]...")
@click.option("--dead", is_flag=True, help="All dead letters, which is the default without IDs.")
@standard()
def retry(invocation: Invocation, job: str, ids: tuple[str, ...], dead: bool) -> int:
    """Run dead letters again: all of them, or those with these ids."""
    found = letters.generation_job(invocation, job)
    done = letters.retry(invocation, found, () if dead else ids)
    if invocation.structured:
        record: dict[str, object] = {"name": found.name, "namespace": found.namespace, "result": done}
        emit(invocation, record, names=[f"aigcjob/{found.name}"])
    else:
        invocation.out.line(f"{found.name} {done}")
    return errors.OK
