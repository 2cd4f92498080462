"""Attribution of usage errors to the command in which they occurred."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TypeVar

import click

_Command = TypeVar("_Command", bound=click.Command | None)


class NamedContext(click.Context):
    """Context that adds itself to usage errors that click raises without one.

    An example is an option at the end of the line that lacks its value.
    """

    @contextmanager
    def scope(self, cleanup: bool = True) -> Iterator[click.Context]:
        try:
            with super().scope(cleanup) as context:
                yield context
        except click.UsageError as error:
            error.ctx = error.ctx or self
            raise


def named(command: _Command) -> _Command:
    """Return the command with this class as its context."""
    if command is not None:
        command.context_class = NamedContext
    return command
