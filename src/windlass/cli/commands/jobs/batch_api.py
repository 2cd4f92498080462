"""``windlass batch-api``: OpenAI's interface of files and batches."""

from __future__ import annotations

import os

import click

from windlass.kits.processes import python_module

CONTEXT = {"ignore_unknown_options": True, "help_option_names": [], "allow_interspersed_args": False}


@click.command("batch-api", context_settings=CONTEXT, add_help_option=False)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def command(arguments: tuple[str, ...]) -> int:
    """Serve OpenAI's files and batches; each batch runs as a job."""
    argv = python_module("windlass.batchapi", *arguments)
    os.execv(argv[0], argv)
