"""Which command a wrong word of the command line belongs to."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TypeVar

import click

_Command = TypeVar("_Command", bound=click.Command | None)


class NamedContext(click.Context):
    """Says of which command a word was wrong also where click itself does not: an option at the end that lacks its
    value."""

    @contextmanager
    def scope(self, cleanup: bool = True) -> Iterator[click.Context]:
        try:
            with super().scope(cleanup) as context:
                yield context
        except click.UsageError as error:
            error.ctx = error.ctx or self
            raise


def named(command: _Command) -> _Command:
    """The command, in such a context."""
    if command is not None:
        command.context_class = NamedContext
    return command
