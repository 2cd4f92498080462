"""``windlass plugin``: list scheduling plugins, and try one before it is switched on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from windlass.api.errors import WindlassError
from windlass.cli import errors
from windlass.cli.command_group import NounGroup
from windlass.cli.invocation import Invocation
from windlass.cli.options import standard
from windlass.cli.output.formats import emit
from windlass.cli.text import plural

if TYPE_CHECKING:
    from windlass.cli.plugins.source import TriedPlugin
    from windlass.cli.plugins.trial import ClusterTrial, JobPlace, TraceTrial
    from windlass.sim.jobs import TraceJob
    from windlass.spi.configuration import SchedulerConfig
    from windlass.spi.objects import Node

SHOWN = 20
"""Maximum number of changed jobs or pods in the table."""
_GENERATED_JOBS, _GENERATED_NODES = 200, "4x8"
_EVICTIONS = "evictions"


@click.group("plugin", cls=NounGroup)
def command() -> None:
    """Scheduling plugins: list them, try one before it is switched on."""


@command.command("ls")
@standard(namespace=False)
def list_plugins(invocation: Invocation) -> int:
    """List the plugins that a scheduler configuration may name.

    ON says whether the configuration in force names it. Plugins of the default policy are always in effect
    and have no line. Below are the policy in force and the engine options, if a ConfigMap states some.
    """
    from windlass.cli import tables
    from windlass.cli.plugins import listing

    config = listing.configuration_in_force(invocation)
    records, options = listing.listed(config), listing.engine_options_of(invocation)
    policy = listing.policy_text(config)
    if invocation.structured:
        stated = [option.as_record() for option in options]
        document = {"items": records, "policy": policy, "engineOptions": stated}
        emit(invocation, document, names=[record["name"] for record in records])
        return errors.OK
    rows = [[r["name"], r["from"], r["place"], "on" if r["on"] else "off", r["arguments"]] for r in records]
    invocation.out.write(tables.render(["PLUGIN", "FROM", "PLACE", "ON", "ARGUMENTS"], rows))
    invocation.out.line(f"\npolicy in force: {policy}")
    if options:
        rows = [[option.name, option.value, option.source, option.effect] for option in options]
        invocation.out.line("")
        invocation.out.write(tables.render(["ENGINE OPTION", "VALUE", "FROM", "EFFECT"], rows))
    return errors.OK


@command.command("try")
@click.argument("plugin", metavar="FILE.py[:CLASS]|NAME")
@click.option("--arg", "arguments", multiple=True, metavar="KEY=VALUE", help="Argument; may be repeated.")
@click.option(
    "-f",
    "--filename",
    "files",
    multiple=True,
    metavar="FILE",
    help="Try it on a dump of a cluster; - for stdin.",
)
@click.option("--live", is_flag=True, help="Try it on the running cluster. Nothing is written.")
@click.option("--trace", metavar="FILE", help="Try it on this trace, as of `windlass sim record`.")
@click.option("--nodes", metavar="SHAPES", help="Nodes for the trace: 60x8, or 4xH100:8,2xV100:4.")
@click.option("--config", metavar="FILE", help="Scheduler configuration in force (default: Windlass' own).")
@standard(namespace=False)
def try_plugin(
    invocation: Invocation,
    plugin: str,
    arguments: tuple[str, ...],
    files: tuple[str, ...],
    live: bool,
    trace: str | None,
    nodes: str | None,
    config: str | None,
) -> int:
    """Show what a plugin would change, before it is switched on.

    The plugin is a class in a Python file, which runs in this process, or one that `windlass plugin ls` lists.
    Decisions are made without it and with it, and the differences are printed. Without -f, --live or --trace a
    generated trace is used.
    """
    from windlass.cli.plugins import trial
    from windlass.cli.plugins.source import load

    if sum((bool(files), live, trace is not None)) > 1:
        raise WindlassError(
            "WL-USE-400",
            "-f, --live and --trace exclude each other",
            remedies=(f"windlass plugin try {plugin} -f FILE", f"windlass plugin try {plugin} --live"),
        )
    tried = load(plugin, dict(_argument(text, plugin) for text in arguments))
    result: TraceTrial | ClusterTrial
    if files or live:
        result = _on_cluster(invocation, tried, files, config)
    else:
        jobs, machines = _trace(invocation, plugin, trace, nodes)
        result = trial.on_trace(tried, jobs, machines, _configuration(invocation, config))
    if invocation.structured:
        emit(invocation, trial.as_record(tried, result))
    elif isinstance(result, trial.TraceTrial):
        _show_trace(invocation, tried, result)
    else:
        _show_cluster(invocation, tried, result)
    return errors.OK


def _argument(text: str, plugin: str) -> tuple[str, Any]:
    import yaml

    key, equals, value = text.partition("=")
    if not key or not equals:
        raise WindlassError(
            "WL-USE-400",
            f"--arg {text!r} is not KEY=VALUE",
            remedies=(f"windlass plugin try {plugin} --arg weight=2",),
        )
    try:
        return key, yaml.safe_load(value)
    except yaml.YAMLError:
        return key, value


def _configuration(invocation: Invocation, path: str | None) -> SchedulerConfig:
    from windlass.cli.simulate.plan import read_config
    from windlass.spi.configuration import SchedulerConfig

    return read_config(path, invocation.warn).config if path else SchedulerConfig()


def _trace(
    invocation: Invocation, plugin: str, trace: str | None, nodes: str | None
) -> tuple[Sequence[TraceJob], Sequence[Node]]:
    """Return jobs and nodes; generated ones without ``--trace``."""
    from windlass.cli.simulate.sim_run import read_nodes
    from windlass.cli.simulate.trace_files import read_trace
    from windlass.sim.synthetic import Profile, generate

    if trace is not None and nodes is None:
        raise WindlassError(
            "WL-USE-400",
            "--trace needs --nodes: a trace does not say on which nodes its jobs ran",
            remedies=(f"windlass plugin try {plugin} --trace {trace} --nodes {_GENERATED_NODES}",),
        )
    shapes = nodes or _GENERATED_NODES
    try:
        machines = read_nodes(shapes)
    except ValueError as error:
        remedy = f"windlass plugin try {plugin} --nodes {_GENERATED_NODES}"
        raise WindlassError("WL-USE-400", str(error), remedies=(remedy,)) from None
    if trace is not None:
        return read_trace(trace, note=invocation.note), machines
    invocation.note(
        f"trace: {_GENERATED_JOBS} generated jobs on {shapes}"
        " (your own: windlass sim record > trace.csv, then --trace trace.csv --nodes SHAPES)"
    )
    return generate(Profile(jobs=_GENERATED_JOBS, days=1.0, median_seconds=7200.0, spread=1.0)), machines


def _on_cluster(
    invocation: Invocation, tried: TriedPlugin, files: tuple[str, ...], config: str | None
) -> ClusterTrial:
    from windlass.cli.plugins import trial
    from windlass.cli.simulate.plan import Loaded, PlanRequest, load_files, load_live

    request = PlanRequest(files, config or "", invocation.clock.now(), until_stable=True)

    def read(warn: trial.Warn) -> Loaded:
        if files:
            return load_files(request, warn)
        return load_live(invocation.client, request, warn, embedded=not invocation.target.remote)

    return trial.on_cluster(tried, read, request, invocation.warn)


# -- text -----------------------------------------------------------------------------------------


def _show_trace(invocation: Invocation, tried: TriedPlugin, result: TraceTrial) -> None:
    from windlass.cli import tables

    out = invocation.out
    rows = [
        [one.job, str(one.gpus), *_place(one.before), *_place(one.after)] for one in result.changed[:SHOWN]
    ]
    if rows:
        header = ["JOB", "GPUS", "START", "NODES", "START WITH IT", "NODES WITH IT"]
        out.write(tables.render(header, rows))
    _more(invocation, len(result.changed), "job")
    out.line(
        f"{tried.name}: {len(result.changed)} of {plural(result.jobs, 'job')} placed differently;"
        f" {result.earlier} start earlier, {result.later} later;"
        f" mean wait {result.mean_wait_before:.0f} s without it, {result.mean_wait_after:.0f} s with it"
    )


def _place(place: JobPlace) -> tuple[str, str]:
    if place.start is None:
        return "never", "-"
    return f"{place.start:.0f}s", " ".join(_counted(place.nodes))


def _counted(nodes: Sequence[str]) -> list[str]:
    """Return nodes with their numbers of pods: ``node-0(2)``."""
    counts: Mapping[str, int] = {name: nodes.count(name) for name in dict.fromkeys(nodes)}
    return [name if count == 1 else f"{name}({count})" for name, count in counts.items()]


def _more(invocation: Invocation, count: int, noun: str) -> None:
    if count > SHOWN:
        invocation.note(f"{plural(count - SHOWN, f'more {noun}')}: -o json lists all")


def _show_cluster(invocation: Invocation, tried: TriedPlugin, result: ClusterTrial) -> None:
    from windlass.cli import tables

    out = invocation.out
    if result.verdicts:
        rows = [
            [
                one.group,
                "pass" if one.passes else "refuse",
                one.message or "-",
                _numbers(one.needed, one.available),
            ]
            for one in result.verdicts
        ]
        out.write(tables.render(["GROUP", "VERDICT", "MESSAGE", "NEEDED/AVAILABLE"], rows))
    if result.changed:
        rows = [[one.pod, one.before or "-", one.after or "-"] for one in result.changed[:SHOWN]]
        out.write(tables.render(["POD", "NODE", "NODE WITH IT"], rows))
    _more(invocation, len(result.changed), "pod")
    for group, message in result.pending.items():
        out.line(f"{group} waits with it: {message}")
    out.line(
        f"{tried.name}: {len(result.changed)} of {plural(result.pods, 'pending pod')} placed differently;"
        f" evictions: {result.evictions_before} without it, {result.evictions_after} with it"
    )


def _numbers(needed: int, available: int) -> str:
    return f"{needed}/{available}" if needed else "-"
