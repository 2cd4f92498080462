"""Volcano's Commands, as the reconcilers of what they target see them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from windlass.api.resources import COMMANDS
from windlass.controllers.effects import Delete, Effects

Json = dict[str, Any]


def key_of(command: Json) -> str:
    """Its own."""
    return f"{command['metadata'].get('namespace', '')}/{command['metadata']['name']}"


def oldest_first(commands: Iterable[Json]) -> tuple[Json, ...]:
    """In the order in which they are obeyed."""
    return tuple(sorted(commands, key=_age))


def discard(command: Json) -> Delete:
    """One that was obeyed."""
    metadata = command["metadata"]
    return Delete(COMMANDS, metadata["name"], metadata.get("namespace"), metadata.get("uid"))


def discarded(commands: Sequence[Json]) -> Effects:
    """Those whose target does not exist have nothing to do."""
    return Effects(stages=(tuple(discard(command) for command in commands),) if commands else ())


def _age(command: Json) -> tuple[str, str]:
    return command["metadata"].get("creationTimestamp") or "", command["metadata"]["name"]
