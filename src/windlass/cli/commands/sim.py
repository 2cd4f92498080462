"""``windlass sim``: traces through the scheduler itself, on a virtual clock."""

from __future__ import annotations

from typing import Any

import click

from windlass.api.errors import WindlassError
from windlass.cli.invocation import Invocation
from windlass.cli.options import Number, Once, standard
from windlass.cli.output.formats import emit
from windlass.cli.simulate.sim_group import SimGroup, add_lab_commands

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
    required=True,
    metavar="FILE",
    help="The jobs, packed by gzip or not; - for stdin. `windlass sim formats` lists what can be read.",
)
@click.option("--format", "form", metavar="NAME", help="The trace's format (default: by its header).")
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
    "--policy",
    "policies",
    multiple=True,
    default=("windlass",),
    metavar="NAMES",
    help="By comma or repeated, such as windlass,kube,fifo-backfill (default: windlass). `windlass sim policies`"
    " lists them; a file is a scheduler configuration.",
)
@click.option("--seed", type=int, metavar="S", help="Of whatever is drawn at random (default: 0).")
@click.option(
    "--seeds",
    default="",
    metavar="SEEDS",
    help="Several, such as 1-5: each policy is played with each; mean and spread are told.",
)
@click.option(
    "--restart-cost",
    default="0/0/0",
    metavar="A/B/C",
    help="Seconds a restart takes with 1, up to 8, and more GPUs (default: 0/0/0; published: 7/30/60).",
)
@click.option(
    "--checkpoint",
    default="0s",
    metavar="TIME",
    help="How often jobs save their work: a stop costs what came since (default: 0s, nothing); never: all.",
)
@click.option(
    "--time-share",
    type=click.Choice(["yes", "no", "both"]),
    metavar="WHO",
    help="Whether jobs opted in to being suspended for others of equal priority: yes (default), no, or both,"
    " each in a column of its own.",
)
@click.option("--no-time-share", is_flag=True, help="The same as --time-share no.")
@click.option(
    "--run-times",
    default="",
    metavar="KINDS",
    help="For policies that go by run times: oracle, user, learned; by comma, each in a column of its own"
    " (default: oracle).",
)
@click.option("--by-queue", is_flag=True, help="Jobs stand in the queues of the trace, else all in one.")
@click.option(
    "--procs-per-gpu",
    type=click.IntRange(1, 4096),
    metavar="N",
    help="Of logs that count processors (swf): so many are one GPU (default: 1).",
)
@click.option("--pod-gpus", type=click.IntRange(0), default=0, metavar="N", help="Most GPUs of one pod.")
@click.option(
    "--speed", "speeds", multiple=True, metavar="MODEL=FACTOR", help="How fast work goes on a card."
)
@click.option(
    "--spread-slowdown",
    type=Number(1.0),
    default=1.0,
    metavar="F",
    help="How much longer a job takes on more nodes than it needs (default: 1).",
)
@click.option(
    "--model-load",
    default="0s",
    metavar="TIME",
    help="How long a card takes to load another job's AI model (default: 0s).",
)
@click.option(
    "--batch",
    default="",
    metavar="TIME",
    help="Put jobs of one AI model together into batches that last about so long.",
)
@click.option(
    "--mtbf", default="", metavar="TIME", help="Mean time between failures of a node (default: never)."
)
@click.option("--repair", metavar="TIME", help="How long a node that failed is away (default: 4h).")
@click.option(
    "--jobs",
    "processes",
    type=click.IntRange(1, 256),
    default=1,
    metavar="N",
    help="Policies and seeds that are played at once, each in a process of its own (default: 1).",
)
@click.option("--report", metavar="FILE", help="Also write a page with pictures (HTML; needs no network).")
@click.option("--plots", metavar="DIR", help="Also write the pictures, as SVG and PNG.")
@click.option(
    "--per-job",
    metavar="FILE",
    help="Also write what became of each job: CSV, a line for each policy and job.",
)
@click.option(
    "--scores",
    "scored",
    metavar="JOB",
    help="Also how the nodes ranked for this job of the trace (its id) whenever it was placed, score by score.",
)
@standard(namespace=False, formats=FORMATS)
def run(
    invocation: Invocation,
    trace: str,
    form: str | None,
    policies: tuple[str, ...],
    report: str | None,
    plots: str | None,
    per_job: str | None,
    scored: str | None,
    processes: int,
    **given: Any,
) -> int:
    """Replay a trace of jobs under one policy or several, and compare them."""
    from windlass.cli.simulate import (
        interrupt,
        placement_scores,
        policy_columns,
        sim_parallel,
        sim_reports,
        sim_run,
        sim_tables,
        trace_files,
    )
    from windlass.cli.text import plural

    given["time_share"] = sim_run.who_shares_time(given["time_share"], given.pop("no_time_share"))
    both = given["time_share"] == "both"
    chosen = policy_columns.columns(policies, given["run_times"], both=both, warn=invocation.warn)
    sim_run.check_format(form)
    setup = sim_run.setup(given)
    reports = sim_reports.Reports(report, plots, per_job, read=(trace, given["nodes"]))
    read = trace_files.read_trace(trace, form or "", invocation.note, given.pop("procs_per_gpu") or 0)
    jobs = sim_run.put_together(read, given["batch"])
    asked = [column.policy for column in chosen]
    for line in sim_run.doubts(jobs, asked, setup, given):
        invocation.warn(line)
    watch = placement_scores.watch(scored, jobs, invocation.output, setup.seeds)
    todo = sim_parallel.plays(jobs, chosen, setup, reports.wanted, scored)
    played = sim_parallel.play_all(invocation, todo, processes)
    for one in played:
        reports.take(one.kept)
        watch.take(one.placements)
    runs = [one.metrics for one in played]
    results = sim_parallel.of_policies(runs, len(setup.seeds))
    told = {result.policy for result in results}
    missing = [policy.name for policy in asked if policy.name not in told]
    if not results:
        return interrupt.ended(invocation, missing)
    said = f"{plural(len(jobs), 'job')} on {setup.said}"
    about = {policy.name: policy.summary for policy in asked}
    pictures = [f"The pictures are of seed {setup.seeds[0]}."] if len(setup.seeds) > 1 else []
    left = list(sim_tables.left_over(results))
    try:  # files first: whoever reads the words may have gone by then
        unsaid = [f"{line}." for line in left]
        reports.write(f"Simulation of {trace}", [said, *pictures, *unsaid], results, about, invocation)
    finally:
        if invocation.output == "csv":
            invocation.out.write(sim_tables.as_csv([result.figures for result in results]))
        elif invocation.output in ("", "table"):
            invocation.out.line(said)
            invocation.out.write(sim_tables.as_table(results, invocation.out.width))
            invocation.out.write(watch.as_text())
        else:
            each = {"runs": [run.document for run in runs]} if len(runs) > len(results) else {}
            emit(invocation, {"results": [one.document for one in results], **each, **watch.as_record()})
        for line in left:
            invocation.warn(line)
    return interrupt.ended(invocation, missing)


