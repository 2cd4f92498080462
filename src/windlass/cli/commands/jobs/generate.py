"""``windlass generate``: work through the rows of a file with a model or a program."""

from __future__ import annotations

import os
from typing import Any

import click

from windlass.api.errors import StatusError, WindlassError
from windlass.api.fields.aigc import on_loopback
from windlass.api.resources import AIGC_JOBS, PODS
from windlass.cli import errors
from windlass.cli.generation import progress
from windlass.cli.generation.manifest import (
    GenerationRequest,
    build,
    check_output,
    name_of,
    words_of,
)
from windlass.cli.generation.remedies import again
from windlass.cli.invocation import Invocation
from windlass.cli.jobs.cancel import detach
from windlass.cli.jobs.events import about_objects
from windlass.cli.jobs.jobs import Job
from windlass.cli.jobs.logs.follow import Phases
from windlass.cli.jobs.preflight.command_checks import ProgramOfRows, check_command
from windlass.cli.options import standard
from windlass.cli.output.formats import FORMATS, emit, formats_text, to_yaml
from windlass.cli.text import plural
from windlass.kits import rng

_POLL_SECONDS = 0.5
_STUCK_SECONDS = 5.0
"""Time without rows after which warnings about the driver are shown (seconds)."""
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
@click.option("--model", metavar="NAME", default="", help="Model: a .gguf file, or a name.")
@click.option("--url", metavar="URL", default="", help="OpenAI-compatible server that has the model.")
@click.option("--function", metavar="MODULE:NAME", default="", help="Python function of a row.")
@click.option(
    "--runtime", metavar="NAME", default="", help="llama-cpp, or builtin-generate for texts to try."
)
@click.option("--workers", metavar="N|MIN-MAX", default="", help="Number of workers. [default: 1]")
@click.option(
    "--autoscaler", metavar="FILE", default="", help="Python class that sets the number of workers."
)
@click.option(
    "--gpus", type=click.IntRange(0), default=0, metavar="N", help="GPUs of each worker. [default: 0]"
)
@click.option(
    "--shards",
    type=click.IntRange(1),
    metavar="N",
    help="Pods of each worker, each with --gpus. [default: 1]",
)
@click.option(
    "--max-failed", type=click.FloatRange(0, 100), metavar="PERCENT", help="Rows that may fail. [default: 1]"
)
@click.option("--retries", type=click.IntRange(0), metavar="N", help="Retries of a row. [default: 2]")
@click.option(
    "--min-quality", type=click.FloatRange(0, 100), metavar="N", help="Flag rows with a lower score."
)
@click.option(
    "--scorer",
    metavar="NAME",
    default="",
    help="length:MIN-MAX, language:CODE, regex:PATTERN, MODULE:NAME, or judge with --url.",
)
@click.option("--queue", metavar="NAME", default="", help="Queue of the job.")
@click.option("--priority", metavar="NAME", default="", help="urgent, high, medium or low. [default: medium]")
@click.option("--name", metavar="NAME", default=None, help="Name of the job. [default: from FILE]")
@click.option("--detach", "detached", is_flag=True, help="Return when the job is queued.")
@click.option("--dry-run", is_flag=True, help="Print the manifest of the job, and create nothing.")
@click.option("-o", "output", metavar="FORMAT", default="", help=f"{formats_text(FORMATS)}.")
@standard(output=False)
def command(
    invocation: Invocation,
    file: str,
    words: tuple[str, ...],
    result: str,
    name: str | None,
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
    if name is None:
        name = name_of(file, rng.name_suffix(rng.system()))
    elif not name.strip():
        raise _unnamed(request)
    obj = build(request, name, invocation.home_namespace)
    if dry_run:
        _print(invocation, obj)
        return errors.OK
    if not request.inline:
        if request.command:
            check_command(ProgramOfRows(request.command, again(request, command=())), os.environ)
        check_output(request)
    if request.takes_files_of_rows:
        invocation.note(
            f"each file of {request.file} is one row; for the rows in its files, apply a manifest with "
            f"spec.input.format (to start from: {again(request, '--dry-run')})"
        )
    if on_loopback(request.url):
        invocation.note(
            f"the workers use the network of their node (hostNetwork), where {request.url} is looked for"
        )
    created: dict[str, Any] | None = None
    try:
        created = _create(invocation, obj, request)
        return _queued(invocation, created) if detached else _follow(invocation, created)
    except KeyboardInterrupt:
        return _interrupted(invocation, created, obj)


def _unnamed(request: GenerationRequest) -> WindlassError:
    """Return the error about an empty name, such as that of a variable of a shell that is not set."""
    return WindlassError(
        "WL-USE-400",
        "--name is empty: a job cannot have this name",
        evidence="without --name, each run gets a name of its own from FILE",
        remedies=(again(request, "--name", "NAME"), again(request)),
    )


def _queued(invocation: Invocation, created: dict[str, Any]) -> int:
    if invocation.structured:
        emit(invocation, created, names=[f"aigcjob/{created['metadata']['name']}"])
    else:
        invocation.out.line(created["metadata"]["name"])
    return errors.OK


def _interrupted(invocation: Invocation, created: dict[str, Any] | None, obj: dict[str, Any]) -> int:
    """Tell how to come back to the job, which the server may have created without an answer."""
    if created is None:
        name, namespace = obj["metadata"]["name"], obj["metadata"]["namespace"]
        client = invocation.new_client()  # the other one may be in the middle of an answer
        try:
            created = client.find(AIGC_JOBS, name, namespace)
        finally:
            client.close()
    if created is None:
        invocation.note("\ninterrupted; no job was created")
        return errors.INTERRUPTED
    return detach(invocation, Job("AIGCJob", created))


def _create(invocation: Invocation, obj: dict[str, Any], request: GenerationRequest) -> dict[str, Any]:
    """Create the job. Raises :class:`WindlassError` if one of its name is there."""
    name, namespace = obj["metadata"]["name"], obj["metadata"]["namespace"]
    try:
        return invocation.client.create(AIGC_JOBS, obj, namespace)
    except StatusError as error:
        if error.reason != "AlreadyExists":
            raise
        there = invocation.client.find(AIGC_JOBS, name, namespace) or {}
        phase = (there.get("status") or {}).get("phase") or "Pending"
        own = invocation.namespace_flag(namespace)
        place = own.split()
        raise WindlassError(
            "WL-GENERATE-409",
            f"there is a generation job {name} already",
            evidence=f"its phase is {phase}; without --name, each run gets a name of its own",
            remedies=(
                again(request, *place),
                f"windlass delete aigcjob/{name}{own} && {again(request, *place, '--name', name)}",
            ),
        ) from None


def _print(invocation: Invocation, obj: dict[str, Any]) -> None:
    if invocation.structured:
        emit(invocation, obj, names=[f"aigcjob/{obj['metadata']['name']}"])
    else:
        invocation.out.write(to_yaml(obj))


def _troubles(invocation: Invocation, obj: dict[str, Any]) -> list[str]:
    """Return the warnings about a job that has read no rows, and about its driver."""
    name = f"{obj['metadata']['name']}-driver"
    driver = invocation.client.find(PODS, name, obj["metadata"]["namespace"])
    events = about_objects(invocation, [obj] if driver is None else [obj, driver])
    words = [
        f"{(one.get('involvedObject') or {}).get('name')}: {one.get('reason')}: {one.get('message')}"
        for one in events
        if one.get("type") == "Warning"
    ]
    return list(dict.fromkeys(words))


def _follow(invocation: Invocation, created: dict[str, Any]) -> int:
    """Show the progress until the job ends; return 0 if it succeeded."""
    phases = Phases(invocation)
    metadata = created["metadata"]
    invocation.note(f"job {metadata['name']}")
    told: list[str] = []
    earlier: list[str] = []
    unscored = ""
    begun = invocation.clock.monotonic()
    while True:
        try:
            obj = invocation.client.get(AIGC_JOBS, metadata["name"], metadata["namespace"])
        except StatusError as error:
            if error.code != 404:
                raise
            phases.end_line(f"{metadata['name']} was deleted")
            return errors.FAILED
        if not earlier:
            earlier = [*progress.taken_over(obj), *progress.remake(obj)]
            for text in earlier:
                phases.end_line(text)
        if not unscored and (unscored := progress.unscored(obj)):
            phases.end_line(unscored)
        phase = (obj.get("status") or {}).get("phase")
        if phase in progress.ENDED:
            phases.end_line(progress.line(obj))
            break
        phases.show(progress.line(obj))
        if (
            not told
            and invocation.clock.monotonic() > begun + _STUCK_SECONDS
            and not (obj.get("status") or {}).get("items")
        ):
            told = _troubles(invocation, obj)
            for text in told:
                phases.end_line(text)
        invocation.clock.pause(_POLL_SECONDS)
    status = obj.get("status") or {}
    if invocation.structured:
        emit(invocation, obj, names=[f"aigcjob/{metadata['name']}"])
    else:
        if status.get("message"):
            invocation.note(status["message"])
        dead = (status.get("items") or {}).get("deadLetter")
        own = metadata["name"] + invocation.namespace_flag(metadata["namespace"])
        if dead:
            invocation.note(f"{plural(dead, 'row')} failed: windlass items dead {own}")
        if phase != "Succeeded" and not status.get("failure") and progress.left_of(status):
            invocation.note(f"to go on with the rows that are left: windlass items retry {own}")
        if status.get("outputs"):
            invocation.out.line(status["outputs"])
    return errors.OK if phase == "Succeeded" else errors.FAILED
