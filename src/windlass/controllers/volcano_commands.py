"""Volcano's Commands, for the reconcilers of their targets."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from windlass.api.resources import COMMANDS
from windlass.controllers.effects import Delete, Effects

Json = dict[str, Any]


def key_of(command: Json) -> str:
    """Return the key of the Command itself."""
    return f"{command['metadata'].get('namespace', '')}/{command['metadata']['name']}"


def oldest_first(commands: Iterable[Json]) -> tuple[Json, ...]:
    """Return the Commands in the order of execution."""
    return tuple(sorted(commands, key=_age))


def discard(command: Json) -> Delete:
    """Return the deletion of an executed Command."""
    metadata = command["metadata"]
    return Delete(COMMANDS, metadata["name"], metadata.get("namespace"), metadata.get("uid"))


def discarded(commands: Sequence[Json]) -> Effects:
    """Delete the Commands of a target that does not exist."""
    return Effects(stages=(tuple(discard(command) for command in commands),) if commands else ())


def _age(command: Json) -> tuple[str, str]:
    return command["metadata"].get("creationTimestamp") or "", command["metadata"]["name"]
