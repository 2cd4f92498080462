"""``windlass sim``: traces through the scheduler itself, on a virtual clock."""

from __future__ import annotations

import click

from windlass.api.errors import WindlassError
from windlass.cli.groups import NounGroup
from windlass.cli.invocation import Invocation
from windlass.cli.options import standard
from windlass.cli.output import emit

FORMATS = ("json", "yaml", "csv", "table")


@click.group("sim", cls=NounGroup)
def command() -> None:
    """Simulate: run, formats, policies."""


@command.command("run")
@click.option("--trace", "trace", required=True, metavar="FILE", help="The jobs; packed by gzip or not.")
@click.option("--format", "form", metavar="NAME", help="The trace's format (default: by its header).")
@click.option("--nodes", "nodes", required=True, metavar="SHAPES", help="60x8, or 4xH100:8,2xV100:4.")
@click.option(
    "--policy", "policies", multiple=True, required=True, metavar="NAMES", help="By comma or repeated."
)
@click.option("--seed", type=int, default=0, metavar="S", help="Of all chance (default: 0).")
@click.option(
    "--restart-cost",
    "restart",
    default="0/0/0",
    metavar="A/B/C",
    help="Seconds a restart takes with 1, up to 8, and more GPUs (default: 0/0/0; published: 7/30/60).",
)
@click.option(
    "--time-share/--no-time-share",
    default=True,
    help="Whether jobs opted in to being suspended for others of equal priority (default: yes).",
)
@standard(namespace=False, formats=FORMATS)
def run(
    invocation: Invocation,
    trace: str,
    form: str | None,
    nodes: str,
    policies: tuple[str, ...],
    seed: int,
    restart: str,
    time_share: bool,
) -> int:
    """Replay a trace of jobs under one policy or several, and compare them."""
    from windlass.cli import simulating
    from windlass.sim import cluster
    from windlass.sim.metrics import measure
    from windlass.sim.replay import Options, replay
    from windlass.sim.world import RestartCost

    chosen = simulating.chosen_policies(policies)
    if form and form not in simulating.formats.FORMATS:
        raise WindlassError(
            "WL-USE-400",
            f'there is no format "{form}"',
            evidence="formats: " + ", ".join(simulating.formats.FORMATS),
            remedies=("windlass sim formats",),
        )
    try:
        made = cluster.make_nodes(cluster.parse(nodes))
        cost = RestartCost.parse(restart)
    except ValueError as error:
        raise WindlassError("WL-USE-400", str(error), remedies=("windlass sim run --help",)) from None
    jobs = simulating.read_trace(trace, form or "")
    options = Options(restart=cost, seed=seed, time_share=time_share)
    results = []
    for policy in chosen:
        begun = invocation.clock.monotonic()
        with simulating.progress(invocation, policy.name, len(jobs)) as tell:
            outcome = replay(jobs, made, policy, options, tell)
        outcome.seconds = invocation.clock.monotonic() - begun
        outcome.memory_bytes = simulating.peak_memory()
        results.append(measure(policy.name, outcome))
    if invocation.output == "csv":
        invocation.out.write(simulating.as_csv(results))
    elif invocation.output in ("", "table"):
        invocation.out.line(f"{len(jobs)} jobs on {nodes}; a restart costs {cost} s; seed {seed}")
        invocation.out.write(simulating.as_table(results))
    else:
        emit(invocation, {"results": [result.figures for result in results]})
    return 0


@command.command("policies")
@standard(namespace=False)
def policies(invocation: Invocation) -> int:
    """List the policies that a simulation can run."""
    from windlass.cli import tables
    from windlass.sim.policies import POLICIES

    if invocation.structured:
        items = [{"name": p.name, "summary": p.summary, "oracle": p.oracle} for p in POLICIES.values()]
        emit(invocation, {"items": items}, names=list(POLICIES))
        return 0
    rows = [[p.name, "yes" if p.oracle else "", p.summary] for p in POLICIES.values()]
    invocation.out.write(tables.render(["POLICY", "ORACLE", "WHAT IT DOES"], rows))
    return 0


@command.command("formats")
@standard(namespace=False)
def formats(invocation: Invocation) -> int:
    """List the formats of traces that can be read."""
    from windlass.cli import tables
    from windlass.sim.traces.formats import FORMATS as KNOWN

    if invocation.structured:
        items = [{"name": f.name, "summary": f.summary, "columns": list(f.columns)} for f in KNOWN.values()]
        emit(invocation, {"items": items}, names=list(KNOWN))
        return 0
    rows = [[f.name, f.summary, ",".join(f.columns)] for f in KNOWN.values()]
    invocation.out.write(tables.render(["FORMAT", "WHAT IT IS", "COLUMNS THAT TELL IT"], rows))
    return 0
