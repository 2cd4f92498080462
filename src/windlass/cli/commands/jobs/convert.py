"""``windlass convert``: print jobs of a manifest as jobs of another kind, with what is lost."""

from __future__ import annotations

import copy
from typing import Any

import click

from windlass.api.errors import WindlassError
from windlass.api.resources import Resource
from windlass.cli import terminal
from windlass.cli.manifests.read import Document
from windlass.cli.options import output_flag
from windlass.cli.output.formats import check_format, to_json, to_yaml
from windlass.jobs.convert.write import TARGETS
from windlass.kits.printable import with_article

FORMATS = ("yaml", "json")


@click.command("convert")
@click.argument("source", metavar="FILE")
@click.option(
    "--to",
    "target",
    type=click.Choice(tuple(TARGETS)),
    required=True,
    help="Kind of the jobs that are printed.",
)
@output_flag(FORMATS)
def command(source: str, target: str, output: str | None) -> int:
    """Print the jobs of a manifest as jobs of another kind.

    What the other kind cannot express is named on standard error. Other objects of the
    file are printed as they are. Nothing is created.
    """
    from windlass.cli.manifests.read import read

    form = check_format(output or "", FORMATS)
    converted, lost = [], []
    documents = read([source])
    runtimes = {
        str((one.obj.get("metadata") or {}).get("name")): one.obj
        for one in documents
        if str(one.obj.get("kind")) in ("TrainingRuntime", "ClusterTrainingRuntime")
    }
    for document in documents:
        obj, missing = _convert(document, target, runtimes)
        converted.append(obj)
        lost += [{"object": document.title, "lost": text} for text in missing]
    if form == "json":
        terminal.output().write(to_json({"items": converted, "lost": lost}))
        return 0
    terminal.output().write("---\n".join(to_yaml(obj) for obj in converted))
    errors = terminal.errors()
    for entry in lost:
        errors.line(f"{errors.paint('lost:', 'yellow')} {entry['object']}: {entry['lost']}")
    return 0


def _convert(document: Document, target: str, runtimes: dict[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """Return the converted object and what is lost. Raises :class:`WindlassError`."""
    from windlass.cli.jobs.kinds.job_kinds import kind_of
    from windlass.cli.manifests.apply import resource_of
    from windlass.jobs.convert.read import Unconvertible, read, readable
    from windlass.jobs.convert.write import write

    resource = resource_of(document)
    wanted, _ = TARGETS[target]
    if resource is wanted or not kind_of(resource.api_version, resource.kind):
        return document.obj, []
    try:
        job = read(resource, document.obj, runtimes)
        obj = write(job, target)
        return obj, [*job.lost, *(f"{wanted.kind} is refused: {why}" for why in refusals(wanted, obj))]
    except Unconvertible as problem:
        raise WindlassError(
            "WL-CONVERT-422",
            f"{document.where}: {document.title} cannot become {with_article(wanted.kind)}",
            evidence=str(problem),
            remedies=(f"kinds that can be converted: {', '.join(readable())}",),
        ) from problem
    except (TypeError, ValueError, KeyError, AttributeError) as problem:
        raise WindlassError(
            "WL-CONVERT-422",
            f"{document.where}: {document.title} cannot be read",
            evidence=f"a field has another shape than it should have: {problem}",
            remedies=(f"windlass apply --dry-run=client -f {document.source}   (names the field)",),
        ) from problem


def refusals(resource: Resource, obj: dict[str, Any]) -> list[str]:
    """Return why the converted object would not be accepted, such as a volume that no kind checks but this."""
    from windlass.api import defaults
    from windlass.api.validation import validate

    filled = copy.deepcopy(obj)
    filled["metadata"].setdefault("namespace", "default")
    filled["metadata"]["name"] = filled["metadata"].get("name") or "job"
    defaults.apply(resource, filled)
    return [f"{problem.field}: {problem.message}" for problem in validate(resource, filled)]
