"""What ``windlass sim run`` is asked for: options → jobs, a cluster and how jobs run on it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import Any

from windlass.api.errors import WindlassError
from windlass.cli.simulate.policy_columns import check_known
from windlass.cli.simulate.seeds import chosen_seeds
from windlass.cli.simulate.trace_files import is_shapes, read_table
from windlass.cli.text import plural
from windlass.kits import durations
from windlass.model.groups.foreign_groups import NOT_PREEMPTIBLE_FROM
from windlass.sim import cluster
from windlass.sim.jobs import TraceJob
from windlass.sim.replay.batches import batches
from windlass.sim.replay.failures import NodeFailures
from windlass.sim.replay.job_progress import Effort, RestartCost
from windlass.sim.replay.policies import KAI_LIKE, ReplayPolicy
from windlass.sim.replay.replay import VAIN, ReplayOptions
from windlass.sim.replay.unschedulable import nowhere
from windlass.sim.synthetic import Profile, generate
from windlass.sim.traces import formats, openb, table
from windlass.spi.objects import Node


def put_together(jobs: list[TraceJob], text: str) -> list[TraceJob]:
    """Jobs of one AI model in batches of that length; as they are for an empty one. Raises :class:`WindlassError`."""
    if not text:
        return jobs
    try:
        return batches(jobs, _seconds_of("--batch", text, positive=True))
    except ValueError as error:
        raise WindlassError("WL-USE-400", str(error), remedies=("windlass sim run --help",)) from None


def check_format(name: str | None) -> None:
    """Raises :class:`WindlassError` for a format that there is not."""
    check_known("format", [name] if name else [], formats.FORMATS, "windlass sim formats")


@dataclass(frozen=True, slots=True)
class Setup:
    """The cluster and how jobs run on it; ``seeds``: once with each of them. ``said``: the same for people. ``power``:
    the speeds of all cards in sum; ``fastest``: of one."""

    nodes: Sequence[Node]
    options: ReplayOptions
    said: str
    power: float
    fastest: float
    seeds: Sequence[int]


def who_shares_time(told: str | None, never: bool) -> str:
    """``yes``, ``no`` or ``both``, as ``--time-share`` and ``--no-time-share`` say. Raises :class:`WindlassError`."""
    if never and told not in (None, "no"):
        raise WindlassError(
            "WL-USE-400",
            f"--time-share {told} and --no-time-share contradict each other",
            remedies=("give one of them", "--time-share both, for a column each"),
        )
    return "no" if never else told or "yes"


def setup(given: Mapping[str, Any]) -> Setup:
    """From the options of the command line. Raises :class:`WindlassError`."""
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
    except ValueError as error:
        raise WindlassError("WL-USE-400", str(error), remedies=("windlass sim run --help",)) from None
    seeds = _seeds(given["seed"], given["seeds"])
    options = ReplayOptions(
        effort=effort,
        failures=failures,
        pod_gpus=given["pod_gpus"],
        time_share=given["time_share"] != "no",
        queues=given["by_queue"],
    )
    said = "; ".join([given["nodes"], *_conditions(given, effort)])
    speeds = [(cluster.gpus_of(node), effort.speeds.get(cluster.model_of(node), 1.0)) for node in nodes]
    power = sum(cards * speed for cards, speed in speeds)
    return Setup(nodes, options, said, power, max((speed for _, speed in speeds), default=1.0), seeds)


def _repair(given: Mapping[str, Any]) -> str:
    """How long a node that failed is away, also where nothing is said of it."""
    return "4h" if given["repair"] is None else given["repair"]


def _seeds(one: int | None, several: str) -> list[int]:
    """Raises :class:`WindlassError`."""
    if several and one is not None:
        raise WindlassError(
            "WL-USE-400",
            "--seed and --seeds contradict each other",
            remedies=("give one of them", f"--seeds {one}"),
        )
    return chosen_seeds(several, "windlass sim run --seeds 1-5") if several else [one or 0]


def _conditions(given: Mapping[str, Any], effort: Effort) -> Iterator[str]:
    """Whatever the figures depend on: the cost of restarts, the seed, and all that is not as it is by itself."""
    yield f"a restart costs {effort.restart} s"
    if effort.checkpoint_seconds is None:
        yield "no checkpoints"
    elif effort.checkpoint_seconds:
        yield f"checkpoints every {given['checkpoint']}"
    if given["mtbf"]:
        yield f"a node fails every {given['mtbf']}, for {_repair(given)}"
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
    """Of shapes, or of the file that has this name. Raises ``ValueError`` or :class:`WindlassError`."""
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
    """Raises ``ValueError``, which names the option."""
    try:
        return RestartCost.parse(text)
    except ValueError as error:
        raise ValueError(f"--restart-cost: {error}") from None


def _seconds_of(option: str, text: str, *, positive: bool = False) -> float:
    """Of what was given for an option. Raises ``ValueError``, which names it."""
    try:
        seconds = durations.parse_long(text)
    except ValueError as error:
        raise ValueError(f"{option}: {error}") from None
    if seconds < 0:
        raise ValueError(f"{option}: {text!r} is less than nothing")
    if positive and not seconds:
        raise ValueError(f"{option}: {text!r} is no time: more than 0s is needed")
    return seconds


def _speeds(given: Sequence[str], models: set[str]) -> dict[str, float]:
    """Raises ``ValueError``, which names the option."""
    found: dict[str, float] = {}
    for text in given:
        model, speed = _speed(text, models)
        if found.setdefault(model, speed) != speed:
            raise ValueError(f"--speed: {model} is {found[model]:g} and {speed:g}; give one of them")
    return found


def _speed(text: str, models: set[str]) -> tuple[str, float]:
    model, _, factor = text.partition("=")
    try:
        speed = float(factor)
    except ValueError:
        speed = 0.0
    if not 0 < speed < inf:
        raise ValueError(f"--speed: {text!r} is no speed of a card, such as H100=2.5")
    if model not in models:
        there = ", ".join(sorted(models - {""})) or "cards of no named model"
        raise ValueError(f"--speed: no node has cards {model!r}; there are {there}")
    return model, speed


def doubts(
    jobs: Sequence[TraceJob], policies: Sequence[ReplayPolicy], setup: Setup, given: Mapping[str, Any]
) -> Iterator[str]:
    """What was asked for and changes nothing here, and jobs that can run nowhere: for people, before the work."""
    if given["run_times"] and not any(policy.oracle for policy in policies):
        yield "none of these policies goes by run times that could be chosen: --run-times changes nothing"
    if given["time_share"] == "both" and not any(policy.shares for policy in policies):
        yield "none of these policies shares time: there is but one column of each"
    if setup.options.effort.model_load_seconds and not any(job.model for job in jobs):
        yield "no job names an AI model: --model-load changes nothing"
    if given["batch"] and not any(job.model for job in jobs):
        yield "no job names an AI model: --batch changes nothing"
    several = given["by_queue"] and len({job.queue for job in jobs}) > 1
    if given["by_queue"] and not several:
        yield "the trace has but one queue: --by-queue changes nothing"
    firm = sum(job.priority >= NOT_PREEMPTIBLE_FROM for job in jobs)
    if several and firm and any(policy.name == KAI_LIKE for policy in policies):
        yield (
            f"{plural(firm, 'job')} of priority {NOT_PREEMPTIBLE_FROM} and more can never run under {KAI_LIKE}: KAI"
            " lets such work have the quota of its queue alone, and queues of a trace have none"
        )
    if given["mtbf"] and setup.options.effort.checkpoint_seconds is None:
        yield (
            f"nothing is ever saved and nodes fail: a job that they took {VAIN} times in a row before its end is"
            " given up (unfinished)"
        )
    up, away = setup.options.failures.mean_seconds, setup.options.failures.repair_seconds
    if given["mtbf"] and up < away:
        yield f"a node is there for {100 * up / (up + away):.3g} % of the time: the less, the longer a run takes"
    if given["repair"] is not None and not given["mtbf"]:
        yield "without --mtbf no node fails: --repair changes nothing"
    if len(setup.seeds) > 1 and not given["mtbf"]:
        yield (
            "without --mtbf nothing goes by chance, but the pauses of jobs that kube started in part a thousand times:"
            " the seeds may be alike"
        )
    sizes = [policy.pod_gpus or setup.options.pod_gpus for policy in policies]
    smallest = min(filter(None, sizes), default=0)
    for lack, count in nowhere(jobs, setup.nodes, smallest).items():
        who = "it needs" if count == 1 else "they need"
        yield f"{count} of {plural(len(jobs), 'job')} can never run: {who} {lack}"


def drawn(jobs: int, days: float, median: str, seed: int) -> str:
    """A trace of the project's own as text. Raises :class:`WindlassError`."""
    try:
        profile = Profile(jobs=jobs, days=days, median_seconds=_seconds_of("--median", median, positive=True))
        return "".join(table.write(generate(profile, seed)))
    except ValueError as error:
        raise WindlassError("WL-USE-400", str(error), remedies=("windlass sim generate --help",)) from None