@command.command("record", short_help="Print a cluster's history, or Slurm's, as a trace.")
@click.option("--since", default="", metavar="TIME", help="Only jobs that came since, such as 30d or 12h.")
@click.option("--sacct", metavar="FILE", help="Slurm's history instead, as sacct -X -P printed it.")
@click.option(
    "--unfinished",
    is_flag=True,
    help="Also what runs or waits, with the run time that is expected (by its owner, or by earlier runs).",
)
@standard(namespace=False, formats=("csv", "json", "yaml"))
def record(invocation: Invocation, since: str, sacct: str | None, unfinished: bool) -> int:
    """Print a cluster's history as a trace, in the simulator's own format.

    Of the pods and groups that the cluster still has, whoever schedules them: what was deleted is not known any more.
    Nothing is written there. What was recorded and what was left out is told on standard error.
    """
    from windlass.cli.simulate import record_summary, sim_record

    if sacct and unfinished:
        raise WindlassError(
            "WL-USE-400",
            "--unfinished is for clusters; sacct's jobs need an end",
            remedies=("leave out --unfinished",),
        )
    moment = sim_record.since_of(invocation, since)
    found = (
        sim_record.of_slurm(sacct, moment) if sacct else sim_record.of_cluster(invocation, moment, unfinished)
    )
    if invocation.output in ("", "csv"):
        invocation.out.write(sim_record.as_csv(found))
    else:
        emit(invocation, sim_record.document(found))
    for line in record_summary.words(found, unfinished):
        invocation.note(line)
    return 0


add_lab_commands(command)


@command.command("generate", short_help="Print a trace drawn at random.")
@click.option("--jobs", type=click.IntRange(1), default=1000, metavar="N", help="How many (default: 1000).")
@click.option(
    "--days",
    type=Number(0, 36_500, min_open=True),
    default=7.0,
    metavar="D",
    help="Over how long (default: 7).",
)
@click.option(
    "--median",
    default="20m",
    metavar="TIME",
    help="What run times are drawn around (default: 20m); names repeat, so the median of one trace differs.",
)
@click.option("--seed", type=int, default=0, metavar="S", help="Of whatever is drawn at random (default: 0).")
@standard(namespace=False, output=False)
def generate(invocation: Invocation, jobs: int, days: float, median: str, seed: int) -> int:
    """Print a trace drawn at random, in the simulator's own format."""
    from windlass.cli.simulate import sim_run

    invocation.out.write(sim_run.drawn(jobs, days, median, seed))
    return 0


@command.command("policies", short_help="List the policies of run and pack.")
@standard(namespace=False)
def policies(invocation: Invocation) -> int:
    """List the policies that simulations know: of jobs over time (run), and of where pods go (pack)."""
    from windlass.cli import tables
    from windlass.sim.policy_list import OF_PACK, OF_RUN

    placing = OF_PACK.values()
    if invocation.structured:
        items = [{"name": p.name, "summary": p.summary, "oracle": p.oracle} for p in OF_RUN.values()]
        of_pack = [{"name": p.name, "summary": p.summary} for p in placing]
        emit(invocation, {"items": items, "pack": of_pack}, names=list(OF_RUN))
        return 0
    rows = [[p.name, "yes" if p.oracle else "", p.summary] for p in OF_RUN.values()]
    invocation.out.write(tables.render(["POLICY", "ORACLE", "WHAT IT DOES"], rows))
    invocation.out.line("")
    invocation.out.write(
        tables.render(["POLICY OF PACK", "WHAT IT DOES"], [[p.name, p.summary] for p in placing])
    )
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
