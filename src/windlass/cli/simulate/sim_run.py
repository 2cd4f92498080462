"""Options of ``windlass sim run`` as jobs, a cluster, and conditions of the simulation."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import Any

from windlass.api.errors import WindlassError
from windlass.cli.simulate.policy_columns import check_known
from windlass.cli.simulate.trace_files import is_shapes, read_table
from windlass.cli.text import plural
from windlass.kits import durations
from windlass.model.groups.foreign_groups import NOT_PREEMPTIBLE_FROM
from windlass.sim import cluster
from windlass.sim.jobs import TraceJob
from windlass.sim.replay.batches import batches
from windlass.sim.replay.failures import NodeFailures
from windlass.sim.replay.job_progress import Effort, RestartCost
from windlass.sim.replay.node_notices import NodeChange, parse_slow, parse_spot
from windlass.sim.replay.policies import KAI_LIKE, ReplayPolicy
from windlass.sim.replay.replay import VAIN, ReplayOptions
from windlass.sim.replay.unschedulable import nowhere
from windlass.sim.synthetic import Profile, generate
from windlass.sim.traces import formats, openb, table
from windlass.spi.objects import Node


def batched(jobs: list[TraceJob], text: str) -> list[TraceJob]:
    """Combine jobs of one AI model into batches of that length; unchanged for an empty text.

    Raises :class:`WindlassError`.
    """
    if not text:
        return jobs
    try:
        return batches(jobs, _seconds_of("--batch", text, positive=True))
    except ValueError as error:
        raise WindlassError("WL-USE-400", str(error), remedies=("windlass sim run --help",)) from None


def check_format(name: str | None) -> None:
    """Raise :class:`WindlassError` for an unknown format."""
    check_known("format", [name] if name else [], formats.FORMATS, "windlass sim formats")


@dataclass(frozen=True, slots=True)
class Setup:
    """Cluster and conditions of the simulation.

    ``seeds``: one run for each. ``said``: description for people. ``power``: sum of the
    speeds of all devices. ``fastest``: highest speed of a device.
    """

    nodes: Sequence[Node]
    options: ReplayOptions
    description: str
    power: float
    fastest: float
    seeds: Sequence[int]


def time_sharing(choice: str | None, never: bool) -> str:
    """Return ``yes``, ``no`` or ``both``, by ``--time-share`` and ``--no-time-share``.

    Raises :class:`WindlassError`.
    """
    if never and choice not in (None, "no"):
        raise WindlassError(
            "WL-USE-400",
            f"--time-share {choice} and --no-time-share contradict each other",
            remedies=("omit one of them", "--time-share both   (for a column each)"),
        )
    return "no" if never else choice or "both"


def setup(given: Mapping[str, Any]) -> Setup:
    """Return the setup for the options of the command line.

    Raises :class:`WindlassError`.
    """
    try:
        nodes = read_nodes(given["nodes"])
        models = {cluster.model_of(node) for node in nodes}
        effort = Effort(
            restart=_restart_cost(given["restart_cost"]),
            checkpoint_seconds=None
            if given["checkpoint"] == "never"
            else _seconds_of("--checkpoint", given["checkpoint"]),
            speeds=_speeds(given["speeds"], models),
            spread_slowdown=given["spread_slowdown"],
            model_load_seconds=_seconds_of("--model-load", given["model_load"]),
        )
        mean = _seconds_of("--mtbf", given["mtbf"], positive=True) if given["mtbf"] else 0.0
        failures = NodeFailures(mean, _seconds_of("--repair", _repair(given)))
        changes = _node_changes(given, [node.name for node in nodes])
    except ValueError as error:
        raise WindlassError("WL-USE-400", str(error), remedies=("windlass sim run --help",)) from None
    seeds = _seeds(given["seed"], given["seeds"])
    options = ReplayOptions(
        effort=effort,
        failures=failures,
        pod_gpus=given["pod_gpus"],
        time_share=given["time_share"] != "no",
        queues=given["by_queue"],
        changes=changes,
    )
    description = "; ".join([given["nodes"], *_conditions(given, effort)])
    speeds = [(cluster.gpus_of(node), effort.speeds.get(cluster.model_of(node), 1.0)) for node in nodes]
    total_speed = sum(gpus * speed for gpus, speed in speeds)
    return Setup(
        nodes, options, description, total_speed, max((speed for _, speed in speeds), default=1.0), seeds
    )


def _node_changes(given: Mapping[str, Any], nodes: Sequence[str]) -> Sequence[NodeChange]:
    """Return the notices of nodes. Raises ``ValueError``."""
    changes: list[NodeChange] = [parse_spot(text, nodes) for text in given["spot_notices"]]
    changes += [parse_slow(text, nodes) for text in given["slow_nodes"]]
    if changes and given["mtbf"]:
        raise ValueError("--mtbf does not work with --spot-notice and --slow-node")
    return changes


def _repair(given: Mapping[str, Any]) -> str:
    """Return the time for which a failed node is away, or its default."""
    return "4h" if given["repair"] is None else given["repair"]


def _seeds(one: int | None, several: str) -> list[int]:
    """Return the seeds. Raises :class:`WindlassError`."""
    if several and one is not None:
        raise WindlassError(
            "WL-USE-400",
            "--seed and --seeds contradict each other",
            remedies=("omit one of them", f"--seeds {one}"),
        )
    return chosen_seeds(several, "windlass sim run --seeds 1-5") if several else [one or 0]


def _conditions(given: Mapping[str, Any], effort: Effort) -> Iterator[str]:
    """Yield the conditions of the results: costs, seed, and options that are not the default."""
    yield f"a restart costs {effort.restart} s"
    if effort.checkpoint_seconds is None:
        yield "no checkpoints"
    elif effort.checkpoint_seconds:
        yield f"checkpoints every {given['checkpoint']}"
    if given["mtbf"]:
        yield f"each node fails every {given['mtbf']}, for {_repair(given)}"
    for text in given["spot_notices"]:
        yield f"spot notice {text}"
    for text in given["slow_nodes"]:
        yield f"slow node {text}"
    if effort.speeds:
        yield "speed of " + ", ".join(f"{model} {speed:g}" for model, speed in effort.speeds.items())
    if given["pod_gpus"]:
        yield f"pods of up to {plural(given['pod_gpus'], 'GPU')}"
    if effort.spread_slowdown > 1:
        yield f"spread jobs take {effort.spread_slowdown:g} times as long"
    if effort.model_load_seconds:
        yield f"a model takes {given['model_load']} to load"
    if given["batch"]:
        yield f"batches of {given['batch']}"
    if given["by_queue"]:
        yield "by queue"
    if given["time_share"] == "no":
        yield "no time-sharing"
    if given["seeds"]:
        yield f"seeds {given['seeds']}: mean ± standard deviation"
    else:
        yield f"seed {given['seed'] or 0}"


def read_nodes(text: str) -> Sequence[Node]:
    """Return the nodes of shapes, or of a file.

    Raises ``ValueError`` or :class:`WindlassError`.
    """
    if is_shapes(text):
        try:
            return cluster.make_nodes(cluster.parse(text))
        except ValueError as error:
            raise ValueError(f"--nodes: {error}") from None
    return cluster.make_nodes(
        [
            cluster.NodeShape(1, host.gpus, host.model, host.cpu_milli, host.memory_mib * openb.MIB)
            for host in read_table(text, openb.read_nodes, "windlass sim run --help")
        ]
    )


def _restart_cost(text: str) -> RestartCost:
    """Raise ``ValueError`` with the name of the option."""
    try:
        return RestartCost.parse(text)
    except ValueError as error:
        raise ValueError(f"--restart-cost: {error}") from None


def _seconds_of(option: str, text: str, *, positive: bool = False) -> float:
    """Return the value of an option in seconds. Raises ``ValueError`` with its name."""
    try:
        seconds = durations.parse_long(text)
    except ValueError as error:
        raise ValueError(f"{option}: {error}") from None
    if seconds < 0:
        raise ValueError(f"{option}: {text!r} is negative")
    if positive and not seconds:
        raise ValueError(f"{option}: {text!r} is not greater than 0s")
    return seconds


def _speeds(given: Sequence[str], models: set[str]) -> dict[str, float]:
    """Return model → speed. Raises ``ValueError`` with the name of the option."""
    by_model: dict[str, float] = {}
    for text in given:
        model, speed = _speed(text, models)
        if by_model.setdefault(model, speed) != speed:
            raise ValueError(
                f"--speed: {model} has two values, {by_model[model]:g} and {speed:g}; omit one of them"
            )
    return by_model


def _speed(text: str, models: set[str]) -> tuple[str, float]:
    model, _, factor = text.partition("=")
    try:
        speed = float(factor)
    except ValueError:
        speed = 0.0
    if not 0 < speed < inf:
        raise ValueError(f"--speed: {text!r} is not a speed of a GPU model, such as H100=2.5")
    if model not in models:
        existing = ", ".join(sorted(models - {""})) or "GPUs without a model"
        raise ValueError(f"--speed: no node has GPUs of model {model!r}; the nodes have {existing}")
    return model, speed


def warnings(
    jobs: Sequence[TraceJob], policies: Sequence[ReplayPolicy], setup: Setup, given: Mapping[str, Any]
) -> Iterator[str]:
    """Yield warnings before the simulation: options without effect, jobs that can never run."""
    if given["run_times"] and not any(policy.oracle for policy in policies):
        yield "none of these policies uses run times: --run-times has no effect"
    if given["both_requested"] and not any(policy.shares for policy in policies):
        yield "none of these policies uses time-sharing: each has only one column"
    if setup.options.effort.model_load_seconds and not any(job.model for job in jobs):
        yield "no job names an AI model: --model-load has no effect"
    if given["batch"] and not any(job.model for job in jobs):
        yield "no job names an AI model: --batch has no effect"
    several = given["by_queue"] and len({job.queue for job in jobs}) > 1
    if given["by_queue"] and not several:
        yield "the trace has only one queue: --by-queue has no effect"
    not_preemptible = sum(job.priority >= NOT_PREEMPTIBLE_FROM for job in jobs)
    if several and not_preemptible and any(policy.name == KAI_LIKE for policy in policies):
        yield (
            f"{plural(not_preemptible, 'job')} of priority {NOT_PREEMPTIBLE_FROM} or higher can never run under"
            f" {KAI_LIKE}: KAI limits such jobs to the quota of their queue, and queues of a trace have none"
        )
    if given["mtbf"] and setup.options.effort.checkpoint_seconds is None:
        yield (
            f"nodes fail and jobs save nothing: a job that loses a node {VAIN} times in a row stays unfinished"
        )
    up, away = setup.options.failures.mean_seconds, setup.options.failures.repair_seconds
    if given["mtbf"] and up < away:
        yield f"a node is available for only {100 * up / (up + away):.3g} % of the time, so that runs take long"
    if given["repair"] is not None and not given["mtbf"]:
        yield "without --mtbf no node fails: --repair has no effect"
    if len(setup.seeds) > 1 and not given["mtbf"]:
        yield (
            "without --mtbf only the pauses of jobs that kube started in part a thousand times are random:"
            " all seeds may have the same result"
        )
    sizes = [policy.pod_gpus or setup.options.pod_gpus for policy in policies]
    smallest = min(filter(None, sizes), default=0)
    for reason, count in nowhere(jobs, setup.nodes, smallest).items():
        needs = "it needs" if count == 1 else "they need"
        yield f"{count} of {plural(len(jobs), 'job')} can never run: {needs} {reason}"


def generated_trace(jobs: int, days: float, median: str, seed: int) -> str:
    """Return a generated trace as text. Raises :class:`WindlassError`."""
    try:
        profile = Profile(jobs=jobs, days=days, median_seconds=_seconds_of("--median", median, positive=True))
        return "".join(table.write(generate(profile, seed)))
    except ValueError as error:
        raise WindlassError("WL-USE-400", str(error), remedies=("windlass sim generate --help",)) from None


MAX_SEEDS = 10_000
_SEEDS = re.compile(r"([0-9]{1,9})(?:-([0-9]{1,9}))?")


def chosen_seeds(text: str, remedy: str) -> list[int]:
    """Return seeds, each once: ``42``, ``42-51``, ``1,5,7-9``.

    Raises :class:`WindlassError` with ``remedy``, an example of a correct command.
    """
    seeds: dict[int, None] = {}
    for item in text.split(","):
        match = _SEEDS.fullmatch(item.strip())
        first = int(match[1]) if match else 0
        last = int(match[2]) if match and match[2] else first
        if match is None or last < first:
            raise _wrong(f'"{item.strip()}" is not a seed or a range of seeds', remedy)
        if last - first >= MAX_SEEDS - len(seeds):
            raise _wrong(f'"{text}" is too many seeds: the maximum is {MAX_SEEDS}', remedy)
        seeds |= dict.fromkeys(range(first, last + 1))
    return list(seeds)


def _wrong(why: str, remedy: str) -> WindlassError:
    return WindlassError("WL-USE-400", why, remedies=(remedy,))
