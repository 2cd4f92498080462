"""``windlass what-if``: simulation of a cluster with and without a change."""

from __future__ import annotations

from typing import Any

import click

from windlass.cli.commands.cluster.plan import time_of
from windlass.cli.invocation import Invocation
from windlass.cli.options import completer, standard
from windlass.cli.output.formats import emit
from windlass.kits.printable import visible

FORMATS = ("json", "yaml", "table")


@click.command("what-if")
@click.option(
    "--drain",
    multiple=True,
    metavar="NODE",
    help="Remove this node; may be repeated.",
    shell_complete=completer("nodes"),
)
@click.option("--add", multiple=True, metavar="SHAPES", help="Add nodes, such as 4xH100:8; may be repeated.")
@click.option(
    "--set-quota",
    "quota",
    multiple=True,
    metavar="QUEUE.RESOURCE=AMOUNT",
    help="Change a limit of a queue, such as research.gpu=64 or research.deserved.cpu=100.",
)
@click.option(
    "--policy",
    default="",
    metavar="POLICY",
    help="Use another scheduler configuration: a file, default, easy, conservative, none, strict,"
    " volcano-like or kai-like.",
)
@click.option("--remove-job", "remove", multiple=True, metavar="NAMESPACE/NAME", help="Remove this job.")
@click.option(
    "-f", "--filename", "files", multiple=True, metavar="FILE", help="Dump of a cluster; - for stdin."
)
@click.option("--config", default="", metavar="FILE", help="Current scheduler configuration.")
@click.option(
    "--samples",
    type=click.IntRange(1, 1000),
    default=20,
    metavar="N",
    help="Number of samples of run times (default: 20).",
)
@click.option("--seed", type=int, default=0, metavar="S", help="Seed of random numbers (default: 0).")
@click.option(
    "--run-time",
    default="",
    metavar="TIME",
    help="Run time of jobs with an unknown one (default: they never end).",
)
@click.option(
    "--horizon",
    default="720h",
    metavar="TIME",
    help="Maximum simulated time; later starts count as never (default: 720h).",
)
@click.option("--now", metavar="TIME", help="Time of the simulation, in RFC 3339 (default: now).")
@standard(namespace=False, formats=FORMATS)
def command(invocation: Invocation, now: str | None, **given: Any) -> int:
    """Show which jobs would start earlier or later in a changed cluster.

    The scheduler itself simulates the cluster (or a dump, with -f) on a virtual clock, with the change and without it.
    Run times are sampled from earlier runs, or are those that owners state. The cluster is not changed.
    """
    from windlass.cli.simulate import what_if

    question = what_if.WhatIfQuestion(now=time_of(invocation, now), **given)
    answer = what_if.answer(invocation, question)
    if invocation.output in ("", "table"):
        invocation.out.write(visible(what_if.as_text(answer)))
    else:
        emit(invocation, what_if.document(answer))
    return 0
