"""``windlass sim``: replay of traces through the scheduler itself, on a virtual clock."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from windlass.api.errors import WindlassError
from windlass.cli.invocation import Invocation
from windlass.cli.options import Number, Once, standard
from windlass.cli.output.formats import emit
from windlass.cli.simulate.sim_group import SimGroup, add_lab_commands

if TYPE_CHECKING:
    from windlass.cli.simulate.placement_scores import WatchedPlacements
    from windlass.sim.jobs import TraceJob
    from windlass.sim.replay.metrics import Metrics
    from windlass.spi.objects import Node

FORMATS = ("json", "yaml", "csv", "table")


@click.group("sim", cls=SimGroup)
def command() -> None:
    """Simulate: run, record, pack, claims, generate, formats, policies."""


@command.command("run", short_help="Replay a trace of jobs under policies, and compare them.")
@click.option(
    "--trace",
    "trace",
    cls=Once,
    instead="one trace in one run",
    metavar="FILE",
    help="Trace of jobs, plain or gzipped; - for stdin. `windlass sim formats` lists the formats.",
)
@click.option("--format", "form", metavar="NAME", help="Format of the trace (default: by its header).")
@click.option(
    "--nodes",
    "nodes",
    cls=Once,
    instead="shapes by comma, such as 4xH100:8,2xV100:4, or one file",
    metavar="SHAPES",
    help="Nodes: 60x8, or 4xH100:8,2xV100:4; or a CSV file in OpenB's format.",
)
@click.option(
    "--policy",
    "policies",
    multiple=True,
    default=("windlass",),
    metavar="NAMES",
    help="Policies, by comma or repeated, such as windlass,kube,fifo-backfill (default: windlass)."
    " `windlass sim policies` lists them; a file is a scheduler configuration.",
)
@click.option("--seed", type=int, metavar="S", help="Seed of random numbers (default: 0).")
@click.option(
    "--seeds",
    default="",
    metavar="SEEDS",
    help="Several seeds, such as 1-5: each policy runs with each; the output is mean and spread.",
)
@click.option(
    "--restart-cost",
    default="7/30/60",
    metavar="A/B/C",
    help="Seconds of a restart with 1, up to 8, and more GPUs (default: 7/30/60, as published; 0/0/0: none).",
)
@click.option(
    "--checkpoint",
    default="0s",
    metavar="TIME",
    help="Interval of checkpoints: a stop loses the work since the last one (default: 0s: nothing; never: all).",
)
@click.option(
    "--time-share",
    type=click.Choice(["yes", "no", "both"]),
    metavar="CHOICE",
    help="Whether jobs opted in to time-sharing (suspension for jobs of equal priority): both (default), each"
    " in its own column, yes or no.",
)
@click.option("--no-time-share", is_flag=True, help="Same as --time-share no.")
@click.option(
    "--run-times",
    default="",
    metavar="KINDS",
    help="Kind of run times for policies that use them: oracle, user, learned; by comma, each in its own column"
    " (default: oracle).",
)
@click.option("--by-queue", is_flag=True, help="Use the queues of the trace (default: one queue).")
@click.option(
    "--procs-per-gpu",
    type=click.IntRange(1, 4096),
    metavar="N",
    help="Processors that count as one GPU in logs of processors (swf) (default: 1).",
)
@click.option(
    "--pod-gpus",
    type=click.IntRange(0),
    default=0,
    metavar="N",
    help="Maximum number of GPUs of one pod (default: unlimited).",
)
@click.option(
    "--speed",
    "speeds",
    multiple=True,
    metavar="MODEL=FACTOR",
    help="Relative speed of a GPU model; may be repeated.",
)
@click.option(
    "--spread-slowdown",
    type=Number(1.0),
    default=1.0,
    metavar="F",
    help="Slowdown of a job on more nodes than it needs (default: 1).",
)
@click.option(
    "--model-load",
    default="0s",
    metavar="TIME",
    help="Time in which a GPU loads another job's AI model (default: 0s).",
)
@click.option(
    "--batch",
    default="",
    metavar="TIME",
    help="Combine jobs of one AI model into batches of about this length.",
)
@click.option(
    "--mtbf", default="", metavar="TIME", help="Mean time between failures of a node (default: never)."
)
@click.option(
    "--spot-notice",
    "spot_notices",
    multiple=True,
    metavar="NODE@TIME[/AWAY]",
    help="Announce the end of a node's spot machine at this time of the trace; AWAY: time until it is back.",
)
@click.option(
    "--slow-node",
    "slow_nodes",
    multiple=True,
    metavar="NODE@TIME=FACTOR",
    help="Lower the speed of a node from this time of the trace on.",
)
@click.option("--repair", metavar="TIME", help="Time for which a failed node is away (default: 4h).")
@click.option(
    "--jobs",
    "processes",
    type=click.IntRange(1, 256),
    default=1,
    metavar="N",
    help="Number of processes for policies and seeds (default: 1).",
)
@click.option("--report", metavar="FILE", help="Write a page with pictures (HTML; needs no network).")
@click.option("--plots", metavar="DIR", help="Write the pictures, as SVG and PNG.")
@click.option(
    "--per-job",
    metavar="FILE",
    help="Write the result of each job as CSV, a line for each policy and job.",
)
@click.option(
    "--scores",
    "scored",
    metavar="JOB",
    help="Show the ranking of nodes at each placement of this job of the trace (its id), score by score.",
)
@click.option(
    "--scenario",
    "scenarios",
    multiple=True,
    metavar="NAMES",
    help="Instead of a trace: shipped scenarios with expected decisions, by comma, or all: gang, queue, fair-share,"
    " topology, preemption, reclaim.",
)
@click.option(
    "--forecast-from",
    "forecast_from",
    metavar="FILE",
    help="Also forecast the demand by a model learned from this other trace, and compare error and wait with those"
    " of the last value as forecast (default: off).",
)
@standard(namespace=False, formats=FORMATS)
def run(
    invocation: Invocation,
    trace: str | None,
    scenarios: tuple[str, ...],
    **given: Any,
) -> int:
    """Replay a trace of jobs under one policy or several, and compare them."""
    if scenarios:
        return _run_scenarios(invocation, scenarios, trace or given["nodes"])
    for option, value in (("--trace", trace), ("--nodes", given["nodes"])):
        if value is None:
            raise click.MissingParameter(param_hint=f"'{option}'", param_type="option")
    assert trace is not None
    from windlass.cli.simulate.sim_run import time_sharing

    given["both_requested"] = given["time_share"] == "both"
    given["time_share"] = time_sharing(given["time_share"], given.pop("no_time_share"))
    return _compare(invocation, trace, **given)


def _compare(
    invocation: Invocation,
    trace: str,
    *,
    form: str | None,
    policies: tuple[str, ...],
    report: str | None,
    plots: str | None,
    per_job: str | None,
    scored: str | None,
    processes: int,
    forecast_from: str | None,
    **given: Any,
) -> int:
    """Play a trace under the policies, and print and write the comparison."""
    from windlass.cli.output.progress import report_missing
    from windlass.cli.simulate import (
        placement_scores,
        policy_columns,
        sim_parallel,
        sim_reports,
        sim_run,
        sim_tables,
        trace_files,
    )
    from windlass.cli.text import plural

    both = given["time_share"] == "both"
    chosen = policy_columns.columns(policies, given["run_times"], both=both, warn=invocation.warn)
    sim_run.check_format(form)
    setup = sim_run.setup(given)
    reports = sim_reports.Reports(report, plots, per_job, read=(trace, given["nodes"]))
    read = trace_files.read_trace(trace, form or "", invocation.note, given.pop("procs_per_gpu") or 0)
    jobs = sim_run.batched(read, given["batch"])
    policies_played = [column.policy for column in chosen]
    for line in sim_run.warnings(jobs, policies_played, setup, given):
        invocation.warn(line)
    forecast = _forecast(invocation, forecast_from, jobs, setup.nodes)
    watch = placement_scores.watch(scored, jobs, invocation.output, setup.seeds)
    todo = sim_parallel.policy_runs(jobs, chosen, setup, reports.wanted, scored)
    run_results = sim_parallel.run_all(invocation, todo, processes)
    for item in run_results:
        reports.add(item.kept)
        watch.add(item.placements)
    runs = [item.metrics for item in run_results]
    results = sim_parallel.over_all_seeds(runs, len(setup.seeds))
    missing = sim_parallel.unfinished(policies_played, results)
    if not results:
        return report_missing(invocation, missing)
    summary = f"{plural(len(jobs), 'job')} on {setup.description}"
    summaries = {policy.name: policy.summary for policy in policies_played}
    notes = list(sim_tables.unfinished_notes(results))
    try:  # files first: the reader of the output may have gone
        lines = [summary, *_pictures(setup.seeds), *(f"{line}." for line in notes)]
        reports.write(f"Simulation of {trace}", lines, results, summaries, invocation)
    finally:
        _print_results(invocation, summary, results, runs, watch, forecast)
        for line in notes:
            invocation.warn(line)
    return report_missing(invocation, missing)


def _pictures(seeds: Sequence[int]) -> list[str]:
    return [f"The pictures are of seed {seeds[0]}."] if len(seeds) > 1 else []


def _run_scenarios(invocation: Invocation, scenarios: tuple[str, ...], other: str | None) -> int:
    """Play shipped scenarios. Raises :class:`WindlassError` if a trace or nodes are given too."""
    from windlass.cli.simulate import scenarios as shipped

    if other:
        raise WindlassError(
            "WL-USE-400",
            "--scenario has a cluster and jobs of its own: it excludes --trace and --nodes",
            remedies=(f"windlass sim run --scenario {','.join(scenarios)}",),
        )
    return shipped.run(invocation, scenarios)


def _forecast(
    invocation: Invocation, path: str | None, jobs: list[TraceJob], nodes: Sequence[Node]
) -> dict[str, Any] | None:
    """Return the demand forecast learned from another trace; None without one."""
    if path is None:
        return None
    from windlass.cli.simulate import demand_forecast, trace_files
    from windlass.sim.cluster import capacity

    past = trace_files.read_trace(path, "", invocation.note, 0)
    return demand_forecast.forecast_record(past, jobs, capacity(nodes), path)


def _print_results(
    invocation: Invocation,
    summary: str,
    results: list[Metrics],
    runs: list[Metrics],
    watch: WatchedPlacements,
    forecast: dict[str, Any] | None,
) -> None:
    """Print the metrics of the policies, and the observed placements, in the requested format."""
    from windlass.cli.simulate import sim_tables

    if invocation.output == "csv":
        invocation.out.write(sim_tables.as_csv([result.figures for result in results]))
    elif invocation.output in ("", "table"):
        invocation.out.line(summary)
        invocation.out.write(sim_tables.as_table(results, invocation.out.width))
        invocation.out.write(watch.as_text())
        if forecast is not None:
            from windlass.cli.simulate import demand_forecast

            invocation.out.write(demand_forecast.as_text(forecast))
    else:
        told = {"demandForecast": forecast} if forecast is not None else {}
        each = {"runs": [run.document for run in runs]} if len(runs) > len(results) else {}
        emit(
            invocation, {"results": [item.document for item in results], **each, **watch.as_record(), **told}
        )


@command.command("record", short_help="Print a cluster's history, or Slurm's, as a trace.")
@click.option(
    "--since", default="", metavar="TIME", help="Only jobs submitted since then, such as 30d or 12h."
)
@click.option("--sacct", metavar="FILE", help="Read the output of sacct -X -P (Slurm) instead.")
@click.option(
    "--unfinished",
    is_flag=True,
    help="Include running and pending jobs, with expected run times (by owner, or by earlier runs).",
)
@standard(namespace=False, formats=("csv", "json", "yaml"))
def record(invocation: Invocation, since: str, sacct: str | None, unfinished: bool) -> int:
    """Print a cluster's history as a trace in the simulator's own format.

    It reads the pods and groups that the cluster still has, of all schedulers. Deleted objects are unknown. Nothing is
    written to the cluster. A summary of recorded and omitted jobs goes to standard error.
    """
    from windlass.cli.simulate import sim_record, trace_files

    if sacct and unfinished:
        raise WindlassError(
            "WL-USE-400",
            "--unfinished is only for clusters; jobs of sacct need an end",
            remedies=("omit --unfinished",),
        )
    start = sim_record.start_of(invocation, since)
    recording = (
        sim_record.from_slurm(sacct, start)
        if sacct
        else sim_record.from_cluster(invocation, start, unfinished)
    )
    if invocation.output in ("", "csv"):
        invocation.out.write(sim_record.as_csv(recording))
    else:
        emit(invocation, sim_record.document(recording))
    for line in trace_files.recording_texts(recording, unfinished):
        invocation.note(line)
    return 0


add_lab_commands(command)


@command.command("generate", short_help="Print a random trace.")
@click.option(
    "--jobs", type=click.IntRange(1), default=1000, metavar="N", help="Number of jobs (default: 1000)."
)
@click.option(
    "--days",
    type=Number(0, 36_500, min_open=True),
    default=7.0,
    metavar="D",
    help="Number of days (default: 7).",
)
@click.option(
    "--median",
    default="20m",
    metavar="TIME",
    help="Median of run times (default: 20m); names repeat, so that the median of one trace differs.",
)
@click.option("--seed", type=int, default=0, metavar="S", help="Seed of random numbers (default: 0).")
@standard(namespace=False, output=False)
def generate(invocation: Invocation, jobs: int, days: float, median: str, seed: int) -> int:
    """Print a random trace in the simulator's own format."""
    from windlass.cli.simulate import sim_run

    invocation.out.write(sim_run.generated_trace(jobs, days, median, seed))
    return 0


