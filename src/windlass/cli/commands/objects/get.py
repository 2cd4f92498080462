"""``windlass get``: lists of any kind, as kubectl shows them (the server makes the table)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import click

from windlass.api.resources import Resource
from windlass.cli.invocation import Invocation
from windlass.cli.manifests.kind_lookup import split_names
from windlass.cli.options import completer, standard
from windlass.cli.output import server_tables
from windlass.cli.output.formats import emit


@click.command("get")
@click.argument(
    "what", nargs=-1, required=True, metavar="KIND [NAME]...", shell_complete=completer("objects")
)
@click.option("-l", "--selector", metavar="LABELS", default="", help="Label selector: a=b,c!=d,e in (f,g).")
@click.option("--field-selector", metavar="FIELDS", default="", help="Field selector: status.phase=Running.")
@click.option("-w", "--watch", "follow", is_flag=True, help="Then print every change.")
@click.option("--no-headers", is_flag=True, help="Omit the header line.")
@click.option("--show-labels", is_flag=True, help="Add a column with the labels.")
@standard(all_namespaces=True)
def command(
    invocation: Invocation,
    what: tuple[str, ...],
    selector: str,
    field_selector: str,
    follow: bool,
    no_headers: bool,
    show_labels: bool,
) -> int:
    """List objects."""
    requested = split_names(what, lambda: invocation.client)
    if invocation.structured:
        return _structured(invocation, requested, selector, field_selector, follow)
    shower = server_tables.TablePrinter(
        invocation, headers=not no_headers, labels=show_labels, several=len({r for r, _ in requested}) > 1
    )
    rows = 0
    for resource, names in _by_kind(requested):
        rows += shower.show(resource, names, selector, field_selector)
    if follow:
        resource = requested[0][0]
        shower.follow(resource, requested[0][1], selector, field_selector)
    elif not rows:
        scope = "" if invocation.all_namespaces else f" in namespace {invocation.home_namespace}"
        kinds = {r for r, _ in requested}
        scope = scope if any(r.namespaced for r in kinds) else ""
        invocation.note(f"No resources found{scope}.")
    return 0


def _by_kind(requested: list[tuple[Resource, str | None]]) -> Iterator[tuple[Resource, list[str]]]:
    order: dict[Resource, list[str]] = {}
    for resource, name in requested:
        order.setdefault(resource, [])
        if name is not None:
            order[resource].append(name)
    yield from order.items()


def _structured(
    invocation: Invocation,
    requested: list[tuple[Resource, str | None]],
    selector: str,
    field_selector: str,
    follow: bool,
) -> int:
    items: list[dict[str, Any]] = []
    names: list[str] = []
    single = len(requested) == 1 and requested[0][1] is not None
    for resource, name in requested:
        space = invocation.home_namespace if resource.namespaced else None
        if name is not None:
            objects = [invocation.client.get(resource, name, space)]
        else:
            scope = invocation.listed_namespace if resource.namespaced else None
            objects = invocation.client.list(resource, scope, labels=selector, fields=field_selector).items
        items += objects
        names += [f"{_typed(resource)}/{item['metadata']['name']}" for item in objects]
    value: Any = items[0] if single else {"apiVersion": "v1", "kind": "List", "items": items}
    emit(invocation, value, names=names)
    if follow:
        _follow_structured(invocation, requested[0][0], requested[0][1], selector, field_selector)
    return 0


def _typed(resource: Resource) -> str:
    return f"{resource.singular}.{resource.group}" if resource.group else resource.singular


def _follow_structured(
    invocation: Invocation, resource: Resource, name: str | None, selector: str, field_selector: str
) -> None:
    fields = f"metadata.name={name}" if name else field_selector
    scope = invocation.listed_namespace if resource.namespaced else None
    version = invocation.client.list(resource, scope, limit=1).resource_version
    events = invocation.client.watch(
        resource, scope, labels=selector, fields=fields, resource_version=version
    )
    for _kind, obj in events:
        emit(invocation, obj, names=[f"{_typed(resource)}/{obj['metadata']['name']}"])
