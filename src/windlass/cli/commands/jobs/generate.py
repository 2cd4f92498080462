"""``windlass generate``: work through the rows of a file with a model or a program."""

from __future__ import annotations

from typing import Any

import click

from windlass.api.errors import StatusError
from windlass.api.resources import AIGC_JOBS
from windlass.cli import errors
from windlass.cli.generation import progress
from windlass.cli.generation.manifest import GenerationRequest, build, name_of, words_of
from windlass.cli.invocation import Invocation
from windlass.cli.jobs.cancel import detach
from windlass.cli.jobs.jobs import Job
from windlass.cli.jobs.logs.follow import Phases
from windlass.cli.options import standard
from windlass.cli.output.formats import FORMATS, emit, formats_text, to_yaml
from windlass.kits import rng

_POLL_SECONDS = 0.5
CONTEXT = {"allow_interspersed_args": True}


@click.command("generate", context_settings=CONTEXT)
@click.argument("file", metavar="FILE")
@click.argument("words", nargs=-1, metavar="[-- COMMAND...]")
@click.option("--prompt", metavar="TEXT", default="", help="Prompt of a row, with columns in braces.")
@click.option(
    "--group-by", metavar="COLUMN", default="", help="Column, or expression, by which rows are grouped."
)
@click.option("--id", "id_field", metavar="COLUMN", default="", help="Column with the id. [default: id]")
@click.option("--output", "result", metavar="FILE", default="", help="Outputs. [default: FILE.out.jsonl]")
@click.option("--model", metavar="NAME", default="", help="Name of the model.")
@click.option("--url", metavar="URL", default="", help="OpenAI-compatible server that has the model.")
@click.option("--function", metavar="MODULE:NAME", default="", help="Python function of a row.")
@click.option("--runtime", metavar="NAME", default="", help="builtin-generate for texts to try.")
@click.option("--workers", metavar="N|MIN-MAX", default="", help="Number of workers. [default: 1]")
@click.option(
    "--gpus", type=click.IntRange(0), default=0, metavar="N", help="GPUs of each worker. [default: 0]"
)
@click.option("--retries", type=click.IntRange(0), metavar="N", help="Retries of a row. [default: 2]")
@click.option(
    "--min-quality", type=click.FloatRange(0, 100), metavar="N", help="Flag rows with a lower score."
)
@click.option("--scorer", metavar="NAME", default="", help="length, language, regex, judge or MODULE:NAME.")
@click.option("--queue", metavar="NAME", default="", help="Queue of the job.")
@click.option("--priority", metavar="NAME", default="", help="urgent, high, medium or low. [default: medium]")
@click.option("--name", metavar="NAME", default="", help="Name of the job. [default: from FILE]")
@click.option("--detach", "detached", is_flag=True, help="Return when the job is queued.")
@click.option("--dry-run", is_flag=True, help="Print the manifest of the job, and create nothing.")
@click.option("-o", "output", metavar="FORMAT", default="", help=f"{formats_text(FORMATS)}.")
@standard(output=False)
def command(
    invocation: Invocation,
    file: str,
    words: tuple[str, ...],
    result: str,
    name: str,
    detached: bool,
    dry_run: bool,
    **given: Any,
) -> int:
    """Work through the rows of a file with a model or a program.

    Rows that are done already in the output file are not done again. Everything after -- is a
    program that reads rows and writes rows, one JSON object a line.
    """
    request = GenerationRequest(
        file=file,
        command=words_of(words),
        output=result,
        inline=invocation.target.remote,
        **{key: given[key] for key in GenerationRequest.__slots__ if key in given},
    )
    obj = build(request, name or name_of(file, rng.name_suffix(rng.system())), invocation.namespace)
    if dry_run:
        _print(invocation, obj)
        return errors.OK
    created = invocation.client.create(AIGC_JOBS, obj, obj["metadata"]["namespace"])
    if detached:
        if invocation.structured:
            emit(invocation, created, names=[f"aigcjob/{created['metadata']['name']}"])
        else:
            invocation.out.line(created["metadata"]["name"])
        return errors.OK
    try:
        return _follow(invocation, created)
    except KeyboardInterrupt:
        return detach(invocation, Job("AIGCJob", created))


def _print(invocation: Invocation, obj: dict[str, Any]) -> None:
    if invocation.structured:
        emit(invocation, obj, names=[f"aigcjob/{obj['metadata']['name']}"])
    else:
        invocation.out.write(to_yaml(obj))


def _follow(invocation: Invocation, created: dict[str, Any]) -> int:
    """Show the progress until the job ends; return 0 if it succeeded."""
    phases = Phases(invocation)
    metadata = created["metadata"]
    invocation.note(f"job {metadata['name']}")
    while True:
        try:
            obj = invocation.client.get(AIGC_JOBS, metadata["name"], metadata["namespace"])
        except StatusError as error:
            if error.code != 404:
                raise
            phases.end_line(f"{metadata['name']} was deleted")
            return errors.FAILED
        phase = (obj.get("status") or {}).get("phase")
        if phase in progress.ENDED:
            phases.end_line(progress.line(obj))
            break
        phases.show(progress.line(obj))
        invocation.clock.pause(_POLL_SECONDS)
    status = obj.get("status") or {}
    if invocation.structured:
        emit(invocation, obj, names=[f"aigcjob/{metadata['name']}"])
    else:
        if status.get("message"):
            invocation.note(status["message"])
        dead = (status.get("items") or {}).get("deadLetter")
        if dead:
            invocation.note(f"{dead} rows failed: windlass items dead {metadata['name']}")
        if status.get("outputs"):
            invocation.out.line(status["outputs"])
    return errors.OK if phase == "Succeeded" else errors.FAILED
