"""Command groups: context for usage errors, and noun groups (``windlass queue …``).

A noun group answers a mistyped verb with the nearest one.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TypeVar

import click

from windlass.api.errors import WindlassError
from windlass.cli import foreign_commands
from windlass.cli.errors import nearest


class NounGroup(click.Group):
    """Group that reports an unknown command as a `WindlassError` and lists whole summaries."""

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        return named(super().get_command(ctx, cmd_name))

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, _summary(command)) for name, command in self.commands.items()])

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0] if args else ""
        if name and name not in self.commands and not name.startswith("-") and not ctx.resilient_parsing:
            close = [f"{ctx.command_path} {match}" for match in nearest(name, self.commands)]
            other = foreign_commands.equivalent_command(name, ctx.info_name or "")
            raise WindlassError(
                "WL-USE-404",
                f'{ctx.command_path} has no command "{name}"',
                evidence="commands: " + ", ".join(self.commands),
                remedies=[other] if other else close or [f"{ctx.command_path} --help"],
            )
        return super().resolve_command(ctx, args)


def _summary(command: click.Command) -> str:
    """Return the first paragraph of the help text.

    click's own summary breaks off in the middle of a sentence.
    """
    return " ".join((command.help or "").split("\n\n")[0].split())


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
    if isinstance(command, click.Command):
        command.context_class = NamedContext
    return command
