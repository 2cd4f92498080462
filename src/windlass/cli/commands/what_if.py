"""``windlass what-if``: a cluster played forward with a change and without it."""

from __future__ import annotations

from typing import Any

import click

from windlass.cli.commands.plan import moment_of
from windlass.cli.invocation import Invocation
from windlass.cli.options import completer, standard
from windlass.cli.output.formats import emit

FORMATS = ("json", "yaml", "table")


@click.command("what-if")
@click.option(
    "--drain",
    multiple=True,
    metavar="NODE",
    help="Without this node; may be repeated.",
    shell_complete=completer("nodes"),
)
@click.option(
    "--add", multiple=True, metavar="SHAPES", help="With more nodes, such as 4xH100:8; may be repeated."
)
@click.option(
    "--set-quota",
    "quota",
    multiple=True,
    metavar="QUEUE.RESOURCE=AMOUNT",
    help="With another limit of a queue, such as research.gpu=64 or research.deserved.cpu=100.",
)
@click.option(
    "--policy",
    default="",
    metavar="POLICY",
    help="With another scheduler configuration: a file, default, easy, conservative, none, strict,"
    " volcano-like or kai-like.",
)
@click.option("--remove-job", "remove", multiple=True, metavar="NAMESPACE/NAME", help="Without this job.")
@click.option(
    "-f", "--filename", "files", multiple=True, metavar="FILE", help="Dump of a cluster; - for stdin."
)
@click.option("--config", default="", metavar="FILE", help="The scheduler configuration that holds now.")
@click.option(
    "--samples",
    type=click.IntRange(1, 1000),
    default=20,
    metavar="N",
    help="How often run times are drawn (default: 20).",
)
@click.option("--seed", type=int, default=0, metavar="S", help="Of whatever is drawn at random (default: 0).")
@click.option(
    "--run-time", default="", metavar="TIME", help="Of work of which nothing is known (default: no end)."
)
@click.option(
    "--horizon", default="720h", metavar="TIME", help="What starts later counts as never (default: 720h)."
)
@click.option("--now", metavar="TIME", help="The time it is, in RFC 3339 (default: now).")
@standard(namespace=False, formats=FORMATS)
def command(invocation: Invocation, now: str | None, **given: Any) -> int:
    """Show which jobs would start earlier or later in a changed cluster.

    The cluster as it is now (or a dump, with -f) is played forward by the scheduler itself on a virtual clock, with the
    change and without it. How long work runs is drawn from what earlier runs took, or as its owner says. Nothing is
    changed in the cluster.
    """
    from windlass.cli.simulate import what_if

    question = what_if.WhatIfQuestion(now=moment_of(invocation, now), **given)
    found = what_if.answer(invocation, question)
    if invocation.output in ("", "table"):
        invocation.out.write(what_if.as_text(found))
    else:
        emit(invocation, what_if.document(found))
    return 0