@command.command("policies", short_help="List the policies of run and pack.")
@standard(namespace=False)
def policies(invocation: Invocation) -> int:
    """List the policies of simulations: for jobs over time (run), and for the placement of pods (pack)."""
    from windlass.cli import tables
    from windlass.sim.policy_list import OF_PACK, OF_RUN

    placing = OF_PACK.values()
    if invocation.structured:
        items = [{"name": p.name, "summary": p.summary, "oracle": p.oracle} for p in OF_RUN.values()]
        of_pack = [{"name": p.name, "summary": p.summary} for p in placing]
        emit(invocation, {"items": items, "pack": of_pack}, names=list(OF_RUN))
        return 0
    rows = [[p.name, "yes" if p.oracle else "", p.summary] for p in OF_RUN.values()]
    invocation.out.write(tables.render(["POLICY", "ORACLE", "DESCRIPTION"], rows))
    invocation.out.line("")
    invocation.out.write(
        tables.render(["POLICY OF PACK", "DESCRIPTION"], [[p.name, p.summary] for p in placing])
    )
    return 0


@command.command("formats")
@standard(namespace=False)
def formats(invocation: Invocation) -> int:
    """List the formats of traces."""
    from windlass.cli import tables
    from windlass.sim.traces.formats import FORMATS as KNOWN

    if invocation.structured:
        items = [{"name": f.name, "summary": f.summary, "columns": list(f.columns)} for f in KNOWN.values()]
        emit(invocation, {"items": items}, names=list(KNOWN))
        return 0
    rows = [[f.name, f.summary, ",".join(f.columns)] for f in KNOWN.values()]
    invocation.out.write(tables.render(["FORMAT", "DESCRIPTION", "IDENTIFYING COLUMNS"], rows))
    return 0
