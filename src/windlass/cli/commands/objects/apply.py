"""``windlass apply``: create or change objects from manifests, with all warnings."""

from __future__ import annotations

import click

from windlass.api.errors import WindlassError
from windlass.cli import errors
from windlass.cli.invocation import Invocation
from windlass.cli.manifests.apply import CLIENT, NONE, SERVER, Applier, ApplyResult
from windlass.cli.options import standard
from windlass.cli.output.formats import emit

_SUFFIXES = {NONE: "", SERVER: " (server dry run)", CLIENT: " (dry run)"}


@click.command("apply")
@click.option(
    "-f", "--filename", "sources", multiple=True, required=True, metavar="FILE", help="File, directory, or -."
)
@click.option("-R", "--recursive", is_flag=True, help="Also read subdirectories.")
@click.option(
    "--strict",
    is_flag=True,
    help="Reject unknown fields, aliases and defaulted values before anything is written.",
)
@click.option(
    "--dry-run",
    is_flag=False,
    flag_value=SERVER,
    default=NONE,
    type=click.Choice([NONE, SERVER, CLIENT]),
    metavar="[MODE]",
    help="Write nothing. Either the server checks all (server, the default MODE), or only names and fields are"
    " checked, without a server (client).",
)
@standard()
def command(
    invocation: Invocation, sources: tuple[str, ...], recursive: bool, strict: bool, dry_run: str
) -> int:
    """Create or change objects from manifests."""
    from windlass.cli.manifests.read import read

    documents = read(sources, recursive=recursive)
    applier = Applier(invocation, strict=strict, dry_run=dry_run)
    if strict:
        problems = applier.rehearse(documents)
        if problems:
            raise WindlassError(
                "WL-STRICT-422",
                f"--strict rejects {len({id(p.document) for p in problems})} of {len(documents)} object(s); "
                "nothing was written",
                evidence="\n     ".join(str(problem) for problem in problems),
                remedies=("correct the fields", "omit --strict   (the problems are then warnings)"),
            )
    outcomes: list[ApplyResult] = []
    failed: list[WindlassError] = []
    for document in documents:
        try:
            result = applier.apply(document)
        except WindlassError as error:
            if errors.exit_status(error) == errors.UNREACHABLE or len(documents) == 1:
                raise
            failed.append(error)
            invocation.err.write(errors.as_text(error, invocation.err.paint))
            continue
        outcomes.append(result)
        for text in result.warnings:
            invocation.warn(text)
        if not invocation.structured:
            invocation.out.line(f"{result.title} {result.action}{_SUFFIXES[dry_run]}")
    if invocation.structured:
        items = [outcome.obj for outcome in outcomes]
        whole = {"apiVersion": "v1", "kind": "List", "items": items}
        emit(invocation, items[0] if len(items) == 1 else whole, names=[o.title for o in outcomes])
    return errors.exit_status(failed[0]) if failed else errors.OK
