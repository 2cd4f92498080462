"""Work in parts that Ctrl-C may end: what has been done by then is told, and the command ends as interrupted."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from windlass.cli import errors
from windlass.cli.invocation import Invocation

_Part = TypeVar("_Part")


def until_stopped(parts: Iterable[_Part], tell: Callable[[int], None] | None = None) -> list[_Part]:
    """All parts, or those that came before Ctrl-C; ``tell``: how many there are. Raises ``KeyboardInterrupt`` where
    none had come."""
    found: list[_Part] = []
    try:
        for part in parts:
            found.append(part)
            if tell is not None:
                tell(len(found))
    except KeyboardInterrupt:
        if not found:
            raise
    return found


def ended(invocation: Invocation, missing: Sequence[str]) -> int:
    """The exit status of a command that told all but what is ``missing``, which it names."""
    if not missing:
        return errors.OK
    invocation.warn(f"stopped by Ctrl-C; not played to the end: {', '.join(missing)}")
    return errors.INTERRUPTED
