"""``windlass defrag``: which idle GPUs nobody can use and why, and which moves would change that."""

from __future__ import annotations

import click

from windlass.api.errors import WindlassError
from windlass.cli.invocation import Invocation
from windlass.cli.options import Number, standard
from windlass.cli.output.formats import emit

FORMATS = ("json", "yaml", "table")


@click.command("defrag")
@click.option(
    "--plan", "planned", is_flag=True, help="Only show what would be moved. Nothing else is offered."
)
@click.option(
    "-f", "--filename", "files", multiple=True, metavar="FILE", help="Dump of a cluster; - for stdin."
)
@click.option(
    "--budget",
    type=Number(0.0, 100.0),
    default=2.0,
    metavar="PERCENT",
    help="How much of the GPUs that run may be moved (default: 2).",
)
@click.option("--everybody", is_flag=True, help="As if all work had agreed to be moved.")
@standard(namespace=False, formats=FORMATS)
def command(
    invocation: Invocation, planned: bool, files: tuple[str, ...], budget: float, everybody: bool
) -> int:
    """Show which idle GPUs no pending job can use, and which moves would help.

    Of the cluster as it is, or with -f of a dump. Nothing is moved: the plan says which pods would have to go where,
    what that costs, and what pods of the usual kinds would get for it. Work agrees to be moved by the annotation
    windlass.dev/movable: "true".
    """
    if not planned:
        raise WindlassError(
            "WL-USE-400", "windlass defrag moves nothing by itself", remedies=("windlass defrag --plan",)
        )
    from windlass.cli.simulate import defrag

    found = defrag.report(invocation, files, budget, everybody)
    if invocation.output in ("", "table"):
        invocation.out.write(defrag.as_text(found))
    else:
        emit(invocation, found)
    return 0
