"""``windlass scheduler``: only the scheduler, against any API server."""

from __future__ import annotations

import os

import click

from windlass.kits.processes import python_module

CONTEXT = {"ignore_unknown_options": True, "help_option_names": [], "allow_interspersed_args": False}


@click.command("scheduler", context_settings=CONTEXT, add_help_option=False)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def command(arguments: tuple[str, ...]) -> int:
    """Run only the scheduler, against any API server."""
    argv = python_module("windlass.app", "scheduler", *arguments)
    os.execv(argv[0], argv)
