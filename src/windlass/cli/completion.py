"""Live names for the shell's completion; none if the server does not answer quickly."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import click

from windlass.api.annotations import JOB_NAME
from windlass.api.errors import StatusError, WindlassError
from windlass.api.resources import (
    ALL,
    NAMESPACES,
    NODES,
    POD_GROUPS,
    PODS,
    PRIORITY_CLASSES,
    QUEUES,
    VOLCANO_JOBS,
    Resource,
    find,
)
from windlass.cli.invocation import Invocation, context_of, target
from windlass.cli.text import natural_key

_KINDS: dict[str, tuple[Resource, ...]] = {
    "jobs": (VOLCANO_JOBS, POD_GROUPS, PODS),
    "queues": (QUEUES,),
    "nodes": (NODES,),
    "namespaces": (NAMESPACES,),
    "priorityclasses": (PRIORITY_CLASSES,),
}
_MOST = 200


def live_names(context: click.Context, kind: str, incomplete: str) -> list[str]:
    """Return the names that begin with ``incomplete``; none if no server answers."""
    if kind == "objects":
        return _objects(context, incomplete)
    return sorted(_names(context, _KINDS[kind], incomplete), key=natural_key)


def _objects(context: click.Context, incomplete: str) -> list[str]:
    """Complete ``get``: kinds first, then the names of the kind; or ``kind/name``."""
    typed = context.params.get("what") or ()
    kind, slash, start = incomplete.partition("/")
    if slash:
        resource = find(kind)
        return [f"{kind}/{name}" for name in _names(context, (resource,), start)] if resource else []
    if typed and "/" not in typed[0]:
        resource = find(typed[0])
        return sorted(_names(context, (resource,), incomplete), key=natural_key) if resource else []
    kinds = {name for r in ALL for name in (r.plural, *r.short_names) if "-" not in name}
    return sorted(name for name in kinds if name.startswith(incomplete))


def _names(context: click.Context, kinds: Iterable[Resource], start: str) -> list[str]:
    invocation_context = context_of(context.find_root())
    options = {**invocation_context.defaults, **{k: v for k, v in context.params.items() if v}}
    server = target(options.get("state"), options.get("kubeconfig"), options.get("context_name"))
    try:
        client = invocation_context.connect(server)
        names: list[str] = []
        of_jobs = kinds is _KINDS["jobs"]
        home = (
            options.get("namespace") or Invocation(invocation_context, server, _client=client).home_namespace
        )
        for resource in kinds:
            space = home if resource.namespaced else None
            if options.get("all_namespaces"):
                space = None
            for item in client.list(resource, space).items:
                if gang := _gang_of(item) if resource is PODS and of_jobs else "":
                    names.append(gang)
                elif not (resource in (POD_GROUPS, PODS) and of_jobs and _owned(item)):
                    names.append(item["metadata"]["name"])
        client.close()
    except (StatusError, WindlassError):
        return []
    return [name for name in dict.fromkeys(names) if name.startswith(start)][:_MOST]


def _gang_of(pod: dict[str, Any]) -> str:
    """Return the gang of a pod, if that gang has no object to list; else an empty string."""
    from windlass.cli.ungrouped_gangs import key_of, name_of

    key = key_of(pod)
    return name_of(key) if key else ""


def _owned(item: dict[str, dict[str, object]]) -> bool:
    metadata: dict[str, dict[str, str]] = item["metadata"]  # type: ignore[assignment]
    return bool(metadata.get("ownerReferences")) or JOB_NAME in (metadata.get("labels") or {})
