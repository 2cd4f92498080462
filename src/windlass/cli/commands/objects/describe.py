"""``windlass describe``: objects with all fields that matter to a person, and their events."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click

from windlass.api.annotations import LAST_APPLIED
from windlass.api.resources import Resource
from windlass.cli.invocation import Invocation
from windlass.cli.jobs import events
from windlass.cli.manifests.kind_lookup import split_names
from windlass.cli.options import completer, standard
from windlass.cli.output.formats import emit
from windlass.cli.tables import pairs
from windlass.kits.printable import visible

_HIDDEN_METADATA = (
    "managedFields",
    "resourceVersion",
    "generation",
    "selfLink",
    "generateName",
    "name",
    "namespace",
    "labels",
    "annotations",
)


@click.command("describe")
@click.argument(
    "what", nargs=-1, required=True, metavar="KIND [NAME]...", shell_complete=completer("objects")
)
@click.option("-l", "--selector", metavar="LABELS", default="", help="Label selector.")
@standard(all_namespaces=True)
def command(invocation: Invocation, what: tuple[str, ...], selector: str) -> int:
    """Show objects with their events."""
    shown: list[dict[str, Any]] = []
    for resource, name in split_names(what, lambda: invocation.client):
        namespace = invocation.home_namespace if resource.namespaced else None
        if name is not None:
            objects = [invocation.client.get(resource, name, namespace)]
        else:
            scope = invocation.listed_namespace if resource.namespaced else None
            objects = invocation.client.list(resource, scope, labels=selector).items
        shown += objects
        if not invocation.structured:
            for number, obj in enumerate(objects):
                if number:
                    invocation.out.line("\n")
                invocation.out.write(visible(text(invocation, resource, obj)))
    if invocation.structured:
        value: Any = shown[0] if len(shown) == 1 else {"apiVersion": "v1", "kind": "List", "items": shown}
        emit(invocation, value, names=[f"{o['kind'].lower()}/{o['metadata']['name']}" for o in shown])
    elif not shown:
        invocation.note("No resources found.")
    return 0


def text(invocation: Invocation, resource: Resource, obj: Mapping[str, Any]) -> str:
    """Return head, labels, annotations, the other fields, and events."""
    metadata = obj["metadata"]
    annotations = {
        key: value for key, value in (metadata.get("annotations") or {}).items() if key != LAST_APPLIED
    }
    head = pairs(
        [
            ("Name", metadata["name"]),
            ("Namespace", metadata.get("namespace", "")),
            ("Kind", f"{obj.get('kind', resource.kind)} ({obj.get('apiVersion', resource.api_version)})"),
            ("Labels", _mapping(metadata.get("labels") or {})),
            ("Annotations", _mapping(annotations)),
        ]
    )
    rest = {key: value for key, value in metadata.items() if key not in _HIDDEN_METADATA}
    body = {"Metadata": rest}
    for key, value in obj.items():
        if key not in ("apiVersion", "kind", "metadata"):
            body[_title(key)] = value
    if resource.plural == "secrets":
        body = _without_secrets(body)
    lines = list(_tree(body, ""))
    event_lines = events.render(invocation, [obj], indent="  ")
    return (
        head
        + "".join(f"{line}\n" for line in lines)
        + (f"Events:\n{event_lines}" if event_lines else "Events:  <none>\n")
    )


def _mapping(values: Mapping[str, Any]) -> str:
    return "\n".join(f"{key}={value}" for key, value in sorted(values.items())) or "<none>"


def _title(key: str) -> str:
    """Return a key as a title: ``creationTimestamp`` → ``Creation Timestamp``."""
    words: list[str] = []
    for letter in key:
        if letter.isupper() and words and not words[-1][-1:].isupper():
            words.append(letter)
        elif words:
            words[-1] += letter
        else:
            words.append(letter.upper())
    return " ".join(words)


def _without_secrets(body: dict[str, Any]) -> dict[str, Any]:
    return {
        key: {name: f"{len(str(value))} characters" for name, value in values.items()}
        if key in ("Data", "String Data") and isinstance(values, Mapping)
        else values
        for key, values in body.items()
    }


def _tree(value: Any, indent: str) -> Any:
    """Yield nested fields as indented lines, lists of objects as blocks."""
    for key, inner in value.items():
        name = key if not indent else _title(key) if key.isidentifier() else key
        if inner in (None, {}, []):
            continue
        if isinstance(inner, Mapping):
            yield f"{indent}{name}:"
            yield from _tree(inner, indent + "  ")
        elif isinstance(inner, list):
            yield f"{indent}{name}:"
            for item in inner:
                if isinstance(item, Mapping):
                    block = list(_tree(item, indent + "    "))
                    if block:
                        yield f"{indent}  - {block[0].strip()}"
                        yield from block[1:]
                else:
                    yield f"{indent}  - {item}"
        else:
            shown = str(inner).lower() if isinstance(inner, bool) else str(inner)
            yield f"{indent}{name}:  {shown}"
