"""``windlass sim pack``: fill a cluster with pods, and compare policies."""

from __future__ import annotations

import click

from windlass.cli.invocation import Invocation
from windlass.cli.options import Number, Once, standard
from windlass.cli.output.formats import emit

FORMATS = ("json", "yaml", "csv", "table")


@click.command("pack", short_help="Fill a cluster with pods that never leave.")
@click.option(
    "--nodes",
    "nodes",
    cls=Once,
    instead="shapes by comma, such as 4xH100:8,2xV100:4, or one file",
    required=True,
    metavar="SHAPES",
    help="60x8, or 4xH100:8,2xV100:4; or a CSV file of nodes in OpenB's form.",
)
@click.option(
    "--pods",
    "pods",
    cls=Once,
    instead="one file in one run",
    required=True,
    metavar="FILE",
    help="The pods, CSV as OpenB publishes it; packed by gzip or not.",
)
@click.option(
    "--policy",
    "policies",
    multiple=True,
    default=("windlass",),
    metavar="NAMES",
    help="By comma or repeated (default: windlass).",
)
@click.option("--seeds", default="42-51", metavar="SEEDS", help="Such as 42 or 42-51 (default: 42-51).")
@click.option(
    "--tune",
    type=Number(0.0, 10.0, min_open=True),
    default=1.3,
    metavar="R",
    help="Demand in the end, as part of the capacity (default: 1.3).",
)
@click.option(
    "--jobs", type=click.IntRange(1, 256), default=1, metavar="N", help="Processes at once (default: 1)."
)
@click.option(
    "--defrag",
    type=Number(0.0, 100.0),
    default=0.0,
    metavar="PERCENT",
    help="Also with moves, of up to so much of the GPUs that run (default: 0).",
)
@click.option(
    "--bound",
    is_flag=True,
    help="Also the most that any policy, and that moves, could allocate (needs highspy).",
)
@standard(namespace=False, formats=FORMATS)
def command(
    invocation: Invocation,
    nodes: str,
    pods: str,
    policies: tuple[str, ...],
    seeds: str,
    tune: float,
    jobs: int,
    defrag: float,
    bound: bool,
) -> int:
    """Fill a cluster with pods that never leave, and compare how much each policy allocates."""
    from windlass.cli.output.progress import progress, report_missing, until_interrupted
    from windlass.cli.simulate import sim_tables
    from windlass.cli.simulate.sim_run import chosen_seeds
    from windlass.cli.text import plural
    from windlass_lab.commands import pack_runs

    chosen, numbers = pack_runs.chosen(policies), chosen_seeds(seeds, "windlass sim pack --seeds 42-51")
    cluster = pack_runs.read_cluster(nodes, pods, tune)
    most = pack_runs.bounds(cluster, numbers) if bound else None
    order = pack_runs.in_order(chosen, moves=bool(defrag))
    with progress(invocation, "packing", len(order) * len(numbers)) as tell:
        results = until_interrupted(pack_runs.runs(cluster, chosen, numbers, jobs, defrag), tell)
    results.sort(key=lambda result: (order.index(result.policy), result.seed))
    kept = pack_runs.kept_bounds(cluster, results) if bound and invocation.output != "csv" else None
    if invocation.output == "csv":
        invocation.out.write(sim_tables.as_csv([result.figures for result in results]))
    elif invocation.output in ("", "table"):
        gpus = cluster.capacity // 1000
        invocation.out.line(
            f"{plural(len(cluster.nodes), 'node')}, {plural(gpus, 'GPU')}, {plural(len(cluster.pods), 'pod')};"
            " percent of the GPUs, mean of the seeds"
        )
        invocation.out.write(pack_runs.as_table(results, most, kept))
    else:
        emit(invocation, pack_runs.document(results, most, kept))
    return report_missing(invocation, pack_runs.left_over(results, order, len(numbers)))
