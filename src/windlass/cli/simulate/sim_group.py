"""Group of ``windlass sim``: the built-in commands, and those of the optional package windlass-lab."""

from __future__ import annotations

from importlib import metadata

import click

from windlass.api.errors import WindlassError
from windlass.cli.command_group import NounGroup, named

ENTRY_POINTS = "windlass.sim_commands"
"""Entry point group: command name → a click command."""
LAB = {
    "pack": "Fill a cluster with pods that never leave, and compare how much each policy allocates.",
    "claims": "Try claims of the field on published traces: claim, baseline, Windlass.",
}
"""Commands of windlass-lab, with their summaries while it is not installed."""
INSTALL = "pip install ./lab   (in a checkout of Windlass)"


class SimGroup(NounGroup):
    """Commands of ``windlass sim``. A command of windlass-lab is imported when it is used."""

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        built_in = super().get_command(ctx, cmd_name)
        if built_in is None or cmd_name not in LAB:
            return built_in
        for point in metadata.entry_points(group=ENTRY_POINTS, name=cmd_name):
            return named(point.load())
        return built_in


def add_lab_commands(group: click.Group) -> None:
    """Add a command to ``group`` for each of :data:`LAB`, which reports that windlass-lab is missing."""
    for name, summary in LAB.items():
        group.add_command(_missing(name, summary))


def _missing(name: str, summary: str) -> click.Command:
    @click.command(name, help=summary, context_settings={"ignore_unknown_options": True})
    @click.argument("arguments", nargs=-1, type=click.UNPROCESSED, metavar="...")
    def command(arguments: tuple[str, ...]) -> int:
        raise WindlassError(
            "WL-USE-400",
            f"windlass sim {name} is part of windlass-lab, which is not installed",
            evidence=f"no entry point {name} in the group {ENTRY_POINTS}",
            remedies=(INSTALL,),
        )

    return command
