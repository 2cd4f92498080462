"""``windlass defrag``: idle GPUs that no pod can use, and moves that would help."""

from __future__ import annotations

import click

from windlass.api.errors import WindlassError
from windlass.cli.invocation import Invocation
from windlass.cli.options import Number, standard
from windlass.cli.output.formats import emit
from windlass.kits.printable import visible

FORMATS = ("json", "yaml", "table")


@click.command("defrag")
@click.option("--plan", "planned", is_flag=True, help="Show the moves (required; no pod is moved).")
@click.option(
    "-f", "--filename", "files", multiple=True, metavar="FILE", help="Dump of a cluster; - for stdin."
)
@click.option(
    "--budget",
    type=Number(0.0, 100.0),
    default=2.0,
    metavar="PERCENT",
    help="Maximum part of the running GPUs that may be moved (default: 2).",
)
@click.option("--everybody", is_flag=True, help="Treat all pods as movable.")
@standard(namespace=False, formats=FORMATS)
def command(
    invocation: Invocation, planned: bool, files: tuple[str, ...], budget: float, everybody: bool
) -> int:
    """Show which idle GPUs no pending job can use, and which moves would help.

    It reads the running cluster, or with -f a dump. No pod is moved: the plan shows which pods would move where, what
    that costs, and what pods of the usual kinds would gain. Pods are movable if they have the annotation
    windlass.dev/movable: "true".
    """
    if not planned:
        raise WindlassError(
            "WL-USE-400",
            "windlass defrag needs --plan; it does not move pods itself",
            remedies=("windlass defrag --plan",),
        )
    from windlass.cli.simulate import defrag

    document = defrag.report(invocation, files, budget, everybody)
    if invocation.output in ("", "table"):
        invocation.out.write(visible(defrag.as_text(document)))
    else:
        emit(invocation, document)
    return 0
