"""``windlass model``: models that lie on the nodes, ready for jobs."""

from __future__ import annotations

from typing import Any

import click

from windlass.api.errors import WindlassError
from windlass.api.resources import MODEL_CACHES
from windlass.cli import errors
from windlass.cli.command_group import NounGroup
from windlass.cli.invocation import Invocation
from windlass.cli.models import rows
from windlass.cli.options import completer, standard
from windlass.cli.output import wide_tables
from windlass.cli.output.formats import emit


@click.group("model", cls=NounGroup)
def command() -> None:
    """Models on the nodes: ls, pull, rm."""


@command.command("ls")
@click.argument("models", nargs=-1, metavar="[MODEL]...")
@standard(namespace=False)
def list_models(invocation: Invocation, models: tuple[str, ...]) -> int:
    """List the models on each node, with state and size."""
    found = rows.ordered(rows.caches(invocation))
    if models:
        found = _named(found, models)
    _show(invocation, found)
    if not found and not invocation.structured:
        invocation.note("No models. To fetch one: windlass model pull SOURCE")
    return errors.OK


@command.command("pull")
@click.argument("source", metavar="SOURCE")
@click.option("--name", default="", metavar="NAME", help="Name of the model. [default: end of SOURCE]")
@click.option("--revision", default="", metavar="NAME", help="Branch, tag or commit. [default: the newest]")
@click.option("--sha256", default="", metavar="HEX", help="Checksum that the model must have.")
@click.option(
    "--node",
    "nodes",
    multiple=True,
    metavar="NODE",
    shell_complete=completer("nodes"),
    help="Node; may be repeated. [default: all]",
)
@click.option("--pin", is_flag=True, help="Keep the model when room is needed for others.")
@click.option("--no-wait", is_flag=True, help="Return before the model is there.")
@standard(namespace=False)
def pull(
    invocation: Invocation,
    source: str,
    name: str,
    revision: str,
    sha256: str,
    nodes: tuple[str, ...],
    pin: bool,
    no_wait: bool,
) -> int:
    """Fetch a model to nodes: hf://OWNER/NAME, https://HOST/FILE, file:///FOLDER or a path."""
    from windlass.cli.models.pull import ask, nodes_of, reference, wait

    model = reference(source, name, revision, sha256)
    asked = ask(invocation, model, nodes_of(invocation, nodes), pin=pin)
    if not no_wait:
        wait(invocation, asked)
    listed = rows.ordered(rows.caches(invocation))
    _show(invocation, [each for each in listed if each["name"] in asked])
    return errors.OK


@command.command("rm")
@click.argument("models", nargs=-1, required=True, metavar="MODEL...")
@click.option(
    "--node",
    "nodes",
    multiple=True,
    metavar="NODE",
    shell_complete=completer("nodes"),
    help="Node; may be repeated. [default: all]",
)
@standard(namespace=False)
def remove(invocation: Invocation, models: tuple[str, ...], nodes: tuple[str, ...]) -> int:
    """Remove models from nodes. Jobs that use one keep it until they end."""
    found = _named(rows.ordered(rows.caches(invocation)), models)
    doomed = [each for each in found if not nodes or each["node"] in nodes]
    for each in doomed:
        invocation.client.delete(MODEL_CACHES, each["name"])
        if not invocation.structured:
            invocation.out.line(f"model {each['model']} removed from node {each['node']}")
    if invocation.structured:
        emit(invocation, {"items": doomed}, names=[f"modelcache/{each['name']}" for each in doomed])
    return errors.OK


def _named(found: list[dict[str, Any]], models: tuple[str, ...]) -> list[dict[str, Any]]:
    """Return the records of these models or ModelCaches. Raises an error for an unknown one."""
    for name in models:
        if not any(name in (each["model"], each["name"]) for each in found):
            known = sorted({str(each["model"]) for each in found})
            raise WindlassError(
                "WL-MODEL-404",
                f"no model {name} on any node",
                evidence=f"models: {', '.join(known)}" if known else "there are no models",
                remedies=("windlass model ls", "windlass model pull SOURCE"),
            )
    return [each for each in found if each["model"] in models or each["name"] in models]


def _show(invocation: Invocation, found: list[dict[str, Any]]) -> None:
    if invocation.structured:
        emit(invocation, {"items": found}, names=[f"modelcache/{each['name']}" for each in found])
        return
    header = list(rows.HEADER)
    if invocation.wide:
        header[-1:-1] = ["SOURCE", "PATH"]
    if found:
        cells = [rows.row(each, wide=invocation.wide) for each in found]
        wide_tables.show(invocation, header, cells, optional=("PINNED", "REVISION"), right=rows.RIGHT)
